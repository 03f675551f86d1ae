/* sampler_priv.h - inside of a sampler, for sampler.c, sampler_verify.c and loader.c. */
#ifndef DDP_WORKER_RUNTIME_DATA_SAMPLER_PRIV_H
#define DDP_WORKER_RUNTIME_DATA_SAMPLER_PRIV_H

#include "worker-runtime/core/group.h"
#include "worker-runtime/group/recovery.h"

#include <ddp/sampler.h>

/* --- which places of the permutation a rank takes: the arithmetic of torch's DistributedSampler --
 *
 * Pure. Sample k of a rank is at place (base + rank + k * world_size) mod n of the permutation. If
 * n is not a multiple of world_size the last places wrap around (or are dropped), so that all ranks
 * have as many samples; this one rule also covers n < world_size. An epoch that is resumed in the
 * middle, by any number of ranks, is the same from place `base` on. */

#define SAMPLER_MAX_N UINT32_MAX /* entries of the permutation have 32 bits */

struct sampler_plan {
    int64_t n;      /* samples in the data set, 0 .. SAMPLER_MAX_N */
    int world_size; /* >= 1 */
    int rank;       /* 0 .. world_size - 1 */
    bool drop_last;
    int64_t base; /* places that were taken before, 0 .. n */
};

/* Samples of each rank from base on: (n - base) / world_size, rounded down with drop_last, else
 * up. */
int64_t sampler_plan_length(const struct sampler_plan *p);

/* Write samples first .. first + count - 1 of this rank; they must be below the length.
 *
 * perm   n entries, or NULL for 0, 1, 2, ... */
void sampler_plan_fill(const struct sampler_plan *p, const uint32_t *perm, int64_t first,
                       int64_t count, int64_t *ret_index);

/* --- a sampler -------------------------------------------------------------------------------- */

struct ddp_sampler {
    struct group_child child; /* first member */
    struct ddp_group *group;  /* borrowed: it outlives its samplers */
    struct sampler_plan plan;
    bool shuffle;
    int64_t seed;
    int64_t length, left; /* samples of this rank: per epoch; in this epoch from its base on */
    int64_t epoch, taken; /* taken: of `left`, what was given out */
    uint64_t digest;      /* of that */
    size_t number;        /* see recovery.h */
    bool is_resumed;      /* by the program, and nothing was taken since: next_epoch stays here */
    bool returns;         /* the next epoch begins ... */
    struct recovery_place place; /* ... here */
    const uint32_t *perm;        /* borrowed, from one of the next two; NULL: no shuffling */
    struct shared_perm *shared;  /* mapped; NULL: this rank draws its own */
    uint32_t *own;               /* mapped; pages of it are used while perm is not a shared one */
    int64_t *index;              /* mapped; the current batch, from its start; has space for
                                    `length` */
    bool is_read_ahead;          /* what was taken counts as used only after sampler_use() ... */
    struct recovery_place used;  /* ... and this is how far that is */
};

struct recovery_place sampler_place(const struct ddp_sampler *s); /* after everything that was
                                                                     taken */

/* A batch is about to be used. after: sampler_place() of when it was taken */
void sampler_use(struct ddp_sampler *s, const struct recovery_place *after);

/* All that was taken was used, or will never be. */
void sampler_use_all(struct ddp_sampler *s);

#endif
