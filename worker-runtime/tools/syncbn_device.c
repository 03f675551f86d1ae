/* syncbn_device.c - layers whose values lie on a GPU: kernels of the plug-in (device_layer.h), and
 * collectives between them, one after the other on the layer's stream. The host never waits. */
#include "syncbn_priv.h"

#include "worker-runtime/device/device.h"

#include <ddp/collective.h>

/* --- memory ----------------------------------------------------------------------------------- */

/* One block, dealt out: each is a number of doubles. */
static double *deal_memory(double **at, size_t n)
{
    double *own = *at;
    *at += n;
    return own;
}

static size_t n_all(const struct ddp_syncbn *bn)
{
    return (size_t)ddp_world_size(bn->g) * (1 + 2 * bn->opts.channels);
}

static void deal_all(struct ddp_syncbn *bn)
{
    const size_t channels = bn->opts.channels, parts = channels * DEVICE_LAYER_PARTS;
    struct device_layer *l = &bn->layer;
    double *at = bn->on_device;
    l->moments = (struct device_moments *)deal_memory(&at, 3 * parts);
    l->parts = (struct device_sums *)deal_memory(&at, 2 * parts);
    l->all = deal_memory(&at, n_all(bn));
    l->sums = deal_memory(&at, 2 * channels);
    l->count = deal_memory(&at, 1);
    l->mean = deal_memory(&at, 2 * channels);
    l->invstd = deal_memory(&at, 2 * channels);
}

static int check_memory(const struct ddp_syncbn *bn)
{
    const struct {
        const char *name;
        const void *at;
    } given[] = {{"weight", bn->opts.weight},
                 {"bias", bn->opts.bias},
                 {"running_mean", bn->opts.running_mean},
                 {"running_var", bn->opts.running_var}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof given / sizeof *given; i++)
        rc = device_check_memory(bn->g, given[i].at, given[i].name);
    return rc;
}

int syncbn_device_init(struct ddp_syncbn *bn)
{
    const struct ddp_syncbn_opts *o = &bn->opts;
    /* mean and invstd twice: a layer is asked what it would infer between forward and backward */
    const size_t n_doubles = 5 * o->channels * DEVICE_LAYER_PARTS + n_all(bn) + 6 * o->channels + 1;
    _Static_assert(sizeof(struct device_moments) == 3 * sizeof(double), "three doubles");
    _Static_assert(sizeof(struct device_sums) == 2 * sizeof(double), "two doubles");
    int rc = check_memory(bn);
    if (rc == 0)
        rc = device_load_kernels(bn->g, o->stream);
    if (rc == 0)
        rc = device_alloc(bn->g, n_doubles * sizeof(double), false, o->stream, &bn->on_device);
    if (rc != 0)
        return rc;
    bn->layer = (struct device_layer){.channels = o->channels,
                                      .eps = o->eps,
                                      .momentum = o->momentum,
                                      .dtype = (uint32_t)o->dtype,
                                      .n_ranks = (uint32_t)ddp_world_size(bn->g),
                                      .rank = (uint32_t)ddp_rank(bn->g),
                                      .weight = o->weight,
                                      .bias = o->bias,
                                      .running_mean = o->running_mean,
                                      .running_var = o->running_var};
    deal_all(bn);
    return 0;
}

/* --- steps ------------------------------------------------------------------------------------ */

static struct device_layer layer_of(const struct ddp_syncbn *bn,
                                    const struct ddp_syncbn_shape *shape)
{
    struct device_layer l = bn->layer;
    l.outer = shape->outer;
    l.inner = shape->inner;
    return l;
}

static int put_norm(const struct ddp_syncbn *bn, enum device_norm step,
                    const struct device_layer *l)
{
    return device_norm(bn->g, step, l, bn->opts.stream);
}

int syncbn_device_forward(struct ddp_syncbn *bn, const struct ddp_syncbn_shape *shape,
                          const void *x, void *y)
{
    struct device_layer l = layer_of(bn, shape);
    const size_t each = 1 + 2 * bn->opts.channels;
    l.x = x;
    l.y = y;
    bn->has_forward = false;
    bn->shape = *shape;
    int rc = put_norm(bn, DEVICE_NORM_SAY, &l);
    if (rc == 0 && ddp_world_size(bn->g) > 1)
        rc =
            ddp_all_gather(bn->g, l.all + l.rank * each, l.all, each, DDP_FLOAT64, bn->opts.stream);
    if (rc == 0)
        rc = put_norm(bn, DEVICE_NORM_HEAR, &l);
    if (rc == 0)
        rc = put_norm(bn, DEVICE_NORM_APPLY, &l);
    bn->has_forward = rc == 0;
    return rc;
}

int syncbn_device_infer(const struct ddp_syncbn *bn, const struct ddp_syncbn_shape *shape,
                        const void *x, void *y)
{
    struct device_layer l = layer_of(bn, shape);
    l.x = x;
    l.y = y;
    l.mean += bn->opts.channels;
    l.invstd += bn->opts.channels;
    int rc = put_norm(bn, DEVICE_NORM_RECALL, &l);
    return rc == 0 ? put_norm(bn, DEVICE_NORM_APPLY, &l) : rc;
}

int syncbn_device_backward(struct ddp_syncbn *bn, const struct ddp_syncbn_shape *shape,
                           const void *x, const void *dy, void *dx, void *dweight, void *dbias)
{
    struct device_layer l = layer_of(bn, shape);
    l.x = x;
    l.dy = dy;
    l.dx = dx;
    l.dweight = dweight;
    l.dbias = dbias;
    int rc = put_norm(bn, DEVICE_NORM_SUM, &l);
    if (rc == 0 && ddp_world_size(bn->g) > 1)
        rc = ddp_all_reduce(bn->g, l.sums, l.sums, 2 * bn->opts.channels, DDP_FLOAT64, DDP_SUM,
                            bn->opts.stream);
    return rc == 0 ? put_norm(bn, DEVICE_NORM_BACK, &l) : rc;
}
