/* zero_priv.h - what the files of ddp_zero share.
 *
 *   zero.c           making and destroying, options, checkpoints, numbers
 *   zero_step.c      a step
 *   zero_recover.c   the state of a generation before, from the ranks that hold its shards
 *
 * All elements lie in one row, each tensor from a multiple of SHARDS_ALIGN on, whatever the number
 * of ranks; gradients are copied there and averaged there, and new parameters are distributed
 * through the same memory. */
#ifndef DDP_WORKER_RUNTIME_TOOLS_ZERO_PRIV_H
#define DDP_WORKER_RUNTIME_TOOLS_ZERO_PRIV_H

#include "worker-runtime/arithmetic/optimizer.h"
#include "worker-runtime/core/group.h"
#include "worker-runtime/group/shards.h"
#include <ddp/error.h>
#include <ddp/zero.h>

struct ddp_zero {
    struct group_child child; /* first member */
    struct ddp_group *g;
    struct ddp_group *ring;     /* owned: the same ranks; for peer replicas; NULL: none */
    struct ddp_tensor *tensors; /* borrowed */
    size_t n_tensors;
    struct optimizer_step how; /* except for number and grad_factor */
    double max_norm;
    bool *decays;         /* owned; per tensor */
    enum ddp_dtype dtype; /* of the tensors */
    enum ddp_dtype fine;  /* of the state: float64, else float32 */
    unsigned n_arrays;    /* of the optimizer; masters are one more */
    bool has_masters;
    size_t *offset;               /* owned; per tensor, in elements of the row */
    size_t *counts;               /* owned; per rank: elements of its shard */
    uint8_t *row;                 /* of ddp_alloc() */
    bool is_row_kept;             /* another object has it, or addresses in it: it is not freed */
    struct recovery_shards *kept; /* borrowed; NULL: no generation can follow */
    struct shards *shards;        /* borrowed, of `kept`, or: */
    struct shards own_shards;
    uint64_t began_ns;     /* the step that is being made */
    bool is_torn;          /* a step broke when the only version of the shard was written already */
    int64_t saved_updates; /* what a checkpoint reads and writes */
    char item_name[DDP_ZERO_MAX_ITEMS][128];
};

static inline size_t zero_first(const struct ddp_zero *z)
{
    return shards_first(&z->shards->shape, z->g->rank);
}

static inline size_t zero_count(const struct ddp_zero *z)
{
    return z->counts[z->g->rank];
}

static inline uint8_t *zero_row_at(const struct ddp_zero *z, size_t element)
{
    return z->row + element * ddp_dtype_size(z->dtype);
}

/* Element `element` (of this rank's shard) in array `array` of a version. */
static inline uint8_t *zero_state_at(const struct ddp_zero *z, const struct shard_version *v,
                                     unsigned array, size_t element)
{
    const size_t at = array * zero_count(z) + (element - zero_first(z));
    return v->memory + at * ddp_dtype_size(z->fine);
}

/* The version after the last completed step. Not NULL. */
static inline struct shard_version *zero_current(const struct ddp_zero *z)
{
    return shard_find(&z->shards->own, z->shards->step);
}

/* A tensor's part of this rank's shard: elements first .. end - 1 of the row; false: none. */
static inline bool zero_part(const struct ddp_zero *z, size_t tensor, size_t *ret_first,
                             size_t *ret_end)
{
    const size_t begins = z->offset[tensor], ends = begins + z->tensors[tensor].count;
    const size_t own = zero_first(z), own_end = own + zero_count(z);
    *ret_first = begins > own ? begins : own;
    *ret_end = ends < own_end ? ends : own_end;
    return *ret_first < *ret_end;
}

/* --- zero_step.c ------------------------------------------------------------------------------ */

/* Send a version of this rank's shard to the next one, and take that of the one before, as the
 * state after `step`. Collective; nothing without peer replicas. */
int zero_copy_to_buddy(struct ddp_zero *z, const struct shard_version *v, uint64_t step,
                       uint64_t n_updates);

/* This rank's part of the row to all ranks, and the whole row into the parameters. Collective. */
int zero_hand_out(struct ddp_zero *z);

/* --- zero_recover.c --------------------------------------------------------------------------- */

/* Parameters and state: rank 0's and zeros, or those after the last completed step. Collective.
 * returns   a public status */
int zero_take_state(struct ddp_zero *z, const struct shards_shape *shape);

#endif
