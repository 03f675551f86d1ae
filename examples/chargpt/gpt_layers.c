#include "gpt_layers.h"

#include <math.h>
#include <string.h>

#include "../shared/exponential.h"
#include "../shared/gemm.h"

#define EPSILON ((real)1e-5)

static struct gemm_matrix plain(const real *at, size_t ld)
{
    return (struct gemm_matrix){at, ld, false};
}

static struct gemm_matrix transposed(const real *at, size_t ld)
{
    return (struct gemm_matrix){at, ld, true};
}

void layer_linear(real *y, const real *x, const real *w, const real *b, size_t n, size_t in,
                  size_t out)
{
    for (size_t i = 0; b != NULL && i < n; i++)
        memcpy(y + i * out, b, out * sizeof(real));
    gemm(n, out, in, plain(x, in), plain(w, out), y, out, b != NULL);
}

void layer_linear_back(real *d_x, bool add, real *d_w, real *d_b, const real *d_y, const real *x,
                       const real *w, size_t n, size_t in, size_t out)
{
    for (size_t i = 0; d_b != NULL && i < n; i++)
        for (size_t j = 0; j < out; j++)
            d_b[j] += d_y[i * out + j];
    gemm(in, out, n, transposed(x, in), plain(d_y, out), d_w, out, true);
    if (d_x != NULL)
        gemm(n, in, out, plain(d_y, out), transposed(w, out), d_x, in, add);
}

/* --- normalization --- */

void layer_norm(real *y, real *mean, real *inverse, const real *x, const real *scale,
                const real *shift, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i++, x += width, y += width) {
        real sum = 0, square = 0;

        for (size_t j = 0; j < width; j++)
            sum += x[j];
        mean[i] = sum / (real)width;
        for (size_t j = 0; j < width; j++)
            square += (x[j] - mean[i]) * (x[j] - mean[i]);
        inverse[i] = 1 / (real)sqrt((double)(square / (real)width + EPSILON));
        for (size_t j = 0; j < width; j++)
            y[j] = (x[j] - mean[i]) * inverse[i] * scale[j] + shift[j];
    }
}

void layer_norm_back(real *d_x, real *d_scale, real *d_shift, const real *d_y, const real *x,
                     const real *mean, const real *inverse, const real *scale, size_t n,
                     size_t width)
{
    for (size_t i = 0; i < n; i++, x += width, d_x += width, d_y += width) {
        real sum = 0, sum_of_products = 0;

        for (size_t j = 0; j < width; j++) {
            const real normal = (x[j] - mean[i]) * inverse[i], d = d_y[j] * scale[j];
            sum += d;
            sum_of_products += d * normal;
            d_scale[j] += d_y[j] * normal;
            d_shift[j] += d_y[j];
        }
        sum /= (real)width;
        sum_of_products /= (real)width;
        for (size_t j = 0; j < width; j++) {
            const real normal = (x[j] - mean[i]) * inverse[i];
            d_x[j] += (d_y[j] * scale[j] - sum - normal * sum_of_products) * inverse[i];
        }
    }
}

/* --- GELU --- */

#define GELU_SCALE ((real)0.7978845608028654) /* sqrt(2 / pi) */
#define GELU_CUBE  ((real)0.044715)

void layer_gelu(real *y, const real *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (real)0.5 * x[i] *
               (1 + hyperbolic_tangent(GELU_SCALE * (x[i] + GELU_CUBE * x[i] * x[i] * x[i])));
}

void layer_gelu_back(real *d_x, const real *d_y, const real *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const real t = hyperbolic_tangent(GELU_SCALE * (x[i] + GELU_CUBE * x[i] * x[i] * x[i]));
        const real slope = GELU_SCALE * (1 + 3 * GELU_CUBE * x[i] * x[i]);
        d_x[i] = d_y[i] * (real)0.5 * (1 + t + x[i] * (1 - t * t) * slope);
    }
}

/* --- attention --- */

/* Row i of the scores to probabilities of the characters up to i; none of those after it. */
static void soften(real *scores, size_t rows, real scale)
{
    for (size_t i = 0; i < rows; i++, scores += rows) {
        real most = scores[0], sum = 0;

        for (size_t j = 1; j <= i; j++)
            most = scores[j] > most ? scores[j] : most;
        for (size_t j = 0; j <= i; j++)
            scores[j] = exponential((scores[j] - most) * scale);
        for (size_t j = 0; j <= i; j++)
            sum += scores[j];
        for (size_t j = 0; j <= i; j++)
            scores[j] /= sum;
        memset(scores + i + 1, 0, (rows - i - 1) * sizeof(real));
    }
}

void layer_attention(const struct layer_attention *a, real *y, real *att, const real *qkv)
{
    const size_t rows = a->rows, size = a->width / a->heads, ld = 3 * a->width;
    const real scale = 1 / (real)sqrt((double)size);

    for (size_t h = 0; h < a->heads; h++, att += rows * rows) {
        const real *q = qkv + h * size, *k = q + a->width, *v = k + a->width;
        gemm(rows, rows, size, plain(q, ld), transposed(k, ld), att, rows, false);
        soften(att, rows, scale);
        gemm(rows, size, rows, plain(att, rows), plain(v, ld), y + h * size, a->width, false);
    }
}

/* From the gradient of the probabilities to that of the scores before scaling, in place. */
static void soften_back(real *d, const real *att, size_t rows, real scale)
{
    for (size_t i = 0; i < rows; i++, d += rows, att += rows) {
        real sum = 0;

        for (size_t j = 0; j <= i; j++)
            sum += d[j] * att[j];
        for (size_t j = 0; j < rows; j++)
            d[j] = j <= i ? (d[j] - sum) * att[j] * scale : 0;
    }
}

void layer_attention_back(const struct layer_attention *a, real *d_qkv, const real *d_y,
                          const real *att, const real *qkv, real *scratch)
{
    const size_t rows = a->rows, size = a->width / a->heads, ld = 3 * a->width;
    const real scale = 1 / (real)sqrt((double)size);

    for (size_t h = 0; h < a->heads; h++, att += rows * rows) {
        const real *q = qkv + h * size, *k = q + a->width, *v = k + a->width;
        const real *d_out = d_y + h * size;
        real *d_q = d_qkv + h * size, *d_k = d_q + a->width, *d_v = d_k + a->width;
        gemm(rows, size, rows, transposed(att, rows), plain(d_out, a->width), d_v, ld, false);
        gemm(rows, rows, size, plain(d_out, a->width), transposed(v, ld), scratch, rows, false);
        soften_back(scratch, att, rows, scale);
        gemm(rows, size, rows, plain(scratch, rows), plain(k, ld), d_q, ld, false);
        gemm(rows, size, rows, transposed(scratch, rows), plain(q, ld), d_k, ld, false);
    }
}

/* --- loss --- */

double layer_cross_entropy(real *logits, const int *targets, size_t n, size_t classes)
{
    double loss = 0;

    for (size_t i = 0; i < n; i++, logits += classes) {
        real most = logits[0], sum = 0, wanted = targets[i] >= 0 ? logits[targets[i]] : 0;

        for (size_t j = 1; j < classes; j++)
            most = logits[j] > most ? logits[j] : most;
        for (size_t j = 0; j < classes; j++)
            logits[j] = exponential(logits[j] - most);
        for (size_t j = 0; j < classes; j++)
            sum += logits[j];
        for (size_t j = 0; j < classes; j++)
            logits[j] /= sum;
        if (targets[i] >= 0)
            loss += log((double)sum) - (double)(wanted - most);
    }
    return loss;
}

void layer_cross_entropy_back(real *probabilities, const int *targets, size_t n, size_t classes,
                              real factor)
{
    for (size_t i = 0; i < n; i++, probabilities += classes) {
        const real scale = targets[i] >= 0 ? factor : 0;

        if (targets[i] >= 0)
            probabilities[targets[i]] -= 1;
        for (size_t j = 0; j < classes; j++)
            probabilities[j] *= scale;
    }
}
