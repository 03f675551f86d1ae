/* binding.h - what the ranks of this node are bound to: the shell around placement.h, which looks
 * at the machine, at what we are allowed, and at the devices. */
#ifndef DDP_LAUNCHER_PLACEMENT_BINDING_H
#define DDP_LAUNCHER_PLACEMENT_BINDING_H

#include "placement.h"

#include <stdbool.h>
#include <stdio.h>

struct co_error;
struct job_spec;

struct binding {
    bool is_bound;    /* else the ranks may run wherever we may; it is only known where that is */
    char *node_list;  /* DDP_NUMA_NODES; of this block */
    char (*gpus)[20]; /* by local rank: the device's address on its bus, ""; of this block */
    struct placement_rank ranks[];
};

/* Find spec->binding, and lower an OMP_NUM_THREADS that nobody asked for to what a rank has. Does
 * nothing, at no cost, if neither --bind-to nor --report-bindings is given.
 *
 * visible   $CUDA_VISIBLE_DEVICES of the ranks; NULL: unset
 * returns   0
 *           -ENOTSUP, -EIO   the machine cannot be looked at; the text says what is missing
 *           -ERANGE          more ranks than cores
 *           -ENODEV, -ENOMEM, -errno */
int binding_find(struct job_spec *spec, const char *visible, struct co_error *err);

enum { BINDING_LINE_BYTES = 600 }; /* are enough for any rank's */

/* A rank's, in words: "CPUs 0-3 (4 cores, NUMA node 0, socket 0), GPU 0000:3b:00.0".
 * returns to */
char *binding_print(const struct binding *b, int local_rank, char *to, size_t n);

/* A line for each rank, for --report-bindings. */
void binding_report(const struct job_spec *spec, FILE *out);

#endif
