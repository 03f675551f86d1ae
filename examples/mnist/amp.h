/* amp.h - training with 16-bit floats, at one of the levels O1 to O3 (<ddp/precision.h>).
 *
 * The kernels of this network compute in float. So it is given weights that were rounded to 16
 * bits, and rounds what its layers pass on; the optimizer has its own parameters in addition to
 * them, the masters. On hardware that multiplies 16-bit floats the masters and the scale are the
 * same, and the network's own copy is not needed. */
#ifndef DDP_EXAMPLES_MNIST_AMP_H
#define DDP_EXAMPLES_MNIST_AMP_H

#include <ddp/model.h>
#include <ddp/precision.h>
#include <ddp/scaler.h>
#include <stdbool.h>

#include "convnet.h"

struct sgd;

struct amp {
    struct ddp_precision policy;
    struct ddp_scaler scaler;
    struct ddp_tensor masters[CONVNET_MAX_TENSORS]; /* param and grad owned */
    size_t n;                                       /* of these */
    struct ddp_mixed *mixed;                        /* NULL: all is as without this file */
    int64_t n_skipped;                              /* steps */
};

/* Prepare `net` for a level above O0. Also allocates its gradients.
 * returns   0, or -1 without memory */
int amp_init(struct amp *a, enum ddp_opt_level level, enum ddp_dtype half, struct convnet *net);
void amp_fini(struct amp *a, struct convnet *net); /* a zeroed one is fine */

/* Register what the replacement of a dead rank has to get. returns as ddp_state_add() */
int amp_register(struct amp *a, struct ddp_group *g);

/* Give the network the weights and the scale that are there: after ddp_model_create(), which may
 * bring another rank's. */
void amp_show(struct amp *a, struct convnet *net);

/* After a backward pass: the network's gradients, in the type in which they travel. */
void amp_give_gradients(struct amp *a, const struct convnet *net);

/* After ddp_model_sync(): a step of the optimizer, or none if a gradient has overflowed on any
 * rank; then the scale and the network's weights. returns 0 or a negative status */
int amp_step(struct amp *a, const struct ddp_model *m, struct sgd *sgd, struct convnet *net);

#endif
