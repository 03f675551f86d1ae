/* model_join.c - steps of a rank that has no more batches: zeros, until nobody has one. */
#include "model_priv.h"

/* One step more with the others. */
static int shadow(struct ddp_model *m, bool *ret_any_active)
{
    int cleared = 0;
    for (size_t i = 0; cleared == 0 && i < m->n_tensors; i++)
        cleared = model_clear(m, m->grad[i], model_bytes_of(m, i));
    if (cleared != 0)
        model_keep_failure(m, cleared, false);
    m->is_joined = true;
    int rc = model_finish_step(m, ret_any_active);
    m->is_joined = false;
    return rc;
}

/* Ranks that had no batches have not gone on; those that came last have. */
static int give_all_the_last_state(struct ddp_model *m)
{
    int rc = model_broadcast(m, m->tensors, m->n_tensors, m->last_active_rank);
    if (rc == 0)
        rc = model_broadcast(m, m->opts.buffers, m->opts.n_buffers, m->last_active_rank);
    if (rc == 0)
        return 0;
    rt_fail(rc, "ddp_join: %s", ddp_last_error());
    return model_keep_failure(m, rc, true);
}

int ddp_join(struct ddp_model *m)
{
    bool any_active = true;
    if (m == NULL)
        return rt_fail(DDP_EINVAL, "ddp_join: the model is NULL");
    if (m->broken)
        return model_tell_failure(m);
    int rc = model_graph_check_outside(m, "ddp_join");
    if (rc != 0)
        return rc;
    if (m->set.ready.n_said > 0) { /* perhaps on their way: they cannot be zeros any more */
        rt_fail(DDP_EINVAL, "ddp_join: %zu gradients of a step were said to be ready",
                m->set.ready.n_said);
        model_keep_failure(m, DDP_EINVAL, false);
        return model_finish_step(m, &any_active);
    }
    m->accumulates = false;
    while (any_active) {
        rc = shadow(m, &any_active);
        if (rc != 0)
            return rc;
    }
    return give_all_the_last_state(m);
}
