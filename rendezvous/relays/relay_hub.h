/* relay_hub.h - the store end of the relay: the links of all other nodes, and a session of the
 * store for each of their clients. libuv around relay_store.h.
 *
 * The store is that of a server (server.h), which serves the ranks of its own node directly. The
 * hub has no listener: the caller accepts connections and hands them over. */
#ifndef DDP_RENDEZVOUS_RELAYS_RELAY_HUB_H
#define DDP_RENDEZVOUS_RELAYS_RELAY_HUB_H

#include "relay_link.h"

#include <uv.h>

struct co_error;
struct relay_hub; /* opaque */
struct seal_key;
struct server;

struct relay_hub_opts {
    struct server *server;      /* with the store. It lives until relay_hub_close() */
    const struct seal_key *key; /* borrowed until all is closed; NULL: in the clear */
    const char *run_id;         /* copied */
    uint32_t generation;
    uint32_t max_links;        /* one more displaces one without a hello, or is refused */
    uint32_t max_clients;      /* of all links; one more is refused */
    uint64_t max_buffer_bytes; /* of their requests and replies on their way; 0: 1 GiB */
    uint64_t mid_request_ms;   /* a request that was begun must be complete after this; 0: 30 000 */
    uint64_t open_ms;          /* until a link has sent its hello; 0: RELAY_LINK_OPEN_MS */
    uint64_t stall_ms;         /* so long a node may take nothing; 0: RELAY_LINK_STALL_MS */

    /* A link was refused, or ended for another reason than that the other end has closed it; at
     * most once a second. NULL: ignored */
    void (*on_refused)(void *arg, const char *text);
    void *arg;
};

/* opts      copied
 * returns   0, -ENOMEM */
int relay_hub_create(uv_loop_t *loop, const struct relay_hub_opts *opts, struct relay_hub **ret,
                     struct co_error *err);

/* Take over an accepted socket, from which these bytes, lent, were read already. What is not a link
 * is closed, with a reason for the other end. */
void relay_hub_adopt(struct relay_hub *h, int fd, const uint8_t *bytes, size_t len);

uint32_t relay_hub_n_links(const struct relay_hub *h);   /* that have shown what they are for */
uint32_t relay_hub_n_clients(const struct relay_hub *h); /* of all of them */

/* All clients are gone at once, links after what was sent to them. Frees it from the loop; the
 * server is not used any more. NULL is fine. */
void relay_hub_close(struct relay_hub *h);

#endif
