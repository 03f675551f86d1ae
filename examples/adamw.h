/* adamw.h - the optimiser AdamW, as torch.optim.AdamW does it, with clipping by the global norm.
 *
 * Every rank steps for itself: same gradients, same bits. */
#ifndef DDP_EXAMPLES_ADAMW_H
#define DDP_EXAMPLES_ADAMW_H

#include <stddef.h>
#include <stdint.h>

#include "real.h"

struct adamw {
    double beta1, beta2, epsilon, decay;
    size_t n;
    real *mean, *square; /* n of each; owned. Part of a checkpoint */
};

/* returns   0, or -1 without memory */
int adamw_init(struct adamw *a, size_t n);
void adamw_fini(struct adamw *a); /* a zeroed one is fine */

/* The root of the sum of all squares. */
double adamw_norm(const real *grads, size_t n);

/* One step on the parameters first .. first + count - 1.
 *
 * step     1 for the first one
 * decays   whether they shrink: matrices do, scales and shifts do not
 * factor   for the gradients: below 1 to clip them */
struct adamw_step {
    int64_t step;
    double lr, factor;
};
void adamw_step(struct adamw *a, const struct adamw_step *s, real *params, const real *grads,
                size_t first, size_t count, int decays);

#endif
