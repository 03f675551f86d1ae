#include "accumulate.h"

#include <stdlib.h>

int accumulator_init(struct accumulator *a, const struct ddp_tensor *tensors, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += tensors[i].count;
    *a = (struct accumulator){.sum = calloc(count, sizeof(real))};
    return a->sum != NULL ? 0 : -1;
}

void accumulator_fini(struct accumulator *a)
{
    free(a->sum);
    *a = (struct accumulator){0};
}

void accumulator_add(struct accumulator *a, const struct ddp_tensor *tensors, size_t n,
                     double share)
{
    real *sum = a->sum;

    for (size_t i = 0; i < n; i++) {
        const real *grad = tensors[i].grad;
        for (size_t j = 0; j < tensors[i].count; j++)
            *sum++ += (real)share * grad[j];
    }
}

void accumulator_take(struct accumulator *a, const struct ddp_tensor *tensors, size_t n)
{
    real *sum = a->sum;

    for (size_t i = 0; i < n; i++) {
        real *grad = tensors[i].grad;
        for (size_t j = 0; j < tensors[i].count; j++, sum++) {
            grad[j] = *sum;
            *sum = 0;
        }
    }
}
