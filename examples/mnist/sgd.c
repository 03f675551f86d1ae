#include "sgd.h"

#include <stdlib.h>

int sgd_init(struct sgd *s, double lr, double momentum, const struct ddp_tensor *tensors, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += tensors[i].count;
    *s = (struct sgd){
        .lr = lr, .momentum = momentum, .velocity = calloc(count, sizeof(real)), .count = count};
    return s->velocity != NULL ? 0 : -1;
}

void sgd_fini(struct sgd *s)
{
    free(s->velocity);
    *s = (struct sgd){0};
}

void sgd_step(struct sgd *s, struct ddp_tensor *tensors, size_t n)
{
    const real lr = (real)s->lr, momentum = (real)s->momentum;
    real *velocity = s->velocity;

    for (size_t i = 0; i < n; i++) {
        real *param = tensors[i].param;
        const real *grad = tensors[i].grad;
        for (size_t j = 0; j < tensors[i].count; j++) {
            velocity[j] = momentum * velocity[j] + grad[j];
            param[j] -= lr * velocity[j];
        }
        velocity += tensors[i].count;
    }
}
