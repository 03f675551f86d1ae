/* convnet_priv.h - what the files of the network share: convnet.c has the layers put together,
 * convnet_parts.c the same in two parts, gpu_net.c on a GPU. */
#ifndef DDP_EXAMPLES_MNIST_CONVNET_PRIV_H
#define DDP_EXAMPLES_MNIST_CONVNET_PRIV_H

#include "convnet.h"
#include "layers.h"

enum { MAX_BLOCKS = 2, MAX_CHANNELS = LAYERS_MAX_CHANNELS };

#define NORM_EPS      1e-5
#define NORM_MOMENTUM 0.1 /* of the running averages */

/* Convolution, normalization, ReLU, max-pool. */
struct block {
    size_t side, c_in, c_out; /* side x side x c_in goes in, side/2 x side/2 x c_out comes out */
    struct ddp_tensor *weight, *bias;
    struct ddp_tensor *gamma, *beta; /* NULL without normalization */
    struct convnet_stat *running_mean, *running_var;

    real *y;     /* max_batch of what the convolution gives, */
    real *out;   /* result of the block; */
    real *d_out; /* the gradient by it; */
    real *pick;  /* and of what the pooling chose */

    double mean[MAX_CHANNELS], var[MAX_CHANNELS]; /* of the batch; with a norm group, of all
                                                     ranks */
    double n_values;                              /* of a channel in it */
    real center[MAX_CHANNELS];                    /* mean, as the layers want it */
};

struct convnet_priv {
    struct block blocks[MAX_BLOCKS];
    size_t n_blocks;
    struct ddp_tensor *fc_weight, *fc_bias;
    size_t fc_in;
    bool batch_norm;
    struct ddp_group *norm_group; /* NULL: none */
    int norm_status;
    bool again;          /* of a part: this batch's moments have been followed before */
    enum ddp_dtype half; /* REAL_DTYPE: nothing is rounded */

    size_t n;                  /* images of the batch at hand */
    real *input;               /* max_batch images */
    uint8_t *labels;           /* max_batch */
    real *logits, *d_logits;   /* max_batch x 10 */
    real *cols, *d_cols, *d_y; /* for one image; as large as the largest block needs */
};

/* Take images into the network's own memory, as a batch. */
void convnet_take_images(struct convnet_priv *in, const struct convnet_images *images,
                         const int64_t *index, size_t n);

/* A block, from x to what it gives, which stays in b->out. */
const real *convnet_block_forward(struct convnet_priv *in, struct block *b, const real *x,
                                  bool training);
/* Its gradients, and d_x where it is not NULL. */
void convnet_block_backward(struct convnet *net, struct ddp_model *model, struct block *b,
                            const real *x, real *d_x);

/* The full layer: from what the last block gives to in->logits; from these to the loss and its
 * gradient; back, d_x where it is not NULL. */
void convnet_fc_forward(struct convnet_priv *in);
double convnet_take_loss(struct convnet *net);
void convnet_fc_backward(struct convnet *net, struct ddp_model *model, real *d_x);

#endif
