/* syncbn.h - batch normalization over the batches of all ranks, as one batch: torch's
 * SyncBatchNorm, forward and backward, on CPUs and on GPUs.
 *
 * With a few samples per rank the moments of its own batch are noise. Here the ranks combine
 * theirs, so that any number of ranks computes what one rank with the whole batch does, except for
 * rounding. Batches may differ in size, and be empty: a rank without samples also makes the calls.
 *
 * The group is not the one of a ddp_model whose gradients are being averaged: make another one, of
 * the same ranks, for all layers together:
 *
 *     ddp_group_split(world, 0, 0, &norm_group);
 *     ddp_syncbn_create(norm_group, &(struct ddp_syncbn_opts){.channels = 64, ...}, &bn);
 *
 * All inner arithmetic is float64. Moments are those of two passes over the rank's batch, merged in
 * rank order: the same bits on all ranks and in every run. On a GPU sums are divided among threads,
 * so that the last bits differ from those of a CPU. They are also the same in every run, except for
 * what NCCL's sum in the backward pass depends on. */
#ifndef DDP_SYNCBN_H
#define DDP_SYNCBN_H

#include <ddp/group.h>
#include <ddp/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_syncbn; /* a layer; opaque */

struct ddp_syncbn_opts {
    size_t channels;      /* 1 or more */
    enum ddp_dtype dtype; /* DDP_FLOAT32 or DDP_FLOAT64: type of all memory below, and of x, y */
    const void *weight;   /* channels; NULL: 1. Borrowed, as what follows */
    const void *bias;     /* channels; NULL: 0 */
    void *running_mean;   /* channels; both, or NULL: none are kept */
    void *running_var;    /* channels; follows the unbiased variance */
    double eps;           /* 0: 1e-5 */
    double momentum;      /* of the running ones: (1 - momentum) * old + momentum * new; 0: 0.1 */
    void *stream; /* all memory here, and x, y, dy, dx, dweight, dbias, is of this rank's GPU
                     (device.h), and calls are put into this CUDA stream's order: they return at
                     once. At most 2^24 channels. NULL: memory of the CPU */
};

/* Where values lie: that of channel c, `inner` number i in `outer` number o is at
 * (o * channels + c) * inner + i. Images [n][c][h][w]: outer = n, inner = h * w. Channels last:
 * outer = n * h * w, inner = 1. */
struct ddp_syncbn_shape {
    size_t outer; /* 0: this rank has no sample */
    size_t inner;
};

/* Not collective.
 *
 * ret_bn    belongs to the group, which destroys it with itself
 * returns   0; DDP_EINVAL an option is out of its bounds; DDP_ENOMEM; with a stream also
 *           DDP_EUNSUPPORTED: there is no GPU, or there are no kernels for it */
int ddp_syncbn_create(struct ddp_group *g, const struct ddp_syncbn_opts *opts,
                      struct ddp_syncbn **ret_bn);
void ddp_syncbn_destroy(struct ddp_syncbn *bn); /* NULL is fine */

/* Normalize by the moments of all ranks' x, and let the running ones follow. Collective.
 *
 * y         may be x
 * cost      an all_gather of 2 * channels + 1 float64 of each rank
 * returns   0; DDP_EINVAL a NULL, or fewer than two values a channel on all ranks together (then on
 *           all of them; running moments are as before); else as ddp_all_gather(). With a stream
 *           the values are not counted: for a single value y is the bias, and running moments are
 *           as before */
int ddp_syncbn_forward(struct ddp_syncbn *bn, const struct ddp_syncbn_shape *shape, const void *x,
                       void *y);

/* The gradients of the last ddp_syncbn_forward(). Collective.
 *
 * x                as it was given there: keep it
 * dy               of this rank's own loss
 * dx               may be dy
 * dweight, dbias   channels of each, of this rank alone, for ddp_model to average; NULL: not wanted
 * cost             an all_reduce of 2 * channels float64
 * returns          0; DDP_EINVAL a NULL, or there was no forward of this shape; else as
 *                  ddp_all_reduce() */
int ddp_syncbn_backward(struct ddp_syncbn *bn, const struct ddp_syncbn_shape *shape, const void *x,
                        const void *dy, void *dx, void *dweight, void *dbias);

/* Normalize by the running moments. Not collective. y may be x.
 * returns   0; DDP_EINVAL a NULL, or none are kept */
int ddp_syncbn_infer(const struct ddp_syncbn *bn, const struct ddp_syncbn_shape *shape,
                     const void *x, void *y);

/* For layers of your own: combine the moments of all ranks. Collective.
 *
 * count      values a channel, 0 or more; all ranks' out
 * mean, m2   channels of each: the mean, and the sum of squared deviations from it
 * channels   as of ddp_syncbn_create()
 * returns    0; DDP_EINVAL a NULL, a negative count, or channels out of bounds; DDP_ENOMEM: then
 *            the peers wait without success, so finalize; else as ddp_all_gather() */
int ddp_syncbn_merge(struct ddp_group *g, double *count, double *mean, double *m2, size_t channels);

#ifdef __cplusplus
}
#endif
#endif
