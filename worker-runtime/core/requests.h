/* requests.h - asynchronous calls of a group: a queue of collectives, which run one after the other
 * in the order of calling, and any number of messages.
 *
 * Progress is made inside of these functions; or, of collectives, by a thread, if the group has one
 * (group.progress_thread). Then the back end is that thread's while something is in the queue, and
 * blocking collectives also go through it. */
#ifndef DDP_WORKER_RUNTIME_CORE_REQUESTS_H
#define DDP_WORKER_RUNTIME_CORE_REQUESTS_H

#include "backend.h"
#include "group.h"

struct ddp_request;
struct requests; /* opaque: those of a group */

/* Make a collective, after those that are in the queue; the arguments were checked. returns a
 * public status */
int requests_run(struct ddp_group *g, const struct collective *what);

/* Begin one, in the same way. Copies the counts. returns DDP_OK; DDP_ENOMEM; of a group of 1 as
 * requests_run() */
int requests_start(struct ddp_group *g, const struct collective *what,
                   struct ddp_request **ret_request);

/* A request that was done when it was made. returns DDP_OK; DDP_ENOMEM */
int requests_start_done(struct ddp_group *g, struct ddp_request **ret_request);

/* Begin a message; `m` is copied. returns DDP_OK; DDP_ENOMEM */
int requests_start_message(struct ddp_group *g, const struct message *m,
                           struct ddp_request **ret_request);

/* Make all collectives in the queue. NULL is fine. */
void requests_finish(struct requests *q);

/* The library itself does not wait for this request: it is freed with its group. NULL is fine. */
void requests_abandon(struct ddp_request *r);

/* Ends the thread after it has made the collectives in the queue; without a thread those in the
 * queue are not made. Requests that the program has not waited for stay until it does, and then
 * report that the group has ended. In a forked child, where the thread does not exist, everything
 * else stays. NULL is fine. */
void requests_destroy(struct requests *q);

#endif
