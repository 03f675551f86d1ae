/* node_history.h - what the events of a job tell of its steps, so that the same can be made to
 * happen at the same steps again (replay.h).
 *
 * A step is one of libddp (docs/progress.md), counted over all generations that ranks lived
 * through. Nothing is told of ranks that do not use it. */
#ifndef DDP_LAUNCHER_NODE_NODE_HISTORY_H
#define DDP_LAUNCHER_NODE_NODE_HISTORY_H

#include "node_view.h"

#include <stdbool.h>
#include <stdint.h>

/* How many steps a rank of this node has completed, also one that is gone since.
 *
 * rank      local
 * returns   whether it is known */
bool node_history_step(const struct node_view *n, int rank, uint64_t *ret);

/* Tells the steps of each generation that is over. */
extern const struct node_feature node_history_feature;

#endif
