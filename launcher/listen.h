/* listen.h - where a socket for a job's nodes is bound. */
#ifndef DDP_LAUNCHER_LISTEN_H
#define DDP_LAUNCHER_LISTEN_H

#include <stdint.h>

struct co_error;
struct server;

/* Let a server listen where nodes come that were told to connect to `host`: at that address, if it
 * is one of this machine's in figures; at both loopback addresses for "localhost"; else at all:
 * which of this machine's addresses a name leads to differs from node to node, and an address that
 * is not this machine's may be that of a gateway.
 *
 * port       0: any free one; the same on all addresses
 * returns    0, -EADDRINUSE, -EACCES, -ENOMEM, -errno */
int listen_for(struct server *s, const char *host, uint16_t port, struct co_error *err);

#endif
