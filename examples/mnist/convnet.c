/* convnet.c - the layers, put together. */
#include "convnet.h"

#include <ddp/ddp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../shared/gemm.h"
#include "../shared/random.h"
#include "convnet_priv.h"

/* ---- making one ---- */

static real *reals(size_t n)
{
    size_t bytes = (n * sizeof(real) + 63) / 64 * 64;
    real *p = aligned_alloc(64, bytes > 0 ? bytes : 64);

    if (p != NULL)
        memset(p, 0, bytes);
    return p;
}

static struct ddp_tensor *add_tensor(struct convnet *net, const char *name, size_t count)
{
    struct ddp_tensor *t = &net->tensors[net->n_tensors++];

    *t = (struct ddp_tensor){
        .name = name, .param = reals(count), .count = count, .dtype = REAL_DTYPE};
    return t;
}

static struct convnet_stat *add_stat(struct convnet *net, const char *name, size_t count)
{
    struct convnet_stat *s = &net->stats[net->n_stats++];

    *s = (struct convnet_stat){.name = name, .values = reals(count), .count = count};
    return s;
}

static void add_block(struct convnet *net, size_t side, size_t c_in, size_t c_out, size_t max_batch)
{
    static const char *const names[MAX_BLOCKS][6] = {
        {"layer1.0.weight", "layer1.0.bias", "layer1.1.weight", "layer1.1.bias",
         "layer1.1.running_mean", "layer1.1.running_var"},
        {"layer2.0.weight", "layer2.0.bias", "layer2.1.weight", "layer2.1.bias",
         "layer2.1.running_mean", "layer2.1.running_var"},
    };
    struct convnet_priv *in = net->inside;
    const char *const *name = names[in->n_blocks];
    struct block *b = &in->blocks[in->n_blocks++];
    size_t n_out = side / 2 * (side / 2) * c_out;

    *b = (struct block){.side = side, .c_in = c_in, .c_out = c_out};
    b->weight = add_tensor(net, name[0], LAYERS_TAPS * c_in * c_out);
    b->bias = add_tensor(net, name[1], c_out);
    if (in->batch_norm) {
        b->gamma = add_tensor(net, name[2], c_out);
        b->beta = add_tensor(net, name[3], c_out);
        b->running_mean = add_stat(net, name[4], c_out);
        b->running_var = add_stat(net, name[5], c_out);
    }
    b->y = reals(max_batch * side * side * c_out);
    b->out = reals(max_batch * n_out);
    b->d_out = reals(max_batch * n_out);
    b->pick = reals(max_batch * n_out);
}

/* Did every allocation succeed? */
static bool is_whole(const struct convnet *net)
{
    const struct convnet_priv *in = net->inside;

    for (size_t i = 0; i < net->n_tensors; i++)
        if (net->tensors[i].param == NULL)
            return false;
    for (size_t i = 0; i < net->n_stats; i++)
        if (net->stats[i].values == NULL)
            return false;
    for (size_t i = 0; i < in->n_blocks; i++) {
        const struct block *b = &in->blocks[i];
        if (b->y == NULL || b->out == NULL || b->d_out == NULL || b->pick == NULL)
            return false;
    }
    return in->input != NULL && in->labels != NULL && in->logits != NULL && in->d_logits != NULL &&
           in->cols != NULL && in->d_cols != NULL && in->d_y != NULL;
}

static void fill(real *to, size_t n, real value)
{
    for (size_t i = 0; i < n; i++)
        to[i] = value;
}

/* Uniform within 1 / sqrt(fan_in), as PyTorch's layers begin. */
static void draw_weights(struct ddp_tensor *weight, struct ddp_tensor *bias, size_t fan_in,
                         struct random *rng)
{
    const double bound = 1 / sqrt((double)fan_in);
    struct ddp_tensor *both[] = {weight, bias};

    for (int i = 0; i < 2; i++)
        for (size_t j = 0; j < both[i]->count; j++)
            ((real *)both[i]->param)[j] = (real)random_uniform(rng, -bound, bound);
}

static void draw_all(struct convnet_priv *in, uint64_t seed)
{
    struct random rng = {seed};

    for (size_t i = 0; i < in->n_blocks; i++) {
        struct block *b = &in->blocks[i];
        draw_weights(b->weight, b->bias, LAYERS_TAPS * b->c_in, &rng);
        if (in->batch_norm) {
            fill(b->gamma->param, b->c_out, 1);
            fill(b->running_var->values, b->c_out, 1);
        }
    }
    draw_weights(in->fc_weight, in->fc_bias, in->fc_in, &rng);
}

int convnet_create(const struct convnet_opts *opts, struct convnet **ret_net)
{
    struct convnet *net = calloc(1, sizeof(*net));
    struct convnet_priv *in = calloc(1, sizeof(*in));

    if (net == NULL || in == NULL) {
        free(net);
        free(in);
        return -1;
    }
    net->inside = in;
    in->batch_norm = opts->batch_norm && opts->kind == CONVNET_CONV;
    in->half = REAL_DTYPE;
    net->loss_scale = 1;
    in->fc_in = CONVNET_PIXELS;
    if (opts->kind == CONVNET_CONV) {
        add_block(net, CONVNET_SIDE, 1, 16, opts->max_batch);
        add_block(net, CONVNET_SIDE / 2, 16, 32, opts->max_batch);
        in->fc_in = CONVNET_SIDE / 4 * (CONVNET_SIDE / 4) * 32;
    }
    in->fc_weight = add_tensor(net, "fc.weight", in->fc_in * CONVNET_CLASSES);
    in->fc_bias = add_tensor(net, "fc.bias", CONVNET_CLASSES);

    size_t cols = 0, y = 0;
    for (size_t i = 0; i < in->n_blocks; i++) {
        const struct block *b = &in->blocks[i];
        size_t n_pixels = b->side * b->side;
        cols = n_pixels * LAYERS_TAPS * b->c_in > cols ? n_pixels * LAYERS_TAPS * b->c_in : cols;
        y = n_pixels * b->c_out > y ? n_pixels * b->c_out : y;
    }
    in->input = reals(opts->max_batch * CONVNET_PIXELS);
    in->labels = calloc(opts->max_batch, 1);
    in->logits = reals(opts->max_batch * CONVNET_CLASSES);
    in->d_logits = reals(opts->max_batch * CONVNET_CLASSES);
    in->cols = reals(cols);
    in->d_cols = reals(cols);
    in->d_y = reals(y);
    if (!is_whole(net)) {
        convnet_destroy(net);
        return -1;
    }
    draw_all(in, opts->seed);
    *ret_net = net;
    return 0;
}

void convnet_destroy(struct convnet *net)
{
    if (net == NULL)
        return;
    struct convnet_priv *in = net->inside;
    for (size_t i = 0; i < net->n_tensors; i++)
        free(net->tensors[i].param);
    for (size_t i = 0; i < net->n_stats; i++)
        free(net->stats[i].values);
    for (size_t i = 0; i < in->n_blocks; i++) {
        free(in->blocks[i].y);
        free(in->blocks[i].out);
        free(in->blocks[i].d_out);
        free(in->blocks[i].pick);
    }
    free(in->input);
    free(in->labels);
    free(in->logits);
    free(in->d_logits);
    free(in->cols);
    free(in->d_cols);
    free(in->d_y);
    free(in);
    free(net);
}

/* ---- how it computes ---- */

void convnet_normalise_over(struct convnet *net, struct ddp_group *g)
{
    net->inside->norm_group = g;
    net->inside->norm_status = 0;
}

int convnet_norm_status(const struct convnet *net)
{
    return net->inside->norm_status;
}

void convnet_round_to(struct convnet *net, enum ddp_dtype half)
{
    net->inside->half = half;
}

bool convnet_is_norm(const struct convnet *net, size_t i)
{
    const struct convnet_priv *in = net->inside;
    const struct ddp_tensor *t = &net->tensors[i];

    for (size_t k = 0; k < in->n_blocks; k++)
        if (in->batch_norm && (t == in->blocks[k].gamma || t == in->blocks[k].beta))
            return true;
    return false;
}

static void round_values(const struct convnet_priv *in, real *values, size_t n)
{
    uint16_t half[1024];
    const size_t most = sizeof(half) / sizeof(half[0]);

    for (size_t at = 0; in->half != REAL_DTYPE && at < n; at += most) {
        size_t here = n - at < most ? n - at : most;
        ddp_cast(half, in->half, values + at, REAL_DTYPE, here);
        ddp_cast(values + at, REAL_DTYPE, half, in->half, here);
    }
}

/* ---- forward ---- */

static struct gemm_matrix matrix(const real *at, size_t ld)
{
    return (struct gemm_matrix){.at = at, .ld = ld};
}

static struct gemm_matrix transposed(const real *at, size_t ld)
{
    return (struct gemm_matrix){.at = at, .ld = ld, .transposed = true};
}

static void take_image(struct convnet_priv *in, size_t i, const struct convnet_images *images,
                       size_t from)
{
    const uint8_t *pixels = images->pixels + from * CONVNET_PIXELS;
    real *to = in->input + i * CONVNET_PIXELS;

    for (size_t p = 0; p < CONVNET_PIXELS; p++)
        to[p] = (real)pixels[p] / 255;
    in->labels[i] = images->labels[from];
}

/* Convolve every image of the batch; gather the moments of what comes out where `m` is not NULL. */
static void block_convolve(struct convnet_priv *in, struct block *b, const real *x,
                           struct layers_moments *m)
{
    const size_t n_pixels = b->side * b->side, n_taps = LAYERS_TAPS * b->c_in;

    for (size_t i = 0; i < in->n; i++) {
        real *y = b->y + i * n_pixels * b->c_out;
        layers_im2col(x + i * n_pixels * b->c_in, b->side, b->side, b->c_in, in->cols);
        for (size_t p = 0; p < n_pixels; p++)
            memcpy(y + p * b->c_out, b->bias->param, b->c_out * sizeof(real));
        gemm(n_pixels, b->c_out, n_taps, matrix(in->cols, n_taps),
             matrix(b->weight->param, b->c_out), y, b->c_out, true);
        round_values(in, y, n_pixels * b->c_out);
        if (m != NULL)
            layers_moments_add(m, y, n_pixels, b->c_out);
    }
}

/* Let the running averages follow the batch. Their variance is the unbiased one, as PyTorch's is.
 */
static void follow_moments(struct block *b, double n)
{
    for (size_t j = 0; j < b->c_out; j++) {
        real *mean = &b->running_mean->values[j], *var = &b->running_var->values[j];
        *mean = (real)((1 - NORM_MOMENTUM) * *mean + NORM_MOMENTUM * b->mean[j]);
        *var = (real)((1 - NORM_MOMENTUM) * *var + NORM_MOMENTUM * b->var[j] * n / (n - 1));
    }
}

const real *convnet_block_forward(struct convnet_priv *in, struct block *b, const real *x,
                                  bool training)
{
    const size_t n_pixels = b->side * b->side;
    real scale[MAX_CHANNELS], shift[MAX_CHANNELS];

    memset(b->mean, 0, sizeof(b->mean));
    memset(b->var, 0, sizeof(b->var));
    fill(scale, MAX_CHANNELS, 1);
    fill(shift, MAX_CHANNELS, 0);
    fill(b->center, MAX_CHANNELS, 0);
    if (!in->batch_norm) {
        block_convolve(in, b, x, NULL);
    } else if (training) {
        struct layers_moments m = {.mean = b->mean, .m2 = b->var};
        block_convolve(in, b, x, &m);
        if (in->norm_group != NULL && in->norm_status == 0)
            in->norm_status = ddp_syncbn_merge(in->norm_group, &m.n, b->mean, b->var, b->c_out);
        for (size_t j = 0; j < b->c_out; j++)
            b->var[j] /= m.n;
        b->n_values = m.n;
        if (!in->again)
            follow_moments(b, m.n);
    } else {
        block_convolve(in, b, x, NULL);
        for (size_t j = 0; j < b->c_out; j++) {
            b->mean[j] = b->running_mean->values[j];
            b->var[j] = b->running_var->values[j];
        }
    }
    for (size_t j = 0; in->batch_norm && j < b->c_out; j++) {
        double by = ((real *)b->gamma->param)[j] / sqrt(b->var[j] + NORM_EPS);
        scale[j] = (real)by;
        shift[j] = (real)(((real *)b->beta->param)[j] - b->mean[j] * by);
        b->center[j] = (real)b->mean[j];
    }
    for (size_t i = 0; i < in->n; i++) {
        size_t at = i * n_pixels / 4 * b->c_out;
        layers_pool(b->y + 4 * at, b->side, b->side, b->c_out, scale, shift, b->out + at,
                    b->pick + at);
    }
    round_values(in, b->out, in->n * n_pixels / 4 * b->c_out);
    return b->out;
}

/* What the full layer is given: in->input, or what the last block gives. */
static const real *fc_input(const struct convnet_priv *in)
{
    return in->n_blocks > 0 ? in->blocks[in->n_blocks - 1].out : in->input;
}

void convnet_fc_forward(struct convnet_priv *in)
{
    const real *x = fc_input(in);

    for (size_t i = 0; i < in->n; i++)
        memcpy(in->logits + i * CONVNET_CLASSES, in->fc_bias->param,
               CONVNET_CLASSES * sizeof(real));
    gemm(in->n, CONVNET_CLASSES, in->fc_in, matrix(x, in->fc_in),
         matrix(in->fc_weight->param, CONVNET_CLASSES), in->logits, CONVNET_CLASSES, true);
}

/* From in->input to in->logits. */
static void run_forward(struct convnet_priv *in, bool training)
{
    const real *x = in->input;

    round_values(in, in->input, in->n * CONVNET_PIXELS);
    for (size_t i = 0; i < in->n_blocks; i++)
        x = convnet_block_forward(in, &in->blocks[i], x, training);
    convnet_fc_forward(in);
}

/* From in->logits to the loss, and its gradient. */
double convnet_take_loss(struct convnet *net)
{
    struct convnet_priv *in = net->inside;
    double loss = layers_softmax_loss(in->logits, in->labels, in->n, CONVNET_CLASSES, in->d_logits);

    for (size_t i = 0; net->loss_scale != 1 && i < in->n * CONVNET_CLASSES; i++)
        in->d_logits[i] *= (real)net->loss_scale;
    round_values(in, in->d_logits, in->n * CONVNET_CLASSES);
    return loss;
}

void convnet_take_images(struct convnet_priv *in, const struct convnet_images *images,
                         const int64_t *index, size_t n)
{
    in->n = n;
    in->again = false;
    for (size_t i = 0; i < n; i++)
        take_image(in, i, images, (size_t)index[i]);
}

double convnet_forward(struct convnet *net, const struct convnet_images *images,
                       const int64_t *index, size_t n)
{
    convnet_take_images(net->inside, images, index, n);
    run_forward(net->inside, true);
    net->n_batches++;
    return convnet_take_loss(net);
}

size_t convnet_count_right(struct convnet *net, const struct convnet_images *images, size_t first,
                           size_t n)
{
    struct convnet_priv *in = net->inside;
    size_t n_right = 0;

    in->n = n;
    for (size_t i = 0; i < n; i++)
        take_image(in, i, images, first + i);
    run_forward(in, false);
    for (size_t i = 0; i < n; i++) {
        const real *logits = in->logits + i * CONVNET_CLASSES;
        size_t best = 0;
        for (size_t j = 1; j < CONVNET_CLASSES; j++)
            best = logits[j] > logits[best] ? j : best;
        n_right += best == in->labels[i];
    }
    return n_right;
}

/* ---- backward ---- */

static void is_ready(const struct convnet *net, struct ddp_model *model,
                     const struct ddp_tensor *tensor)
{
    if (model != NULL)
        ddp_model_ready(model,
                        (size_t)(tensor - net->tensors)); /* ddp_model_sync() has the error */
}

/* The full layer: its gradients, and d_x where it is not NULL. */
void convnet_fc_backward(struct convnet *net, struct ddp_model *model, real *d_x)
{
    struct convnet_priv *in = net->inside;
    const real *x = fc_input(in);
    real *d_bias = in->fc_bias->grad;

    gemm(in->fc_in, CONVNET_CLASSES, in->n, transposed(x, in->fc_in),
         matrix(in->d_logits, CONVNET_CLASSES), in->fc_weight->grad, CONVNET_CLASSES, false);
    fill(d_bias, CONVNET_CLASSES, 0);
    for (size_t i = 0; i < in->n; i++)
        for (size_t j = 0; j < CONVNET_CLASSES; j++)
            d_bias[j] += in->d_logits[i * CONVNET_CLASSES + j];
    is_ready(net, model, in->fc_bias);
    is_ready(net, model, in->fc_weight);
    if (d_x == NULL)
        return;
    gemm(in->n, in->fc_in, CONVNET_CLASSES, matrix(in->d_logits, CONVNET_CLASSES),
         transposed(in->fc_weight->param, CONVNET_CLASSES), d_x, in->fc_in, false);
    round_values(in, d_x, in->n * in->fc_in);
}

/* The gradients of gamma and beta, and how d_y follows from d_z. With u = 1 / sqrt(var + eps), N
 * the values of a channel and S sums over them: d_y = gamma u (d_z - S(d_z) / N - (y - mean) u^2
 * S(d_z (y - mean)) / N) */
static void norm_backward(struct convnet_priv *in, struct block *b, real *a, real *slope, real *d)
{
    const size_t n_pixels = b->side * b->side;
    const double n = b->n_values;
    double sums[2 * MAX_CHANNELS] = {0}, *sum_dz = sums, *sum_dz_y = sums + MAX_CHANNELS;

    for (size_t i = 0; i < in->n; i++) {
        size_t at = i * n_pixels / 4 * b->c_out;
        real image_dz[MAX_CHANNELS] = {0}, image_dz_y[MAX_CHANNELS] = {0};
        layers_pool_sums(b->d_out + at, b->pick + at, b->y + 4 * at, b->center, b->side, b->side,
                         b->c_out, image_dz, image_dz_y);
        for (size_t j = 0; j < b->c_out; j++) {
            sum_dz[j] += image_dz[j];
            sum_dz_y[j] += image_dz_y[j];
        }
    }
    for (size_t j = 0; j < b->c_out; j++) { /* of this rank's batch: the ranks' are averaged */
        ((real *)b->gamma->grad)[j] = (real)(sum_dz_y[j] / sqrt(b->var[j] + NORM_EPS));
        ((real *)b->beta->grad)[j] = (real)sum_dz[j];
    }
    if (in->norm_group != NULL && in->norm_status == 0)
        in->norm_status = ddp_all_reduce(in->norm_group, sums, sums, 2 * MAX_CHANNELS, DDP_FLOAT64,
                                         DDP_SUM, NULL);
    for (size_t j = 0; j < b->c_out; j++) {
        double u = 1 / sqrt(b->var[j] + NORM_EPS), gamma = ((real *)b->gamma->param)[j];
        a[j] = (real)(gamma * u);
        slope[j] = (real)(-gamma * u * u * u * sum_dz_y[j] / n);
        d[j] = (real)(-gamma * u * sum_dz[j] / n);
    }
}

/* A block: its gradients, and d_x where it is not NULL. */
void convnet_block_backward(struct convnet *net, struct ddp_model *model, struct block *b,
                            const real *x, real *d_x)
{
    struct convnet_priv *in = net->inside;
    const size_t n_pixels = b->side * b->side, n_taps = LAYERS_TAPS * b->c_in;
    real a[MAX_CHANNELS], slope[MAX_CHANNELS], d[MAX_CHANNELS];
    real *d_bias = b->bias->grad;

    fill(a, MAX_CHANNELS, 1);
    fill(slope, MAX_CHANNELS, 0);
    fill(d, MAX_CHANNELS, 0);
    if (in->batch_norm) {
        norm_backward(in, b, a, slope, d);
        is_ready(net, model, b->beta);
        is_ready(net, model, b->gamma);
    }
    fill(d_bias, b->c_out, 0);
    for (size_t i = 0; i < in->n; i++) {
        size_t at = i * n_pixels / 4 * b->c_out;
        const real *x_i = x + i * n_pixels * b->c_in;
        layers_pool_backward(b->d_out + at, b->pick + at, b->y + 4 * at,
                             (struct layers_affine){a, slope, d, b->center}, b->side, b->side,
                             b->c_out, in->d_y);
        round_values(in, in->d_y, n_pixels * b->c_out);
        for (size_t p = 0; p < n_pixels; p++)
            for (size_t j = 0; j < b->c_out; j++)
                d_bias[j] += in->d_y[p * b->c_out + j];
        layers_im2col(x_i, b->side, b->side, b->c_in, in->cols);
        gemm(n_taps, b->c_out, n_pixels, transposed(in->cols, n_taps), matrix(in->d_y, b->c_out),
             b->weight->grad, b->c_out, i > 0);
        if (d_x == NULL)
            continue;
        gemm(n_pixels, n_taps, b->c_out, matrix(in->d_y, b->c_out),
             transposed(b->weight->param, b->c_out), in->d_cols, n_taps, false);
        layers_col2im(in->d_cols, b->side, b->side, b->c_in, d_x + i * n_pixels * b->c_in);
        round_values(in, d_x + i * n_pixels * b->c_in, n_pixels * b->c_in);
    }
    is_ready(net, model, b->bias);
    is_ready(net, model, b->weight);
}

void convnet_backward(struct convnet *net, struct ddp_model *model)
{
    struct convnet_priv *in = net->inside;
    struct block *blocks = in->blocks;
    size_t n = in->n_blocks;

    convnet_fc_backward(net, model, n > 0 ? blocks[n - 1].d_out : NULL);
    while (n-- > 0)
        convnet_block_backward(net, model, &blocks[n], n > 0 ? blocks[n - 1].out : in->input,
                               n > 0 ? blocks[n - 1].d_out : NULL);
}

/* ---- as PyTorch keeps it ---- */

size_t convnet_copy_tensor(const struct convnet *net, size_t i, real *to, size_t *ret_shape)
{
    const struct convnet_priv *in = net->inside;
    const struct ddp_tensor *t = &net->tensors[i];
    const real *from = t->param;

    for (size_t k = 0; k < in->n_blocks; k++) {
        const struct block *b = &in->blocks[k];
        if (t != b->weight)
            continue;
        for (size_t o = 0; o < b->c_out; o++)
            for (size_t c = 0; c < b->c_in; c++)
                for (size_t tap = 0; tap < LAYERS_TAPS; tap++)
                    *to++ = from[(tap * b->c_in + c) * b->c_out + o];
        ret_shape[0] = b->c_out;
        ret_shape[1] = b->c_in;
        ret_shape[2] = ret_shape[3] = LAYERS_KERNEL;
        return 4;
    }
    if (t == in->fc_weight) {
        size_t channels = in->n_blocks > 0 ? in->blocks[in->n_blocks - 1].c_out : 1;
        size_t n_pixels = in->fc_in / channels;
        for (size_t o = 0; o < CONVNET_CLASSES; o++)
            for (size_t c = 0; c < channels; c++)
                for (size_t p = 0; p < n_pixels; p++)
                    *to++ = from[(p * channels + c) * CONVNET_CLASSES + o];
        ret_shape[0] = CONVNET_CLASSES;
        ret_shape[1] = in->fc_in;
        return 2;
    }
    memcpy(to, from, t->count * sizeof(real));
    ret_shape[0] = t->count;
    return 1;
}
