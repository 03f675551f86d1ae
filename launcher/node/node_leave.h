/* node_leave.h - --on-term: an end that is announced. The signal that ends this node's part of the
 * job is held back while the ranks save their state: they are asked as for a node that waits to
 * join (checkpoint_request.h), and it takes effect once all of them have reported that they have
 * (also those of other nodes, if all nodes have received it), or at the end of the time that they
 * are given. If all ranks exit with 0 instead, the job succeeds. */
#ifndef DDP_LAUNCHER_NODE_NODE_LEAVE_H
#define DDP_LAUNCHER_NODE_NODE_LEAVE_H

#include "node_view.h"

#include <stdbool.h>
#include <stdint.h>

struct job_spec;

extern const struct node_feature node_leave_feature;

/* ddprun received a signal, or was asked for one: hold it back, or feed it to the supervisor. A
 * second one that ends the job means that the user does not want to wait: both take effect at once.
 *
 * of_all   each node of the job has received it: what this node saves is of no use before all have
 *          saved, so it is held back until node_leave_release(), and the roster is notified */
void node_leave_signal(const struct node_view *n, int sig, bool of_all);

/* Bit N: signal N is one that may be held back. */
uint64_t node_leave_signals(const struct job_spec *spec);

/* The signal that is held back was this node's only, and each node of the job has got it. */
void node_leave_widen(const struct node_view *n, int sig);

/* The ranks of all nodes have saved. */
void node_leave_release(const struct node_view *n);

/* Is this a signal that others may hold back, and has this node nothing to save? */
bool node_leave_may_go_alone(const struct node_view *n, int sig);

/* Is a signal held back that is about this node only? */
bool node_leave_holds_own(const struct node_view *n);

/* Whether all have saved, or something else ends the ranks: then the signal is held back no more.
 * To be asked when anything has happened; acts from the loop. */
void node_leave_look(const struct node_view *n);

#endif
