/* allow.h - which addresses may connect: a list of networks, and one of hosts.
 *
 * Pure. */
#ifndef DDP_RENDEZVOUS_NET_ALLOW_H
#define DDP_RENDEZVOUS_NET_ALLOW_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

struct co_error;

enum {
    ALLOW_MAX = 256,
    ALLOW_TEXT_BYTES = 64, /* of an ADDR/BITS and its NUL */
};

struct allow_net {
    struct in6_addr address; /* as address_as_v6() gives it */
    unsigned n_bits;         /* that count, of 128 */
};

/* Zeroed, the list is empty. */
struct allow_list {
    size_t n;
    struct allow_net nets[ALLOW_MAX];
    struct in6_addr *hosts; /* owned; sorted */
    size_t n_hosts;
};

/* Add ADDR or ADDR/BITS, numeric. Bits of ADDR after the first BITS are ignored.
 *
 * returns   0, -EINVAL, -ENOSPC (more than ALLOW_MAX) */
int allow_add(struct allow_list *l, const char *text, struct co_error *err);

/* Also admit these, instead of those that were set before. Their number is unlimited: a search
 * takes logarithmic time.
 *
 * hosts     as address_as_v6() gives them; copied
 * returns   0, -ENOMEM: nothing is changed */
int allow_set_hosts(struct allow_list *l, const struct in6_addr *hosts, size_t n);

void allow_fini(struct allow_list *l); /* only needed after allow_set_hosts() */

/* A network of IPv4 holds addresses of IPv4 only, in either form, and one of IPv6 only others:
 * ::/0 does not let the whole of the old internet in. */
bool allow_has(const struct allow_list *l, const struct sockaddr_storage *address);

/* The same for the networks alone, which a user has named. */
bool allow_has_in_net(const struct allow_list *l, const struct sockaddr_storage *address);

#endif
