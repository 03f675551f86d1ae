/* net_address.h - where a rank listens, and sockets to and from there. IPv4 and IPv6. */
#ifndef DDP_WORKER_RUNTIME_INTERFACES_NET_ADDRESS_H
#define DDP_WORKER_RUNTIME_INTERFACES_NET_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct co_error;

struct net_address { /* travels as it is */
    uint16_t family; /* AF_INET, AF_INET6; 0: none */
    uint8_t bytes[16];
    uint16_t padding_;
    uint32_t scope; /* of a link-local IPv6 address: the interface's number where it was found */
};

/* returns   the address in `socket`; family 0: neither IPv4 nor IPv6 */
struct net_address net_address_of(const struct sockaddr_storage *socket);

/* What a connection to a host would have at its two ends. Nothing is sent, except to look its name
 * up, which may block.
 *
 * returns   0; -ENOENT: no such host, or no way to it */
int net_address_of_route(const char *host, struct net_address *ret_own,
                         struct net_address *ret_peer);

bool net_address_is_known(const struct net_address *a); /* an address that can be connected to */
bool net_address_is_loopback(const struct net_address *a);
bool net_address_is_link_local(const struct net_address *a);

/* Which of an interface's addresses to take: the higher, the better. IPv4 before IPv6, link-local
 * ones last; 0: it cannot be connected to. */
int net_address_worth(const struct net_address *a);

#define NET_ADDRESS_TEXT_BYTES 64
/* "10.0.0.7 port 4242", "[fe80::1] port 4242". Returns text. */
const char *net_address_format(const struct net_address *a, uint16_t port,
                               char text[NET_ADDRESS_TEXT_BYTES]);

/* The same without a port. Returns text. */
const char *net_address_format_host(const struct net_address *a, char text[NET_ADDRESS_TEXT_BYTES]);

bool net_address_is_same(const struct net_address *a, const struct net_address *b); /* but scope */

/* Listen on `a`; `a` of the loopback interface stands for all addresses: it is what the machine
 * that has the store sees of itself. Whatever connects must send first: the system keeps silent
 * connections from accept() for a while.
 *
 * port      0: a free one, which is written there
 * returns   0, -errno */
int net_address_listen(const struct net_address *a, uint16_t *port, int *ret_fd,
                       struct co_error *err);

/* Begin to connect, without waiting. own: this rank's address, of the same family
 * returns   0; -errno */
int net_address_connect(const struct net_address *own, const struct net_address *to, uint16_t port,
                        int *ret_fd);

/* The same, over an interface of this machine. If the system does not let a process choose the
 * interface (before Linux 5.7 it needs CAP_NET_RAW), the route to the address decides.
 *
 * device    its name; "": not known
 * from      its address */
int net_address_connect_over(const char *device, const struct net_address *from,
                             const struct net_address *to, uint16_t port, int *ret_fd);

/* Have what is sent on a socket leave by an interface. "": does nothing */
void net_address_keep_to(int fd, const char *device);

/* What every connection between ranks is to have: no delay of small pieces; broken after timeout_ms
 * without a sign of the other machine. */
void net_address_tune(int fd, uint64_t timeout_ms);

#endif
