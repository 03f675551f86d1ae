/* relay_port.h - the node end of the relay: a port on loopback that serves this node's ranks a
 * store of another node, over one link. libuv around relay_node.h.
 *
 * To a client the port is the store: it speaks the same protocol, since the session at the other
 * end does. The link is made when the first client comes, and again when one comes after it was
 * lost; clients wait meanwhile. When the link ends, all clients are closed, as by a store that is
 * gone. Only processes of our own user and root are served, as by the store itself. */
#ifndef DDP_RENDEZVOUS_RELAYS_RELAY_PORT_H
#define DDP_RENDEZVOUS_RELAYS_RELAY_PORT_H

#include <stdint.h>
#include <uv.h>

struct co_error;
struct relay_port; /* opaque */
struct seal_key;

enum {
    RELAY_PORT_CONNECT_MS = 5000,  /* for each address of the store's host */
    RELAY_PORT_GIVE_UP_MS = 60000, /* then the clients that wait for the link are closed */
};

#define RELAY_PORT_ADDRESS "127.0.0.1"

struct relay_port_opts {
    const char *host;           /* of the node with the store; copied */
    uint16_t port;              /* of its links */
    const struct seal_key *key; /* borrowed until all is closed; NULL: in the clear */
    const char *run_id;         /* copied */
    uint32_t generation;
    uint32_t max_clients; /* one more is refused */
    uint64_t give_up_ms;  /* 0: RELAY_PORT_GIVE_UP_MS */
    uint64_t stall_ms;    /* so long the store's node may take nothing; 0: RELAY_LINK_STALL_MS */

    /* Why a client was refused or dropped, or why the link failed: at most once a second. Not for a
     * link that the other end has closed. NULL: ignored */
    void (*on_refused)(void *arg, const char *text);
    void *arg;
};

/* Listen at RELAY_PORT_ADDRESS, at any free port.
 *
 * opts      copied
 * ret       relay_port_close() it
 * returns   0, -EINVAL (limits), -ENOMEM, -errno */
int relay_port_open(uv_loop_t *loop, const struct relay_port_opts *opts, struct relay_port **ret,
                    struct co_error *err);

uint16_t relay_port_number(const struct relay_port *p);
uint32_t relay_port_n_clients(const struct relay_port *p);

/* At once: clients are closed, and the port is free. Frees it from the loop. NULL is fine. */
void relay_port_close(struct relay_port *p);

#endif
