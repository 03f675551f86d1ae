/* policy.h - what to do in which state: a network of one hidden layer that gives the probability of
 * each action, and how that depends on its parameters.
 *
 *   state 4 -> full, 64 -> ReLU -> full, 2 -> softmax */
#ifndef DDP_EXAMPLES_REINFORCE_POLICY_H
#define DDP_EXAMPLES_REINFORCE_POLICY_H

#include <ddp/model.h>
#include <stddef.h>
#include <stdint.h>

#include "../shared/random.h"
#include "../shared/real.h"
#include "cartpole.h"

enum {
    POLICY_HIDDEN = 64,
    POLICY_PARAMS = POLICY_HIDDEN * (CARTPOLE_STATE + 1) + CARTPOLE_ACTIONS * (POLICY_HIDDEN + 1),
    POLICY_TENSORS = 4,
};

struct policy {
    real params[POLICY_PARAMS], grads[POLICY_PARAMS]; /* tensor after tensor */
    struct ddp_tensor tensors[POLICY_TENSORS];        /* these, as the library sees them */
};

/* First parameters that the seed gives: the same on all ranks. */
void policy_init(struct policy *p, uint64_t seed);

/* How likely the actions are, and what the hidden layer held. */
struct policy_view {
    real hidden[POLICY_HIDDEN];
    double chance[CARTPOLE_ACTIONS];
};
void policy_look(const struct policy *p, const double *state, struct policy_view *ret);

/* Draw one of them. */
int policy_choose(const struct policy_view *view, struct random *rng);

/* Add `weight` times the gradient of -log(chance of `action`) in this state. */
void policy_learn(struct policy *p, const double *state, int action, double weight);

#endif
