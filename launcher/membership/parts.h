/* parts.h - an object on the loop counts what it has given to the loop to close, and goes after the
 * last of it.
 *
 * A part may be closed long before its owner is, and be made anew. */
#ifndef DDP_LAUNCHER_PARTS_H
#define DDP_LAUNCHER_PARTS_H

#include <uv.h>

struct control_link;
struct jobs;
struct own_roster;
struct server;

struct parts { /* zeroed: none is being closed */
    unsigned n_closing;
    void (*on_gone)(void *arg); /* NULL: the owner stays */
    void *arg;
};

/* Each closes what it is given and sets the pointer to NULL. NULL there is fine. */
void parts_close_server(struct parts *p, struct server **server);
void parts_close_jobs(struct parts *p, struct jobs **jobs);
void parts_close_link(struct parts *p, struct control_link **link);
void parts_close_own(struct parts *p, struct own_roster **own);
void parts_close_timer(struct parts *p, uv_timer_t *timer);

/* For a part of another kind: call this, and let parts_on_closed() be called with `p`, from the
 * loop, when it is closed. */
void parts_expect(struct parts *p);
void parts_on_closed(void *p);

/* The owner is closed, too: call on_gone(arg) after the last part, from the loop. One is being
 * closed, at least. */
void parts_end(struct parts *p, void (*on_gone)(void *arg), void *arg);

#endif
