/* local_roster.h - the roster in this process, and this node's link to it.
 *
 * For a node that is its job's endpoint, or that was elected to have the roster. Connections of
 * other nodes are passed to local_roster_jobs(). */
#ifndef DDP_LAUNCHER_MEMBERSHIP_LOCAL_ROSTER_H
#define DDP_LAUNCHER_MEMBERSHIP_LOCAL_ROSTER_H

#include <uv.h>

struct co_error;
struct channel_link;
struct channel_link_callbacks;
struct jobs;
struct jobs_opts;
struct local_roster; /* opaque */

/* opts      of one job (only_run_id); what it points to is borrowed until the roster is closed
 * notes     of the link, which is down
 * returns   as jobs_create() */
int local_roster_create(uv_loop_t *loop, const struct jobs_opts *opts,
                        const struct channel_link_callbacks *callbacks, struct local_roster **ret,
                        struct co_error *err);

struct jobs *local_roster_jobs(const struct local_roster *o);         /* lent */
struct channel_link *local_roster_link(const struct local_roster *o); /* lent */

/* Close the link, and then the roster it leads to, which may take a while: what was sent still goes
 * out. What the roster decides from now on is nothing to anybody: no on_changed, no on_heard.
 * Everything is freed, and on_closed called, from the loop. */
void local_roster_close(struct local_roster *o, void (*on_closed)(void *arg), void *arg);

#endif
