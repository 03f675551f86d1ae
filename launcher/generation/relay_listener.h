/* relay_listener.h - where the links of other nodes to the generation's store arrive
 * (--store-relay). */
#ifndef DDP_LAUNCHER_GENERATION_RELAY_LISTENER_H
#define DDP_LAUNCHER_GENERATION_RELAY_LISTENER_H

#include <stdint.h>
#include <uv.h>

struct allow_list;
struct co_error;
struct generation_callbacks;
struct job_spec;
struct relay_listener; /* opaque */
struct server;

/* Of all links. A client costs the store memory, and no descriptor. */
enum { RELAY_LISTENER_MAX_CLIENTS = 1 << 20 };

struct relay_listener_opts {
    struct server *store;     /* outlives it */
    struct allow_list *allow; /* the nodes' addresses; outlives it */
    const char *host;         /* by which others reach this node; listen.h. Borrowed for the call */
    uint32_t generation;
    const struct generation_callbacks *callbacks; /* copied */
};

/* Listen at the job's --master-port, or any free port.
 *
 * ret       relay_listener_close() it
 * returns   as listen_for(), -EINVAL */
int relay_listener_open(const struct job_spec *spec, uv_loop_t *loop,
                        const struct relay_listener_opts *opts, struct relay_listener **ret,
                        struct co_error *err);

uint16_t relay_listener_port(const struct relay_listener *l);

/* At once: all links end, and the port is free. Frees it from the loop. NULL is fine. */
void relay_listener_close(struct relay_listener *l);

#endif
