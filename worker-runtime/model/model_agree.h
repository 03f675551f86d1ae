/* model_agree.h - do all ranks describe the same network?
 *
 * While they agree, that is one small all_reduce. Where they differ every rank finds out about the
 * same first difference, and reports both sides in the same words. Memory is bounded whatever a
 * peer sends: descriptions travel in pieces of fixed size. */
#ifndef DDP_WORKER_RUNTIME_MODEL_MODEL_AGREE_H
#define DDP_WORKER_RUNTIME_MODEL_MODEL_AGREE_H

#include <ddp/model.h>
#include <stddef.h>

struct model_description {
    const struct ddp_tensor *tensors; /* borrowed */
    size_t n_tensors;
    const struct ddp_model_opts
        *opts; /* borrowed; with defaults filled in. Its buffers are compared
                                          like tensors, after these */
};

/* Compare. Collective.
 *
 * mine      NULL: this rank cannot make its model; the others shall not wait for it
 * returns   0
 *           DDP_EMISMATCH  the ranks differ: the text names the tensor or the option and both
 *                          sides; or a rank had NULL: the text names it. The group is whole
 *           else           as ddp_all_reduce(); the group is broken */
int model_agree(struct ddp_group *g, const struct model_description *mine);

/* Copy the parameters of rank `root` to all ranks. returns as ddp_broadcast() */
int model_broadcast(struct ddp_group *g, const struct ddp_tensor *t, size_t n, int root,
                    void *stream);

#endif
