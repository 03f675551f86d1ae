/* perf_ranks.h - start ranks without a launcher: children of this process, which join each other
 * by the environment that a shell script would set. */
#ifndef DDP_PERF_PERF_RANKS_H
#define DDP_PERF_PERF_RANKS_H

#include <sys/types.h>

struct co_error;

/* Run `rank_main(arg)` in n processes, and wait for all of them. They are killed if this process
 * goes away, and when one of them fails they notice by libddp.
 *
 * name       of this job among those that this process starts
 * returns    the largest exit status, 1 for one that a signal ended; -errno: they could not be
 *            started */
int perf_ranks_run(unsigned n, unsigned name, int (*rank_main)(void *arg), void *arg,
                   struct co_error *err);

#endif
