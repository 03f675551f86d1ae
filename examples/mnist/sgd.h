/* sgd.h - stochastic gradient descent with momentum, as torch.optim.SGD does it:
 * v = momentum * v + grad; param -= lr * v.
 *
 * Every rank steps for itself: same gradients, same bits, since this is compiled for no more than
 * the platform's baseline and so rounds the same on every processor of a job. */
#ifndef DDP_EXAMPLES_MNIST_SGD_H
#define DDP_EXAMPLES_MNIST_SGD_H

#include <ddp/model.h>

#include "../shared/real.h"

struct sgd {
    double lr, momentum;
    real *velocity; /* for all tensors, one after the other; owned */
    size_t count;   /* of these */
};

/* returns   0, or -1 without memory */
int sgd_init(struct sgd *s, double lr, double momentum, const struct ddp_tensor *tensors, size_t n);
void sgd_fini(struct sgd *s); /* a zeroed one is fine */

/* One step. `tensors` as given to sgd_init(). */
void sgd_step(struct sgd *s, struct ddp_tensor *tensors, size_t n);

#endif
