#include "ready.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ready_init(struct ready *r, const struct bucket_plan *plan)
{
    *r = (struct ready){.plan = plan};
    r->order = calloc(plan->n_tensors + 1, sizeof(*r->order));
    r->said = calloc(plan->n_tensors + 1, sizeof(*r->said));
    r->n_waiting = calloc(plan->n_buckets + 1, sizeof(*r->n_waiting));
    if (r->order == NULL || r->said == NULL || r->n_waiting == NULL) {
        ready_fini(r);
        return -ENOMEM;
    }
    ready_begin(r);
    return 0;
}

void ready_fini(struct ready *r)
{
    free(r->order);
    free(r->said);
    free(r->n_waiting);
    *r = (struct ready){0};
}

void ready_begin(struct ready *r)
{
    memset(r->said, 0, r->plan->n_tensors * sizeof(*r->said));
    for (size_t k = 0; k < r->plan->n_buckets; k++)
        r->n_waiting[k] = r->plan->bucket[k].n_tensors;
    r->n_said = 0;
}

bool ready_say(struct ready *r, size_t i)
{
    if (r->said[i])
        return false;
    r->said[i] = true;
    r->order[r->n_said++] = i;
    r->n_waiting[r->plan->place[i].bucket]--;
    return true;
}
