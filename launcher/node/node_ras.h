/* node_ras.h - NCCL's RAS of this node's ranks (ras_query.h): asked for stacks, and, on the job's
 * first node, every NODE_RAS_POLL_MS for its status. One node asks, since the answer is about the
 * whole job. */
#ifndef DDP_LAUNCHER_NODE_NODE_RAS_H
#define DDP_LAUNCHER_NODE_NODE_RAS_H

#include "node_view.h"

struct ras_query;
struct status;

extern const struct node_feature node_ras_feature;

enum {
    NODE_RAS_POLL_MS = 10000,
    NODE_RAS_FIRST_MS = 2000, /* while no process listens */
};

/* Begin to ask. Its ranks are looked up in the node: it ends before that.
 *
 * returns   ras_query_destroy() it; NULL: the ranks have no RAS that is known, or memory is out */
struct ras_query *node_ras_ask(const struct node_view *n);

/* What the last poll that is over has found, if one of this generation has found a process: lent
 * until the loop runs again. */
void node_ras_fill_status(const struct node_view *n, struct status *s);

#endif
