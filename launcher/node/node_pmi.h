/* node_pmi.h - this node's part in PMI-1 (--mpi): a pmi_host.h for each generation, and what it
 * says in the supervisor's words. */
#ifndef DDP_LAUNCHER_NODE_NODE_PMI_H
#define DDP_LAUNCHER_NODE_NODE_PMI_H

#include "node_view.h"

struct supervisor_event;

extern const struct node_feature node_pmi_feature;

/* A rank has ended (EXITED): how that counts, and whether another one's abort was the cause. */
void node_pmi_judge(const struct node_view *n, struct supervisor_event *e);

#endif
