/* port_client.h - a connection to the relay's port: libuv around a struct relay_client.
 *
 * It reads as much as the relay has space for, and writes replies as fast as the process takes
 * them. */
#ifndef DDP_RENDEZVOUS_RELAYS_PORT_CLIENT_H
#define DDP_RENDEZVOUS_RELAYS_PORT_CLIENT_H

#include "rendezvous/relay/relay_node.h"

#include <sys/queue.h>
#include <uv.h>

struct port_client;
TAILQ_HEAD(port_clients, port_client);

/* What the connections of a port share. */
struct port_client_host {
    uv_loop_t *loop;
    uint8_t *scratch; /* PORT_CLIENT_SCRATCH_BYTES to read into */
    struct port_clients open;
    uint32_t n_open;
    uint32_t n_handles; /* of them all, also of those in mid-close */

    /* A client was dropped by the relay or the store for this reason. Must not close the port. */
    void (*on_dropped)(struct port_client_host *h, const struct port_client *c, const char *text);
    void (*on_gone)(struct port_client_host *h); /* n_handles is smaller */
};

enum { PORT_CLIENT_SCRATCH_BYTES = 64 << 10 };

struct port_client {
    uv_tcp_t tcp;
    uv_timer_t timer; /* until the client counts as silent (codec.h: opcode 8 of old clients) */
    uv_write_t write;
    struct port_client_host *host; /* borrowed */
    struct relay_client *end;      /* borrowed; NULL: it has not come so far, or the link is lost */
    uint8_t *writing;              /* lent to the kernel by `write`: a copy of n_writing replies */
    size_t n_writing;
    bool is_reading, has_left, is_closing;
    int n_handles;
    TAILQ_ENTRY(port_client) all;
};

/* Take the next connection off the listener.
 *
 * returns   0, -ENOMEM, -errno of accept */
int port_client_accept(struct port_client_host *h, uv_stream_t *listener, struct port_client **ret);

/* It is served from now on. */
void port_client_start(struct port_client *c, struct relay_client *end);

/* Something has changed: relay_node_next_due(). May close it. */
void port_client_look(struct port_client *c);

/* Close now. Its relay_client, if it still has one, is released. */
void port_client_close(struct port_client *c);

#endif
