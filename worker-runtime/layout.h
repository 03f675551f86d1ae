/* layout.h - which elements of whose `in` go where in whose `out`, for every collective. Pure.
 *
 * An `in` is one block that concerns everybody (all_reduce, broadcast, all_gather, ...) or a block
 * for each rank (scatter, reduce_scatter, all_to_all); an `out` likewise one block or a block from
 * each rank. */
#ifndef DDP_WORKER_RUNTIME_LAYOUT_H
#define DDP_WORKER_RUNTIME_LAYOUT_H

#include "backend.h"
#include "slices.h"

struct layout {
    enum call_kind kind;
    unsigned rank, n;
    int root;
    size_t size;             /* of an element */
    size_t count;            /* of each block, where there are no counts */
    const size_t *counts;    /* as in struct collective, or NULL */
    const size_t *in_counts; /* likewise */
    size_t *in_first;  /* n: where the blocks begin, if there are counts; the caller's memory */
    size_t *out_first; /* likewise */
    size_t most;       /* elements of the longest block of any rank; of all_to_all_v: of this
                                rank's, until layout_set_most() */
};

/* in_first, out_first   n numbers each: memory to work in, for as long as the layout lives */
void layout_init(struct layout *l, const struct collective *what, unsigned rank, unsigned n,
                 size_t *in_first, size_t *out_first);

bool layout_gives(const struct layout *l, unsigned rank); /* has an `in` that others need */
bool layout_gets(const struct layout *l, unsigned rank);  /* has an `out` */
bool layout_deals(const struct layout *l);                /* `in` has a block for each rank */
bool layout_collects(const struct layout *l);             /* `out` has a block from each rank */

struct slice layout_in(const struct layout *l, unsigned for_rank);   /* of this rank's `in` */
struct slice layout_out(const struct layout *l, unsigned from_rank); /* of this rank's `out` */
/* The block of another rank's `in` that this rank reads; not of all_to_all_v. */
struct slice layout_in_of(const struct layout *l, unsigned rank);

/* The signature of a collective among n ranks. */
struct call layout_call(const struct collective *what, unsigned n);

bool layout_has_pairs(const struct layout *l);  /* all_to_all_v: a count for each pair of ranks */
size_t layout_n_blocks(const struct layout *l); /* of an `in`: 1 or n */
size_t
layout_in_bytes(const struct layout *l); /* of this rank's `in`, gaps to `most` not counted */
size_t layout_out_bytes(const struct layout *l);

#endif
