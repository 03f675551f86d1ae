/* node_flight_recorder.h - flight_recorder.h for the ranks of this node: dumps that are asked for,
 * and those that torch writes by itself before it ends a rank whose collective call took too
 * long. */
#ifndef DDP_LAUNCHER_NODE_NODE_FLIGHT_RECORDER_H
#define DDP_LAUNCHER_NODE_NODE_FLIGHT_RECORDER_H

#include "node_view.h"

struct flights;

extern const struct node_feature node_flight_recorder_feature;

/* Have these ranks dump: all that run and are not stopped, or one.
 *
 * local_rank   -1: all
 * returns      owned by the caller; NULL: it is not asked for, or there is no memory */
struct flights *node_flight_recorder_ask(const struct node_view *n, int local_rank);

/* The ranks have failed, and none is left: gather what torch has written of them, and say where.
 * Once all were asked it is known already. */
void node_flight_recorder_tell(const struct node_view *n);

#endif
