/* newcomers.h - connections whose peers have shown nothing yet, by the network that they come from.
 *
 * A peer pays little for a connection, a server pays with a descriptor. When a server can hold no
 * more, it closes a newcomer: the oldest one of the network that has most. A peer that opens many
 * connections displaces its own, and one that speaks at once is hardly ever displaced, also if it
 * shares an address with many others (NAT). No number of connections per address is right for
 * both a laptop and a cluster; this needs none.
 *
 * Pure. A network is an IPv4 address or an IPv6 /64. Networks share NEWCOMERS_N_NETWORKS lists by
 * a seeded hash, so that a peer cannot choose whose list it is in. */
#ifndef DDP_RENDEZVOUS_NET_NEWCOMERS_H
#define DDP_RENDEZVOUS_NET_NEWCOMERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum { NEWCOMERS_N_NETWORKS = 256 };

/* Part of the object that stands for a connection. Zeroed, it is in no list. */
struct newcomer {
    struct newcomer *older, *newer;
    uint64_t number; /* 0: in no list */
    uint32_t network;
};

/* Zeroed, except for the seed: empty. */
struct newcomers {
    uint64_t seed;
    uint64_t n_ever;
    struct {
        struct newcomer *oldest, *newest; /* borrowed */
        uint32_t n;
    } networks[NEWCOMERS_N_NETWORKS];
};

void newcomers_add(struct newcomers *all, struct newcomer *c, const struct sockaddr_storage *from);
void newcomers_remove(struct newcomers *all, struct newcomer *c); /* in no list: nothing happens */

/* Which one to close first.
 *
 * returns   NULL: all is empty */
struct newcomer *newcomers_choose(const struct newcomers *all);

#endif
