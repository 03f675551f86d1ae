/* relay_store.h - the store end of a relay link: a session (session.h) for each client of a node.
 *
 * Pure: frames and the time come in, frames go out, and the caller carries them. A host has what
 * all links to one store share. Each client has the session that a connection to the store would
 * have, so requests run by the same code, in the order of the client's bytes, each once. */
#ifndef DDP_RENDEZVOUS_RELAY_RELAY_STORE_H
#define DDP_RENDEZVOUS_RELAY_RELAY_STORE_H

#include "relay_wire.h"
#include "rendezvous/store/session.h"

#include <stdbool.h>
#include <sys/queue.h>

struct relay_store; /* opaque: one link */
struct relay_session;

TAILQ_HEAD(relay_sessions, relay_session);
TAILQ_HEAD(relay_links, relay_store);

/* Fill in the first part, and call relay_host_init(). */
struct relay_host {
    struct session_host sessions; /* all but on_output; its store is made with session_on_wake */
    uint32_t max_clients;         /* of all links; one more is refused, not its link */
    uint32_t window_bytes;        /* as struct relay_node_limits */
    uint64_t max_buffer_bytes;    /* what all clients together may have unread and unsent; beyond
                                     it, the client that has most is ended */
    uint64_t mid_request_ms;      /* a request that was begun must be complete after this */

    uint32_t n_clients;
    uint64_t n_buffer_bytes;
    struct relay_links links, ready; /* ready: have got something to put */
    struct relay_sessions late;      /* had their share of a turn, oldest first */
    struct relay_sessions mid;       /* amid a request, oldest first */
};

void relay_host_init(struct relay_host *h);

/* Continue with clients that have had their share of a turn, some of them per call. Call it once in
 * each turn of the loop.
 *
 * returns   whether there are more: then the loop must not sleep */
bool relay_host_run_late(struct relay_host *h, uint64_t now_ms);

/* When relay_host_expire() has something to do; UINT64_MAX: never. */
uint64_t relay_host_deadline(const struct relay_host *h);
void relay_host_expire(struct relay_host *h, uint64_t now_ms);

/* A link that has got something to put since the last call; NULL: no other. Each of these calls may
 * make a link such a one: relay_store_take(), relay_host_run_late(), relay_host_expire(), and
 * requests of others on the same store. */
struct relay_store *relay_host_next_ready(struct relay_host *h);

/* user      for relay_store_user()
 * ret       relay_store_destroy() it before its host is freed
 * returns   0, -ENOMEM */
int relay_store_create(struct relay_host *h, void *user, struct relay_store **ret,
                       struct co_error *err);

void *relay_store_user(const struct relay_store *r);

/* The link has ended: its clients wait for nothing any more, and what they stored stays. NULL is
 * fine. */
void relay_store_destroy(struct relay_store *r);

/* A frame has come. Requests in it may wake clients of other links.
 *
 * returns   0; -EPROTO: the link is unusable, the text has the reason; -ENOMEM */
int relay_store_take(struct relay_store *r, const uint8_t *frame, size_t len, uint64_t now_ms,
                     struct co_error *err);

bool relay_store_has_output(const struct relay_store *r); /* there is something to put */

/* Make the next frame of what is to be sent, all clients taking turns. The length is 0 if nothing
 * is. */
void relay_store_put(struct relay_store *r, struct relay_frame *ret);

#endif
