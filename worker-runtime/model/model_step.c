/* model_step.c - the calls of a step: gradients become ready, the step ends. */
#include "model_priv.h"

#include "common/clock.h"
#include "model_agree.h"
#include "worker-runtime/arithmetic/reduce.h"
#include "worker-runtime/group/recovery.h"
#include "worker-runtime/group/trace.h"
#include <ddp/collective.h>
#include <stdio.h>
#include <string.h>

/* --- a step's beginning ----------------------------------------------------------------------- */

void model_begin_step(struct ddp_model *m)
{
    bucket_ready_begin(&m->set.ready);
    m->n_launched = m->n_averaged = 0;
    m->n_end = m->set.plan.n_buckets;
    m->has_begun = false;
    m->step = MODEL_STEP_NONE;
    m->own_bad = m->bad = MODEL_NONE;
    m->backward_ns = 0;
}

/* --- ready ------------------------------------------------------------------------------------ */

void model_take_gradient(struct ddp_model *m, size_t i)
{
    const struct ddp_tensor *t = &m->tensors[i];
    if (m->opts.check_finite && !model_is_on_device(m) && /* there a kernel looks */
        m->own_bad == MODEL_NONE && !reduce_is_finite(t->dtype, m->grad[i], t->count))
        m->own_bad = i;
    model_copy_in(m, i);
    bucket_ready_say(&m->set.ready, i);
}

int ddp_model_ready(struct ddp_model *m, size_t i)
{
    if (m == NULL)
        return rt_fail_null("ddp_model_ready", "model");
    if (m->broken)
        return model_tell_failure(m);
    if (i >= m->n_tensors)
        return model_misuse(m, "ddp_model_ready: there is no gradient %zu: the model has %zu", i,
                            m->n_tensors);
    if (m->accumulates)
        return 0;
    int rc = model_is_on_device(m) ? model_graph_enter(m) : 0;
    if (rc != 0)
        return rc;
    if (bucket_ready_is_said(&m->set.ready, i))
        return model_misuse(m,
                            "ddp_model_ready: gradient %zu '%s' was already marked ready in this "
                            "step: call it once per step",
                            i, m->tensors[i].name);
    if (m->trace != NULL && m->backward_ns == 0)
        m->backward_ns = co_now_ns();
    if (model_is_local(m)) {
        bucket_ready_say(&m->set.ready, i);
        return 0;
    }
    model_take_gradient(m, i);
    return model_average_some(m);
}

int ddp_model_ready_range(struct ddp_model *m, size_t first, size_t n)
{
    int first_rc = 0;
    if (m == NULL)
        return rt_fail_null("ddp_model_ready_range", "model");
    if (!m->broken && (first > m->n_tensors || n > m->n_tensors - first))
        return model_misuse(
            m,
            "ddp_model_ready_range: there are no %zu gradients from index %zu: the model has %zu",
            n, first, m->n_tensors);
    if (m->broken)
        return model_tell_failure(m);
    for (size_t i = n; i-- > 0;) {
        int rc = ddp_model_ready(m, first + i);
        first_rc = first_rc != 0 ? first_rc : rc;
    }
    return first_rc;
}

/* --- sync ------------------------------------------------------------------------------------- */

enum { NAMES_SHOWN = 8 };

/* "3 of 161 gradients were never reported ...: 'conv1.weight', ..." */
int model_check_ready(struct ddp_model *m)
{
    char names[CO_ERROR_TEXT_BYTES / 2];
    size_t n_shown = 0, at = 0;
    if (m->set.ready.n_said == 0 || m->set.ready.n_said == m->n_tensors)
        return 0;
    names[0] = '\0';
    for (size_t i = 0; i < m->n_tensors && n_shown < NAMES_SHOWN && at < sizeof(names); i++) {
        if (bucket_ready_is_said(&m->set.ready, i))
            continue;
        at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%zu '%.64s'",
                               n_shown++ > 0 ? ", " : "", i, m->tensors[i].name);
    }
    const size_t n = m->n_tensors - m->set.ready.n_said;
    return model_misuse(
        m,
        "ddp_model_sync: %zu of %zu gradients were not marked ready in this step: %s%s; "
        "call ddp_model_ready() for each, or set ddp_model_opts.allow_unused",
        n, m->n_tensors, names, n > n_shown ? ", ..." : "");
}

/* What was not reported: all of them, an error, or unused. */
static void take_the_rest(struct ddp_model *m)
{
    const struct bucket_ready *r = &m->set.ready;
    const bool are_unused = m->opts.allow_unused;
    if (m->is_joined || are_unused) {
        for (size_t i = 0; i < m->n_tensors; i++)
            if (!bucket_ready_is_said(r, i)) {
                model_zero(m, i);
                bucket_ready_say(&m->set.ready, i);
            }
        return;
    }
    if (m->failure == 0)
        model_check_ready(m);
    for (size_t i = m->n_tensors; i-- > 0;)
        if (!bucket_ready_is_said(r, i))
            model_take_gradient(m, i);
}

static void note_used(const struct ddp_model *m, uint8_t *used)
{
    for (size_t i = 0; used != NULL && i < m->n_tensors; i++)
        used[i] = bucket_ready_is_said(&m->set.ready, i) && !m->is_joined;
}

/* The step counts. The next call reports what fails from here on. */
static void complete_step(struct ddp_model *m, uint64_t began_ns, size_t n_said, bool any_active)
{
    int rc = 0;
    model_copy_out(m);
    recovery_count_step(m->g, began_ns);
    m->stats.n_steps++;
    if (m->broken)
        return;
    if (any_active && m->opts.n_buffers > 0)
        rc = model_kept_equalize(m, m->last_active_rank);
    if (rc == 0 && m->n_steps == 1 && !m->opts.allow_unused && !m->opts.keep_order)
        rc = model_reorder(m, n_said);
    if (rc != 0)
        model_keep_failure(m, rc, true);
}

int model_end_step(struct ddp_model *m, int rc, uint64_t began_ns, size_t n_said,
                   bool *ret_any_active)
{
    if (rc == 0 && m->used != NULL) { /* which gradients any rank has used */
        rc = ddp_all_reduce(m->g, m->used, m->used, m->n_tensors, DDP_UINT8, DDP_MAX, NULL);
        if (rc != 0)
            model_keep_failure(m, rc, true);
    }
    if (rc == 0)
        rc = model_commit(m, ret_any_active);
    if (rc == 0) {
        complete_step(m, began_ns, n_said, *ret_any_active);
        model_kept_save(m, true);
    } else {
        model_int8_forget(m);
        if (m->kept->is_of_a_step) /* else a checkpoint may have been loaded since */
            model_kept_restore(m);
        if (!m->broken) { /* a misuse ends with its step */
            model_tell_failure(m);
            m->failure = 0;
        }
    }
    model_begin_step(m);
    m->stats.sync_ns = co_now_ns() - began_ns;
    trace_span(m->trace, "sync", began_ns);
    return rc;
}

static int finish_step(struct ddp_model *m, bool *ret_any_active)
{
    const size_t n_said = m->set.ready.n_said;
    const uint64_t began_ns = co_now_ns();
    m->stats.n_overlapped = m->n_averaged;
    note_used(m, m->used);
    take_the_rest(m);
    m->n_steps++;
    return model_end_step(m, model_average_all(m), began_ns, n_said, ret_any_active);
}

/* A capture in which a stream was left unjoined cannot be ended without an error: it is joined,
 * whatever else failed. */
static int finish_captured(struct ddp_model *m)
{
    if (m->step == MODEL_STEP_CAPTURED) {
        note_used(m, m->used_in_graph);
        take_the_rest(m);
        model_average_capture(m); /* which keeps its failure */
    }
    if (m->failure == 0) {
        m->is_captured = true;
        model_device_arm_replay(m);
    }
    int rc = model_tell_failure(m);
    if (!m->broken)
        m->failure = 0;
    model_begin_step(m);
    return rc;
}

/* With local steps: the gradients stay this rank's own. */
static int finish_alone(struct ddp_model *m)
{
    struct co_error err = {0};
    int rc = rt_return(group_check_alone(m->g, &err), &err);
    if (rc != 0)
        return model_keep_failure(m, rt_fail(rc, "ddp_model_sync: %s", err.text), true);
    if (m->backward_ns != 0)
        trace_span(m->trace, "backward", m->backward_ns);
    rc = m->failure != 0 ? model_tell_failure(m) : model_check_ready(m);
    bucket_ready_begin(&m->set.ready);
    m->backward_ns = 0;
    if (m->checkpoint_fd >= 0) /* the answer of the last exchange: no rank asks in between */
        m->g->world->knows_pending = true;
    return rc;
}

int ddp_model_sync(struct ddp_model *m)
{
    bool any_active;
    if (m == NULL)
        return rt_fail_null("ddp_model_sync", "model");
    int rc = group_check("ddp_model_sync", m->g);
    if (rc != 0)
        return rc;
    if (m->broken)
        return model_tell_failure(m);
    if (m->accumulates)
        return 0;
    if (model_is_local(m))
        return finish_alone(m);
    rc = model_graph_look(m);
    if (model_is_on_device(m) && m->step != MODEL_STEP_PLAIN)
        return finish_captured(m);
    if (rc != 0) /* the step continues after the capture */
        return rc;
    if (m->backward_ns != 0)
        trace_span(m->trace, "backward", m->backward_ns);
    return finish_step(m, &any_active);
}

/* --- the end of a step after a launch of its graph
 * --------------------------------------------- */

static int check_replayed(struct ddp_model *m)
{
    if (!model_is_on_device(m))
        return rt_fail(DDP_EINVAL, "ddp_model_replayed: the model has no stream");
    int rc = model_graph_check_outside(m, "ddp_model_replayed");
    if (rc != 0)
        return rc;
    if (!m->is_captured)
        return rt_fail(DDP_EINVAL, "ddp_model_replayed: no step of the model was captured");
    if (m->set.ready.n_said > 0)
        return rt_fail(DDP_EINVAL,
                       "ddp_model_replayed: a step without a graph has begun (%zu gradients are "
                       "ready): call ddp_model_sync() first",
                       m->set.ready.n_said);
    return 0;
}

int ddp_model_replayed(struct ddp_model *m)
{
    const uint64_t began_ns = co_now_ns();
    bool any_active;
    if (m == NULL)
        return rt_fail_null("ddp_model_replayed", "model");
    int rc = group_check("ddp_model_replayed", m->g);
    if (rc != 0)
        return rc;
    if (m->broken)
        return model_tell_failure(m);
    rc = check_replayed(m);
    if (rc != 0)
        return rc;
    if (m->used != NULL)
        memcpy(m->used, m->used_in_graph, m->n_tensors * sizeof(*m->used));
    m->n_steps++;
    return model_end_step(m, model_graph_wait(m), began_ns, 0, &any_active);
}

/* --- steps of a rank that has no more batches: zeros, until no rank has one
 * --------------------- */

/* One step more with the others. */
static int shadow_step(struct ddp_model *m, bool *ret_any_active)
{
    int cleared = 0;
    for (size_t i = 0; cleared == 0 && i < m->n_tensors; i++)
        cleared = model_clear(m, m->grad[i], model_bytes_of(m, i));
    if (cleared != 0)
        model_keep_failure(m, cleared, false);
    m->is_joined = true;
    int rc = finish_step(m, ret_any_active);
    m->is_joined = false;
    return rc;
}

/* Ranks that had no batches still have the old state; those that came last have the new one. */
static int give_all_the_last_state(struct ddp_model *m)
{
    int rc = model_broadcast(m->g, m->tensors, m->n_tensors, m->last_active_rank, m->opts.stream);
    if (rc == 0)
        rc = model_kept_equalize(m, m->last_active_rank);
    if (rc == 0)
        return 0;
    return model_keep_failure(m, rt_fail(rc, "ddp_join: %s", ddp_last_error()), true);
}

int ddp_join(struct ddp_model *m)
{
    bool any_active = true;
    if (m == NULL)
        return rt_fail_null("ddp_join", "model");
    int rc = group_check("ddp_join", m->g);
    if (rc != 0)
        return rc;
    if (m->broken)
        return model_tell_failure(m);
    if (model_is_local(m))
        return rt_fail(DDP_EINVAL, "ddp_join: the model has local_steps: give all ranks the same "
                                   "number of batches");
    rc = model_graph_check_outside(m, "ddp_join");
    if (rc != 0)
        return rc;
    if (m->set.ready.n_said > 0) { /* perhaps on their way: they cannot be zeros any more */
        model_misuse(m,
                     "ddp_join: %zu gradients of a step were marked ready: finish the step with "
                     "ddp_model_sync() first",
                     m->set.ready.n_said);
        return finish_step(m, &any_active);
    }
    m->accumulates = false;
    while (any_active) {
        rc = shadow_step(m, &any_active);
        if (rc != 0)
            return rc;
    }
    return give_all_the_last_state(m);
}
