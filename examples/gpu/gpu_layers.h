/* gpu_layers.h - what the kernels of the network on a GPU compute: one thread's share each.
 *
 * Pure, and the same text for both: nvcc makes kernels of it (gpu_kernels.cu), a C compiler makes
 * functions of it, so that the arithmetic is tested where there is no GPU. A kernel's arguments are
 * a struct gpu_X, gpu_X_at(k, i) is what thread i does. Names and layouts are those of layers.h:
 * channels innermost; x goes in, y is what a convolution gives, out what a block gives.
 *
 * No two threads write the same place, and sums are taken in one order: each step gives the same
 * bits every time. Where many images add up to few numbers, each of `parts` threads adds up every
 * parts-th image, and gpu_sum puts these together, in double. */
#ifndef DDP_EXAMPLES_GPU_GPU_LAYERS_H
#define DDP_EXAMPLES_GPU_GPU_LAYERS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../mnist/layers.h"
#include "../shared/real.h"

#ifdef __CUDACC__
#define GPU_FN static __host__ __device__ inline
#else
#define GPU_FN static inline
#endif

/* Of a block: n images of side x side x c_in, and as many of side x side x c_out. */
struct gpu_shape {
    unsigned n, side, c_in, c_out;
};

/* --- images: a thread for each pixel of the batch --- */

struct gpu_images {
    const uint8_t *pixels, *labels; /* of the whole data set */
    const int64_t *index;           /* n */
    unsigned n, n_pixels;
    real *input; /* n x n_pixels, 0 .. 1 */
    uint8_t *taken;
};

GPU_FN void gpu_images_at(const struct gpu_images *k, unsigned i)
{
    const unsigned image = i / k->n_pixels, p = i % k->n_pixels;
    k->input[i] = (real)k->pixels[(size_t)k->index[image] * k->n_pixels + p] / 255;
    if (p == 0)
        k->taken[image] = k->labels[k->index[image]];
}

/* --- convolution: a thread for each number of y --- */

struct gpu_conv {
    struct gpu_shape s;
    const real *x, *weight, *bias;
    real *y;
};

/* Where the pixel lies that a tap sees, counted from that of the output; false: outside. */
GPU_FN bool gpu_tap(unsigned at, int off, unsigned side, unsigned *ret)
{
    *ret = (unsigned)((int)at + off);
    return *ret < side; /* less than 0 wraps */
}

GPU_FN void gpu_conv_at(const struct gpu_conv *k, unsigned i)
{
    const unsigned side = k->s.side, c_in = k->s.c_in, c_out = k->s.c_out;
    const unsigned o = i % c_out, column = i / c_out % side, row = i / c_out / side % side;
    const real *x = k->x + (size_t)(i / c_out / side / side) * side * side * c_in;
    real sum = k->bias[o];
    for (int tap = 0; tap < LAYERS_TAPS; tap++) {
        unsigned r, c;
        if (!gpu_tap(row, tap / LAYERS_KERNEL - LAYERS_PAD, side, &r) ||
            !gpu_tap(column, tap % LAYERS_KERNEL - LAYERS_PAD, side, &c))
            continue;
        const real *from = x + (r * side + c) * c_in;
        const real *weight = k->weight + (unsigned)tap * c_in * c_out + o;
        for (unsigned j = 0; j < c_in; j++)
            sum += from[j] * weight[j * c_out];
    }
    k->y[i] = sum;
}

/* The gradient by what went in: a thread for each number of d_x. */
struct gpu_conv_dx {
    struct gpu_shape s;
    const real *d_y, *weight;
    real *d_x;
};

GPU_FN void gpu_conv_dx_at(const struct gpu_conv_dx *k, unsigned i)
{
    const unsigned side = k->s.side, c_in = k->s.c_in, c_out = k->s.c_out;
    const unsigned j = i % c_in, column = i / c_in % side, row = i / c_in / side % side;
    const real *d_y = k->d_y + (size_t)(i / c_in / side / side) * side * side * c_out;
    real sum = 0;
    for (int tap = 0; tap < LAYERS_TAPS; tap++) {
        unsigned r, c;
        if (!gpu_tap(row, LAYERS_PAD - tap / LAYERS_KERNEL, side, &r) ||
            !gpu_tap(column, LAYERS_PAD - tap % LAYERS_KERNEL, side, &c))
            continue;
        const real *from = d_y + (r * side + c) * c_out;
        const real *weight = k->weight + ((unsigned)tap * c_in + j) * c_out;
        for (unsigned o = 0; o < c_out; o++)
            sum += from[o] * weight[o];
    }
    k->d_x[i] = sum;
}

/* The gradient by weights, and by the bias as one more row of them, for which x is 1: a thread for
 * each of these in each part. */
struct gpu_conv_dw {
    struct gpu_shape s;
    const real *x, *d_y;
    unsigned parts;
    double *part; /* parts x (taps * c_in + 1) x c_out */
};

GPU_FN real gpu_conv_dw_of(const struct gpu_conv_dw *k, unsigned image, unsigned w, unsigned o)
{
    const unsigned side = k->s.side, c_in = k->s.c_in, c_out = k->s.c_out;
    const int tap = (int)(w / c_in);
    const bool is_bias = tap == LAYERS_TAPS;
    const real *x = k->x + (size_t)image * side * side * c_in + w % c_in;
    const real *d_y = k->d_y + (size_t)image * side * side * c_out + o;
    real sum = 0;
    for (unsigned row = 0; row < side; row++)
        for (unsigned column = 0; column < side; column++) {
            unsigned r = 0, c = 0;
            if (!is_bias && (!gpu_tap(row, tap / LAYERS_KERNEL - LAYERS_PAD, side, &r) ||
                             !gpu_tap(column, tap % LAYERS_KERNEL - LAYERS_PAD, side, &c)))
                continue;
            sum += (is_bias ? 1 : x[(r * side + c) * c_in]) * d_y[(row * side + column) * c_out];
        }
    return sum;
}

GPU_FN void gpu_conv_dw_at(const struct gpu_conv_dw *k, unsigned i)
{
    const unsigned o = i % k->s.c_out, rows = LAYERS_TAPS * k->s.c_in + 1;
    const unsigned w = i / k->s.c_out % rows, part = i / k->s.c_out / rows;
    double sum = 0;
    for (unsigned image = part; image < k->s.n; image += k->parts)
        sum += gpu_conv_dw_of(k, image, w, o);
    k->part[i] = sum;
}

/* --- parts put together: a thread for each column --- */

struct gpu_sum {
    const double *part; /* parts x columns */
    unsigned parts, columns;
    double factor;
    double *wide;     /* columns; NULL: to the other two */
    real *out, *rest; /* the first `split` columns, and the others */
    unsigned split;
};

GPU_FN void gpu_sum_at(const struct gpu_sum *k, unsigned i)
{
    double sum = 0;
    for (unsigned p = 0; p < k->parts; p++)
        sum += k->part[(size_t)p * k->columns + i];
    sum *= k->factor;
    if (k->wide != NULL)
        k->wide[i] = sum;
    else if (i < k->split)
        k->out[i] = (real)sum;
    else
        k->rest[i - k->split] = (real)sum;
}

/* --- batch normalization --- */

/* Sums of y, or of squared deviations from its mean: a thread for each channel in each part. */
struct gpu_moments {
    struct gpu_shape s;
    const real *y;
    const double *mean; /* c_out; NULL: sums of y */
    unsigned parts;
    double *part; /* parts x c_out */
};

GPU_FN void gpu_moments_at(const struct gpu_moments *k, unsigned i)
{
    const unsigned n_pixels = k->s.side * k->s.side, c_out = k->s.c_out, o = i % c_out;
    const double mean = k->mean != NULL ? k->mean[o] : 0;
    double sum = 0;
    for (unsigned image = i / c_out; image < k->s.n; image += k->parts) {
        const real *y = k->y + (size_t)image * n_pixels * c_out + o;
        for (unsigned p = 0; p < n_pixels; p++) {
            const double off = y[p * c_out] - mean;
            sum += k->mean != NULL ? off * off : off;
        }
    }
    k->part[i] = sum;
}

/* What it comes to: z = scale * y + shift. A thread for each channel. */
struct gpu_norm {
    unsigned c_out;
    bool training;                    /* by the batch, which the running averages follow */
    double n_values, eps, momentum;   /* of a channel in the batch */
    double *mean, *var;               /* of the batch: read or, by running averages, written */
    real *running_mean, *running_var; /* c_out of each, as all that follows */
    const real *gamma, *beta;
    real *scale, *shift, *center; /* center: the mean, as pooling wants it */
};

GPU_FN void gpu_norm_at(const struct gpu_norm *k, unsigned i)
{
    if (k->training) {
        const double unbiased = k->var[i] * k->n_values / (k->n_values - 1);
        k->running_mean[i] =
            (real)((1 - k->momentum) * k->running_mean[i] + k->momentum * k->mean[i]);
        k->running_var[i] = (real)((1 - k->momentum) * k->running_var[i] + k->momentum * unbiased);
    } else {
        k->mean[i] = k->running_mean[i];
        k->var[i] = k->running_var[i];
    }
    const double by = k->gamma[i] / sqrt(k->var[i] + k->eps);
    k->scale[i] = (real)by;
    k->shift[i] = (real)(k->beta[i] - k->mean[i] * by);
    k->center[i] = (real)k->mean[i];
}

/* Its gradients, and d_y = a * d_z + slope * (y - mean) + d. A thread for each channel. */
struct gpu_norm_back {
    unsigned c_out;
    double n_values, eps;
    const double *sums; /* c_out of d_z, then c_out of d_z * (y - mean) */
    const double *var;
    const real *gamma;
    real *d_gamma, *d_beta, *a, *slope, *d;
};

GPU_FN void gpu_norm_back_at(const struct gpu_norm_back *k, unsigned i)
{
    const double dz = k->sums[i], dz_y = k->sums[k->c_out + i];
    const double u = 1 / sqrt(k->var[i] + k->eps), gamma = k->gamma[i];
    k->d_gamma[i] = (real)(dz_y * u);
    k->d_beta[i] = (real)dz;
    k->a[i] = (real)(gamma * u);
    k->slope[i] = (real)(-gamma * u * u * u * dz_y / k->n_values);
    k->d[i] = (real)(-gamma * u * dz / k->n_values);
}

/* --- ReLU and max-pool: a thread for each number of out --- */

enum { GPU_NO_PICK = 4 };

struct gpu_pool {
    struct gpu_shape s;
    const real *y, *scale, *shift;
    real *out;
    uint8_t *pick; /* which of the four was the largest; GPU_NO_PICK: none was above 0 */
};

/* The first of the four pixels of y that number i of out is made of. */
GPU_FN size_t gpu_pool_corner(const struct gpu_shape *s, unsigned i)
{
    const unsigned half = s->side / 2, o = i % s->c_out, at = i / s->c_out;
    const unsigned column = at % half, row = at / half % half;
    const size_t image = at / half / half;
    return ((image * s->side + 2 * row) * s->side + 2 * column) * s->c_out + o;
}

GPU_FN size_t gpu_pool_step(const struct gpu_shape *s, unsigned which)
{
    return ((size_t)(which >> 1) * s->side + (which & 1)) * s->c_out;
}

GPU_FN void gpu_pool_at(const struct gpu_pool *k, unsigned i)
{
    const real *y = k->y + gpu_pool_corner(&k->s, i);
    const real scale = k->scale[i % k->s.c_out], shift = k->shift[i % k->s.c_out];
    real best = 0;
    uint8_t pick = GPU_NO_PICK;
    for (unsigned which = 0; which < 4; which++) {
        const real z = scale * y[gpu_pool_step(&k->s, which)] + shift;
        if (z > best) {
            best = z;
            pick = (uint8_t)which;
        }
    }
    k->out[i] = best;
    k->pick[i] = pick;
}

/* Sums for the gradient of batch normalization: a thread for each channel in each part. */
struct gpu_pool_sums {
    struct gpu_shape s;
    const real *d_out, *y, *center;
    const uint8_t *pick;
    unsigned parts;
    double *part; /* parts x 2 x c_out: of d_z, of d_z * (y - mean) */
};

GPU_FN void gpu_pool_sums_at(const struct gpu_pool_sums *k, unsigned i)
{
    const unsigned c_out = k->s.c_out, o = i % c_out, part = i / c_out;
    const unsigned n_out = k->s.side / 2 * (k->s.side / 2);
    double dz = 0, dz_y = 0;
    for (unsigned image = part; image < k->s.n; image += k->parts)
        for (unsigned p = 0; p < n_out; p++) {
            const unsigned at = (image * n_out + p) * c_out + o;
            const unsigned pick = k->pick[at];
            if (pick == GPU_NO_PICK)
                continue;
            const size_t picked = gpu_pool_corner(&k->s, at) + gpu_pool_step(&k->s, pick);
            dz += k->d_out[at];
            dz_y += (double)k->d_out[at] * (k->y[picked] - k->center[o]);
        }
    k->part[2 * part * c_out + o] = dz;
    k->part[(2 * part + 1) * c_out + o] = dz_y;
}

/* Back to d_y: a thread for each number of out writes its four. */
struct gpu_pool_back {
    struct gpu_shape s;
    const real *d_out, *y;
    const uint8_t *pick;
    const real *a, *slope, *d, *center; /* c_out of each */
    real *d_y;
};

GPU_FN void gpu_pool_back_at(const struct gpu_pool_back *k, unsigned i)
{
    const unsigned o = i % k->s.c_out;
    const size_t corner = gpu_pool_corner(&k->s, i);
    for (unsigned which = 0; which < 4; which++) {
        const size_t at = corner + gpu_pool_step(&k->s, which);
        const real dz = k->pick[i] == which ? k->a[o] * k->d_out[i] : 0;
        k->d_y[at] = dz + k->slope[o] * (k->y[at] - k->center[o]) + k->d[o];
    }
}

/* --- the full layer --- */

struct gpu_fc { /* a thread for each logit */
    unsigned n, in, classes;
    const real *x, *weight, *bias;
    real *logits;
};

GPU_FN void gpu_fc_at(const struct gpu_fc *k, unsigned i)
{
    const unsigned class_ = i % k->classes;
    const real *x = k->x + (size_t)(i / k->classes) * k->in;
    real sum = k->bias[class_];
    for (unsigned j = 0; j < k->in; j++)
        sum += x[j] * k->weight[j * k->classes + class_];
    k->logits[i] = sum;
}

struct gpu_fc_dw { /* a thread for each weight, then for each bias */
    unsigned n, in, classes;
    const real *x, *d_logits;
    real *d_weight, *d_bias;
};

GPU_FN void gpu_fc_dw_at(const struct gpu_fc_dw *k, unsigned i)
{
    const unsigned class_ = i % k->classes, j = i / k->classes;
    const bool is_bias = j == k->in;
    real sum = 0;
    for (unsigned image = 0; image < k->n; image++)
        sum += (is_bias ? 1 : k->x[(size_t)image * k->in + j]) *
               k->d_logits[image * k->classes + class_];
    if (is_bias)
        k->d_bias[class_] = sum;
    else
        k->d_weight[i] = sum;
}

struct gpu_fc_dx { /* a thread for each number of d_x */
    unsigned n, in, classes;
    const real *d_logits, *weight;
    real *d_x;
};

GPU_FN void gpu_fc_dx_at(const struct gpu_fc_dx *k, unsigned i)
{
    const real *d_logits = k->d_logits + i / k->in * k->classes;
    const real *weight = k->weight + i % k->in * k->classes;
    real sum = 0;
    for (unsigned j = 0; j < k->classes; j++)
        sum += d_logits[j] * weight[j];
    k->d_x[i] = sum;
}

/* --- the loss: a thread for each image --- */

struct gpu_loss {
    unsigned n, classes;
    real scale; /* of d_logits */
    const real *logits;
    const uint8_t *labels;
    real *d_logits; /* of the mean over the n images */
    double *loss;   /* n */
};

GPU_FN void gpu_loss_at(const struct gpu_loss *k, unsigned i)
{
    const real *logits = k->logits + i * k->classes;
    real *d_logits = k->d_logits + i * k->classes;
    real top = logits[0];
    double sum = 0;
    for (unsigned j = 1; j < k->classes; j++)
        top = logits[j] > top ? logits[j] : top; /* keeps exp() from overflowing */
    for (unsigned j = 0; j < k->classes; j++)
        sum += exp((double)(logits[j] - top));
    for (unsigned j = 0; j < k->classes; j++)
        d_logits[j] =
            (real)((exp((double)(logits[j] - top)) / sum - (j == k->labels[i] ? 1 : 0)) / k->n) *
            k->scale;
    k->loss[i] = log(sum) - (double)(logits[k->labels[i]] - top);
}

struct gpu_right { /* 1 where the label is the right one, else 0 */
    unsigned n, classes;
    const real *logits;
    const uint8_t *labels;
    double *right; /* n */
};

GPU_FN void gpu_right_at(const struct gpu_right *k, unsigned i)
{
    const real *logits = k->logits + i * k->classes;
    unsigned best = 0;
    for (unsigned j = 1; j < k->classes; j++)
        best = logits[j] > logits[best] ? j : best;
    k->right[i] = best == k->labels[i] ? 1 : 0;
}

/* --- steps: a thread for each number of a tensor --- */

struct gpu_add { /* to += share * from */
    unsigned n;
    real share;
    const real *from;
    real *to;
};

GPU_FN void gpu_add_at(const struct gpu_add *k, unsigned i)
{
    k->to[i] += k->share * k->from[i];
}

struct gpu_sgd {
    unsigned n;
    real lr, momentum;
    const real *grad;
    real *velocity, *param;
};

GPU_FN void gpu_sgd_at(const struct gpu_sgd *k, unsigned i)
{
    k->velocity[i] = k->momentum * k->velocity[i] + k->grad[i];
    k->param[i] -= k->lr * k->velocity[i];
}

#endif
