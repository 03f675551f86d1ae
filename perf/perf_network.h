/* perf_network.h - measure the numbers by which libddp chooses an all-reduce between nodes: the row
 * 'network:' of DDP_TUNING. */
#ifndef DDP_PERF_PERF_NETWORK_H
#define DDP_PERF_PERF_NETWORK_H

#include "perf_run.h"

/* In each rank of a job on several nodes: the ranks with one place on nodes 0 and 1, 2 and 3 ...
 * exchange messages at the same time. The fastest round of the slowest rank counts. Rank 0 prints.
 * Errors are printed to stderr. */
enum perf_exit perf_network(FILE *out);

#endif
