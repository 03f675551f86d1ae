/* roster_index.h - from a number that names a node (a link, an instance id, a node rank) to its
 * slot in the roster. Open addressing; several slots may stand under one hash, so the caller
 * compares. */
#ifndef DDP_RENDEZVOUS_MEMBERSHIP_ROSTER_INDEX_H
#define DDP_RENDEZVOUS_MEMBERSHIP_ROSTER_INDEX_H

#include <stddef.h>
#include <stdint.h>

#define ROSTER_NO_SLOT UINT32_MAX

struct roster_index { /* zeroed: empty */
    struct roster_index_cell {
        uint64_t hash;
        uint32_t slot; /* ROSTER_NO_SLOT: the cell is free */
    } * cells;         /* owned */
    size_t n_cells;    /* 0 or a power of two */
    size_t n_used;
};

void roster_index_fini(struct roster_index *x);

/* Reserve memory, so that no add fails until so many are in it. returns 0 or -ENOMEM */
int roster_index_reserve(struct roster_index *x, size_t n);
void roster_index_add(struct roster_index *x, uint64_t hash, uint32_t slot);
void roster_index_remove(struct roster_index *x, uint64_t hash, uint32_t slot); /* must be in it */

/* Walk over the slots under a hash: *at is 0 first, and not to be touched. returns a slot, or
 * ROSTER_NO_SLOT when there are no more */
uint32_t roster_index_find(const struct roster_index *x, uint64_t hash, size_t *at);

uint64_t roster_index_hash(uint64_t a, uint64_t b);

#endif
