/* perf_lanes.h - measure how many connections two ranks of different nodes need for large
 * exchanges: the value of DDP_SOCKET_LANES for this network. */
#ifndef DDP_PERF_PERF_LANES_H
#define DDP_PERF_PERF_LANES_H

#include "perf_run.h"

/* In each rank of a job on several nodes: time an all_reduce of 64 MiB with 1, 2, 4, 8 and 16
 * connections, in turns; the fastest round of each counts. Rank 0 prints. Errors are printed to
 * stderr. Sets DDP_SOCKET_LANES in the environment.
 *
 * n_iterations   calls in a round; 0: the default */
enum perf_exit perf_lanes(unsigned n_iterations, FILE *out);

#endif
