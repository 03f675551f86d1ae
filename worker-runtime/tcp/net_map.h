/* net_map.h - which rank of a group is on which node. Pure.
 *
 * A position is a rank's place when the ranks are put in the order of their nodes, and on a node in
 * the order of their local ranks. Nodes are in the order of the lowest rank on each. Mostly a
 * position is the rank itself; if a launcher distributes ranks over nodes in turns it is not. */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_MAP_H
#define DDP_WORKER_RUNTIME_TCP_NET_MAP_H

#include <stdbool.h>
#include <stdint.h>

struct co_error;

struct net_place { /* of a rank */
    uint32_t node; /* any number that is the same for all ranks of a node */
    uint32_t local_rank;
};

struct net_map {
    unsigned n, n_nodes;
    unsigned position, node, local; /* of this rank; node: 0 .. n_nodes - 1 */
    unsigned *first;                /* n_nodes + 1: positions where the nodes begin. Owned, with the
                                       next two after it */
    unsigned *rank_at;              /* n: of each position */
    unsigned *position_of;          /* n: of each rank */
    bool is_identity;               /* positions are ranks */
    unsigned n_slots;               /* ranks of the smallest node: so many of each node take part
                                       between the nodes */
    unsigned n_most;                /* ranks of the largest */
};

/* place     of each rank
 * returns   0; -EINVAL two ranks have one place; -ENOMEM */
int net_map_init(struct net_map *m, const struct net_place *place, unsigned n, unsigned rank,
                 struct co_error *err);
void net_map_fini(struct net_map *m); /* zeroed is fine */

static inline unsigned net_map_n_local(const struct net_map *m, unsigned node)
{
    return m->first[node + 1] - m->first[node];
}

/* The node of a position. */
static inline unsigned net_map_node_of(const struct net_map *m, unsigned position)
{
    unsigned node = 0;
    while (m->first[node + 1] <= position)
        node++;
    return node;
}

#endif
