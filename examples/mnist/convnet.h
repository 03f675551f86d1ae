/* convnet.h - the network of the classic tutorials, forward and backward.
 *
 *   28 x 28 x 1  -> conv 5x5, 16 -> norm -> ReLU -> max-pool -> 14 x 14 x 16
 *                -> conv 5x5, 32 -> norm -> ReLU -> max-pool ->  7 x  7 x 32 -> full, 10
 *
 * or, for comparison, the last layer alone on the pixels (a linear classifier). Tensors have the
 * names that PyTorch's module of these tutorials gives them; inside, channels are innermost (see
 * convnet_copy_tensor()).
 *
 * The work memory is made once, by convnet_create(). One thread. */
#ifndef DDP_EXAMPLES_MNIST_CONVNET_H
#define DDP_EXAMPLES_MNIST_CONVNET_H

#include <ddp/model.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../shared/real.h"

enum {
    CONVNET_SIDE = 28, /* pixels of an image's side */
    CONVNET_PIXELS = CONVNET_SIDE * CONVNET_SIDE,
    CONVNET_CLASSES = 10,
    CONVNET_MAX_TENSORS = 10,
    CONVNET_MAX_STATS = 4,
};

enum convnet_kind { CONVNET_CONV, CONVNET_LINEAR };

struct convnet_opts {
    enum convnet_kind kind;
    bool batch_norm;  /* normalize by the moments of the batch; ignored by CONVNET_LINEAR */
    size_t max_batch; /* images of one call, >= 1 */
    uint64_t seed;    /* of the first weights */
};

/* Moments of the whole data set, as batch normalization has seen them: running averages. They are
 * part of the network's state, but have no gradient. */
struct convnet_stat {
    const char *name;
    real *values;
    size_t count;
};

struct convnet {
    struct ddp_tensor tensors[CONVNET_MAX_TENSORS]; /* parameters; grad NULL until the caller, or
                                                       ddp_model_create(), sets it */
    size_t n_tensors;
    struct convnet_stat stats[CONVNET_MAX_STATS];
    size_t n_stats;
    int64_t n_batches; /* trained on so far */
    double loss_scale; /* gradients come out times this; 1 at first */

    struct convnet_priv *inside;
};

struct convnet_images {
    const uint8_t *pixels; /* CONVNET_PIXELS each, row by row */
    const uint8_t *labels; /* 0 .. 9 */
};

/* Make a network with the weights that its seed gives.
 *
 * ret_net   owned by the caller, which calls convnet_destroy()
 * returns   0, or -1 without memory */
int convnet_create(const struct convnet_opts *opts, struct convnet **ret_net);
void convnet_destroy(struct convnet *net); /* NULL is fine */

/* Run the images index[0 .. n-1] through the network as one batch, and keep what convnet_backward()
 * needs.
 *
 * n         1 .. max_batch
 * returns   the mean of their losses (cross-entropy) */
double convnet_forward(struct convnet *net, const struct convnet_images *images,
                       const int64_t *index, size_t n);

/* Write the gradient of that mean into every tensor's grad, from the last layer to the first.
 *
 * model     gets ddp_model_ready() as soon as a gradient is final; NULL: none */
void convnet_backward(struct convnet *net, struct ddp_model *model);

/* Normalize over the batches of all ranks of `g`, as if they were one batch. Use `g` for nothing
 * else while a model's gradients are being averaged. NULL: over this rank's batch alone. */
void convnet_normalise_over(struct convnet *net, struct ddp_group *g);

/* What a call on that group has failed with, the first time; 0: none has. What was computed since
 * then is wrong. */
int convnet_norm_status(const struct convnet *net);

/* Compute as 16-bit hardware would: what goes into a layer or comes out of it, forward and
 * backward, is rounded to `half`. REAL_DTYPE: nothing is. Weights are the caller's affair. */
void convnet_round_to(struct convnet *net, enum ddp_dtype half);

/* Does tensor i belong to a normalization? */
bool convnet_is_norm(const struct convnet *net, size_t i);

/* --- in two parts, for pipelines: the first block, and the rest. Not of a linear classifier --- */

/* Numbers of an image that go from the one part to the other. */
size_t convnet_cut_count(const struct convnet *net);

/* A part's tensors are neighbors. */
void convnet_part_tensors(const struct convnet *net, int part, size_t *ret_first, size_t *ret_n);
int convnet_part_of_stat(const struct convnet *net, size_t i);

/* A part's forward pass: as convnet_forward().
 *
 * in        n * convnet_cut_count() numbers; of part 0 NULL
 * out       the same, of part 1 NULL; NULL: not wanted
 * again     the pass was made before: running averages do not follow it a second time
 * returns   the loss; of part 0 0 */
double convnet_part_forward(struct convnet *net, int part, const struct convnet_images *images,
                            const int64_t *index, size_t n, const real *in, real *out, bool again);

/* The gradients of that. d_out of part 1 and d_in of part 0 are NULL. */
void convnet_part_backward(struct convnet *net, int part, const real *d_out, real *d_in);

/* How many of the images first .. first + n - 1 get the right label. Normalizes by `stats`, and so
 * looks at each image alone.
 *
 * n         0 .. max_batch */
size_t convnet_count_right(struct convnet *net, const struct convnet_images *images, size_t first,
                           size_t n);

/* Copy a parameter in the order in which PyTorch keeps it: the weights of a convolution as
 * [out][in][row][column], those of the full layer as [out][in], `in` counting channels first.
 *
 * i             0 .. n_tensors - 1
 * to            tensors[i].count elements
 * ret_shape     4 sizes
 * returns       how many of the 4 are used */
size_t convnet_copy_tensor(const struct convnet *net, size_t i, real *to, size_t *ret_shape);

#endif
