#include "sampler_plan.h"
#include <stddef.h>

int64_t sampler_plan_length(const struct sampler_plan *p)
{
    int64_t left = p->n - p->base, whole = left / p->world_size;
    bool has_tail = left % p->world_size != 0;
    return has_tail && !p->drop_last ? whole + 1 : whole;
}

void sampler_plan_fill(const struct sampler_plan *p, const uint32_t *perm, int64_t first,
                       int64_t count, int64_t *ret_index)
{
    int64_t place = p->base + p->rank + first * p->world_size;
    for (int64_t k = 0; k < count; k++, place += p->world_size) {
        int64_t wrapped = place < p->n ? place : place % p->n; /* a division at the very end only */
        ret_index[k] = perm == NULL ? wrapped : (int64_t)perm[wrapped];
    }
}
