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
    void *param;      /* count elements, aligned to one */
    void *grad;       /* count elements; NULL: the library allocates them (zeroed, and reduced where
                         they lie) and writes the address back here: valid for the life of the
                         process, whatever is destroyed meanwhile, and never to be freed */
    size_t count;
    enum ddp_dtype dtype; /* DDP_FLOAT32 or DDP_FLOAT64 */
};

struct ddp_model_opts {
    size_t first_bucket_bytes; /* 0: 1 MiB */
    size_t bucket_bytes;       /* 0: 25 MiB */
};

/* Check that all ranks describe the same tensors, give every rank rank 0's parameters, and plan the
 * buckets. Collective, and no rank waits for one that fails: all of them fail together.
 *
 * tensors     n_tensors (1 or more) of them; borrowed until the model is destroyed. grad is written
 *             where NULL, on success only
 * opts        NULL: all defaults
 * ret_model   belongs to the group, which destroys it at ddp_finalize()
 * returns     0
 *             DDP_EMISMATCH  names, counts, types or opts differ: the text names the tensor and
 *                            both sides, the same ones on all ranks; or another rank failed with
 *                            DDP_EINVAL or DDP_ENOMEM: the text names it. The group stays whole
 *             DDP_EINVAL     no tensors; one without a name or param, or with an unusable type
 *             DDP_ENOMEM     the text says what for
 *             DDP_EPEER, DDP_ETIMEOUT  the group is broken */
int ddp_model_create(struct ddp_group *g, struct ddp_tensor *tensors, size_t n_tensors,
                     const struct ddp_model_opts *opts, struct ddp_model **ret_model);
void ddp_model_destroy(struct ddp_model *m); /* before ddp_finalize(), if at all; NULL is fine */

/* Say that gradient i is final for this step. Call it from the backward pass, in any order; a
 * bucket whose gradients are all ready is averaged at once, if it is the next one in order.
 * Optional: what was not said is taken as ready by ddp_model_sync(). Until that returns, a gradient
 * that is ready may not be read or written.
 *
 * DDP_EINVAL (no such gradient, or said twice in a step) leaves the step as it was: the other ranks
 * get their averages, this rank hears of it again from sync, and the next step starts clean.
 *
 * returns   0 or an error, which ddp_model_sync() returns again, so that it may be ignored here */
int ddp_model_ready(struct ddp_model *m, size_t i);

/* Finish the step: average all buckets that are left. When it returns 0 each grad holds the average
 * over all ranks, bit for bit the same on each. When the group fails, gradients in the user's own
 * memory are as the backward pass left them.
 *
 * returns   0; DDP_RETRY (see ddp_run()); DDP_EMISMATCH, DDP_EPEER, DDP_ETIMEOUT, and these again
 *           from then on; DDP_EINVAL from a ddp_model_ready() of this step */
int ddp_model_sync(struct ddp_model *m);

#ifdef __cplusplus
}
#endif
#endif
