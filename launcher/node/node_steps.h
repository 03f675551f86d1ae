/* node_steps.h - the steps of ranks that use libddp, for --events (docs/design/progress.md): how
 * many there were in each generation, how fast they are now and then, and which rank is the
 * slowest. pace.h judges. Steps are counted over all generations that ranks lived through. */
#ifndef DDP_LAUNCHER_NODE_NODE_STEPS_H
#define DDP_LAUNCHER_NODE_NODE_STEPS_H

#include "node_view.h"

extern const struct node_feature node_steps_feature;

/* How many steps a rank of this node has completed, also one that is gone since.
 *
 * rank      local
 * returns   whether it is known */
bool node_steps_of(const struct node_view *n, int rank, uint64_t *ret);

/* A generation is over, or a rank of it is about to be replaced: report what is known about its
 * pace. */
void node_steps_tell_pace(const struct node_view *n);

#endif
