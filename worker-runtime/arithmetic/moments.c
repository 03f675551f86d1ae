/* moments.c - batch normalization on a CPU. EACH() goes through a layer in the order of memory;
 * every function is one such pass, or two. */
#include "moments.h"

#include <string.h>

/* A value of either type, and its place. */
static double value_get(const void *values, enum ddp_dtype dtype, size_t at)
{
    return dtype == DDP_FLOAT64 ? ((const double *)values)[at]
                                : (double)((const float *)values)[at];
}

static void value_set(void *values, enum ddp_dtype dtype, size_t at, double value)
{
    if (dtype == DDP_FLOAT64)
        ((double *)values)[at] = value;
    else
        ((float *)values)[at] = (float)value;
}

/* Each value once, in the order of memory: `at` is its place, `c` its channel. */
#define EACH(block, at, c)                                                                         \
    for (size_t at = 0, outer_ = 0; outer_ < (block)->outer; outer_++)                             \
        for (size_t c = 0; c < (block)->channels; c++)                                             \
            for (size_t inner_ = 0; inner_ < (block)->inner; inner_++, at++)

void moments_of(const struct moments_block *b, const void *x, double *mean, double *m2)
{
    const double count = (double)b->outer * (double)b->inner;
    memset(mean, 0, b->channels * sizeof *mean);
    memset(m2, 0, b->channels * sizeof *m2);
    if (count == 0)
        return;
    EACH(b, at, c)
    mean[c] += value_get(x, b->dtype, at);
    for (size_t c = 0; c < b->channels; c++)
        mean[c] /= count;
    EACH(b, at, c)
    {
        const double off = value_get(x, b->dtype, at) - mean[c];
        m2[c] += off * off;
    }
}

void moments_merge(double *count, double *mean, double *m2, double other_count,
                   const double *other_mean, const double *other_m2, size_t channels)
{
    const double n = *count, k = other_count;
    if (k == 0)
        return;
    const double part = 1 / (n + k);
    for (size_t c = 0; c < channels; c++) {
        const double off = mean[c] - other_mean[c];
        m2[c] += other_m2[c] + off * off * n * k * part;
        mean[c] = n * part * mean[c] + k * part * other_mean[c];
    }
    *count = n + k;
}

void moments_normalise(const struct moments_block *b, const void *x, void *y, const double *center,
                       const double *factor, const double *shift)
{
    EACH(b, at, c)
    value_set(y, b->dtype, at, (value_get(x, b->dtype, at) - center[c]) * factor[c] + shift[c]);
}

void moments_sums(const struct moments_block *b, const void *x, const void *dy, const double *mean,
                  double *sum_dy, double *sum_dy_xmu)
{
    memset(sum_dy, 0, b->channels * sizeof *sum_dy);
    memset(sum_dy_xmu, 0, b->channels * sizeof *sum_dy_xmu);
    EACH(b, at, c)
    {
        const double d = value_get(dy, b->dtype, at);
        sum_dy[c] += d;
        sum_dy_xmu[c] += d * (value_get(x, b->dtype, at) - mean[c]);
    }
}

void moments_backward(const struct moments_block *b, const void *x, const void *dy, void *dx,
                      const struct moments_gradient *by)
{
    EACH(b, at, c)
    {
        const double xmu = value_get(x, b->dtype, at) - by->mean[c];
        value_set(dx, b->dtype, at,
                  (value_get(dy, b->dtype, at) - by->a[c] - xmu * by->b[c]) * by->factor[c]);
    }
}
