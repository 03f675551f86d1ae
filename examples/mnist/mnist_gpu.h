/* mnist_gpu.h - mnist's training on the ranks' GPUs: what mnist.c does with gpu_net.h's library,
 * which is loaded here, and with the group's streams.
 *
 * A GPU that fails in the middle ends the process, with a line and exit status 75 (ddp/device.h):
 * it is not the program that is wrong, and ddprun may start another in its place. */
#ifndef DDP_EXAMPLES_MNIST_MNIST_GPU_H
#define DDP_EXAMPLES_MNIST_MNIST_GPU_H

#include <ddp/ddp.h>

#include <ddp/zero.h>

#include "../gpu/gpu_net.h"
#include "amp.h"

enum mnist_device { MNIST_CPU, MNIST_CUDA, MNIST_AUTO };

struct mnist_gpu { /* zeroed: not open */
    const struct gpu_ops *ops;
    struct gpu_net *net;
    struct convnet *host; /* the same network, borrowed */
    bool uses_graph;      /* steps are replayed from a graph where they can be; set by the caller */
    struct amp *amp;      /* with 16-bit floats, borrowed, set by the caller; NULL: without */
    struct ddp_zero *zero; /* the optimizer, on the CPU, with its state divided among the ranks; set
                              by mnist_gpu_zero(). NULL: it is on the GPU */
    size_t n_captured;     /* images of the step that the graph has; 0: no graph */
};

static inline bool mnist_gpu_is_on(const struct mnist_gpu *u)
{
    return u->net != NULL;
}

/* Take this rank's GPU, and put network and images there if they are not there yet. Not collective.
 *
 * host      borrowed until mnist_gpu_close()
 * returns   0, or -1: there is no GPU, no library for it, or not enough memory */
int mnist_gpu_open(struct mnist_gpu *u, struct ddp_group *g, struct convnet *host, size_t max_batch,
                   const struct dataset *data, struct failure *why);
void mnist_gpu_close(struct mnist_gpu *u); /* a zeroed one is fine */

/* Before the group ends, and whatever failed in it: NCCL does not let its communicator go before.
 * Without a graph, or a GPU, nothing is done. */
void mnist_gpu_drop_graph(struct mnist_gpu *u);

/* Copy results to the CPU: the optimizer's velocity and the masters of 16-bit floats; parameters
 * and running averages, into the network it was made like. No NCCL kernel is on the stream by
 * then. */
void mnist_gpu_get_optimizer(struct mnist_gpu *u, real *velocity);
void mnist_gpu_get_net(struct mnist_gpu *u);

/* Collective, and 0 or a status of libddp, from here on. */

/* The model of the GPU's gradients. What ddp_model_create() left in `velocity` and in the masters,
 * which were registered, goes to the GPU.
 *
 * norm_group   as of convnet_normalise_over() */
int mnist_gpu_model(struct mnist_gpu *u, struct ddp_group *g, struct ddp_group *norm_group,
                    const real *velocity, struct ddp_model **ret_model);

/* Instead of a model: `zero`, of the network on the CPU, averages gradients and makes steps there.
 * Its parameters go to the GPU.
 *
 * norm_group   as of convnet_normalise_over() */
int mnist_gpu_zero(struct mnist_gpu *u, struct ddp_group *g, struct ddp_group *norm_group,
                   struct ddp_zero *zero);

/* Forward, backward and the average over the ranks, which runs at the same time; in n_parts parts.
 * m: NULL after mnist_gpu_zero(), and then the average is part of the optimizer's step.
 *
 * With a graph: the first step of a model is a plain one. After it a step is captured, and steps
 * with as many images are replayed: only the choice of images changes, and it is copied to its
 * place before the launch. The last batch of an epoch, if it is smaller, is a plain step, on all
 * ranks. */
int mnist_gpu_gradients(struct mnist_gpu *u, struct ddp_group *g, struct ddp_model *m,
                        const int64_t *index, size_t n, size_t n_parts, double *ret_loss);

/* Running averages become the mean over the ranks; then this rank's test images are counted. */
int mnist_gpu_test(struct mnist_gpu *u, struct ddp_group *g, size_t first, size_t end,
                   size_t max_batch, int64_t *ret_right);

/* The optimizer's step, or none with 16-bit floats of which one is not finite. Collective after
 * mnist_gpu_zero() only. */
int mnist_gpu_step(struct mnist_gpu *u, const struct ddp_model *m, double lr, double momentum);

#endif
