/* bucket_plan.h - deal a network's gradients into buckets.
 *
 * Pure. The tensors are walked in the order in which a backward pass finishes them: as it was seen,
 * or, before anything was seen, from last to first. Each joins the open bucket of its type; the
 * bucket is closed once it holds at least its limit, which is small for the first of a type (so
 * that averaging starts early) and the same for all others. No tensor is split: a bucket may be
 * larger than its limit. torch's DistributedDataParallel does the same after its first step.
 *
 * Buckets are averaged in the order of their last tensors, the order in which a backward pass fills
 * them. So the plan depends on the tensors and the order alone, and is the same on all ranks.
 *
 * Inside a bucket gradients lie in the order of their numbers, whatever the walk. Those of a
 * program that has them in one array do the same, so a bucket of neighbors is a piece of that
 * array; others are several such runs.
 *
 *     run   gradients of a bucket between whose numbers no other bucket has one of their type */
#ifndef DDP_WORKER_RUNTIME_MODEL_BUCKET_PLAN_H
#define DDP_WORKER_RUNTIME_MODEL_BUCKET_PLAN_H

#include <ddp/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;

#define BUCKET_ALIGN         64u                /* each gradient starts on a cache line */
#define BUCKET_FIRST_DEFAULT ((size_t)1 << 20)  /* 1 MiB */
#define BUCKET_BYTES_DEFAULT ((size_t)25 << 20) /* 25 MiB */

struct bucket_tensor {
    size_t bytes; /* a multiple of the element's size; 0 is allowed */
    enum ddp_dtype dtype;
};

struct bucket_place { /* where a tensor's gradient lies */
    size_t bucket;
    size_t run;    /* of the bucket's; of an empty gradient any of them */
    size_t offset; /* in bytes, a multiple of BUCKET_ALIGN */
};

struct bucket {
    enum ddp_dtype dtype;
    size_t n_tensors, n_runs; /* n_runs: 0 where all gradients are empty */
    size_t payload_bytes;     /* the gradients alone: what is held against the limit */
    size_t bytes;             /* with the gaps that alignment leaves; a multiple of the element */
};

struct bucket_plan {
    size_t n_tensors, n_buckets;
    struct bucket_place *place; /* owned; n_tensors of them */
    struct bucket *bucket;      /* owned; n_buckets of them, in the order of averaging */
};

struct bucket_limits {         /* what closes a bucket */
    size_t first_bytes, bytes; /* limits of the first bucket of each type, and of the others; at
                                  least 1 */
    size_t elements;           /* not 0: limit of all buckets, replacing both */
};

#define BUCKET_UNLIMITED ((struct bucket_limits){.first_bytes = SIZE_MAX, .bytes = SIZE_MAX})

/* order      the numbers of the tensors, each of them once; NULL: n_tensors - 1 .. 0
 * ret_plan   owned by the caller, which calls bucket_plan_fini(); written only on success
 * returns    0
 *            -EINVAL  an unknown type, a bucket larger than the address space, or an order that
 *                     leaves a tensor out; err names the tensor by its number
 *            -ENOMEM */
int bucket_plan_init(const struct bucket_tensor *tensors, size_t n_tensors, const size_t *order,
                     const struct bucket_limits *limits, struct bucket_plan *ret_plan,
                     struct co_error *err);
void bucket_plan_fini(struct bucket_plan *p); /* a zeroed plan is fine */

/* Whether two plans of the same tensors deal them alike. */
bool bucket_plan_same(const struct bucket_plan *a, const struct bucket_plan *b);

/* --- which gradients of a step are final ------------------------------------------------------ */

/* Counts down the buckets of a plan as their gradients are reported ready, and keeps the order of
 * the reports, from which a better plan can be made. */
struct bucket_ready {
    const struct bucket_plan *plan; /* borrowed */
    size_t n_said;                  /* gradients that were reported ready in this step */
    size_t *order;                  /* owned; their numbers */
    bool *said;                     /* owned; per gradient */
    size_t *n_waiting;              /* owned; per bucket: gradients that were not reported yet */
};

/* returns   0; -ENOMEM */
int bucket_ready_init(struct bucket_ready *r, const struct bucket_plan *plan);
void bucket_ready_fini(struct bucket_ready *r); /* a zeroed one is fine */

/* Nothing is ready any more: the next step. */
void bucket_ready_begin(struct bucket_ready *r);

/* Report that gradient i, of the plan, is final. returns false if it was reported before in this
 * step */
bool bucket_ready_say(struct bucket_ready *r, size_t i);

static inline bool bucket_ready_is_said(const struct bucket_ready *r, size_t i)
{
    return r->said[i];
}

static inline bool bucket_ready_is_complete(const struct bucket_ready *r, size_t bucket)
{
    return r->n_waiting[bucket] == 0;
}

#endif
