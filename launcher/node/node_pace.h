/* node_pace.h - telling --events how fast the steps are, and which rank is the slowest: now and
 * then while ranks of libddp train. pace.h judges. */
#ifndef DDP_LAUNCHER_NODE_NODE_PACE_H
#define DDP_LAUNCHER_NODE_NODE_PACE_H

#include "node_view.h"

/* Only with --events. */
extern const struct node_feature node_pace_feature;

/* A generation is over, or a rank of it is about to be replaced: tell what is known of it. */
void node_pace_tell(const struct node_view *n);

#endif
