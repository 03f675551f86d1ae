/* ready.h - which gradients of a step are final, and in which order they became so.
 *
 * Pure. It counts down the buckets of a plan as their gradients are said to be ready, and keeps the
 * order in which they were, from which a better plan can be made. */
#ifndef DDP_WORKER_RUNTIME_MODEL_READY_H
#define DDP_WORKER_RUNTIME_MODEL_READY_H

#include "bucket_plan.h"

struct ready {
    const struct bucket_plan *plan; /* borrowed */
    size_t n_said;                  /* gradients that were said to be ready in this step */
    size_t *order;                  /* owned; their numbers */
    bool *said;                     /* owned; per gradient */
    size_t *n_waiting;              /* owned; per bucket: gradients that were not said yet */
};

/* returns   0; -ENOMEM */
int ready_init(struct ready *r, const struct bucket_plan *plan);
void ready_fini(struct ready *r); /* a zeroed one is fine */

/* Nothing is ready any more: the next step. */
void ready_begin(struct ready *r);

/* Say that gradient i, of the plan, is final. returns false if it was said before in this step */
bool ready_say(struct ready *r, size_t i);

static inline bool ready_is_said(const struct ready *r, size_t i)
{
    return r->said[i];
}

static inline bool ready_is_complete(const struct ready *r, size_t bucket)
{
    return r->n_waiting[bucket] == 0;
}

#endif
