/* node_errors.h - what a rank writes of its error, for the supervisor's choice of the cause. */
#ifndef DDP_LAUNCHER_NODE_NODE_ERRORS_H
#define DDP_LAUNCHER_NODE_NODE_ERRORS_H

#include "node_view.h"

extern const struct node_feature node_errors_feature;

/* A rank has ended: set lost_peer if its error is a lost peer, and was_failing. The rest of *x is
 * known. */
void node_errors_note_exit(const struct node_view *n, struct supervisor_exit *x);

/* Whether a rank that runs has written that it lost a peer, last of all. */
bool node_errors_says_peer_lost(const struct node_view *n, int rank);

/* Before ranks are sent a signal: if it is the first to stop them after a failure, which of those
 * that run have printed an error of their own already? What they print later may come of the
 * signal.
 *
 * from, e    the supervisor's state before, and what it heard then */
void node_errors_note_stop(const struct node_view *n, enum supervisor_state from,
                           const struct supervisor_event *e);

#endif
