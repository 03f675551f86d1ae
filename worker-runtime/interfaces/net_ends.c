/* net_ends.c - which addresses of two ranks a lane joins. */
#include "net_ends.h"

#include <string.h>

enum score { NO_PAIR, SAME_FAMILY, SAME_RAIL, SAME_NETWORK, SAME_NETWORK_AND_RAIL };

static unsigned family_bits(const struct net_end *e)
{
    return e->family == AF_INET ? 32 : 128;
}

bool net_ends_is_valid(const struct net_ends *e)
{
    const unsigned known = NET_ENDS_NAMED | NET_ENDS_UNCOUNTED | NET_ENDS_PROBED;
    bool all = e->n <= NET_ENDS_MOST && (e->flags & ~known) == 0;
    for (unsigned i = 0; all && i < e->n; i++)
        all = (e->end[i].family == AF_INET || e->end[i].family == AF_INET6) &&
              e->end[i].prefix <= family_bits(&e->end[i]);
    return all;
}

struct net_address net_ends_address(const struct net_end *e)
{
    struct net_address a = {.family = e->family};
    memcpy(a.bytes, e->bytes, sizeof a.bytes);
    return a;
}

static bool is_same_network(const struct net_end *a, const struct net_end *b)
{
    const unsigned whole = a->prefix / 8u, rest = a->prefix % 8u;
    if (a->family != b->family || a->prefix != b->prefix || memcmp(a->bytes, b->bytes, whole) != 0)
        return false;
    return rest == 0 || (a->bytes[whole] ^ b->bytes[whole]) >> (8 - rest) == 0;
}

static enum score rate(const struct net_end *own, const struct net_end *peer, bool may_route)
{
    const bool is_same_rail = own->rail == peer->rail;
    if (is_same_network(own, peer))
        return is_same_rail ? SAME_NETWORK_AND_RAIL : SAME_NETWORK;
    if (!may_route || own->family != peer->family)
        return NO_PAIR;
    return is_same_rail ? SAME_RAIL : SAME_FAMILY;
}

static bool may_route(const struct net_ends *own, const struct net_ends *peer)
{
    return (own->flags & peer->flags & NET_ENDS_NAMED) != 0;
}

unsigned net_ends_pairs(const struct net_ends *own, const struct net_ends *peer,
                        struct net_pair ret[NET_ENDS_MOST])
{
    unsigned n = 0;
    for (unsigned i = 0; i < own->n; i++) {
        enum score best = NO_PAIR;
        for (unsigned k = 0; k < peer->n; k++) { /* ends of equal worth in turns */
            const unsigned j = (i + k) % peer->n;
            const enum score score = rate(&own->end[i], &peer->end[j], may_route(own, peer));
            if (score <= best)
                continue;
            best = score;
            ret[n] = (struct net_pair){i, j};
        }
        n += best != NO_PAIR;
    }
    return n;
}

bool net_ends_allow_lanes(const struct net_ends *own, const struct net_ends *peer)
{
    struct net_pair pair[NET_ENDS_MOST];
    return ((own->flags | peer->flags) & NET_ENDS_UNCOUNTED) == 0 ||
           net_ends_pairs(own, peer, pair) > 0;
}

bool net_ends_of_lane(const struct net_ends *own, const struct net_ends *peer, unsigned lane,
                      struct net_pair *ret)
{
    struct net_pair pair[NET_ENDS_MOST];
    const unsigned n = net_ends_pairs(own, peer, pair);
    if (n > 0)
        *ret = pair[(lane - 1) % n];
    return n > 0;
}
