/* node_standby.h - --standby: processes that wait for a rank that fails, to take its place without
 * exec and without the program's own start.
 *
 * A standby is a process of the same program without a rank. It waits in ddp_run(), which receives
 * its rank through the node socket; until then its output is not read. For the spawner it has a
 * number after those of the ranks. The supervisor knows nothing of it: a standby that steps in is a
 * rank that was started, and the others are what is left when the ranks have ended. */
#ifndef DDP_LAUNCHER_NODE_NODE_STANDBY_H
#define DDP_LAUNCHER_NODE_NODE_STANDBY_H

#include "node_view.h"

#include <stdbool.h>

struct spawner_report;

/* They are started once the ranks have completed a step. */
extern const struct node_feature node_standby_feature;

/* A rank has failed, and the next generation is made: have a standby take its place. The spawner
 * answers as if the rank had been started.
 *
 * returns   false: no standby is ready */
bool node_standby_take(const struct node_view *n, int rank);

/* The spawner reports about a standby. returns whether the report was for this module */
bool node_standby_hear(const struct node_view *n, const struct spawner_report *r);

#endif
