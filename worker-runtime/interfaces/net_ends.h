/* net_ends.h - where the lanes of a rank begin and end: its addresses for them, and which two
 * addresses a lane joins. Pure: both ranks of a lane come to the same answer.
 *
 * An address of one rank is joined to the one of the other rank that is in the same network. Where
 * users have named the interfaces, and no network is common, routers may join them: then the
 * first interface of one node belongs to the first of the other one, and so on. Lanes take the
 * pairs in turns. Without a pair they go where the first connection goes. */
#ifndef DDP_WORKER_RUNTIME_INTERFACES_NET_ENDS_H
#define DDP_WORKER_RUNTIME_INTERFACES_NET_ENDS_H

#include "net_address.h"

#define NET_ENDS_MOST 4 /* that a rank has */

struct net_end {      /* 20 bytes */
    uint8_t family;   /* AF_INET, AF_INET6 */
    uint8_t prefix;   /* how many bits of the address are the network's */
    uint8_t rail;     /* number of the interface among those of its node */
    uint8_t padding_; /* 0 */
    uint8_t bytes[16];
};

enum net_ends_flags {
    NET_ENDS_NAMED = 1,     /* users have named the interfaces */
    NET_ENDS_UNCOUNTED = 2, /* and not set the number of lanes: they need a pair */
    NET_ENDS_PROBED = 4,    /* the ranks are to measure whether lanes pay */
};

struct net_ends { /* of a rank; travels as it is */
    uint8_t n;    /* 0: lanes go where the first connection goes */
    uint8_t flags;
    uint16_t padding_; /* 0 */
    struct net_end end[NET_ENDS_MOST];
};

/* Whether ends that came from another process are within these bounds. */
bool net_ends_is_valid(const struct net_ends *e);

struct net_address net_ends_address(const struct net_end *e);

struct net_pair { /* numbers of two ends */
    unsigned own, peer;
};

/* How many pairs two ranks have: as many as this one has ends, at most. 0: none */
unsigned net_ends_pairs(const struct net_ends *own, const struct net_ends *peer,
                        struct net_pair ret[NET_ENDS_MOST]);

/* Whether two ranks have lanes, if both have a number of them. The same on both sides. */
bool net_ends_allow_lanes(const struct net_ends *own, const struct net_ends *peer);

/* lane      1, 2, ...
 * returns   whether there is a pair for it; if not, *ret is as it was */
bool net_ends_of_lane(const struct net_ends *own, const struct net_ends *peer, unsigned lane,
                      struct net_pair *ret);

#endif
