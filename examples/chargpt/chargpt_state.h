/* chargpt_state.h - what of a training of chargpt.c is kept in a checkpoint, and how it returns. */
#ifndef DDP_EXAMPLES_CHARGPT_CHARGPT_STATE_H
#define DDP_EXAMPLES_CHARGPT_CHARGPT_STATE_H

#include <ddp/ddp.h>

struct adamw;
struct gpt;

struct chargpt_position {    /* saved as a tensor of int64 */
    int64_t step;            /* steps made */
    int64_t epoch, consumed; /* where the sampler stands */
    int64_t seed;
};

struct chargpt_optimiser { /* whole or sharded; the other NULL */
    const struct adamw *whole;
    struct ddp_zero *sharded;
    struct ddp_model
        *outer; /* with local steps: its parameters and momentum are saved; else NULL */
};

/* Save network, optimizer and position. returns 0, or a status of ddp/error.h */
int chargpt_state_save(struct ddp_checkpoint *c, const struct gpt *net,
                       const struct chargpt_optimiser *by, const struct chargpt_position *at);

/* Load the newest ones, if there are any: saved by the same kind of optimizer.
 *
 * ret_found   whether there are; without them nothing is changed
 * returns     0, or a status of ddp/error.h */
int chargpt_state_load(struct ddp_checkpoint *c, const struct gpt *net,
                       const struct chargpt_optimiser *by, struct chargpt_position *at,
                       bool *ret_found);

#endif
