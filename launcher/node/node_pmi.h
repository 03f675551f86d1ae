/* node_pmi.h - this node's part in PMI-1 or PMIx (--mpi): a pmi_host.h for each generation, or a
 * pmix_host.h for all of them, and their events, translated for the supervisor. */
#ifndef DDP_LAUNCHER_NODE_NODE_PMI_H
#define DDP_LAUNCHER_NODE_NODE_PMI_H

#include "node_view.h"

extern const struct node_feature node_pmi_feature;

/* The other nodes are awaited before ranks can be started: node_view's resume() follows. */
bool node_pmi_is_meeting(const struct node_view *n);

/* A rank has ended: what it did by PMI counts for its status, and a rank that aborts is named. */
void node_pmi_note_exit(const struct node_view *n, struct supervisor_exit *x);

/* An order of the member to stop the ranks waits until the coordinator knows that one aborts:
 * node_pmi_note_stop(). It is copied, and posted later, if this returns true. */
bool node_pmi_holds(const struct node_view *n, const struct supervisor_event *e);

/* The coordinator has decided what ends the generation. */
void node_pmi_note_stop(const struct node_view *n);

#endif
