/* allow.h - which addresses may connect: a list of networks.
 *
 * Pure. */
#ifndef DDP_RENDEZVOUS_ALLOW_H
#define DDP_RENDEZVOUS_ALLOW_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

struct co_error;

enum { ALLOW_MAX = 256 };

struct allow_net {
    struct in6_addr address; /* as address_as_v6() gives it */
    unsigned n_bits;         /* that count, of 128 */
};

/* Zeroed, nobody is in it. */
struct allow_list {
    size_t n;
    struct allow_net nets[ALLOW_MAX];
};

/* Add ADDR or ADDR/BITS, in figures. Bits of ADDR behind the first BITS are ignored.
 *
 * returns   0, -EINVAL, -ENOSPC (more than ALLOW_MAX) */
int allow_add(struct allow_list *l, const char *text, struct co_error *err);

/* A network of IPv4 holds addresses of IPv4 only, in either form, and one of IPv6 only others:
 * ::/0 does not let the whole of the old internet in. */
bool allow_has(const struct allow_list *l, const struct sockaddr_storage *address);

#endif
