/* layout.h - which elements of whose `in` go where in whose `out`, for every collective. Pure.
 *
 * An `in` is one block that concerns every rank (all_reduce, broadcast, all_gather, ...) or a block
 * for each rank (scatter, reduce_scatter, all_to_all); an `out` is also one block or a block from
 * each rank. */
#ifndef DDP_WORKER_RUNTIME_CORE_LAYOUT_H
#define DDP_WORKER_RUNTIME_CORE_LAYOUT_H

#include "backend.h"
#include "worker-runtime/arithmetic/slices.h"

struct layout {
    enum call_kind kind;
    unsigned rank, n;
    int root;
    size_t size;             /* of an element */
    size_t count;            /* elements of each block; if there are no counts */
    const size_t *counts;    /* as in struct collective, or NULL */
    const size_t *in_counts; /* the same */
    size_t *in_first;  /* n: where the blocks begin, if there are counts; the caller's memory */
    size_t *out_first; /* the same */
    size_t most;       /* elements of the longest block of any rank; of all_to_all_v: of this
                                rank's, until layout_set_most() */
};

/* in_first, out_first   n numbers each: memory to work in, for as long as the layout lives */
void layout_init(struct layout *l, const struct collective *what, unsigned rank, unsigned n,
                 size_t *in_first, size_t *out_first);

/* In the header for the short way of small calls. */

/* Has an `in` that others need. */
static inline bool layout_gives(const struct layout *l, unsigned rank)
{
    bool from_root = l->kind == CALL_BROADCAST || l->kind == CALL_SCATTER;
    return !from_root || l->root == (int)rank;
}

/* Has an `out`. */
static inline bool layout_gets(const struct layout *l, unsigned rank)
{
    bool to_root = l->kind == CALL_REDUCE || l->kind == CALL_GATHER;
    return !to_root || l->root == (int)rank;
}

/* `in` has a block for each rank. */
static inline bool layout_deals(const struct layout *l)
{
    return l->kind == CALL_SCATTER || l->kind == CALL_REDUCE_SCATTER || l->kind == CALL_ALL_TO_ALL;
}

/* `out` has a block from each rank. */
static inline bool layout_collects(const struct layout *l)
{
    return l->kind == CALL_ALL_GATHER || l->kind == CALL_GATHER || l->kind == CALL_ALL_TO_ALL ||
           l->kind == CALL_GROUP_SPLIT;
}

/* Of an `in`: 1 or n. */
static inline size_t layout_n_blocks(const struct layout *l)
{
    return layout_deals(l) ? l->n : 1;
}

/* A block of this rank's `in`. */
static inline struct slice layout_in(const struct layout *l, unsigned for_rank)
{
    if (!layout_deals(l))
        return (struct slice){0, l->counts != NULL ? l->counts[l->rank] : l->count};
    if (l->counts == NULL)
        return (struct slice){for_rank * l->count, l->count};
    return (struct slice){l->in_first[for_rank], l->in_counts[for_rank]};
}

/* A block of this rank's `out`. */
static inline struct slice layout_out(const struct layout *l, unsigned from_rank)
{
    if (!layout_collects(l))
        return (struct slice){0, l->counts != NULL ? l->counts[l->rank] : l->count};
    if (l->counts == NULL)
        return (struct slice){from_rank * l->count, l->count};
    return (struct slice){l->out_first[from_rank], l->counts[from_rank]};
}

/* The block of another rank's `in` that this rank reads; not of all_to_all_v. */
static inline struct slice layout_in_of(const struct layout *l, unsigned rank)
{
    if (layout_deals(l))
        return layout_in(l, l->rank);
    return (struct slice){0, l->counts != NULL ? l->counts[rank] : l->count};
}

/* all_to_all_v: a count for each pair of ranks. */
static inline bool layout_has_pairs(const struct layout *l)
{
    return l->in_counts != l->counts;
}

/* The signature of a collective among n ranks. */
struct call layout_call(const struct collective *what, unsigned n);

/* Of this rank's `in`, gaps to `most` not counted. */
size_t layout_in_bytes(const struct layout *l);
size_t layout_out_bytes(const struct layout *l);

#endif
