/* perf_run.h - one rank of a measurement: join, time, leave. Rank 0 prints. */
#ifndef DDP_PERF_PERF_RUN_H
#define DDP_PERF_PERF_RUN_H

#include "perf_spec.h"
#include "perf_text.h"

#include <stdio.h>

struct ddp_group;

enum perf_exit {
    PERF_EXIT_OK = 0,
    PERF_EXIT_FAILED = 1, /* elements were wrong, or a call failed */
    PERF_EXIT_USAGE = 2,
};

/* Join the job that the environment describes, and measure. Errors are printed to stderr.
 *
 * out   where rank 0 prints */
enum perf_exit perf_run(const struct perf_spec *spec, FILE *out);

/* Measure one size, in place, in buffers of its own. Collective over g; nothing is printed.
 *
 * returns   0, or what libddp returned; ddp_last_error() has the text */
int perf_run_one(struct ddp_group *g, const struct perf_spec *spec, uint64_t bytes,
                 struct perf_times *ret);

#endif
