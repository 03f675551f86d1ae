/* kernel_moments.h - what kernels do for batch normalization over all ranks: the formulas of
 * moments.c and syncbn.c, for one channel, one value, or one thread's share of a channel.
 *
 * As kernel_math.h compiled for the device, and for tests on the CPU. All in float64. Sums are made
 * in an order that depends on the shape alone: each thread's values, the threads of a block as a
 * tree, the blocks of a channel one after the other. Pure. */
#ifndef DDP_WORKER_RUNTIME_NCCL_KERNEL_MOMENTS_H
#define DDP_WORKER_RUNTIME_NCCL_KERNEL_MOMENTS_H

#include "kernel_math.h"

#include "worker-runtime/arithmetic/device_layer.h"

#include <math.h>

KERNEL_FN double kernel_real(const void *values, uint32_t dtype, uint64_t at)
{
    return dtype == DDP_FLOAT64 ? ((const double *)values)[at]
                                : (double)((const float *)values)[at];
}

KERNEL_FN void kernel_set_real(void *values, uint32_t dtype, uint64_t at, double x)
{
    if (dtype == DDP_FLOAT64)
        ((double *)values)[at] = x;
    else
        ((float *)values)[at] = (float)x;
}

/* Where the k-th value of a channel lies. */
KERNEL_FN uint64_t kernel_place(const struct device_layer *l, uint64_t channel, uint64_t k)
{
    if ((k | l->inner) <= UINT32_MAX) { /* GPUs have no division of 64 bits: it is a long one */
        const uint32_t narrow = (uint32_t)k, outer = narrow / (uint32_t)l->inner;
        const uint32_t inner = narrow - outer * (uint32_t)l->inner;
        return (outer * l->channels + channel) * l->inner + inner;
    }
    const uint64_t outer = k / l->inner, inner = k % l->inner;
    return (outer * l->channels + channel) * l->inner + inner;
}

/* Chan's formula, as moments_merge() has it. */
KERNEL_FN struct device_moments kernel_merge(struct device_moments a, struct device_moments b)
{
    if (b.count == 0)
        return a;
    const double n = a.count, k = b.count, part = 1 / (n + k), off = a.mean - b.mean;
    const struct device_moments both = {n + k, n * part * a.mean + k * part * b.mean,
                                        a.m2 + (b.m2 + off * off * n * k * part)};
    return both;
}

/* The values of one thread: every `step`-th from `first` on, in two passes. */
KERNEL_FN struct device_moments kernel_lane_moments(const struct device_layer *l, uint64_t channel,
                                                    uint64_t first, uint64_t step)
{
    const uint64_t n = l->outer * l->inner;
    struct device_moments m = {0, 0, 0};
    for (uint64_t k = first; k < n; k += step) {
        m.mean += kernel_real(l->x, l->dtype, kernel_place(l, channel, k));
        m.count += 1;
    }
    if (m.count == 0)
        return m;
    m.mean /= m.count;
    for (uint64_t k = first; k < n; k += step) {
        const double off = kernel_real(l->x, l->dtype, kernel_place(l, channel, k)) - m.mean;
        m.m2 += off * off;
    }
    return m;
}

/* This rank's moments of a channel, of its parts in their order, into the place from which they go
 * to the other ranks. */
KERNEL_FN void kernel_say_moments(const struct device_layer *l, uint64_t channel)
{
    struct device_moments m = {0, 0, 0};
    double *own = l->all + l->rank * (1 + 2 * l->channels);
    for (uint32_t p = 0; p < l->n_parts; p++)
        m = kernel_merge(m, l->moments[channel * l->n_parts + p]);
    if (channel == 0)
        own[0] = (double)l->outer * (double)l->inner;
    own[1 + channel] = m.mean;
    own[1 + l->channels + channel] = m.m2;
}

/* Those of all ranks, in rank order; the running ones follow. Of fewer than two values there is no
 * variance to follow. */
KERNEL_FN void kernel_hear_moments(const struct device_layer *l, uint64_t channel)
{
    struct device_moments m = {0, 0, 0};
    for (uint32_t r = 0; r < l->n_ranks; r++) {
        const double *of = l->all + r * (1 + 2 * l->channels);
        const struct device_moments other = {of[0], of[1 + channel], of[1 + l->channels + channel]};
        m = kernel_merge(m, other);
    }
    l->mean[channel] = m.mean;
    l->invstd[channel] = 1 / sqrt(m.m2 / m.count + l->eps);
    if (channel == 0)
        *l->count = m.count;
    if (l->running_mean == NULL || m.count < 2)
        return;
    const double mean = kernel_real(l->running_mean, l->dtype, channel);
    const double var = kernel_real(l->running_var, l->dtype, channel);
    kernel_set_real(l->running_mean, l->dtype, channel,
                    (1 - l->momentum) * mean + l->momentum * m.mean);
    kernel_set_real(l->running_var, l->dtype, channel,
                    (1 - l->momentum) * var + l->momentum * m.m2 / (m.count - 1));
}

/* For a layer that does not learn. */
KERNEL_FN void kernel_recall(const struct device_layer *l, uint64_t channel)
{
    l->mean[channel] = kernel_real(l->running_mean, l->dtype, channel);
    l->invstd[channel] = 1 / sqrt(kernel_real(l->running_var, l->dtype, channel) + l->eps);
}

/* y of one value: the k-th of a channel. */
KERNEL_FN void kernel_normalise(const struct device_layer *l, uint64_t channel, uint64_t k)
{
    const uint64_t at = kernel_place(l, channel, k);
    const double weight = l->weight != NULL ? kernel_real(l->weight, l->dtype, channel) : 1;
    const double bias = l->bias != NULL ? kernel_real(l->bias, l->dtype, channel) : 0;
    const double xmu = kernel_real(l->x, l->dtype, at) - l->mean[channel];
    kernel_set_real(l->y, l->dtype, at, xmu * (l->invstd[channel] * weight) + bias);
}

KERNEL_FN struct device_sums kernel_lane_sums(const struct device_layer *l, uint64_t channel,
                                              uint64_t first, uint64_t step)
{
    const uint64_t n = l->outer * l->inner;
    struct device_sums s = {0, 0};
    for (uint64_t k = first; k < n; k += step) {
        const uint64_t at = kernel_place(l, channel, k);
        const double d = kernel_real(l->dy, l->dtype, at);
        s.dy += d;
        s.dy_xmu += d * (kernel_real(l->x, l->dtype, at) - l->mean[channel]);
    }
    return s;
}

KERNEL_FN struct device_sums kernel_add(struct device_sums a, struct device_sums b)
{
    const struct device_sums both = {a.dy + b.dy, a.dy_xmu + b.dy_xmu};
    return both;
}

/* This rank's sums of a channel; its own gradients of weight and bias. */
KERNEL_FN void kernel_say_sums(const struct device_layer *l, uint64_t channel)
{
    struct device_sums s = {0, 0};
    for (uint32_t p = 0; p < l->n_parts; p++)
        s = kernel_add(s, l->parts[channel * l->n_parts + p]);
    l->sums[channel] = s.dy;
    l->sums[l->channels + channel] = s.dy_xmu;
    if (l->dbias != NULL)
        kernel_set_real(l->dbias, l->dtype, channel, s.dy);
    if (l->dweight != NULL)
        kernel_set_real(l->dweight, l->dtype, channel, s.dy_xmu * l->invstd[channel]);
}

/* dx of one value, from the sums of all ranks. */
KERNEL_FN void kernel_backward(const struct device_layer *l, uint64_t channel, uint64_t k)
{
    const uint64_t at = kernel_place(l, channel, k);
    const double count = *l->count, invstd = l->invstd[channel];
    const double weight = l->weight != NULL ? kernel_real(l->weight, l->dtype, channel) : 1;
    const double a = l->sums[channel] / count;
    const double b = l->sums[l->channels + channel] / count * invstd * invstd;
    const double xmu = kernel_real(l->x, l->dtype, at) - l->mean[channel];
    const double dy = kernel_real(l->dy, l->dtype, at);
    kernel_set_real(l->dx, l->dtype, at, (dy - a - xmu * b) * (invstd * weight));
}

#endif
