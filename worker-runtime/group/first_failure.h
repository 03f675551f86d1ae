/* first_failure.h - which of several ranks that have ended failed by itself. Pure. */
#ifndef DDP_WORKER_RUNTIME_GROUP_FIRST_FAILURE_H
#define DDP_WORKER_RUNTIME_GROUP_FIRST_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

struct rank_end {
    uint32_t order;  /* of the ranks that reported how they ended: 1, 2, ...; 0: it did not
                        report */
    int status;      /* what it reported: 0 it succeeded */
    int signal;      /* that ended it by itself, not ours; 0: none */
    int exit_status; /* if it neither reported nor was ended by a signal */
};

/* A rank that a signal ended comes first; then the first rank that reported a failure of its own;
 * then a rank that ended otherwise; last a rank that failed because a peer was gone.
 *
 * returns   its number; -1: all succeeded */
int first_failure_find(const struct rank_end *of, int n);

#endif
