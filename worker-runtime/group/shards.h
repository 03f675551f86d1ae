/* shards.h - what a rank holds of a state that is sharded over the ranks: its own shard, and
 * perhaps a copy of another's, each in two versions. Pure, except for its memory.
 *
 * A state is n_arrays rows of `total` numbers. Rank r of n has the elements shards_first(r) ..
 * shards_first(r + 1) - 1 of each row. A version belongs to a completed step, or to several that
 * changed nothing. While one is made the other stays: whichever rank dies meanwhile, for the last
 * step that is complete on any rank each shard is held by its rank, and by the next one if copies
 * are made. */
#ifndef DDP_WORKER_RUNTIME_GROUP_SHARDS_H
#define DDP_WORKER_RUNTIME_GROUP_SHARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHARDS_ALIGN = 16 }; /* shards begin at multiples of so many elements */

struct shards_shape {
    size_t total; /* a multiple of SHARDS_ALIGN */
    uint32_t n_arrays, element_bytes;
    int32_t n_ranks, rank;
};

struct shard_version {
    uint8_t *memory; /* owned: the shard's part of each row, one after the other */
    bool is_valid;
    uint64_t first_step, last_step; /* it is the state after these */
    uint64_t n_updates;             /* steps that changed it */
};

struct shard {
    int of_rank;                /* -1: none is held */
    struct shard_version at[2]; /* [1].memory NULL: there is only one version */
};

struct shards {
    struct shards_shape shape;
    struct shard own, buddy;
    uint64_t step; /* the last completed one */
    bool is_used;  /* false: nothing was ever kept here */
};

size_t shards_first(const struct shards_shape *s, int rank);
size_t shards_count(const struct shards_shape *s, int rank);
size_t shards_bytes(const struct shards_shape *s, int rank); /* of a version */

/* Take memory for the shard of shape->rank, zeroed, as the state after step 0.
 *
 * n_versions   1 or 2
 * has_buddy    also for that of the rank before it, not valid yet
 * returns      0, -ENOMEM; *s can be finished in any case */
int shards_init(struct shards *s, const struct shards_shape *shape, int n_versions, bool has_buddy);
void shards_fini(struct shards *s); /* zeroed is fine */
size_t shards_held_bytes(const struct shards *s);

/* The version that is the state after `step`; NULL: none is. */
struct shard_version *shard_find(struct shard *s, uint64_t step);

/* Where the state after the next step goes: the version that is not that of `step`, or the only
 * one. It is not valid until shard_done(). */
struct shard_version *shard_next(struct shard *s, uint64_t step);
void shard_done(struct shard_version *v, uint64_t step, uint64_t n_updates);

/* A step changed nothing: the state after `step` is also that after step + 1. */
void shard_keep(struct shard *s, uint64_t step);

#endif
