/* kernel_clip.h - what kernels do to clip gradients by their norm: the steps of ddp_model_clip(),
 * in an order that many threads can follow.
 *
 * As kernel_math.h compiled for the device, and for tests on the CPU. The gradients are one vector,
 * of which each of the `step` threads of a launch takes every step-th value. Squares are added up
 * in float64: a thread's own, the threads of a block as a tree, a block's onto what the launches
 * before have left in its place; the places at last. That order depends on the counts alone.
 * Pure. */
#ifndef DDP_WORKER_RUNTIME_NCCL_KERNEL_CLIP_H
#define DDP_WORKER_RUNTIME_NCCL_KERNEL_CLIP_H

#include "kernel_math.h"

#include <math.h>

enum { KERNEL_CLIP_BLOCKS = 1024 }; /* in a launch, at most */

struct kernel_gradient {
    void *at;       /* `count` values */
    uint64_t count; /* elements */
    uint32_t dtype; /* enum ddp_dtype, a floating-point one */
    uint32_t first; /* the thread that takes the first value */
};

struct kernel_clip { /* what a kernel is given, by value */
    struct kernel_gradient gradient[KERNEL_PIECES];
    uint32_t n;
    double max_norm;
    double *part;   /* KERNEL_CLIP_BLOCKS sums of squares: zero before the first launch */
    double *norm;   /* 1 */
    double *factor; /* 1: by which gradients are multiplied */
};

KERNEL_FN double kernel_wide(const void *at, uint32_t dtype, uint64_t i)
{
    return dtype == DDP_FLOAT64 ? ((const double *)at)[i] : (double)kernel_get(at, dtype, i);
}

KERNEL_FN void kernel_scale(void *at, uint32_t dtype, uint64_t i, double factor)
{
    if (dtype == DDP_FLOAT64)
        ((double *)at)[i] *= factor;
    else
        kernel_set(at, dtype, i, kernel_get(at, dtype, i) * (float)factor);
}

/* The first value of a gradient that a thread takes. */
KERNEL_FN uint64_t kernel_first_of(const struct kernel_gradient *g, uint64_t thread, uint64_t step)
{
    return thread >= g->first ? thread - g->first : thread + step - g->first;
}

/* The squares of one thread's values. */
KERNEL_FN double kernel_lane_squares(const struct kernel_clip *k, uint64_t thread, uint64_t step)
{
    double sum = 0;
    for (uint32_t n = 0; n < k->n; n++) {
        const struct kernel_gradient *g = &k->gradient[n];
        for (uint64_t i = kernel_first_of(g, thread, step); i < g->count; i += step) {
            const double x = kernel_wide(g->at, g->dtype, i);
            sum += x * x;
        }
    }
    return sum;
}

/* One thread's part of what all blocks have left. */
KERNEL_FN double kernel_lane_parts(const struct kernel_clip *k, uint32_t thread)
{
    double sum = 0;
    for (uint32_t b = thread; b < KERNEL_CLIP_BLOCKS; b += KERNEL_LANES)
        sum += k->part[b];
    return sum;
}

KERNEL_FN double kernel_plus(double a, double b)
{
    return a + b;
}

KERNEL_FN void kernel_find_factor(const struct kernel_clip *k, double sum_of_squares)
{
    const double norm = sqrt(sum_of_squares), factor = k->max_norm / (norm + 1e-6);
    *k->norm = norm;
    *k->factor = finite_f64(norm) && factor < 1 ? factor : 1;
}

KERNEL_FN void kernel_lane_scale(const struct kernel_clip *k, uint64_t thread, uint64_t step)
{
    const double factor = *k->factor;
    for (uint32_t n = 0; factor != 1 && n < k->n; n++) {
        const struct kernel_gradient *g = &k->gradient[n];
        for (uint64_t i = kernel_first_of(g, thread, step); i < g->count; i += step)
            kernel_scale(g->at, g->dtype, i, factor);
    }
}

#endif
