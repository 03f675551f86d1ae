/* address.h - addresses of sockets in figures: names are never looked up, in neither direction. */
#ifndef DDP_RENDEZVOUS_NET_ADDRESS_H
#define DDP_RENDEZVOUS_NET_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { ADDRESS_TEXT_BYTES = INET6_ADDRSTRLEN + 16 }; /* "[ADDR%ZONE]:PORT" and a NUL */

/* A zone may follow after '%': the name of an interface of this machine, or its number.
 *
 * returns   0, or -EINVAL: no numeric address of IPv4 or IPv6 */
int address_parse(const char *text, uint16_t port, struct sockaddr_storage *ret);

/* "10.0.0.7:29400", also if it came in by an IPv6 socket; "[fd00::7]:29400"; "?" for what is of no
 * such family. */
void address_print(const struct sockaddr_storage *address, char text[ADDRESS_TEXT_BYTES]);

/* The address alone, without a zone, which means nothing elsewhere: "10.0.0.7", "fd00::7"; IPv4 as
 * such in either form.
 *
 * returns   0; -EINVAL: of no such family; -ENOSPC */
int address_print_host(const struct sockaddr_storage *address, char *text, size_t n);

uint16_t address_port(const struct sockaddr_storage *address);

/* Both families alike: IPv4 as ::ffff:a.b.c.d, which is also how it comes in by an IPv6 socket. */
struct in6_addr address_as_v6(const struct sockaddr_storage *address);
bool address_is_loopback(const struct sockaddr_storage *address);

/* Is this the loopback interface in so many words: an address of it in figures, or "localhost"?
 * Then only processes of this machine are meant. A name may lead to it on one node only. */
bool address_host_is_loopback(const char *host);

/* The one of a name's addresses that decides which node is the endpoint: the first in an order that
 * is the same on all machines, whatever order their resolvers give. IPv4 first, since a machine
 * that lacks one of the two has IPv4.
 *
 * n         > 0
 * returns   one of them */
const struct sockaddr_storage *address_first(const struct sockaddr_storage *addresses, size_t n);

/* Do other nodes get `own`, this end's address of a connection to the endpoint `host`, as the
 * address of this node? Not a loopback address, unless all nodes use one. Such a node is on the
 * endpoint's machine, whose name others know. */
bool address_may_tell(const char *host, const struct sockaddr_storage *own);

#endif
