/* perf_tune.h - find out which way through libddp is the fastest from which size on, and print the
 * table that DDP_TUNING takes.
 *
 * Ways are timed by starting ranks with a table that forces them. They take turns, several rounds
 * of them, and the fastest round of each counts: what else the machine does then matters little. */
#ifndef DDP_PERF_PERF_TUNE_H
#define DDP_PERF_PERF_TUNE_H

#include <stdio.h>

struct co_error;

/* Measure with 2, 4, 8 ... ranks, and n_ranks, and print a row for each.
 *
 * n_iterations   calls for each size; 0: more where they are short
 * returns        0; -EIO: ranks failed, and have reported why; -errno */
int perf_tune(unsigned n_ranks, unsigned n_iterations, FILE *out, struct co_error *err);

#endif
