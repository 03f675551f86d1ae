/* gpt_layers.h - what the layers of a GPT compute, forward and backward: pure functions on rows.
 *
 * A row is what belongs to one character. Backward functions add to gradients of parameters, and
 * write those of inputs (or add to them, where noted). */
#ifndef DDP_EXAMPLES_CHARGPT_GPT_LAYERS_H
#define DDP_EXAMPLES_CHARGPT_GPT_LAYERS_H

#include <stdbool.h>
#include <stddef.h>

#include "../shared/real.h"

/* --- matrices: y = x w + b ---
 * x   n x in; w   in x out; b   out, NULL: none; y   n x out */
void layer_linear(real *y, const real *x, const real *w, const real *b, size_t n, size_t in,
                  size_t out);
/* d_x   written, or added to if `add`; NULL: not wanted */
void layer_linear_back(real *d_x, bool add, real *d_w, real *d_b, const real *d_y, const real *x,
                       const real *w, size_t n, size_t in, size_t out);

/* --- layer normalization: each row to mean 0 and variance 1, then scaled and shifted ---
 * mean, inverse   n of each: kept for the backward pass */
void layer_norm(real *y, real *mean, real *inverse, const real *x, const real *scale,
                const real *shift, size_t n, size_t width);
/* d_x   added to */
void layer_norm_back(real *d_x, real *d_scale, real *d_shift, const real *d_y, const real *x,
                     const real *mean, const real *inverse, const real *scale, size_t n,
                     size_t width);

/* --- GELU, by tanh as GPT-2 has it --- */
void layer_gelu(real *y, const real *x, size_t n);
void layer_gelu_back(real *d_x, const real *d_y, const real *x, size_t n); /* d_x == d_y is fine */

/* --- attention of one stretch of `rows` characters to itself and what is before them ---
 * qkv   rows x 3 width: queries, keys and values, each heads x size side by side
 * att   heads x rows x rows: what each character looks at, kept for the way back
 * y     rows x width */
struct layer_attention {
    size_t rows, width, heads;
};
void layer_attention(const struct layer_attention *a, real *y, real *att, const real *qkv);
/* d_qkv     written
 * scratch   2 x rows x rows */
void layer_attention_back(const struct layer_attention *a, real *d_qkv, const real *d_y,
                          const real *att, const real *qkv, real *scratch);

/* --- the loss: how surprised are we by the targets? ---
 * logits    n x classes; overwritten by probabilities
 * targets   n; negative: does not count
 * returns   the sum over those that count of -log(probability), in nats */
double layer_cross_entropy(real *logits, const int *targets, size_t n, size_t classes);
/* Turn the probabilities into the gradient of the sum times `factor`. */
void layer_cross_entropy_back(real *probabilities, const int *targets, size_t n, size_t classes,
                              real factor);

#endif
