/* layers.h - what the layers of a small convolutional network compute, one image at a time.
 *
 * Pure: no state; they allocate nothing. An image is height x width x channels, channels innermost,
 * so that every inner loop runs over neighbors in memory. Names: x goes in, y is what the
 * convolution gives, out what the block gives; d_x is the gradient of the loss by x. */
#ifndef DDP_EXAMPLES_MNIST_LAYERS_H
#define DDP_EXAMPLES_MNIST_LAYERS_H

#include <stddef.h>
#include <stdint.h>

#include "../shared/real.h"

enum {
    LAYERS_KERNEL = 5, /* a convolution looks at 5 x 5 pixels, */
    LAYERS_PAD = 2,    /* outside of the image they are 0 */
    LAYERS_TAPS = LAYERS_KERNEL * LAYERS_KERNEL,
};

/* Lay the 25 pixels that each output pixel of a convolution sees in a row: the convolution is then
 * cols times weights, the gradient of the weights cols^T times d_y.
 *
 * x      h x w x c
 * cols   (h * w) x (25 * c): row, column, channel of the kernel */
void layers_im2col(const real *x, size_t h, size_t w, size_t c, real *cols);

/* The way back: add each row's pixels to where they came from.
 * d_x    h x w x c, written */
void layers_col2im(const real *d_cols, size_t h, size_t w, size_t c, real *d_x);

/* Mean and sum of squared deviations per channel, of one image or of many. */
struct layers_moments {
    double n;          /* pixels seen */
    double *mean, *m2; /* c of each; caller's */
};

/* Take in one more image.
 *
 * Two passes over the image, which is in the cache, and Chan's formula to merge: as exact as two
 * passes over the batch, which is not. Order matters for the last bits: go from the first image to
 * the last.
 *
 * y      n_pixels x c, c <= LAYERS_MAX_CHANNELS */
enum { LAYERS_MAX_CHANNELS = 64 };
void layers_moments_add(struct layers_moments *m, const real *y, size_t n_pixels, size_t c);

/* z = scale * y + shift per channel (what batch normalization comes to, once the moments are
 * known), ReLU, and the largest of each 2 x 2 pixels.
 *
 * y      h x w x c, h and w even
 * out    (h/2) x (w/2) x c
 * pick   as out: 0 .. 3 which pixel was the largest (the first of equals), 4 if none was above 0.
 *        As wide as the other numbers, so that the loops vectorize without conversions */
void layers_pool(const real *y, size_t h, size_t w, size_t c, const real *scale, const real *shift,
                 real *out, real *pick);

/* Sums for the gradient of batch normalization; they are added to.
 *
 * sum_dz      c sums of d_z, the gradient by the normalized value
 * sum_dz_y    c sums of d_z * (y - mean) */
void layers_pool_sums(const real *d_out, const real *pick, const real *y, const real *mean,
                      size_t h, size_t w, size_t c, real *sum_dz, real *sum_dz_y);

/* d_y = a * d_z + b * (y - mean) + d per channel, d_z being d_out at the picked pixel, else 0. */
struct layers_affine {
    const real *a, *b, *d, *mean; /* c of each */
};
void layers_pool_backward(const real *d_out, const real *pick, const real *y,
                          struct layers_affine by, size_t h, size_t w, size_t c, real *d_y);

/* Mean over n rows of the cross-entropy of softmax(logits) with the labels.
 *
 * logits    n x classes
 * labels    n of them, each below `classes`
 * d_logits  n x classes, the gradient of the mean
 * returns   the mean */
double layers_softmax_loss(const real *logits, const uint8_t *labels, size_t n, size_t classes,
                           real *d_logits);

#endif
