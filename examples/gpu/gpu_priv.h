/* gpu_priv.h - what the files of the network on a GPU share: gpu_net.c has its memory, and what
 * goes there and back, gpu_pass.c the passes, gpu_amp.c 16-bit floats, gpu_memory.c what all
 * of these need. */
#ifndef DDP_EXAMPLES_GPU_GPU_PRIV_H
#define DDP_EXAMPLES_GPU_GPU_PRIV_H

#include <cuda_runtime_api.h>

#include "../mnist/convnet_priv.h"
#include "../shared/failure.h"
#include "gpu_half.h"
#include "gpu_layers.h"
#include "gpu_net.h"

enum {
    GPU_PARTS = 64, /* most threads that add up images for the same number */
    /* pieces of memory: 6 of a tensor, 1 of a running average, 12 of a block, and the rest */
    GPU_MOST_MEMORY = 6 * CONVNET_MAX_TENSORS + CONVNET_MAX_STATS + 12 * MAX_BLOCKS + 24
};

struct gpu_block {
    struct gpu_shape s;               /* n is that of the batch at hand */
    size_t weight, bias, gamma, beta; /* indices of tensors; the last two with normalization only */
    real *running_mean, *running_var; /* NULL without normalization */
    struct ddp_syncbn *over_ranks;    /* belongs to the group, which ends it; NULL: over this rank
                                         alone */

    real *y, *out, *d_out; /* of max_batch images */
    uint8_t *pick;
    double *mean, *var;           /* one per channel, as all that follows */
    real *scale, *shift, *center; /* without normalization they stay what they are at first */
    real *a, *slope, *d;
};

struct gpu_priv {
    struct gpu_block blocks[MAX_BLOCKS];
    size_t n_blocks;
    size_t fc_weight, fc_bias;
    unsigned fc_in, max_batch, n;
    cudaGraphExec_t graph; /* owned; NULL: none was captured */

    void *memory[GPU_MOST_MEMORY]; /* owned: all of the GPU */
    size_t n_memory;
    uint8_t *pixels[2], *labels[2]; /* by enum gpu_part */
    int64_t *index;
    real *input, *logits, *d_logits;
    real *d_y;          /* of the largest block; forward, what was normalized over ranks */
    real *ones, *zeros; /* of a channel each */
    uint8_t *taken;     /* labels of the batch */
    double *part, *sums, *result;           /* sums: two of a channel */
    real *velocity[CONVNET_MAX_TENSORS];    /* by tensor */
    real *accumulated[CONVNET_MAX_TENSORS]; /* the same; all NULL until they are needed */

    real scale;                         /* of the loss; 1 without amp_open(), as the rest: */
    enum gpu_half half;                 /* GPU_REAL */
    real *masters[CONVNET_MAX_TENSORS]; /* NULL */
    bool keeps_masters, is_norm[CONVNET_MAX_TENSORS];
};

/* Convert CUDA's result: 0, or -1 and the reason. */
int gpu_check(cudaError_t result, const char *what, struct failure *why);

/* Memory of the GPU, for as long as the network has it. Where something has failed before nothing
 * is done. returns NULL: *result has the reason */
void *gpu_take(struct gpu_net *net, size_t bytes, cudaError_t *result);

/* 16-bit floats, and gradients there and back: see struct gpu_ops. */
int gpu_own_gradients(struct gpu_net *net, struct failure *why);
int gpu_get_gradients(struct gpu_net *net, const struct ddp_tensor *to, struct failure *why);
int gpu_put_params(struct gpu_net *net, const struct ddp_tensor *from, struct failure *why);
int gpu_amp_open(struct gpu_net *net, const struct ddp_precision *policy,
                 const struct ddp_tensor *seen, const bool *is_norm, struct failure *why);
void gpu_set_scale(struct gpu_net *net, double scale);
int gpu_amp_give(struct gpu_net *net, struct failure *why);
int gpu_amp_step(struct gpu_net *net, double lr, double momentum, struct failure *why);
int gpu_amp_show(struct gpu_net *net, struct failure *why);
int gpu_get_masters(struct gpu_net *net, const struct ddp_tensor *to, struct failure *why);
int gpu_put_masters(struct gpu_net *net, const struct ddp_tensor *from, struct failure *why);

/* The passes: see struct gpu_ops. */
int gpu_put_batch(struct gpu_net *net, const int64_t *index, size_t n, struct failure *why);
int gpu_forward(struct gpu_net *net, struct failure *why);
int gpu_backward(struct gpu_net *net, struct ddp_model *model, struct failure *why);
int gpu_count_right(struct gpu_net *net, size_t first, size_t n, struct failure *why);

#endif
