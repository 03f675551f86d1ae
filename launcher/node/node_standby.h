/* node_standby.h - --standby: processes that wait for a rank that fails, to take its place without
 * exec and without the program's own start.
 *
 * One is a process of the same program without a number. It waits in ddp_run(), which hears by the
 * node socket who it is from then on; until that nobody reads what it writes. For the spawner it
 * has a number behind those of the ranks. The supervisor knows nothing of it: a standby that steps
 * in is a rank that was started, and the others are what is left when the ranks have ended. */
#ifndef DDP_LAUNCHER_NODE_NODE_STANDBY_H
#define DDP_LAUNCHER_NODE_NODE_STANDBY_H

#include <stdbool.h>

struct co_error;
struct node_view;
struct node_standby; /* opaque */
struct spawner_report;

/* They are started once the ranks have completed a step. Without --standby there is nothing: *ret
 * is NULL.
 *
 * returns   0, -ENOMEM */
int node_standby_open(const struct node_view *n, struct node_standby **ret, struct co_error *err);

/* A rank has failed, and the next generation is made: have a standby take its place. The spawner
 * answers as if the rank had been started.
 *
 * returns   false: there is none. NULL is fine */
bool node_standby_take(struct node_standby *w, int rank);

/* The spawner tells of a standby. returns whether it was for this; NULL is fine */
bool node_standby_hear(struct node_standby *w, const struct spawner_report *r);

/* All that ran has been swept. NULL is fine. */
void node_standby_forget(struct node_standby *w);

/* Frees from the loop; NULL is fine. */
void node_standby_close(struct node_standby *w);

#endif
