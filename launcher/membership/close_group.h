/* close_group.h - an object on the loop counts what it has given to the loop to close, and goes
 * after the last of it.
 *
 * A part may be closed long before its owner is, and be made again. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_CLOSE_GROUP_H
#define DDP_LAUNCHER_MEMBERSHIP_CLOSE_GROUP_H

#include <uv.h>

struct channel_link;
struct jobs;
struct local_roster;
struct server;

struct close_group { /* zeroed: none is being closed */
    unsigned n_closing;
    void (*on_gone)(void *arg); /* NULL: the owner stays */
    void *arg;
};

/* Each closes what it is given and sets the pointer to NULL. NULL there is fine. */
void close_group_close_server(struct close_group *p, struct server **server);
void close_group_close_jobs(struct close_group *p, struct jobs **jobs);
void close_group_close_link(struct close_group *p, struct channel_link **link);
void close_group_close_own(struct close_group *p, struct local_roster **own);
void close_group_close_timer(struct close_group *p, uv_timer_t *timer);

/* For a part of another kind: call this, and let close_group_on_closed() be called with `p`, from
 * the loop, when it is closed. */
void close_group_expect(struct close_group *p);
void close_group_on_closed(void *p);

/* The owner is also closed: call on_gone(arg) after the last part, from the loop. At least one part
 * is being closed. */
void close_group_end(struct close_group *p, void (*on_gone)(void *arg), void *arg);

#endif
