#include "cartpole.h"

#include <math.h>

#define GRAVITY     9.8
#define CART_KG     1.0
#define POLE_KG     0.1
#define HALF_POLE_M 0.5
#define PUSH_N      10.0
#define STEP_S      0.02
#define MOST_M      2.4
#define MOST_RAD    (12 * 2 * 3.14159265358979323846 / 360)

enum { PLACE, SPEED, ANGLE, TURN };

void cartpole_begin(struct cartpole *c, struct random *rng)
{
    for (int k = 0; k < CARTPOLE_STATE; k++)
        c->state[k] = random_uniform(rng, -0.05, 0.05);
    c->n_steps = 0;
}

bool cartpole_push(struct cartpole *c, int action)
{
    double *s = c->state;
    const double all_kg = CART_KG + POLE_KG, sine = sin(s[ANGLE]), cosine = cos(s[ANGLE]);
    const double push = action == 1 ? PUSH_N : -PUSH_N;
    const double pull = (push + POLE_KG * HALF_POLE_M * s[TURN] * s[TURN] * sine) / all_kg;
    const double turns = (GRAVITY * sine - cosine * pull) /
                         (HALF_POLE_M * (4.0 / 3 - POLE_KG * cosine * cosine / all_kg));
    const double speeds = pull - POLE_KG * HALF_POLE_M * turns * cosine / all_kg;

    s[PLACE] += STEP_S * s[SPEED];
    s[SPEED] += STEP_S * speeds;
    s[ANGLE] += STEP_S * s[TURN];
    s[TURN] += STEP_S * turns;
    c->n_steps++;
    return fabs(s[PLACE]) <= MOST_M && fabs(s[ANGLE]) <= MOST_RAD &&
           c->n_steps < CARTPOLE_MOST_STEPS;
}
