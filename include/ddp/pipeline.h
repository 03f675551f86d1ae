/* pipeline.h - a network that is cut into stages, one on each rank of a group: model parallelism
 * with micro-batches, as GPipe has it.
 *
 * A step sends n_micro micro-batches through the stages, one after the other, so that a stage
 * works on one while the next stage works on the one before; then their gradients back, from the
 * last one to the first:
 *
 *     stage 0   F0 F1 F2 F3 .  .  .  .  B3 B2 B1 B0
 *     stage 1   .  F0 F1 F2 F3 .  .  B3 B2 B1 B0 .
 *     stage 2   .  .  F0 F1 F2 F3 B3 B2 B1 B0 .  .
 *
 * Of S stages each waits for 2 (S - 1) of the 2 (n_micro + S - 1) slots. Gradients of parameters
 * are the program's to add up over micro-batches. Several parallel pipelines (each has a part of
 * the batch) average theirs stage by stage: ddp_pipeline_groups() makes the groups, and a ddp_model
 * on `replicas` averages. */
#ifndef DDP_PIPELINE_H
#define DDP_PIPELINE_H

#include <ddp/group.h>
#include <ddp/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_pipeline; /* opaque */

/* Deal the ranks of `g` out to pipelines of n_stages: ranks 0 .. n_stages - 1 are the first one.
 * Collective.
 *
 * n_stages       divides the world size
 * ret_stages     this rank's pipeline: its rank there is its stage
 * ret_replicas   the ranks that have the same stage: its rank there is the pipeline's number
 * returns        0; DDP_EINVAL n_stages; else as ddp_group_split(), whose groups both are */
int ddp_pipeline_groups(struct ddp_group *g, int n_stages, struct ddp_group **ret_stages,
                        struct ddp_group **ret_replicas);

struct ddp_pipeline_opts {
    int n_micro;      /* micro-batches of a step, 1 .. 4096; the same on all stages */
    size_t in_count;  /* elements of a micro-batch that come from the stage before; of stage 0: 0.
                            What that one has as out_count */
    size_t out_count; /* ... that go to the next one; of the last stage: 0 */
    enum ddp_dtype dtype; /* of these; the same on all stages */

    /* The stage's part of a forward pass: `in` of micro-batch `micro` into `out`.
     *
     * in        in_count elements, valid until backward() of this micro-batch returns; NULL of
     *           stage 0, which takes the step's samples
     * out       out_count elements; NULL of the last stage, which has the loss
     * returns   0; a negative status or DDP_RETRY, which fails the step on all stages */
    int (*forward)(void *arg, int micro, const void *in, void *out);

    /* The same for the backward pass; micro-batches from last to first. What the forward pass kept
     * is the stage's own choice (GPipe computes it again from `in`).
     *
     * in        as in forward()
     * d_out     out_count elements: the gradient by `out`; NULL of the last stage
     * d_in      in_count elements, to be written; NULL of stage 0
     * returns   as forward */
    int (*backward)(void *arg, int micro, const void *in, const void *d_out, void *d_in);
    void *arg;
};

/* Collective over `stages`, and all fail together.
 *
 * stages         used for nothing else during a step
 * ret_pipeline   belongs to the group, which destroys it with itself
 * cost           n_micro times twice in_count and twice out_count elements, shared
 * returns        0; DDP_EINVAL an option is out of its bounds; DDP_EMISMATCH n_micro or dtype
 *                differ, or what one stage sends is not what the next one takes; DDP_ENOMEM; else
 *                as ddp_all_reduce() */
int ddp_pipeline_create(struct ddp_group *stages, const struct ddp_pipeline_opts *opts,
                        struct ddp_pipeline **ret_pipeline);
void ddp_pipeline_destroy(struct ddp_pipeline *p); /* NULL is fine. Not collective */

/* A step: all micro-batches forward, and back. Collective over the stages. A stage whose function
 * fails continues with zeros, so that no rank waits; in the end all fail.
 *
 * returns   0 on all stages; what a function of this stage has returned; DDP_EMISMATCH one of
 *           another stage has failed: the text names it, and the pipeline can be used on; else as
 *           ddp_send() */
int ddp_pipeline_step(struct ddp_pipeline *p);

#ifdef __cplusplus
}
#endif
#endif
