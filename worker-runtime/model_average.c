/* model_average.c - from a complete bucket to its average.
 *
 * A bucket goes: complete -> launched, in the order of the plan -> averaged, in the same order. In
 * between it belongs to an asynchronous all_reduce, which makes progress whenever this file asks
 * whether it is done. */
#include "model_inside.h"

#include "common/clock.h"
#include "convert.h"
#include "trace.h"
#include <ddp/collective.h>

/* --- around the average ----------------------------------------------------------------------- */

/* Before the first bucket: this rank's part of a weighted average. */
static int begin_step(struct ddp_model *m)
{
    m->has_begun = true;
    if (!m->opts.weighted)
        return 0;
    const double own = m->is_joined ? 0 : m->weight;
    double sum = own;
    int rc = ddp_all_reduce(m->g, &sum, &sum, 1, DDP_FLOAT64, DDP_SUM, NULL);
    m->factor = sum > 0 ? own / sum : 0;
    return rc;
}

static enum ddp_op op_of(const struct ddp_model *m)
{
    return m->opts.weighted || m->opts.predivide_factor > 0 ? DDP_SUM : DDP_AVG;
}

static double factor_before(const struct ddp_model *m)
{
    if (m->opts.weighted)
        return m->factor;
    return m->opts.predivide_factor > 0 ? 1 / m->opts.predivide_factor : 1;
}

static double factor_after(const struct ddp_model *m)
{
    return m->opts.predivide_factor > 0 ? m->opts.predivide_factor / m->g->world_size : 1;
}

static void scale(struct model_bucket *b, double factor)
{
    if (factor != 1)
        convert_scale(b->memory, b->dtype, b->count, factor);
}

static bool has_values(const struct model_bucket *b)
{
    return b->where != BUCKET_NOWHERE;
}

/* Remember the first average that is not finite. */
static void look_for_nonfinite(struct ddp_model *m, size_t k)
{
    for (size_t i = 0; i < m->n_tensors && m->bad == MODEL_NONE; i++) {
        const struct bucket_place *at = &m->set.plan.place[i];
        if (at->bucket != k)
            continue;
        m->bad_at = convert_find_nonfinite(model_averages_of(m, i), m->tensors[i].dtype,
                                           m->tensors[i].count);
        if (m->bad_at < m->tensors[i].count)
            m->bad = i;
    }
}

/* --- there ------------------------------------------------------------------------------------ */

static int fail(struct ddp_model *m, size_t k, int rc)
{
    rt_fail(rc, "average of gradient bucket %zu of %zu: %s", k + 1, m->set.plan.n_buckets,
            ddp_last_error());
    return model_keep_failure(m, rc, true);
}

/* The program's own way. Its own statuses fail this step only. */
static int run_hook(struct ddp_model *m, size_t k)
{
    const struct model_bucket *b = &m->set.at[k];
    const struct ddp_bucket seen = {.index = k,
                                    .n_buckets = m->set.plan.n_buckets,
                                    .data = b->memory,
                                    .count = b->count,
                                    .dtype = b->dtype};
    int rc = m->opts.hook(m->g, &seen, m->opts.hook_arg);
    if (rc == 0)
        return 0;
    if (rc == DDP_EPEER || rc == DDP_ETIMEOUT || rc == DDP_EMISMATCH || rc > 0)
        return fail(m, k, rc);
    rt_fail(rc, "hook of gradient bucket %zu of %zu: %s", k + 1, m->set.plan.n_buckets,
            ddp_last_error());
    model_keep_failure(m, rc, false);
    return 0;
}

/* The average of a bucket that others sum up is looked at by them on the way, but not what is done
 * to it afterwards. */
static bool is_looked_at(const struct ddp_model *m)
{
    return m->opts.check_finite && m->opts.hook == NULL && factor_after(m) == 1;
}

/* Without memory for a request the others need not wait: the call is made at once. */
static int all_reduce_checked(struct ddp_model *m, struct model_bucket *b, void *values)
{
    int rc = ddp_iall_reduce_checked(m->g, values, values, b->count, b->wire_dtype, op_of(m), NULL,
                                     &b->found_inf, &b->request);
    if (rc == DDP_ENOMEM)
        rc = ddp_all_reduce_checked(m->g, values, values, b->count, b->wire_dtype, op_of(m), NULL,
                                    &b->found_inf);
    return rc;
}

static int all_reduce(struct ddp_model *m, struct model_bucket *b)
{
    void *values = b->wire != NULL ? b->wire : b->memory;
    if (is_looked_at(m))
        return all_reduce_checked(m, b, values);
    int rc =
        ddp_iall_reduce(m->g, values, values, b->count, b->wire_dtype, op_of(m), NULL, &b->request);
    if (rc == DDP_ENOMEM)
        rc = ddp_all_reduce(m->g, values, values, b->count, b->wire_dtype, op_of(m), NULL);
    return rc;
}

static int launch(struct ddp_model *m, size_t k)
{
    struct model_bucket *b = &m->set.at[k];
    int rc = m->has_begun ? 0 : begin_step(m);
    b->began_ns = m->trace != NULL ? co_now_ns() : 0;
    if (rc != 0)
        return fail(m, k, rc);
    b->found_inf = 1; /* not known better */
    if (!has_values(b))
        return 0;
    if (m->opts.hook != NULL)
        return run_hook(m, k);
    scale(b, factor_before(m));
    if (b->wire != NULL)
        convert(b->wire, b->wire_dtype, b->memory, b->dtype, b->count);
    rc = all_reduce(m, b);
    return rc != 0 ? fail(m, k, rc) : 0;
}

/* --- and back --------------------------------------------------------------------------------- */

static int finish(struct ddp_model *m, size_t k)
{
    struct model_bucket *b = &m->set.at[k];
    int rc = ddp_wait(b->request);
    b->request = NULL;
    if (rc != 0)
        return fail(m, k, rc);
    if (has_values(b) && m->opts.hook == NULL) {
        if (b->wire != NULL)
            convert(b->memory, b->dtype, b->wire, b->wire_dtype, b->count);
        scale(b, factor_after(m));
    }
    if (m->opts.check_finite && b->found_inf)
        look_for_nonfinite(m, k);
    trace_bucket(m->trace, k, b->count * ddp_dtype_size(b->dtype), b->began_ns);
    return 0;
}

/* Whether the next bucket is back; it makes progress by being asked. */
static bool is_back(const struct model_bucket *b)
{
    int is_done = 1;
    return b->request == NULL || (ddp_test(b->request, &is_done) == 0 && is_done);
}

static int launch_complete(struct ddp_model *m)
{
    while (m->n_launched < m->set.plan.n_buckets &&
           ready_is_complete(&m->set.ready, m->n_launched)) {
        int rc = launch(m, m->n_launched);
        if (rc != 0)
            return rc;
        m->n_launched++;
    }
    return 0;
}

int model_average_some(struct ddp_model *m)
{
    int rc = m->opts.delay_allreduce ? 0 : launch_complete(m);
    while (rc == 0 && m->n_averaged < m->n_launched && is_back(&m->set.at[m->n_averaged]))
        rc = finish(m, m->n_averaged++);
    return rc;
}

int model_average_all(struct ddp_model *m)
{
    int rc = launch_complete(m);
    while (rc == 0 && m->n_averaged < m->n_launched)
        rc = finish(m, m->n_averaged++);
    return rc;
}

void model_average_stop(struct ddp_model *m, bool waits)
{
    for (size_t k = 0; m->set.at != NULL && k < m->set.plan.n_buckets; k++) {
        struct model_bucket *b = &m->set.at[k];
        if (b->request != NULL && (waits || is_back(b)))
            ddp_wait(b->request);
        b->request = NULL;
    }
}
