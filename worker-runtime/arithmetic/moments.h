/* moments.h - means and squared deviations per channel, and what batch normalization makes of them.
 * Pure; all in float64. Layouts are those of ddp_syncbn_shape. */
#ifndef DDP_WORKER_RUNTIME_ARITHMETIC_MOMENTS_H
#define DDP_WORKER_RUNTIME_ARITHMETIC_MOMENTS_H

#include <ddp/syncbn.h>

struct moments_block { /* values of a layer, seen by channel */
    enum ddp_dtype dtype;
    size_t outer, channels, inner;
};

/* Mean and squared deviations of each channel, by two passes; 0 of an empty block. */
void moments_of(const struct moments_block *b, const void *x, double *mean, double *m2);

/* Take others into what is held: Chan's formula, as torch merges those of its ranks. Those of count
 * 0 change nothing.
 *
 * count, mean, m2   held so far; count 0 at first */
void moments_merge(double *count, double *mean, double *m2, double other_count,
                   const double *other_mean, const double *other_m2, size_t channels);

/* y = (x - center) * factor + shift, per channel. y may be x. */
void moments_normalise(const struct moments_block *b, const void *x, void *y, const double *center,
                       const double *factor, const double *shift);

/* Per channel the sums of dy, and of dy * (x - mean). */
void moments_sums(const struct moments_block *b, const void *x, const void *dy, const double *mean,
                  double *sum_dy, double *sum_dy_xmu);

/* dx = (dy - a - (x - mean) * b) * factor, per channel. dx may be dy. */
struct moments_gradient {
    const double *mean, *a, *b, *factor;
};
void moments_backward(const struct moments_block *b, const void *x, const void *dy, void *dx,
                      const struct moments_gradient *by);

#endif
