/* metric.c - small things that a training loop wants of its group. */
#include "worker-runtime/core/group.h"

#include <ddp/collective.h>

int ddp_mean(struct ddp_group *g, double *values, size_t n)
{
    return ddp_all_reduce(g, values, values, n, DDP_FLOAT64, DDP_AVG, NULL);
}

/* The finaliser of splitmix64: every bit of what goes in changes half of those that come out. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t ddp_seed(const struct ddp_group *g, uint64_t base)
{
    const uint64_t step = UINT64_C(0x9e3779b97f4a7c15); /* odd: no two ranks meet */
    return mix(mix(base) + step * ((uint64_t)g->rank + 1));
}
