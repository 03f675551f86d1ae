/* listen.h - where a socket for a job's nodes is bound, and what a roster's listener is. */
#ifndef DDP_LAUNCHER_GENERATION_LISTEN_H
#define DDP_LAUNCHER_GENERATION_LISTEN_H

#include <stdint.h>
#include <uv.h>

struct co_error;
struct job_spec;
struct server;
struct server_opts;

/* How many connections this process holds: as many as it has descriptors that it does not need for
 * its ranks, or for the hosts that it starts ddprun on. Unproven peers cannot take these. */
struct listen_limits {
    uint32_t n_newcomers; /* of a roster's listener: connections that have sent nothing; and HTTP */
    uint32_t n_nodes;     /* of the control channel */
    uint32_t n_clients;   /* of a generation's store */
};

struct listen_limits listen_limits(const struct job_spec *spec);

/* Pure: of so many descriptors. */
struct listen_limits listen_limits_of(uint64_t n_files, uint32_t n_children, uint32_t max_nodes);

/* Let a server listen where nodes that were given `host` connect: at that address, if it is a
 * numeric address of this machine; at both loopback addresses for "localhost"; else at all
 * addresses: which of this machine's addresses a name leads to differs from node to node, and an
 * address that is not this machine's may be that of a gateway.
 *
 * port       0: any free one; the same on all addresses
 * returns    0, -EADDRINUSE, -EACCES, -ENOMEM, -errno */
int listen_for(struct server *s, const char *host, uint16_t port, struct co_error *err);

/* Make the listener of a roster in this process: for its control channel and for pages about it,
 * not for a store.
 *
 * spec         for its limits
 * callbacks    these, and their arg; the other fields are filled in
 * host, port   as for listen_for()
 * ret_server   server_close() it; also written after a failure, unless no server was made
 * returns      as server_create() and listen_for() */
int listen_open_roster(uv_loop_t *loop, const struct job_spec *spec,
                       const struct server_opts *callbacks, const char *host, uint16_t port,
                       struct server **ret_server, struct co_error *err);

#endif
