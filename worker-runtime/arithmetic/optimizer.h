/* optimizer.h - one step of SGD or AdamW on a stretch of parameters. Pure.
 *
 * Old and new state may be the same memory, or lie apart; so may old and new parameters. No product
 * is fused with a sum: the same bits on every processor. */
#ifndef DDP_WORKER_RUNTIME_ARITHMETIC_OPTIMIZER_H
#define DDP_WORKER_RUNTIME_ARITHMETIC_OPTIMIZER_H

#include <ddp/zero.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OPTIMIZER_MOST_ARRAYS = 2 };

struct optimizer_step {
    enum ddp_optimizer kind;
    double lr, momentum, decay, beta1, beta2, eps;
    bool is_nesterov;   /* SGD with momentum that looks ahead, as torch.optim.SGD(nesterov=True) */
    uint64_t number;    /* number of this step, from 1 */
    double grad_factor; /* gradients times this come in */
};

/* Numbers of state a parameter has: 0 .. OPTIMIZER_MOST_ARRAYS. */
unsigned optimizer_n_arrays(enum ddp_optimizer kind, double momentum);

/* What of an array is called in a checkpoint: torch's names. Static. */
const char *optimizer_array_name(enum ddp_optimizer kind, unsigned i);

struct optimizer_stretch { /* all of one type, float or double; `count` elements each */
    const void *param, *grad;
    const void *state[OPTIMIZER_MOST_ARRAYS];
    void *new_param;
    void *new_state[OPTIMIZER_MOST_ARRAYS];
    size_t count;
};

void optimizer_apply(const struct optimizer_step *s, enum ddp_dtype dtype,
                     const struct optimizer_stretch *on);

/* How far parameters have come: to = from - at, `count` elements of float or double each. */
void optimizer_difference(void *to, const void *from, const void *at, enum ddp_dtype dtype,
                          size_t count);

#endif
