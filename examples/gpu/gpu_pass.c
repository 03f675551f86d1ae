/* gpu_pass.c - forward and backward on a GPU: which kernel comes after which. */
#include <ddp/ddp.h>
#include <stdlib.h>

#include "gpu_kernels.h"
#include "gpu_priv.h"

/* The first error is kept: nothing is put on the stream after it. */
#define RUN(result, name, net, threads, ...)                                                       \
    do {                                                                                           \
        const struct gpu_##name args_ = {__VA_ARGS__};                                             \
        if ((result) == cudaSuccess)                                                               \
            (result) = gpu_##name##_run(&args_, threads, (net)->stream);                           \
    } while (0)

static unsigned parts_of(unsigned n)
{
    return n < GPU_PARTS ? n : GPU_PARTS;
}

static unsigned in_pixels(const struct gpu_shape *s)
{
    return s->n * s->side * s->side;
}

static unsigned out_numbers(const struct gpu_shape *s)
{
    return in_pixels(s) / 4 * s->c_out;
}

/* Columns of parts, into in->sums or another place for doubles. */
static cudaError_t add_up(struct gpu_net *net, unsigned parts, unsigned columns, double factor,
                          double *to)
{
    cudaError_t result = cudaSuccess;
    RUN(result, sum, net, columns, .part = net->inside->part, .parts = parts, .columns = columns,
        .factor = factor, .wide = to);
    return result;
}

/* With 16-bit floats only: what a layer is given or gives is one. */
static cudaError_t round_values(struct gpu_net *net, real *at, size_t n, cudaError_t result)
{
    if (net->inside->half != GPU_REAL)
        RUN(result, round, net, (unsigned)n, .n = (unsigned)n, .half = net->inside->half, .at = at);
    return result;
}

/* --- forward ---------------------------------------------------------------------------------- */

/* Which images come next: always to the same place, where the passes look for them. */
static cudaError_t put_index(struct gpu_net *net, const int64_t *index, unsigned n)
{
    struct gpu_priv *in = net->inside;
    in->n = n;
    for (size_t k = 0; k < in->n_blocks; k++)
        in->blocks[k].s.n = n;
    return cudaMemcpyAsync(in->index, index, n * sizeof *index, cudaMemcpyHostToDevice,
                           net->stream);
}

static cudaError_t take_images(struct gpu_net *net, enum gpu_part part)
{
    struct gpu_priv *in = net->inside;
    cudaError_t result = cudaSuccess;
    RUN(result, images, net, in->n * CONVNET_PIXELS, .pixels = in->pixels[part],
        .labels = in->labels[part], .index = in->index, .n = in->n, .n_pixels = CONVNET_PIXELS,
        .input = in->input, .taken = in->taken);
    return round_values(net, in->input, (size_t)in->n * CONVNET_PIXELS, result);
}

/* Mean and variance of each channel, by two passes over y. */
static cudaError_t find_moments(struct gpu_net *net, struct gpu_block *b)
{
    const unsigned parts = parts_of(b->s.n), threads = parts * b->s.c_out;
    const double share = 1.0 / in_pixels(&b->s);
    double *part = net->inside->part;
    cudaError_t result = cudaSuccess;
    RUN(result, moments, net, threads, .s = b->s, .y = b->y, .parts = parts, .part = part);
    if (result == cudaSuccess)
        result = add_up(net, parts, b->s.c_out, share, b->mean);
    RUN(result, moments, net, threads, .s = b->s, .y = b->y, .mean = b->mean, .parts = parts,
        .part = part);
    return result == cudaSuccess ? add_up(net, parts, b->s.c_out, share, b->var) : result;
}

static cudaError_t normalise(struct gpu_net *net, struct gpu_block *b, bool training)
{
    cudaError_t result = training ? find_moments(net, b) : cudaSuccess;
    RUN(result, norm, net, b->s.c_out, .c_out = b->s.c_out, .training = training,
        .n_values = in_pixels(&b->s), .eps = NORM_EPS, .momentum = NORM_MOMENTUM, .mean = b->mean,
        .var = b->var, .running_mean = b->running_mean, .running_var = b->running_var,
        .gamma = net->tensors[b->gamma].param, .beta = net->tensors[b->beta].param,
        .scale = b->scale, .shift = b->shift, .center = b->center);
    return result;
}

/* The shape of a layer: a block that is normalized over the ranks has its normalization apart, and
 * pools the result. */
static struct ddp_syncbn_shape shape_of(const struct gpu_block *b)
{
    return (struct ddp_syncbn_shape){.outer = in_pixels(&b->s), .inner = 1};
}

static cudaError_t pool_over_ranks(struct gpu_net *net, struct gpu_block *b)
{
    struct gpu_priv *in = net->inside;
    const struct ddp_syncbn_shape shape = shape_of(b);
    cudaError_t result = cudaSuccess;
    if (net->norm_status == 0)
        net->norm_status = ddp_syncbn_forward(b->over_ranks, &shape, b->y, in->d_y);
    RUN(result, pool, net, out_numbers(&b->s), .s = b->s, .y = in->d_y, .scale = in->ones,
        .shift = in->zeros, .out = b->out, .pick = b->pick);
    return round_values(net, b->out, out_numbers(&b->s), result);
}

static cudaError_t block_forward(struct gpu_net *net, struct gpu_block *b, const real *x,
                                 bool training)
{
    cudaError_t result = cudaSuccess;
    RUN(result, conv, net, in_pixels(&b->s) * b->s.c_out, .s = b->s, .x = x,
        .weight = net->tensors[b->weight].param, .bias = net->tensors[b->bias].param, .y = b->y);
    result = round_values(net, b->y, (size_t)in_pixels(&b->s) * b->s.c_out, result);
    if (result == cudaSuccess && training && b->over_ranks != NULL)
        return pool_over_ranks(net, b);
    if (result == cudaSuccess && b->running_mean != NULL)
        result = normalise(net, b, training);
    RUN(result, pool, net, out_numbers(&b->s), .s = b->s, .y = b->y, .scale = b->scale,
        .shift = b->shift, .out = b->out, .pick = b->pick);
    return round_values(net, b->out, out_numbers(&b->s), result);
}

/* What the full layer is given. */
static const real *fc_input(const struct gpu_priv *in)
{
    return in->n_blocks > 0 ? in->blocks[in->n_blocks - 1].out : in->input;
}

static cudaError_t run_layers(struct gpu_net *net, bool training)
{
    struct gpu_priv *in = net->inside;
    const real *x = in->input;
    cudaError_t result = cudaSuccess;
    for (size_t k = 0; k < in->n_blocks && result == cudaSuccess; k++) {
        result = block_forward(net, &in->blocks[k], x, training);
        x = in->blocks[k].out;
    }
    RUN(result, fc, net, in->n * CONVNET_CLASSES, .n = in->n, .in = in->fc_in,
        .classes = CONVNET_CLASSES, .x = x, .weight = net->tensors[in->fc_weight].param,
        .bias = net->tensors[in->fc_bias].param, .logits = in->logits);
    return result;
}

/* What n threads have left in in->part becomes the result. */
static cudaError_t give_result(struct gpu_net *net, unsigned n, double factor)
{
    double *result_at = net->inside->result;
    cudaError_t result = add_up(net, n, 1, factor, result_at);
    return result == cudaSuccess ? cudaMemcpyAsync(net->results, result_at, sizeof *result_at,
                                                   cudaMemcpyDeviceToHost, net->stream)
                                 : result;
}

int gpu_put_batch(struct gpu_net *net, const int64_t *index, size_t n, struct failure *why)
{
    return gpu_check(put_index(net, index, (unsigned)n), "the batch", why);
}

int gpu_forward(struct gpu_net *net, struct failure *why)
{
    struct gpu_priv *in = net->inside;
    cudaError_t result = take_images(net, GPU_TRAIN);
    if (result == cudaSuccess)
        result = run_layers(net, true);
    RUN(result, loss, net, in->n, .n = in->n, .classes = CONVNET_CLASSES, .scale = in->scale,
        .logits = in->logits, .labels = in->taken, .d_logits = in->d_logits, .loss = in->part);
    result = round_values(net, in->d_logits, (size_t)in->n * CONVNET_CLASSES, result);
    if (result == cudaSuccess)
        result = give_result(net, in->n, 1.0 / in->n);
    return gpu_check(result, "the forward pass", why);
}

int gpu_count_right(struct gpu_net *net, size_t first, size_t n, struct failure *why)
{
    struct gpu_priv *in = net->inside;
    int64_t *index = calloc(n, sizeof *index);
    if (index == NULL)
        return failure_set(why, "out of memory for a test of %zu images", n);
    for (size_t i = 0; i < n; i++)
        index[i] = (int64_t)(first + i);
    cudaError_t result = put_index(net, index, (unsigned)n);
    free(index);
    if (result == cudaSuccess)
        result = take_images(net, GPU_TEST);
    if (result == cudaSuccess)
        result = run_layers(net, false);
    RUN(result, right, net, in->n, .n = in->n, .classes = CONVNET_CLASSES, .logits = in->logits,
        .labels = in->taken, .right = in->part);
    if (result == cudaSuccess)
        result = give_result(net, in->n, 1);
    return gpu_check(result, "the test", why);
}

/* --- backward --------------------------------------------------------------------------------- */

/* ddp_model_sync() has the error. */
static void is_ready(struct ddp_model *model, size_t tensor)
{
    if (model != NULL)
        ddp_model_ready(model, tensor);
}

static cudaError_t fc_backward(struct gpu_net *net, struct ddp_model *model, real *d_x)
{
    struct gpu_priv *in = net->inside;
    const unsigned n_weights = in->fc_in * CONVNET_CLASSES;
    cudaError_t result = cudaSuccess;
    RUN(result, fc_dw, net, n_weights + CONVNET_CLASSES, .n = in->n, .in = in->fc_in,
        .classes = CONVNET_CLASSES, .x = fc_input(in), .d_logits = in->d_logits,
        .d_weight = net->tensors[in->fc_weight].grad, .d_bias = net->tensors[in->fc_bias].grad);
    is_ready(model, in->fc_bias);
    is_ready(model, in->fc_weight);
    if (d_x != NULL)
        RUN(result, fc_dx, net, in->n * in->fc_in, .n = in->n, .in = in->fc_in,
            .classes = CONVNET_CLASSES, .d_logits = in->d_logits,
            .weight = net->tensors[in->fc_weight].param, .d_x = d_x);
    return d_x != NULL ? round_values(net, d_x, (size_t)in->n * in->fc_in, result) : result;
}

static cudaError_t norm_backward(struct gpu_net *net, struct gpu_block *b)
{
    struct gpu_priv *in = net->inside;
    const unsigned parts = parts_of(b->s.n), c_out = b->s.c_out;
    cudaError_t result = cudaSuccess;
    RUN(result, pool_sums, net, parts * c_out, .s = b->s, .d_out = b->d_out, .y = b->y,
        .center = b->center, .pick = b->pick, .parts = parts, .part = in->part);
    if (result == cudaSuccess)
        result = add_up(net, parts, 2 * c_out, 1, in->sums);
    RUN(result, norm_back, net, c_out, .c_out = c_out, .n_values = in_pixels(&b->s),
        .eps = NORM_EPS, .sums = in->sums, .var = b->var, .gamma = net->tensors[b->gamma].param,
        .d_gamma = net->tensors[b->gamma].grad, .d_beta = net->tensors[b->beta].grad, .a = b->a,
        .slope = b->slope, .d = b->d);
    return result;
}

/* To in->d_y, for the convolution. */
static cudaError_t pool_backward(struct gpu_net *net, struct gpu_block *b)
{
    cudaError_t result = b->running_mean != NULL ? norm_backward(net, b) : cudaSuccess;
    RUN(result, pool_back, net, out_numbers(&b->s), .s = b->s, .d_out = b->d_out, .y = b->y,
        .pick = b->pick, .a = b->a, .slope = b->slope, .d = b->d, .center = b->center,
        .d_y = net->inside->d_y);
    return result;
}

static cudaError_t pool_backward_over_ranks(struct gpu_net *net, struct gpu_block *b)
{
    const struct gpu_priv *in = net->inside;
    const struct ddp_syncbn_shape shape = shape_of(b);
    cudaError_t result = cudaSuccess;
    RUN(result, pool_back, net, out_numbers(&b->s), .s = b->s, .d_out = b->d_out, .y = b->y,
        .pick = b->pick, .a = in->ones, .slope = in->zeros, .d = in->zeros, .center = in->zeros,
        .d_y = in->d_y);
    if (net->norm_status == 0)
        net->norm_status =
            ddp_syncbn_backward(b->over_ranks, &shape, b->y, in->d_y, in->d_y,
                                net->tensors[b->gamma].grad, net->tensors[b->beta].grad);
    return result;
}

static cudaError_t conv_backward(struct gpu_net *net, struct gpu_block *b, const real *x, real *d_x)
{
    struct gpu_priv *in = net->inside;
    const unsigned parts = parts_of(b->s.n), n_weights = LAYERS_TAPS * b->s.c_in * b->s.c_out;
    const unsigned columns = n_weights + b->s.c_out;
    cudaError_t result = cudaSuccess;
    RUN(result, conv_dw, net, parts * columns, .s = b->s, .x = x, .d_y = in->d_y, .parts = parts,
        .part = in->part);
    RUN(result, sum, net, columns, .part = in->part, .parts = parts, .columns = columns,
        .factor = 1, .out = net->tensors[b->weight].grad, .rest = net->tensors[b->bias].grad,
        .split = n_weights);
    if (d_x != NULL)
        RUN(result, conv_dx, net, in_pixels(&b->s) * b->s.c_in, .s = b->s, .d_y = in->d_y,
            .weight = net->tensors[b->weight].param, .d_x = d_x);
    return d_x != NULL ? round_values(net, d_x, (size_t)in_pixels(&b->s) * b->s.c_in, result)
                       : result;
}

static cudaError_t block_backward(struct gpu_net *net, struct ddp_model *model, struct gpu_block *b,
                                  const real *x, real *d_x)
{
    cudaError_t result =
        b->over_ranks != NULL ? pool_backward_over_ranks(net, b) : pool_backward(net, b);
    if (b->running_mean != NULL) {
        is_ready(model, b->beta);
        is_ready(model, b->gamma);
    }
    result = round_values(net, net->inside->d_y, (size_t)in_pixels(&b->s) * b->s.c_out, result);
    if (result == cudaSuccess)
        result = conv_backward(net, b, x, d_x);
    is_ready(model, b->bias);
    is_ready(model, b->weight);
    return result;
}

int gpu_backward(struct gpu_net *net, struct ddp_model *model, struct failure *why)
{
    struct gpu_priv *in = net->inside;
    struct gpu_block *blocks = in->blocks;
    size_t k = in->n_blocks;
    cudaError_t result = fc_backward(net, model, k > 0 ? blocks[k - 1].d_out : NULL);
    while (k-- > 0 && result == cudaSuccess)
        result = block_backward(net, model, &blocks[k], k > 0 ? blocks[k - 1].out : in->input,
                                k > 0 ? blocks[k - 1].d_out : NULL);
    return gpu_check(result, "the backward pass", why);
}
