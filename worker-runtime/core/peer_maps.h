/* peer_maps.h - the user segments of a node's other ranks, mapped here for as long as they are of
 * use.
 *
 * A rank that outlives a peer joins most of the same ranks again. Their memory stays mapped: to
 * remove a mapping and to touch each of its pages again costs 20 ms for 100 MB. The memory of ranks
 * that do not come back is unmapped by a thread of its own, later and bit by bit, when the peers
 * already train: the rank that unmaps it last also pays for freeing what the dead one had. */
#ifndef DDP_WORKER_RUNTIME_CORE_PEER_MAPS_H
#define DDP_WORKER_RUNTIME_CORE_PEER_MAPS_H

#include <stddef.h>
#include <stdint.h>

struct co_error;

struct peer_maps {        /* zeroed: none */
    struct peer_map *map; /* owned */
    size_t n, cap;
    struct peer_sweep *sweeps; /* owned; that may be under way */
};

/* Let go of all, and wait until that is done. */
void peer_maps_fini(struct peer_maps *m);

/* Map a peer's segment, or find it where it is mapped already.
 *
 * fd, bytes   as for user_segment_map_peer(); the caller keeps its own
 * ret_base    stays until peer_maps_sweep() after peer_maps_give_back()
 * returns     as user_segment_map_peer() */
int peer_maps_take(struct peer_maps *m, int fd, uint64_t bytes, uint8_t **ret_base,
                   struct co_error *err);
void peer_maps_give_back(struct peer_maps *m, const uint8_t *base); /* NULL is fine */

/* Unmap what was given back and not taken again; does not wait for it. */
void peer_maps_sweep(struct peer_maps *m);

#endif
