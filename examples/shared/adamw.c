#include "adamw.h"

#include <math.h>
#include <stdlib.h>

int adamw_init(struct adamw *a, size_t n)
{
    *a = (struct adamw){.beta1 = 0.9,
                        .beta2 = 0.99,
                        .epsilon = 1e-8,
                        .decay = 0.1,
                        .n = n,
                        .mean = calloc(n, sizeof(real)),
                        .square = calloc(n, sizeof(real))};
    return a->mean != NULL && a->square != NULL ? 0 : -1;
}

void adamw_fini(struct adamw *a)
{
    free(a->mean);
    free(a->square);
    *a = (struct adamw){0};
}

void adamw_step(struct adamw *a, const struct adamw_step *s, real *params, const real *grads,
                size_t first, size_t count, int decays)
{
    const real beta1 = (real)a->beta1, beta2 = (real)a->beta2;
    const real rate = (real)(s->lr / (1 - pow(a->beta1, (double)s->step)));
    const real root = (real)(1 / sqrt(1 - pow(a->beta2, (double)s->step)));
    const real keep = decays ? (real)(1 - s->lr * a->decay) : 1, epsilon = (real)a->epsilon;

    for (size_t i = first; i < first + count; i++) {
        const real g = grads[i];
        a->mean[i] = beta1 * a->mean[i] + (1 - beta1) * g;
        a->square[i] = beta2 * a->square[i] + (1 - beta2) * g * g;
        const real size =
            sizeof(real) == 4 ? (real)sqrtf((float)a->square[i]) : (real)sqrt((double)a->square[i]);
        params[i] = params[i] * keep - rate * a->mean[i] / (size * root + epsilon);
    }
}
