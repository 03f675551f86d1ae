/* model_average.c - from a complete bucket to its average.
 *
 * A bucket goes: complete -> launched, in the order of the plan -> averaged, in the same order. In
 * between its pieces belong to asynchronous all_reduces, which make progress whenever this file
 * asks whether they are done. */
#include "model_priv.h"

#include "common/clock.h"
#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/core/requests.h"
#include "worker-runtime/group/trace.h"
#include <ddp/collective.h>

/* --- around the average ----------------------------------------------------------------------- */

/* Before the first bucket: whether all ranks do the same, and this rank's part of a weighted
 * average. */
static int begin_step(struct ddp_model *m)
{
    m->has_begun = true;
    if (m->is_captured && m->step != MODEL_STEP_CAPTURED)
        return model_graph_meet(m, false);
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

static size_t count_of(const struct model_bucket *b, const struct bucket_piece *p)
{
    return (size_t)(p->end - p->memory) / ddp_dtype_size(b->dtype);
}

static void scale_bucket(struct model_bucket *b, double factor)
{
    for (size_t i = 0; factor != 1 && i < b->n_pieces; i++)
        convert_scale(process_kernels(), b->piece[i].memory, b->dtype, count_of(b, &b->piece[i]),
                      factor);
}

/* Between the pieces of a bucket and its wire, where it has one. */
static void convert_wire(struct model_bucket *b, bool is_back)
{
    uint8_t *wire = b->wire;
    for (size_t i = 0; wire != NULL && i < b->n_pieces; i++) {
        const size_t count = count_of(b, &b->piece[i]);
        if (is_back)
            convert(process_kernels(), b->piece[i].memory, b->dtype, wire, b->wire_dtype, count);
        else
            convert(process_kernels(), wire, b->wire_dtype, b->piece[i].memory, b->dtype, count);
        wire += count * ddp_dtype_size(b->wire_dtype);
    }
}

/* Remember the first average that is not finite. */
static void look_for_nonfinite(struct ddp_model *m, size_t k)
{
    for (size_t i = 0; i < m->n_tensors && m->bad == MODEL_NONE; i++) {
        if (m->set.plan.place[i].bucket != k)
            continue;
        m->bad_at = convert_find_nonfinite(model_averages_of(m, i), m->tensors[i].dtype,
                                           m->tensors[i].count);
        if (m->bad_at == m->tensors[i].count)
            continue;
        m->bad = i;
        m->bad_value = convert_get(model_averages_of(m, i), m->tensors[i].dtype, m->bad_at);
    }
}

/* --- completed buckets ------------------------------------------------------------------------ */

static int fail_bucket(struct ddp_model *m, size_t k, int rc)
{
    return model_keep_failure(m,
                              rt_fail(rc, "average of gradient bucket %zu of %zu: %s", k + 1,
                                      m->set.plan.n_buckets, ddp_last_error()),
                              true);
}

/* The program's own way. Its own statuses fail this step only. */
static int call_hook(struct ddp_model *m, size_t k, void *stream)
{
    const struct model_bucket *b = &m->set.at[k];
    const struct ddp_bucket seen = {.index = k,
                                    .n_buckets = m->set.plan.n_buckets,
                                    .data = b->wire != NULL   ? b->wire
                                            : b->n_pieces > 0 ? b->piece[0].memory
                                                              : NULL,
                                    .count = b->count,
                                    .dtype = b->dtype,
                                    .stream = stream};
    int rc = m->opts.hook(m->g, &seen, m->opts.hook_arg);
    if (rc == 0)
        return 0;
    if (rc == DDP_EPEER || rc == DDP_ETIMEOUT || rc == DDP_EMISMATCH || rc == DDP_ERESPAWN ||
        rc > 0) /* of a collective that has broken the group */
        return fail_bucket(m, k, rc);
    rt_fail(rc, "hook of gradient bucket %zu of %zu: %s", k + 1, m->set.plan.n_buckets,
            ddp_last_error());
    model_keep_failure(m, rc, false);
    return 0;
}

struct hooking { /* what on_stream() is to do, and what came of it */
    struct ddp_model *m;
    size_t k;
    int rc;
};

static bool on_stream(void *arg, void *stream)
{
    struct hooking *h = arg;
    h->rc = call_hook(h->m, h->k, stream);
    return h->rc == 0;
}

/* A misuse of a capture: the step continues, and fails on all ranks. */
static int settle_device(struct ddp_model *m, size_t k, int rc)
{
    if (rc == DDP_EINVAL)
        model_keep_failure(m, rc, false);
    return rc == 0 || rc == DDP_EINVAL ? 0 : fail_bucket(m, k, rc);
}

static int run_hook(struct ddp_model *m, size_t k)
{
    struct hooking h = {m, k, 0};
    if (!model_is_on_device(m))
        return call_hook(m, k, NULL);
    int rc = settle_device(m, k, model_device_hook(m, &m->set.at[k], on_stream, &h));
    return h.rc != 0 ? h.rc : rc;
}

/* The average of a bucket that others sum up is looked at by them on the way, but not what is done
 * to it afterwards. Without memory for a request the others need not wait: the call is made at
 * once. */
static int all_reduce(struct ddp_model *m, struct bucket_piece *p, void *values, size_t count,
                      enum ddp_dtype dtype)
{
    const bool is_looked_at = model_looks_for_nonfinite(m) && factor_after(m) == 1;
    const struct collective what = {.kind = CALL_ALL_REDUCE,
                                    .in = values,
                                    .out = values,
                                    .count = count,
                                    .dtype = dtype,
                                    .op = op_of(m),
                                    .found_inf = is_looked_at ? &p->found_inf : NULL};
    int rc = requests_start(m->g, &what, &p->request);
    return rc == DDP_ENOMEM ? requests_run(m->g, &what) : rc;
}

static int send_pieces(struct ddp_model *m, struct model_bucket *b)
{
    int rc = 0;
    if (b->wire != NULL)
        return all_reduce(m, &b->piece[0], b->wire, b->count, b->wire_dtype);
    for (size_t i = 0; rc == 0 && i < b->n_pieces; i++) {
        struct bucket_piece *p = &b->piece[i];
        rc = all_reduce(m, p, p->memory, count_of(b, p), b->dtype);
    }
    return rc;
}

static int launch_bucket(struct ddp_model *m, size_t k)
{
    struct model_bucket *b = &m->set.at[k];
    int rc = m->has_begun ? 0 : begin_step(m);
    b->began_ns = m->trace != NULL ? co_now_ns() : 0;
    if (rc != 0)
        return fail_bucket(m, k, rc);
    for (size_t i = 0; i < b->n_pieces; i++)
        b->piece[i].found_inf = 1; /* not known better */
    if (m->g->world_size > 1)
        m->stats.wire_bytes +=
            b->is_int8 ? model_int8_bytes(m, b) : b->count * ddp_dtype_size(b->wire_dtype);
    if (m->opts.hook != NULL)
        return run_hook(m, k);
    if (model_is_on_device(m))
        return settle_device(
            m, k, model_device_send(m, b, op_of(m) == DDP_SUM, factor_before(m), factor_after(m)));
    scale_bucket(b, factor_before(m));
    convert_wire(b, false);
    rc = b->is_int8 ? model_int8_average(m, b, op_of(m) == DDP_SUM) : send_pieces(m, b);
    return rc != 0 ? fail_bucket(m, k, rc) : 0;
}

/* --- and back --------------------------------------------------------------------------------- */

static bool may_hold_nonfinite(const struct model_bucket *b)
{
    const size_t n_answers = b->wire != NULL ? 1 : b->n_pieces;
    bool may = b->where == BUCKET_NOWHERE;
    for (size_t i = 0; i < n_answers; i++)
        may |= b->piece[i].found_inf != 0;
    return may;
}

/* Wait for all pieces; the first failure counts. */
static int wait_for(struct model_bucket *b)
{
    int rc = 0;
    for (size_t i = 0; i < b->n_pieces; i++) {
        int rc_of_piece = ddp_wait(b->piece[i].request);
        b->piece[i].request = NULL;
        rc = rc != 0 ? rc : rc_of_piece;
    }
    return rc;
}

static int finish_bucket(struct ddp_model *m, size_t k)
{
    struct model_bucket *b = &m->set.at[k];
    int rc = wait_for(b);
    if (rc != 0)
        return fail_bucket(m, k, rc);
    if (m->opts.hook == NULL && !model_is_on_device(m)) {
        convert_wire(b, true);
        scale_bucket(b, factor_after(m));
    }
    if (model_looks_for_nonfinite(m) && !model_is_on_device(m) && may_hold_nonfinite(b))
        look_for_nonfinite(m, k);
    trace_bucket(m->trace, k, b->count * ddp_dtype_size(b->dtype), b->began_ns);
    return 0;
}

/* Whether a bucket is back; it makes progress by being asked. */
static bool is_back(const struct model_bucket *b)
{
    int is_done = 1;
    for (size_t i = 0; is_done && i < b->n_pieces; i++)
        if (b->piece[i].request != NULL && ddp_test(b->piece[i].request, &is_done) != 0)
            return false;
    return is_done;
}

static bool has_complete(const struct ddp_model *m)
{
    return m->n_launched < m->n_end && bucket_ready_is_complete(&m->set.ready, m->n_launched);
}

static int launch_complete(struct ddp_model *m)
{
    while (has_complete(m)) {
        int rc = launch_bucket(m, m->n_launched);
        if (rc != 0)
            return rc;
        m->n_launched++;
    }
    return 0;
}

int model_average_some(struct ddp_model *m)
{
    int rc = 0;
    if (!m->opts.delay_allreduce && has_complete(m)) {
        rc = group_check("ddp_model_ready", m->g);
        rc = rc == 0 ? model_graph_look(m) : fail_bucket(m, m->n_launched, rc);
    }
    if (rc == 0 && !m->opts.delay_allreduce)
        rc = launch_complete(m);
    while (rc == 0 && m->n_averaged < m->n_launched && is_back(&m->set.at[m->n_averaged]))
        rc = finish_bucket(m, m->n_averaged++);
    return rc;
}

int model_average_all(struct ddp_model *m)
{
    int rc = launch_complete(m);
    if (rc == 0 && model_is_on_device(m) && (rc = model_device_wait(m)) != 0) /* for all at once */
        fail_bucket(m, m->n_launched - 1, rc);
    while (rc == 0 && m->n_averaged < m->n_launched)
        rc = finish_bucket(m, m->n_averaged++);
    return rc;
}

int model_average_capture(struct ddp_model *m)
{
    int rc = launch_complete(m);
    if (rc != 0)
        return rc;
    rc = model_device_close_graph(m);
    if (rc == DDP_EINVAL)
        return model_keep_failure(m, rc, false);
    return rc != 0 ? fail_bucket(m, m->n_launched - 1, rc) : 0;
}

void model_average_stop(struct ddp_model *m, bool waits)
{
    if (m->step == MODEL_STEP_CAPTURED)
        return; /* none of it runs */
    if (model_is_on_device(m) && waits && m->n_launched > 0 && !m->broken)
        model_device_wait(m); /* whether well or not: nothing runs afterwards */
    for (size_t k = 0; m->set.at != NULL && k < m->set.plan.n_buckets; k++) {
        struct model_bucket *b = &m->set.at[k];
        if (waits || is_back(b))
            wait_for(b);
        for (size_t i = 0; i < b->n_pieces; i++) {
            requests_abandon(b->piece[i].request);
            b->piece[i].request = NULL;
        }
    }
}
