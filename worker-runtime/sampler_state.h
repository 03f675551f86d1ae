/* sampler_state.h - inside of a sampler, for sampler.c and sampler_verify.c. */
#ifndef DDP_WORKER_RUNTIME_SAMPLER_STATE_H
#define DDP_WORKER_RUNTIME_SAMPLER_STATE_H

#include "group.h"
#include "recovery.h"
#include "sampler_plan.h"

#include <ddp/sampler.h>

struct shared_perm;

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
    bool returns;         /* the next epoch begins ... */
    struct recovery_place place; /* ... here */
    const uint32_t *perm;        /* borrowed, from one of the next two; NULL: no shuffling */
    struct shared_perm *shared;  /* mapped; NULL: this rank draws its own */
    uint32_t *own;               /* mapped; pages of it are used while perm is not a shared one */
    int64_t *index;              /* mapped; the current batch, from its start; room for `length` */
};

#endif
