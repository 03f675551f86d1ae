/* first_failure.h - of several ranks that have ended, which one failed by itself? Pure. */
#ifndef DDP_WORKER_RUNTIME_GROUP_FIRST_FAILURE_H
#define DDP_WORKER_RUNTIME_GROUP_FIRST_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

struct rank_end {
    uint32_t order;  /* of those that told how they ended, from 1 on; 0: it did not tell */
    int status;      /* what it told: 0 it went well */
    int signal;      /* that ended it by itself, not ours; 0: none */
    int exit_status; /* where it neither told nor was ended by a signal */
};

/* A rank that a signal ended comes first; then the first that told of a failure of its own; then
 * who ended otherwise; last who failed because a peer was gone.
 *
 * returns   its number; -1: all went well */
int first_failure_find(const struct rank_end *of, int n);

#endif
