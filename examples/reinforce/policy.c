#include "policy.h"

#include <math.h>
#include <string.h>

enum { WEIGHT1 = 0, BIAS1 = POLICY_HIDDEN * CARTPOLE_STATE, WEIGHT2 = BIAS1 + POLICY_HIDDEN };
enum { BIAS2 = WEIGHT2 + CARTPOLE_ACTIONS * POLICY_HIDDEN };

static void set_tensor(struct policy *p, int i, const char *name, size_t first, size_t end)
{
    p->tensors[i] = (struct ddp_tensor){.name = name,
                                        .param = p->params + first,
                                        .grad = p->grads + first,
                                        .count = end - first,
                                        .dtype = REAL_DTYPE};
}

void policy_init(struct policy *p, uint64_t seed)
{
    struct random rng = {seed};

    memset(p, 0, sizeof(*p));
    set_tensor(p, 0, "hidden.weight", WEIGHT1, BIAS1);
    set_tensor(p, 1, "hidden.bias", BIAS1, WEIGHT2);
    set_tensor(p, 2, "action.weight", WEIGHT2, BIAS2);
    set_tensor(p, 3, "action.bias", BIAS2, POLICY_PARAMS);
    for (size_t i = 0; i < POLICY_PARAMS; i++) {
        const double bound = 1 / sqrt(i < WEIGHT2 ? CARTPOLE_STATE : POLICY_HIDDEN);
        p->params[i] = (real)random_uniform(&rng, -bound, bound);
    }
}

void policy_look(const struct policy *p, const double *state, struct policy_view *ret)
{
    double logit[CARTPOLE_ACTIONS], sum = 0;

    for (int h = 0; h < POLICY_HIDDEN; h++) {
        real x = p->params[BIAS1 + h];
        for (int k = 0; k < CARTPOLE_STATE; k++)
            x += p->params[WEIGHT1 + h * CARTPOLE_STATE + k] * (real)state[k];
        ret->hidden[h] = x > 0 ? x : 0;
    }
    for (int a = 0; a < CARTPOLE_ACTIONS; a++) {
        logit[a] = (double)p->params[BIAS2 + a];
        for (int h = 0; h < POLICY_HIDDEN; h++)
            logit[a] += (double)(p->params[WEIGHT2 + a * POLICY_HIDDEN + h] * ret->hidden[h]);
    }
    for (int a = 0; a < CARTPOLE_ACTIONS; a++)
        sum += ret->chance[a] = exp(logit[a] - fmax(logit[0], logit[1]));
    for (int a = 0; a < CARTPOLE_ACTIONS; a++)
        ret->chance[a] /= sum;
}

int policy_choose(const struct policy_view *view, struct random *rng)
{
    return random_uniform(rng, 0, 1) >= view->chance[0];
}

void policy_learn(struct policy *p, const double *state, int action, double weight)
{
    struct policy_view view;
    real d_hidden[POLICY_HIDDEN] = {0};

    policy_look(p, state, &view);
    for (int a = 0; a < CARTPOLE_ACTIONS; a++) {
        const real d = (real)(weight * (view.chance[a] - (a == action)));
        p->grads[BIAS2 + a] += d;
        for (int h = 0; h < POLICY_HIDDEN; h++) {
            p->grads[WEIGHT2 + a * POLICY_HIDDEN + h] += d * view.hidden[h];
            d_hidden[h] += d * p->params[WEIGHT2 + a * POLICY_HIDDEN + h];
        }
    }
    for (int h = 0; h < POLICY_HIDDEN; h++) {
        const real d = view.hidden[h] > 0 ? d_hidden[h] : 0;
        p->grads[BIAS1 + h] += d;
        for (int k = 0; k < CARTPOLE_STATE; k++)
            p->grads[WEIGHT1 + h * CARTPOLE_STATE + k] += d * (real)state[k];
    }
}
