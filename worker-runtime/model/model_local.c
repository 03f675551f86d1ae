/* model_local.c - steps of each rank alone, and the outer step of all (DiLoCo; see ddp/model.h).
 *
 * An outer step writes into each gradient how far this rank has come, has the buckets averaged and
 * agreed on as those of any step, and applies the averages to the outer parameters, which become
 * the rank's own. The outer state is in model_kept: the next generation begins with it. Read
 * exchange() first. */
#include "model_priv.h"

#include "common/clock.h"
#include "worker-runtime/arithmetic/optimizer.h"
#include "worker-runtime/group/recovery.h"
#include <ddp/collective.h>
#include <stdlib.h>
#include <string.h>

/* --- the outer state -------------------------------------------------------------------------- */

static uint8_t *outer_param(const struct ddp_model *m, size_t i)
{
    return m->kept->outer + m->outer_at[i];
}

static uint8_t *outer_momentum(const struct ddp_model *m, size_t i)
{
    return m->kept->outer + m->outer_at[m->n_tensors] + m->outer_at[i];
}

static void copy_param(struct ddp_model *m, size_t i, bool from_outer)
{
    uint8_t *outer = outer_param(m, i), *own = m->tensors[i].param;
    if (model_bytes_of(m, i) > 0)
        memcpy(from_outer ? own : outer, from_outer ? outer : own, model_bytes_of(m, i));
}

static int lay_out(struct ddp_model *m)
{
    size_t at = 0;
    m->outer_at = calloc(m->n_tensors + 1, sizeof(*m->outer_at));
    if (m->outer_at == NULL)
        return rt_fail(DDP_ENOMEM, "out of memory for a model of %zu tensors", m->n_tensors);
    for (size_t i = 0; i < m->n_tensors; i++) {
        m->outer_at[i] = at;
        at += model_bytes_of(m, i) / BUCKET_ALIGN * BUCKET_ALIGN + BUCKET_ALIGN;
        if (at > PTRDIFF_MAX / 4)
            return rt_fail(DDP_EINVAL, "%zu tensors exceed the address space", m->n_tensors);
    }
    m->outer_at[m->n_tensors] = at;
    return 0;
}

int model_local_prepare(struct ddp_model *m)
{
    struct model_kept *k = m->kept;
    if (!model_is_local(m))
        return 0;
    int rc = lay_out(m);
    if (rc != 0)
        return rc;
    const size_t bytes = 2 * m->outer_at[m->n_tensors];
    if (k->outer == NULL || k->outer_bytes != bytes) {
        free(k->outer);
        k->outer = calloc(1, bytes);
        k->outer_bytes = bytes;
        k->has_outer = false;
    }
    if (k->outer == NULL || recovery_copies_reserve(m->g) != 0)
        return rt_fail(DDP_ENOMEM, "out of memory for the outer state of %zu bytes", bytes);
    return 0;
}

void model_local_restore(struct ddp_model *m)
{
    if (!model_is_local(m) || !m->kept->has_outer)
        return;
    if (recovery_is_due(m->g) && !recovery_has_state(m->g->world->recovery))
        return; /* it receives that of another rank */
    for (size_t i = 0; i < m->n_tensors; i++)
        copy_param(m, i, true);
}

int model_local_take(struct ddp_model *m, int giver)
{
    int rc = 0;
    if (!model_is_local(m))
        return 0;
    const bool is_due = recovery_is_due(m->g);
    for (size_t i = 0; rc == 0 && i < m->n_tensors; i++) {
        uint8_t *momentum = outer_momentum(m, i);
        copy_param(m, i, false);
        if (!is_due)
            memset(momentum, 0, model_bytes_of(m, i));
        else if (recovery_sends(m->g))
            rc = ddp_broadcast(m->g, momentum, momentum, m->tensors[i].count, m->tensors[i].dtype,
                               giver, NULL);
    }
    if (rc != 0)
        return rt_fail(rc, "ddp_model_create: outer momentum: %s", ddp_last_error());
    m->kept->has_outer = true;
    m->n_inner = 0;
    recovery_copies_save(m->g);
    return 0;
}

/* --- the outer step --------------------------------------------------------------------------- */

static bool is_in(const struct ddp_model *m, size_t i, size_t first, size_t end)
{
    const size_t bucket = m->set.plan.place[i].bucket;
    return bucket >= first && bucket < end;
}

/* How far this rank has come, as gradients, on their way to the average. */
static int send_differences(struct ddp_model *m, size_t first, size_t end)
{
    int rc = 0;
    m->n_launched = m->n_averaged = first;
    m->n_end = end;
    for (size_t i = m->n_tensors; rc == 0 && i-- > 0;) {
        if (!is_in(m, i, first, end))
            continue;
        optimizer_difference(m->grad[i], outer_param(m, i), m->tensors[i].param,
                             m->tensors[i].dtype, m->tensors[i].count);
        model_take_gradient(m, i);
        rc = model_average_some(m);
    }
    return rc == 0 ? model_average_all(m) : rc;
}

static void apply(struct ddp_model *m, size_t i)
{
    const double momentum =
        m->opts.outer_momentum == DDP_OUTER_NO_MOMENTUM ? 0 : m->opts.outer_momentum;
    const struct optimizer_step how = {.kind = DDP_SGD,
                                       .lr = m->opts.outer_lr,
                                       .momentum = momentum,
                                       .is_nesterov = true,
                                       .grad_factor = 1};
    struct optimizer_stretch on = {.param = outer_param(m, i),
                                   .grad = m->grad[i],
                                   .new_param = outer_param(m, i),
                                   .count = m->tensors[i].count};
    if (momentum > 0)
        on.state[0] = on.new_state[0] = outer_momentum(m, i);
    optimizer_apply(&how, m->tensors[i].dtype, &on);
}

/* The buckets first .. end - 1. */
static int exchange(struct ddp_model *m, size_t first, size_t end)
{
    const uint64_t began_ns = co_now_ns();
    bool any_active;
    model_begin_step(m);
    m->n_steps++;
    int rc = model_end_step(m, send_differences(m, first, end), began_ns, 0, &any_active);
    for (size_t i = 0; i < m->n_tensors && !(rc != 0 && m->broken); i++) {
        const bool is_part = is_in(m, i, first, end);
        if (rc == 0 && is_part)
            apply(m, i);
        if (rc != 0 || is_part)
            copy_param(m, i, true);
    }
    if (rc == 0)
        recovery_copies_save(m->g);
    else
        m->n_inner = 0;
    return rc;
}

/* The first bucket of fragment k of H: bucket b is in fragment b * H / n_buckets. */
static size_t first_of(const struct ddp_model *m, size_t k)
{
    const size_t n = m->set.plan.n_buckets, h = m->opts.local_steps;
    return (k * n + h - 1) / h; /* local_steps are fewer than 2^32, and so are buckets */
}

int ddp_model_outer_step(struct ddp_model *m, bool now)
{
    if (m == NULL)
        return rt_fail_null("ddp_model_outer_step", "model");
    int rc = group_check("ddp_model_outer_step", m->g);
    if (rc != 0 || !model_is_local(m))
        return rc;
    if (m->broken)
        return model_tell_failure(m);
    if (m->accumulates)
        return 0;
    if (m->set.ready.n_said > 0)
        model_misuse(m,
                     "ddp_model_outer_step: %zu gradients are marked ready: call ddp_model_sync() "
                     "first",
                     m->set.ready.n_said);
    const size_t k = m->n_inner++;
    const bool is_last = now || m->n_inner == m->opts.local_steps;
    if (is_last)
        m->n_inner = 0;
    if (now || !m->opts.local_fragments)
        return is_last ? exchange(m, 0, m->set.plan.n_buckets) : 0;
    const size_t first = first_of(m, k), end = first_of(m, k + 1);
    return first < end ? exchange(m, first, end) : 0;
}

/* --- checkpoints ------------------------------------------------------------------------------ */

static int check_outer(const char *name, const struct ddp_model *m)
{
    if (m == NULL)
        return rt_fail_null(name, "model");
    if (!model_is_local(m))
        return rt_fail(DDP_EINVAL,
                       "%s: the model was created without ddp_model_opts.local_steps: set it",
                       name);
    return 0;
}

int ddp_model_outer(struct ddp_model *m, size_t i, void **ret_param, void **ret_momentum)
{
    int rc = check_outer("ddp_model_outer", m);
    if (rc != 0)
        return rc;
    if (i >= m->n_tensors)
        return rt_fail(DDP_EINVAL, "ddp_model_outer: there is no tensor %zu: the model has %zu", i,
                       m->n_tensors);
    if (ret_param != NULL)
        *ret_param = outer_param(m, i);
    if (ret_momentum != NULL)
        *ret_momentum = outer_momentum(m, i);
    return 0;
}

int ddp_model_outer_loaded(struct ddp_model *m)
{
    int rc = check_outer("ddp_model_outer_loaded", m);
    if (rc != 0)
        return rc;
    if (m->set.ready.n_said > 0)
        return rt_fail(DDP_EINVAL,
                       "ddp_model_outer_loaded: %zu gradients are marked ready: call "
                       "ddp_model_sync() first",
                       m->set.ready.n_said);
    for (size_t i = 0; i < m->n_tensors; i++)
        copy_param(m, i, true);
    m->n_inner = 0;
    recovery_copies_save(m->g);
    return 0;
}
