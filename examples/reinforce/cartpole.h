/* cartpole.h - a pole on a cart: the classic task of reinforcement learning (Barto, Sutton,
 * Anderson 1983), with the numbers in common use since.
 *
 * The cart is pushed left or right, 50 times a second. An episode is over when the pole leans by 12
 * degrees, the cart is 2.4 m off, or 200 steps are done. Pure. */
#ifndef DDP_EXAMPLES_REINFORCE_CARTPOLE_H
#define DDP_EXAMPLES_REINFORCE_CARTPOLE_H

#include <stdbool.h>

#include "../shared/random.h"

enum { CARTPOLE_STATE = 4, CARTPOLE_ACTIONS = 2, CARTPOLE_MOST_STEPS = 200 };

struct cartpole {
    double state[CARTPOLE_STATE]; /* place, speed, angle, how fast it turns; m, m/s, rad, rad/s */
    int n_steps;
};

/* Begin an episode, nearly upright. */
void cartpole_begin(struct cartpole *c, struct random *rng);

/* Push: 0 to the left, 1 to the right. returns whether the episode continues */
bool cartpole_push(struct cartpole *c, int action);

#endif
