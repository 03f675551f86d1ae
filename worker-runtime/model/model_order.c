/* model_order.c - another plan, from the order that rank 0 saw.
 *
 * Tensors are registered in the order of their making, and used in another where a network says so;
 * then the buckets of the first step fill late, all of them together. The first step shows. */
#include "model_priv.h"

#include <ddp/collective.h>
#include <stdlib.h>

/* Rank 0's order, to all. Its first word says whether there is one. */
static int broadcast_order(struct ddp_model *m, size_t n_said)
{
    uint64_t *words = m->order_words; /* made with the model, so that no rank can be without it */
    words[0] = n_said == m->n_tensors;
    for (size_t k = 0; k < m->n_tensors; k++)
        words[k + 1] = words[0] != 0 ? m->set.ready.order[k] : 0;
    return ddp_broadcast(m->g, words, words, m->n_tensors + 1, DDP_UINT64, 0, NULL);
}

/* Whether all ranks say so. */
static int all_say(struct ddp_model *m, bool yes, bool *ret)
{
    uint8_t word = yes;
    int rc = ddp_all_reduce(m->g, &word, &word, 1, DDP_UINT8, DDP_BAND, NULL);
    *ret = rc == 0 && word != 0;
    return rc;
}

/* Go over to another plan, if all ranks can. */
static int change_plan(struct ddp_model *m, const size_t *order)
{
    struct bucket_set set;
    bool go_on;
    int rc = all_say(m, model_buckets_plan(m, order, &set) == 0, &go_on);
    if (rc == 0 && go_on && !bucket_plan_same(&set.plan, &m->set.plan)) {
        rc = model_buckets_place(m, &set);
        if (rc == 0) {
            model_buckets_destroy(m, &m->set);
            m->set = set;
            m->set.ready.plan = &m->set.plan; /* it has moved */
            m->stats.was_reordered = true;
            return 0;
        }
        if (rc == DDP_ENOMEM || rc == DDP_EMISMATCH) /* somewhere is no memory for it */
            rc = 0;
    }
    model_buckets_destroy(m, &set);
    return rc;
}

int model_reorder(struct ddp_model *m, size_t n_said)
{
    int rc = broadcast_order(m, n_said);
    if (rc != 0 || m->order_words[0] == 0)
        return rc;
    for (size_t k = 0; k < m->n_tensors; k++)
        m->order[k] = (size_t)m->order_words[k + 1];
    return change_plan(m, m->order);
}
