/* stages.h - mnist's network on two ranks: its first block on one, the rest on the other, and a
 * batch in micro-batches (<ddp/pipeline.h>). With more ranks there are several such pairs side by
 * side, each with a part of the batch.
 *
 * Every rank has memory for the whole network, and trains its part. The forward pass of a
 * micro-batch is computed again before its backward pass, so that nothing is kept in between but
 * what came in. */
#ifndef DDP_EXAMPLES_MNIST_STAGES_H
#define DDP_EXAMPLES_MNIST_STAGES_H

#include <ddp/ddp.h>

#include "../shared/accumulate.h"
#include "convnet.h"

enum { STAGES = 2, STAGES_MICRO = 4 /* micro-batches of a step */ };

struct stages {
    struct convnet *net; /* borrowed */
    struct ddp_group *chain, *replicas;
    struct ddp_pipeline *pipeline;
    struct ddp_model *model; /* of this stage's tensors, over the replicas */
    int stage;
    size_t first, n_tensors;  /* of the network's tensors, those of this stage */
    struct accumulator parts; /* their gradients, added up over micro-batches */

    /* of the step */
    const struct convnet_images *images;
    const int64_t *index;
    size_t n;
    double loss;
};

/* Cut the network; the group's calls and memory go with the group.
 *
 * most      images of a step on a pair of ranks
 * returns   0 or a negative status */
int stages_init(struct stages *s, struct ddp_group *g, struct convnet *net, size_t most);
void stages_fini(struct stages *s); /* a zeroed one is fine */

/* Forward and backward of a batch, and the average over the replicas: of this stage's gradients.
 *
 * index      n images, the same on both ranks of a pair
 * ret_loss   times 2 on the last stage and 0 on the first: their mean is the loss
 * returns    0, or a status */
int stages_step(struct stages *s, const struct convnet_images *images, const int64_t *index,
                size_t n, double *ret_loss);

/* Give each rank the other stage's parameters and running averages: for tests and checkpoints. */
int stages_exchange(struct stages *s);

#endif
