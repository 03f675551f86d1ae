/* gpu_net.h - the network of convnet.h on a GPU: parameters, gradients, optimizer and images lie
 * there, kernels of its own compute (gpu_layers.h).
 *
 * It is a library of its own, libmnist-cuda.so, that mnist loads when it is asked for a GPU: so
 * that mnist starts where there is no CUDA. What it exports is one struct gpu_ops.
 *
 * Functions put work on net->stream and return, unless noted that they wait; they return 0, or -1
 * with the reason in `why`. After the first -1 the GPU may not be used any more. One thread, whose
 * current device is the GPU. */
#ifndef DDP_EXAMPLES_GPU_GPU_NET_H
#define DDP_EXAMPLES_GPU_GPU_NET_H

#include <ddp/model.h>
#include <ddp/precision.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../mnist/convnet.h"
#include "../mnist/dataset.h"
#include "../shared/real.h"

struct failure;

struct gpu_net {
    struct ddp_tensor tensors[CONVNET_MAX_TENSORS]; /* of the GPU, else as of the convnet; grad NULL
                                                       until the caller, or ddp_model_create(), sets
                                                       it */
    size_t n_tensors;
    struct ddp_tensor
        seen[CONVNET_MAX_TENSORS]; /* after amp_open(): what the ranks exchange instead
                                                    of these, in the policy's types */
    struct convnet_stat stats[CONVNET_MAX_STATS]; /* the same */
    size_t n_stats;
    void *stream;    /* a cudaStream_t */
    double *results; /* 1, of the host: what the last forward or count gave, once the stream is
                        waited for */
    int norm_status; /* what a call on the group of normalise_over() has failed with, the first
                        time; 0: none has. What was computed since then is wrong */

    struct gpu_priv *inside;
};

enum gpu_part { GPU_TRAIN, GPU_TEST }; /* of the data set */

struct gpu_ops {
    size_t size, real_bytes; /* of this struct and of a real; if they differ, the library is of
                                another build */

    /* Make the network that `like` is, with its weights, on the calling thread's current device,
     * and put the data set there.
     *
     * like      lent: read now
     * ret_net   owned by the caller, which calls close() */
    int (*open)(const struct convnet *like, size_t max_batch, const struct dataset *data,
                struct gpu_net **ret_net, struct failure *why);
    void (*close)(struct gpu_net *net); /* nothing may be on the stream that waits for a peer */

    /* As convnet_normalise_over(), for training.
     * returns   0, or a status of libddp */
    int (*normalise_over)(struct gpu_net *net, struct ddp_group *g);

    /* Which images the next forward() takes.
     * index   n, 1 .. max_batch; copied */
    int (*put_batch)(struct gpu_net *net, const int64_t *index, size_t n, struct failure *why);
    /* As convnet_forward(); the loss is the result. */
    int (*forward)(struct gpu_net *net, struct failure *why);
    /* As convnet_backward(). model: gets each gradient in the stream's order; NULL: none */
    int (*backward)(struct gpu_net *net, struct ddp_model *model, struct failure *why);
    /* As convnet_count_right(), of the images to test; the number is the result. n: 1 .. max_batch
     */
    int (*count_right)(struct gpu_net *net, size_t first, size_t n, struct failure *why);

    /* What is put on the stream from begin to end goes into a graph; `keep` it, replacing the
     * previous one, or not. launch does it all again, as often as it is called. drop: nothing of
     * the graph runs any more, or it was made to end; without a graph nothing is done. */
    int (*graph_begin)(struct gpu_net *net, struct failure *why);
    int (*graph_end)(struct gpu_net *net, bool keep, struct failure *why);
    int (*graph_launch)(struct gpu_net *net, struct failure *why);
    void (*graph_drop)(struct gpu_net *net);

    /* As the functions of the accumulator and of the optimizer with the same names. */
    int (*accumulator_add)(struct gpu_net *net, double share, struct failure *why);
    int (*accumulator_take)(struct gpu_net *net, struct failure *why);
    int (*sgd_step)(struct gpu_net *net, double lr, double momentum, struct failure *why);

    /* Wait for the stream, by CUDA's own means: for when nothing of NCCL is there. */
    int (*wait)(struct gpu_net *net, struct failure *why);

    /* Copy the optimizer's velocity, of all tensors one after the other: from the GPU, and wait; to
     * the GPU. */
    int (*get_velocity)(struct gpu_net *net, real *to, struct failure *why);
    int (*put_velocity)(struct gpu_net *net, const real *from, struct failure *why);
    /* Copy parameters and running averages into the network that it was made like, and wait. */
    int (*get_net)(struct gpu_net *net, struct convnet *to, struct failure *why);

    /* Without a model, which would allocate them: gradients of this rank. They and parameters may
     * then be copied to the CPU, where the optimizer is, and wait; and back. */
    int (*own_gradients)(struct gpu_net *net, struct failure *why);
    int (*get_gradients)(struct gpu_net *net, const struct ddp_tensor *to, struct failure *why);
    int (*put_params)(struct gpu_net *net, const struct ddp_tensor *from, struct failure *why);

    /* Train with 16-bit floats from now on. The masters are not written yet.
     * seen, is_norm   of each tensor, lent: the type in which it travels (ddp_mixed_tensors()), and
     *                 whether it belongs to a normalization */
    int (*amp_open)(struct gpu_net *net, const struct ddp_precision *policy,
                    const struct ddp_tensor *seen, const bool *is_norm, struct failure *why);
    /* Multiply the gradient of the loss by it, from the next forward() on. */
    void (*set_scale)(struct gpu_net *net, double scale);
    /* After backward(): gradients into net->seen. */
    int (*amp_give)(struct gpu_net *net, struct failure *why);
    /* The optimizer's step on the masters, by the averages in net->seen, which have the scale. */
    int (*amp_step)(struct gpu_net *net, double lr, double momentum, struct failure *why);
    /* The masters, rounded, into net->seen and the layers' parameters. */
    int (*amp_show)(struct gpu_net *net, struct failure *why);
    /* Copy the masters' parameters: from the GPU, and wait; to the GPU. */
    int (*get_masters)(struct gpu_net *net, const struct ddp_tensor *to, struct failure *why);
    int (*put_masters)(struct gpu_net *net, const struct ddp_tensor *from, struct failure *why);
};

#define GPU_OPS_SYMBOL "mnist_gpu_ops"
extern const struct gpu_ops mnist_gpu_ops;

#endif
