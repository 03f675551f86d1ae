/* endpoint_host.h - the name or address of the rendezvous endpoint: what follows from it, and from
 * what it resolves to. Pure: resolve.h looks names up. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_ENDPOINT_HOST_H
#define DDP_LAUNCHER_MEMBERSHIP_ENDPOINT_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* The one of a name's addresses that decides which node is the endpoint: the first in an order that
 * is the same on all machines, whatever order their resolvers give. IPv4 first, since a machine
 * that lacks one of the two has IPv4.
 *
 * n         > 0
 * returns   one of them */
const struct sockaddr_storage *endpoint_host_first(const struct sockaddr_storage *addresses,
                                                   size_t n);

/* Do other nodes get `own`, this end's address of a connection to the endpoint, as the address of
 * this node? Not a loopback address, unless all nodes use one. Such a node is on the endpoint's
 * machine, whose name others know. */
bool endpoint_host_may_tell(const char *host, const struct sockaddr_storage *own);

#endif
