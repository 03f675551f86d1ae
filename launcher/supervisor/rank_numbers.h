/* rank_numbers.h - the numbers that the job gives this node's ranks in their generation.
 *
 * They have the numbers from the node's first one on, in their order, without those that the job
 * continues without (docs/design/recovery.md). One of these is named by the number that it would
 * have. */
#ifndef DDP_LAUNCHER_SUPERVISOR_RANK_NUMBERS_H
#define DDP_LAUNCHER_SUPERVISOR_RANK_NUMBERS_H

#include "supervisor.h"

#include <stddef.h>

/* Plain data; zeroed: those of a node that is alone and has all of its ranks. */
struct rank_numbers {
    int first;
    const struct supervisor *supervisor; /* borrowed; NULL: no rank was dropped */
};

static inline int rank_number(struct rank_numbers n, int local_rank)
{
    return n.first +
           (n.supervisor != NULL ? supervisor_place_of(n.supervisor, local_rank) : local_rank);
}

/* returns   the local rank that has the number; -1: none of this node has it */
static inline int rank_of_number(struct rank_numbers n, int n_local, int number)
{
    for (int i = 0; i < n_local; i++)
        if (rank_number(n, i) == number &&
            (n.supervisor == NULL || !supervisor_get_rank(n.supervisor, i)->is_dropped))
            return i;
    return -1;
}

#endif
