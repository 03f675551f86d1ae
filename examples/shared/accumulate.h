/* accumulate.h - gradients of the parts of a batch, added up: for a batch that is too large to go
 * through the network at once. */
#ifndef DDP_EXAMPLES_SHARED_ACCUMULATE_H
#define DDP_EXAMPLES_SHARED_ACCUMULATE_H

#include <ddp/model.h>

#include "real.h"

struct accumulator {
    real *sum; /* for all tensors, one after the other; owned; NULL: none */
};

/* returns   0, or -1 without memory */
int accumulator_init(struct accumulator *a, const struct ddp_tensor *tensors, size_t n);
void accumulator_fini(struct accumulator *a); /* a zeroed one is fine */

/* Add the gradients of a part, times its share of the batch. */
void accumulator_add(struct accumulator *a, const struct ddp_tensor *tensors, size_t n,
                     double share);

/* Write the sums into the gradients, and start again. */
void accumulator_take(struct accumulator *a, const struct ddp_tensor *tensors, size_t n);

#endif
