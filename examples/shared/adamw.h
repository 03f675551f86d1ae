/* adamw.h - the optimizer AdamW, as torch.optim.AdamW does it.
 *
 * Every rank computes the step itself: same gradients, same bits. */
#ifndef DDP_EXAMPLES_SHARED_ADAMW_H
#define DDP_EXAMPLES_SHARED_ADAMW_H

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

/* One step on the parameters first .. first + count - 1.
 *
 * step     1 for the first one
 * decays   whether they shrink: matrices do, scales and shifts do not */
struct adamw_step {
    int64_t step;
    double lr;
};
void adamw_step(struct adamw *a, const struct adamw_step *s, real *params, const real *grads,
                size_t first, size_t count, int decays);

#endif
