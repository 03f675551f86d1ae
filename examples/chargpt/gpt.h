/* gpt.h - a small GPT on characters: GPT-2's layers and names, with bytes for tokens.
 *
 * All parameters lie in one stretch of memory. The gradients lie in another one, which the caller
 * provides: a tensor begins at the same place in both. */
#ifndef DDP_EXAMPLES_CHARGPT_GPT_H
#define DDP_EXAMPLES_CHARGPT_GPT_H

#include <ddp/model.h>
#include <stddef.h>
#include <stdint.h>

#include "../shared/real.h"

struct failure;

enum { GPT_CHARACTERS = 256, GPT_MAX_LAYERS = 48, GPT_MAX_NAME = 32 };

struct gpt_shape {
    size_t layers; /* 1 .. GPT_MAX_LAYERS */
    size_t width;  /* a multiple of heads */
    size_t heads;
    size_t context; /* characters of a stretch */
};

struct gpt_tensor {
    char name[GPT_MAX_NAME]; /* as PyTorch's modules of GPT-2 have it */
    size_t shape[2], n_dims; /* n_dims 1 or 2 */
    size_t first, count;     /* place among all parameters */
};

struct gpt_activations; /* of one layer */

struct gpt {
    struct gpt_shape shape;
    size_t max_stretches;
    struct gpt_tensor *tensors; /* n_tensors, in the order of their places; owned */
    size_t n_tensors, n_params;
    real *params; /* n_params; owned */
    real *grads;  /* n_params; the caller's, to be set before gpt_backward() */

    real *memory;                   /* owned: all that follows lies in it */
    struct gpt_activations *layers; /* owned */
    real *embedded, *normal, *mean, *inverse, *logits;
    real *d_rows, *d_branch, *d_qkv, *d_wide, *scratch;
};

/* Make one with random parameters: the same for the same seed, everywhere.
 *
 * max_stretches   that go through it at a time
 * returns         0, or -1: bad shape, or out of memory */
int gpt_create(const struct gpt_shape *shape, size_t max_stretches, uint64_t seed,
               struct gpt **ret_gpt, struct failure *why);
void gpt_destroy(struct gpt *g); /* NULL is fine */

/* What is the text like, to this network?
 *
 * inputs, targets   n stretches of `context` characters each; a target that is negative does not
 *                   count
 * returns           the sum of -log(probability) of the targets that count, in nats */
double gpt_forward(struct gpt *g, const uint8_t *inputs, const int *targets, size_t n);

/* The gradients of that sum times `factor`, of the last gpt_forward(): grads are overwritten.
 *
 * model     of the tensors in their order: gets ddp_model_ready() as soon as a gradient is final;
 *           NULL: none */
void gpt_backward(struct gpt *g, const uint8_t *inputs, const int *targets, size_t n, real factor,
                  struct ddp_model *model);

#endif
