/* layers.c - plain loops over neighbors in memory, for the compiler to vectorize. */
#include "layers.h"

#include <math.h>
#include <string.h>

/* The part of a kernel row that lies inside the image, for the output pixel in column x. */
struct span {
    size_t first, n; /* taps first .. first + n - 1 of 5 */
    size_t column;   /* in the image, under the tap `first` */
};

static struct span span_of(size_t x, size_t w)
{
    size_t first = x < LAYERS_PAD ? LAYERS_PAD - x : 0;
    size_t column = x + first - LAYERS_PAD;
    size_t n = LAYERS_KERNEL - first;
    return (struct span){first, n < w - column ? n : w - column, column};
}

void layers_im2col(const real *x, size_t h, size_t w, size_t c, real *cols)
{
    const size_t len = LAYERS_KERNEL * c;

    for (size_t row = 0; row < h; row++) {
        for (size_t column = 0; column < w; column++) {
            struct span s = span_of(column, w);
            for (size_t tap = 0; tap < LAYERS_KERNEL; tap++, cols += len) {
                if (row + tap < LAYERS_PAD || row + tap >= h + LAYERS_PAD) {
                    memset(cols, 0, len * sizeof(real));
                    continue;
                }
                const real *from = x + ((row + tap - LAYERS_PAD) * w + s.column) * c;
                if (s.n == LAYERS_KERNEL &&
                    c == 1) { /* most of the first layer: no call for 20 bytes */
                    memcpy(cols, from, LAYERS_KERNEL * sizeof(real));
                    continue;
                }
                if (s.n < LAYERS_KERNEL)
                    memset(cols, 0, len * sizeof(real));
                memcpy(cols + s.first * c, from, s.n * c * sizeof(real));
            }
        }
    }
}

void layers_col2im(const real *d_cols, size_t h, size_t w, size_t c, real *d_x)
{
    memset(d_x, 0, h * w * c * sizeof(real));
    for (size_t row = 0; row < h; row++) {
        for (size_t column = 0; column < w; column++) {
            struct span s = span_of(column, w);
            for (size_t tap = 0; tap < LAYERS_KERNEL; tap++, d_cols += LAYERS_KERNEL * c) {
                if (row + tap < LAYERS_PAD || row + tap >= h + LAYERS_PAD)
                    continue;
                real *to = d_x + ((row + tap - LAYERS_PAD) * w + s.column) * c;
                const real *from = d_cols + s.first * c;
                for (size_t i = 0; i < s.n * c; i++)
                    to[i] += from[i];
            }
        }
    }
}

void layers_moments_add(struct layers_moments *m, const real *y, size_t n_pixels, size_t c)
{
    real mean[LAYERS_MAX_CHANNELS] = {0}, m2[LAYERS_MAX_CHANNELS] = {0};

    for (size_t i = 0; i < n_pixels; i++)
        for (size_t j = 0; j < c; j++)
            mean[j] += y[i * c + j];
    for (size_t j = 0; j < c; j++)
        mean[j] /= (real)n_pixels;
    for (size_t i = 0; i < n_pixels; i++) {
        for (size_t j = 0; j < c; j++) {
            real off = y[i * c + j] - mean[j];
            m2[j] += off * off;
        }
    }
    double n = m->n + (double)n_pixels;
    for (size_t j = 0; j < c; j++) {
        double apart = mean[j] - m->mean[j];
        m->mean[j] += apart * (double)n_pixels / n;
        m->m2[j] += m2[j] + apart * apart * m->n * (double)n_pixels / n;
    }
    m->n = n;
}

void layers_pool(const real *restrict y, size_t h, size_t w, size_t c, const real *restrict scale,
                 const real *restrict shift, real *restrict out, real *restrict pick)
{
    for (size_t row = 0; row < h; row += 2) {
        for (size_t column = 0; column < w; column += 2, out += c, pick += c) {
            const real *y0 = y + (row * w + column) * c, *y1 = y0 + c;
            const real *y2 = y0 + w * c, *y3 = y2 + c;
            for (size_t j = 0; j < c; j++) {
                real z0 = scale[j] * y0[j] + shift[j], z1 = scale[j] * y1[j] + shift[j];
                real z2 = scale[j] * y2[j] + shift[j], z3 = scale[j] * y3[j] + shift[j];
                real top = z1 > z0 ? z1 : z0, bottom = z3 > z2 ? z3 : z2;
                real best = bottom > top ? bottom : top;
                real which_top = z1 > z0 ? 1 : 0, which_bottom = z3 > z2 ? 3 : 2;
                real which = bottom > top ? which_bottom : which_top;
                out[j] = best > 0 ? best : 0;
                pick[j] = best > 0 ? which : 4;
            }
        }
    }
}

void layers_pool_sums(const real *restrict d_out, const real *restrict pick, const real *restrict y,
                      const real *restrict mean, size_t h, size_t w, size_t c,
                      real *restrict sum_dz, real *restrict sum_dz_y)
{
    for (size_t row = 0; row < h; row += 2) {
        for (size_t column = 0; column < w; column += 2, d_out += c, pick += c) {
            const real *y0 = y + (row * w + column) * c, *y1 = y0 + c;
            const real *y2 = y0 + w * c, *y3 = y2 + c;
            for (size_t j = 0; j < c; j++) {
                real y00 = y0[j], y01 = y1[j], y10 = y2[j], y11 = y3[j], d = d_out[j];
                real which = pick[j];
                real dz = which < 4 ? d : 0;
                real top = which == 1 ? y01 : y00, bottom = which == 3 ? y11 : y10;
                real picked = which >= 2 ? bottom : top;
                sum_dz[j] += dz;
                sum_dz_y[j] += dz * (picked - mean[j]);
            }
        }
    }
}

void layers_pool_backward(const real *restrict d_out, const real *restrict pick,
                          const real *restrict y, struct layers_affine by, size_t h, size_t w,
                          size_t c, real *restrict d_y)
{
    const real *restrict a = by.a, *restrict b = by.b, *restrict d = by.d, *restrict mean = by.mean;
    const size_t corners[4] = {0, c, w * c, w * c + c};

    for (size_t row = 0; row < h; row += 2) {
        for (size_t column = 0; column < w; column += 2, d_out += c, pick += c) {
            for (int corner = 0; corner < 4; corner++) {
                const real this = (real)corner;
                size_t at = (row * w + column) * c + corners[corner];
                for (size_t j = 0; j < c; j++) {
                    real dz = d_out[j], slope = a[j];
                    slope = pick[j] == this ? slope : 0;
                    d_y[at + j] = slope * dz + b[j] * (y[at + j] - mean[j]) + d[j];
                }
            }
        }
    }
}

double layers_softmax_loss(const real *logits, const uint8_t *labels, size_t n, size_t classes,
                           real *d_logits)
{
    double loss = 0;

    for (size_t i = 0; i < n; i++, logits += classes, d_logits += classes) {
        real top = logits[0];
        for (size_t j = 1; j < classes; j++)
            top = logits[j] > top ? logits[j] : top; /* keeps exp() from overflowing */
        double sum = 0;
        for (size_t j = 0; j < classes; j++)
            sum += exp((double)(logits[j] - top));
        for (size_t j = 0; j < classes; j++)
            d_logits[j] =
                (real)((exp((double)(logits[j] - top)) / sum - (j == labels[i])) / (double)n);
        loss += log(sum) - (double)(logits[labels[i]] - top);
    }
    return loss / (double)n;
}
