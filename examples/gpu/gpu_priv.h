/* gpu_priv.h - what the files of the network on a GPU share: gpu_net.c has its memory, and what
 * goes there and back, gpu_pass.c the passes. */
#ifndef DDP_EXAMPLES_GPU_GPU_PRIV_H
#define DDP_EXAMPLES_GPU_GPU_PRIV_H

#include <cuda_runtime_api.h>

#include "../mnist/convnet_priv.h"
#include "../shared/failure.h"
#include "gpu_layers.h"
#include "gpu_net.h"

enum {
    GPU_PARTS = 64, /* most threads that add up images for the same number */
    /* pieces of memory: 3 of a tensor, 1 of a running average, 12 of a block, and the rest */
    GPU_MOST_MEMORY = 3 * CONVNET_MAX_TENSORS + CONVNET_MAX_STATS + 12 * MAX_BLOCKS + 24
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
};

/* Convert CUDA's result: 0, or -1 and the reason. */
int gpu_check(cudaError_t result, const char *what, struct failure *why);

/* The passes: see struct gpu_ops. */
int gpu_put_batch(struct gpu_net *net, const int64_t *index, size_t n, struct failure *why);
int gpu_forward(struct gpu_net *net, struct failure *why);
int gpu_backward(struct gpu_net *net, struct ddp_model *model, struct failure *why);
int gpu_count_right(struct gpu_net *net, size_t first, size_t n, struct failure *why);

#endif
