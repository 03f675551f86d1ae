/* syncbn.c - ddp_syncbn: what the ranks exchange, around moments.c.
 *
 * Forward, each rank has the moments of its own values, merge_moments() makes those of all ranks,
 * and the values are normalized by them. Backward, two sums per channel are added up over all
 * ranks. */
#include "syncbn_priv.h"

#include "common/scope.h"
#include "worker-runtime/arithmetic/moments.h"
#include "worker-runtime/device/device.h"

#include <ddp/collective.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- making one ------------------------------------------------------------------------------- */

static bool are_channels(size_t n)
{
    return n > 0 && n <= SIZE_MAX / (8 * sizeof(double));
}

/* Channels of a layer on a GPU: a kernel has no more blocks, and work memory is some kilobytes for
 * each. */
enum { MOST_ON_GPU = 1 << 24 };

/* Space for each rank's count, means and squared deviations. NULL: out of memory */
static double *alloc_all(const struct ddp_group *g, size_t channels)
{
    return calloc((size_t)ddp_world_size(g), (1 + 2 * channels) * sizeof(double));
}

static int check_opts(const struct ddp_syncbn_opts *o)
{
    if (!are_channels(o->channels) || (o->stream != NULL && o->channels > MOST_ON_GPU))
        return rt_fail(DDP_EINVAL, "ddp_syncbn_create: invalid number of channels: %zu",
                       o->channels);
    if (o->dtype != DDP_FLOAT32 && o->dtype != DDP_FLOAT64)
        return rt_fail(
            DDP_EINVAL,
            "ddp_syncbn_create: invalid value %d for dtype: expected DDP_FLOAT32 or DDP_FLOAT64",
            (int)o->dtype);
    if ((o->running_mean == NULL) != (o->running_var == NULL))
        return rt_fail(
            DDP_EINVAL,
            "ddp_syncbn_create: running_mean and running_var must both be set, or both be NULL");
    if (!(o->eps >= 0) || !isfinite(o->eps) || !(o->momentum >= 0) || !(o->momentum <= 1))
        return rt_fail(
            DDP_EINVAL,
            "ddp_syncbn_create: invalid eps %g or momentum %g: expected 0 or more, and 0 to 1",
            o->eps, o->momentum);
    return 0;
}

static void destroy_child(struct group_child *child)
{
    ddp_syncbn_destroy((struct ddp_syncbn *)child);
}

co_define_auto(ddp_syncbn, ddp_syncbn_destroy);

int ddp_syncbn_create(struct ddp_group *g, const struct ddp_syncbn_opts *opts,
                      struct ddp_syncbn **ret_bn)
{
    if (g == NULL || opts == NULL || ret_bn == NULL)
        return rt_fail(DDP_EINVAL, "ddp_syncbn_create: group, opts or ret_bn is NULL");
    int rc = check_opts(opts);
    if (rc != 0)
        return rc;
    co_auto(ddp_syncbn) bn = calloc(1, sizeof *bn);
    if (bn == NULL || (bn->memory = calloc(6 * opts->channels, sizeof *bn->memory)) == NULL ||
        (bn->all = alloc_all(g, opts->channels)) == NULL)
        return rt_fail(DDP_ENOMEM, "ddp_syncbn_create: out of memory for %zu channels",
                       opts->channels);
    bn->child.destroy = destroy_child;
    bn->g = g;
    bn->opts = *opts;
    bn->opts.eps = opts->eps > 0 ? opts->eps : 1e-5;
    bn->opts.momentum = opts->momentum > 0 ? opts->momentum : 0.1;
    bn->mean = bn->memory;
    bn->m2 = bn->mean + opts->channels;
    bn->a = bn->m2 + opts->channels;
    bn->b = bn->a + opts->channels;
    bn->sums = bn->b + opts->channels;
    rc = syncbn_is_on_device(bn) ? syncbn_device_init(bn) : 0;
    if (rc != 0)
        return rt_fail(rc, "ddp_syncbn_create: %s", ddp_last_error());
    group_adopt(g, &bn->child);
    *ret_bn = co_take(&bn);
    return 0;
}

void ddp_syncbn_destroy(struct ddp_syncbn *bn)
{
    if (bn == NULL)
        return;
    group_disown(&bn->child);
    if (bn->on_device != NULL)
        device_free(bn->g, bn->on_device, bn->opts.stream);
    free(bn->memory);
    free(bn->all);
    free(bn);
}

/* --- moments of all ranks --------------------------------------------------------------------- */

/* all   of alloc_all(): each rank's count, means and squared deviations, one after the other */
static int merge_moments(struct ddp_group *g, double *all, double *count, double *mean, double *m2,
                         size_t channels)
{
    const size_t n_each = 1 + 2 * channels, n = (size_t)ddp_world_size(g);
    double *own = all + (size_t)ddp_rank(g) * n_each;
    own[0] = *count;
    memcpy(own + 1, mean, channels * sizeof *mean);
    memcpy(own + 1 + channels, m2, channels * sizeof *m2);
    int rc = ddp_all_gather(g, own, all, n_each, DDP_FLOAT64, NULL);
    if (rc != 0)
        return rc;
    *count = 0;
    memset(mean, 0, channels * sizeof *mean);
    memset(m2, 0, channels * sizeof *m2);
    for (size_t r = 0; r < n; r++) {
        const double *of = all + r * n_each;
        moments_merge(count, mean, m2, of[0], of + 1, of + 1 + channels, channels);
    }
    return 0;
}

int ddp_syncbn_merge(struct ddp_group *g, double *count, double *mean, double *m2, size_t channels)
{
    if (g == NULL || count == NULL || mean == NULL || m2 == NULL || !(*count >= 0) ||
        !are_channels(channels))
        return rt_fail(DDP_EINVAL, "ddp_syncbn_merge: group, counts or moments is NULL");
    double *all = alloc_all(g, channels);
    if (all == NULL)
        return rt_fail(DDP_ENOMEM, "ddp_syncbn_merge: out of memory for %zu channels of %d ranks",
                       channels, ddp_world_size(g));
    int rc = merge_moments(g, all, count, mean, m2, channels);
    free(all);
    return rc;
}

/* --- forward ---------------------------------------------------------------------------------- */

static struct moments_block block_of(const struct ddp_syncbn *bn,
                                     const struct ddp_syncbn_shape *shape)
{
    return (struct moments_block){.dtype = bn->opts.dtype,
                                  .outer = shape->outer,
                                  .channels = bn->opts.channels,
                                  .inner = shape->inner};
}

static double get_value(const struct ddp_syncbn *bn, const void *values, size_t c, double otherwise)
{
    if (values == NULL)
        return otherwise;
    return bn->opts.dtype == DDP_FLOAT64 ? ((const double *)values)[c]
                                         : (double)((const float *)values)[c];
}

static void set_value(const struct ddp_syncbn *bn, void *values, size_t c, double value)
{
    if (values == NULL)
        return;
    if (bn->opts.dtype == DDP_FLOAT64)
        ((double *)values)[c] = value;
    else
        ((float *)values)[c] = (float)value;
}

static void follow_moments(struct ddp_syncbn *bn)
{
    const double m = bn->opts.momentum;
    for (size_t c = 0; bn->opts.running_mean != NULL && c < bn->opts.channels; c++) {
        const double mean = get_value(bn, bn->opts.running_mean, c, 0);
        const double var = get_value(bn, bn->opts.running_var, c, 0);
        set_value(bn, bn->opts.running_mean, c, (1 - m) * mean + m * bn->mean[c]);
        set_value(bn, bn->opts.running_var, c, (1 - m) * var + m * bn->m2[c] / (bn->count - 1));
    }
}

static bool is_whole(const struct ddp_syncbn *bn, const struct ddp_syncbn_shape *shape,
                     const void *x, const void *y)
{
    size_t n = sizeof(double);
    if (bn == NULL || shape == NULL || __builtin_mul_overflow(n, bn->opts.channels, &n) ||
        __builtin_mul_overflow(n, shape->outer, &n) || __builtin_mul_overflow(n, shape->inner, &n))
        return false;
    return shape->outer == 0 || shape->inner == 0 || (x != NULL && y != NULL);
}

int ddp_syncbn_forward(struct ddp_syncbn *bn, const struct ddp_syncbn_shape *shape, const void *x,
                       void *y)
{
    if (!is_whole(bn, shape, x, y))
        return rt_fail(DDP_EINVAL, "ddp_syncbn_forward: the layer, x or y is NULL, or the shape "
                                   "exceeds the address space");
    if (syncbn_is_on_device(bn))
        return syncbn_device_forward(bn, shape, x, y);
    const struct moments_block block = block_of(bn, shape);
    bn->shape = *shape;
    bn->count = (double)shape->outer * (double)shape->inner;
    moments_of(&block, x, bn->mean, bn->m2);
    int rc = merge_moments(bn->g, bn->all, &bn->count, bn->mean, bn->m2, bn->opts.channels);
    if (rc == 0 && bn->count < 2)
        rc = rt_fail(DDP_EINVAL,
                     "ddp_syncbn_forward: all ranks together have %g values per channel: the "
                     "variance needs at least 2",
                     bn->count);
    if (rc != 0) {
        bn->count = 0;
        return rc;
    }
    follow_moments(bn);
    for (size_t c = 0; c < bn->opts.channels; c++) {
        bn->m2[c] = 1 / sqrt(bn->m2[c] / bn->count + bn->opts.eps);
        bn->a[c] = bn->m2[c] * get_value(bn, bn->opts.weight, c, 1);
        bn->b[c] = get_value(bn, bn->opts.bias, c, 0);
    }
    moments_normalise(&block, x, y, bn->mean, bn->a, bn->b);
    return 0;
}

int ddp_syncbn_infer(const struct ddp_syncbn *bn, const struct ddp_syncbn_shape *shape,
                     const void *x, void *y)
{
    if (!is_whole(bn, shape, x, y) || bn->opts.running_mean == NULL)
        return rt_fail(DDP_EINVAL, "ddp_syncbn_infer: the layer, its running moments, x or y is "
                                   "NULL, or the shape exceeds the address space");
    if (syncbn_is_on_device(bn))
        return syncbn_device_infer(bn, shape, x, y);
    const struct moments_block all = block_of(bn, shape);
    struct moments_block one = {.dtype = all.dtype, .outer = 1, .channels = 1, .inner = all.inner};
    const size_t bytes = all.inner * ddp_dtype_size(all.dtype);
    for (size_t at = 0; at < all.outer * all.channels; at++) {
        const size_t c = at % all.channels;
        const double center = get_value(bn, bn->opts.running_mean, c, 0);
        const double factor = get_value(bn, bn->opts.weight, c, 1) /
                              sqrt(get_value(bn, bn->opts.running_var, c, 1) + bn->opts.eps);
        const double shift = get_value(bn, bn->opts.bias, c, 0);
        moments_normalise(&one, (const char *)x + at * bytes, (char *)y + at * bytes, &center,
                          &factor, &shift);
    }
    return 0;
}

/* --- backward --------------------------------------------------------------------------------- */

/* dx = (dy - sum(dy) / N - (x - mean) invstd^2 sum(dy (x - mean)) / N) invstd weight, with the sums
 * of all ranks. */
static void give_dx(struct ddp_syncbn *bn, const struct moments_block *block, const void *x,
                    const void *dy, void *dx)
{
    const size_t channels = bn->opts.channels;
    double *factor = bn->sums; /* replaces sum(dy) */
    for (size_t c = 0; c < channels; c++) {
        const double invstd = bn->m2[c];
        bn->a[c] = bn->sums[c] / bn->count;
        bn->b[c] = bn->sums[channels + c] / bn->count * invstd * invstd;
        factor[c] = invstd * get_value(bn, bn->opts.weight, c, 1);
    }
    moments_backward(block, x, dy, dx, &(struct moments_gradient){bn->mean, bn->a, bn->b, factor});
}

int ddp_syncbn_backward(struct ddp_syncbn *bn, const struct ddp_syncbn_shape *shape, const void *x,
                        const void *dy, void *dx, void *dweight, void *dbias)
{
    if (!is_whole(bn, shape, x, dy) || !is_whole(bn, shape, x, dx))
        return rt_fail(DDP_EINVAL, "ddp_syncbn_backward: the layer, x, dy or dx is NULL, or the "
                                   "shape exceeds the address space");
    const bool has_forward = syncbn_is_on_device(bn) ? bn->has_forward : bn->count != 0;
    if (!has_forward || shape->outer != bn->shape.outer || shape->inner != bn->shape.inner)
        return rt_fail(DDP_EINVAL,
                       "ddp_syncbn_backward: there is no successful ddp_syncbn_forward() of %zu x "
                       "%zu values per channel: call it first",
                       shape->outer, shape->inner);
    if (syncbn_is_on_device(bn))
        return syncbn_device_backward(bn, shape, x, dy, dx, dweight, dbias);
    const struct moments_block block = block_of(bn, shape);
    const size_t channels = bn->opts.channels;
    moments_sums(&block, x, dy, bn->mean, bn->sums, bn->sums + channels);
    for (size_t c = 0; c < channels; c++) {
        set_value(bn, dbias, c, bn->sums[c]);
        set_value(bn, dweight, c, bn->sums[channels + c] * bn->m2[c]);
    }
    int rc = ddp_all_reduce(bn->g, bn->sums, bn->sums, 2 * channels, DDP_FLOAT64, DDP_SUM, NULL);
    if (rc == 0)
        give_dx(bn, &block, x, dy, dx);
    return rc;
}
