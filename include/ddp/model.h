/* model.h - gradients averaged over the ranks, bucket by bucket.
 *
 * The tensors of a network are dealt into buckets in the order in which a backward pass finishes
 * them (last to first; the first bucket to be full is small, 1 MiB, the others 25 MiB: the choice
 * of torch's DistributedDataParallel). A bucket is averaged as soon as all its gradients are ready,
 * in the same order on every rank. */
#ifndef DDP_MODEL_H
#define DDP_MODEL_H

#include <ddp/group.h>
#include <ddp/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_model; /* opaque */

struct ddp_tensor {
    const char *name; /* shown in messages; borrowed until the model is destroyed */
    void *param;      /* count elements */
    void *grad;       /* count elements; NULL: the library allocates them (zeroed, and reduced where
                         they lie) and writes the address back here */
    size_t count;
    enum ddp_dtype dtype; /* DDP_FLOAT32 or DDP_FLOAT64 */
};

struct ddp_model_opts {
    size_t first_bucket_bytes; /* 0: 1 MiB */
    size_t bucket_bytes;       /* 0: 25 MiB */
};

/* Check that all ranks describe the same tensors, give every rank rank 0's parameters, and plan the
 * buckets. Collective.
 *
 * tensors     n_tensors of them; borrowed until the model is destroyed. grad is written where NULL
 * opts        NULL: all defaults
 * ret_model   belongs to the group, which destroys it at ddp_finalize()
 * returns     0
 *             DDP_EMISMATCH  names, counts or types differ; the text names the tensor and both
 *                            sides
 *             DDP_EINVAL     a tensor without a name or param, or with an unusable type
 *             DDP_ENOMEM, DDP_EPEER, DDP_ETIMEOUT */
int ddp_model_create(struct ddp_group *g, struct ddp_tensor *tensors, size_t n_tensors,
                     const struct ddp_model_opts *opts, struct ddp_model **ret_model);
void ddp_model_destroy(struct ddp_model *m); /* before ddp_finalize(), if at all; NULL is fine */

/* Say that gradient i is final for this step. Call it from the backward pass, in any order; a
 * bucket whose gradients are all ready is averaged at once, if it is the next one in order.
 * Optional: what was not said is taken as ready by ddp_model_sync(). Saying it twice in a step is
 * DDP_EINVAL.
 *
 * returns   0 or an error, which ddp_model_sync() returns again, so that it may be ignored here */
int ddp_model_ready(struct ddp_model *m, size_t i);

/* Finish the step: average all buckets that are left. When it returns 0 each grad holds the average
 * over all ranks, bit for bit the same on each.
 *
 * returns   0; DDP_RETRY (see ddp_run()); DDP_EMISMATCH, DDP_EPEER, DDP_ETIMEOUT */
int ddp_model_sync(struct ddp_model *m);

#ifdef __cplusplus
}
#endif
#endif
