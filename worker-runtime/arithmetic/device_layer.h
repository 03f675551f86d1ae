/* device_layer.h - a layer of batch normalization on a GPU, as libddp and the plug-in's kernels
 * know it. No code: nvcc compiles it as C++. */
#ifndef DDP_WORKER_RUNTIME_ARITHMETIC_DEVICE_LAYER_H
#define DDP_WORKER_RUNTIME_ARITHMETIC_DEVICE_LAYER_H

#include <stdint.h>

enum { DEVICE_LAYER_PARTS = 32 }; /* at most: blocks of threads that share a channel */

struct device_moments { /* of some values: how many, their mean, their squared deviations from it */
    double count, mean, m2;
};

struct device_sums { /* sums of dy, and of dy * (x - mean) */
    double dy, dy_xmu;
};

struct device_layer { /* pointers are memory of the device; layouts are ddp_syncbn_shape's */
    uint64_t outer, channels, inner;
    double eps, momentum;
    uint32_t dtype; /* DDP_FLOAT32 or DDP_FLOAT64: type of x, y, dy, dx, weight to dbias */
    uint32_t n_ranks, rank;
    uint32_t n_parts;   /* the plug-in's own: blocks that share a channel */
    const void *x, *dy; /* outer * channels * inner */
    void *y, *dx;       /* the same; y may be x, dx may be dy */
    const void *weight; /* channels; NULL: 1 */
    const void *bias;   /* channels; NULL: 0 */
    void *running_mean; /* channels; both, or NULL: none are kept */
    void *running_var;
    void *dweight, *dbias; /* channels; NULL: not wanted */

    struct device_moments *moments; /* channels * DEVICE_LAYER_PARTS: work memory */
    struct device_sums *parts;      /* the same */
    double *all;                    /* n_ranks * (1 + 2 * channels): each rank's count, means, m2 */
    double *mean, *invstd;          /* one per channel: those of all ranks or the running ones */
    double *count;                  /* 1: of all ranks' values a channel */
    double *sums;                   /* 2 * channels: sums of dy, and of dy * (x - mean) */
};

/* What is put on a stream. */
enum device_norm {
    DEVICE_NORM_SAY,    /* x -> this rank's part of `all` */
    DEVICE_NORM_HEAR,   /* all -> count, mean, invstd, running ones */
    DEVICE_NORM_RECALL, /* the running ones -> mean, invstd */
    DEVICE_NORM_APPLY,  /* x, mean, invstd -> y */
    DEVICE_NORM_SUM,    /* x, dy, mean, invstd -> sums, dweight, dbias */
    DEVICE_NORM_BACK,   /* x, dy, mean, invstd, sums, count -> dx */
};

#endif
