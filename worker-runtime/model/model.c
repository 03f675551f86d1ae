/* model.c - ddp_model: making and destroying it, and the calls between steps. model_priv.h lists
 * what the other files do.
 *
 * A step, on each rank: gradients become ready in any order (those that need it are copied into
 * their bucket then, while they are in the cache), and buckets go out in the plan's order as far as
 * all before them are complete. ddp_model_sync() does the rest, agrees with the other ranks that
 * the step counts, and copies averages back. Read ddp_model_create() here, then ddp_model_ready()
 * and ddp_model_sync() in model_step.c, then model_average_some(). */
#include "model_priv.h"

#include "common/scope.h"
#include "model_agree.h"
#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/device/device.h"
#include "worker-runtime/group/checkpoint_request.h"
#include "worker-runtime/group/recovery.h"
#include "worker-runtime/group/trace.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- what a program gives --------------------------------------------------------------------- */

/* what   "tensor": one with a gradient; "buffer" or "constant" */
static int check_tensor(const struct ddp_tensor *t, size_t i, const char *what)
{
    const bool is_buffer = what[0] != 't';
    const size_t size = ddp_dtype_size(t->dtype);
    if (t->name == NULL || t->name[0] == '\0')
        return rt_fail(DDP_EINVAL, "%s %zu has no name", what, i);
    if (size == 0 || (!is_buffer && !convert_is_float(t->dtype)))
        return rt_fail(DDP_EINVAL, "%s %zu '%s' has type %d: expected %s", what, i, t->name,
                       (int)t->dtype, is_buffer ? "one of enum ddp_dtype" : "a floating-point one");
    if (t->count > PTRDIFF_MAX / size)
        return rt_fail(DDP_EINVAL, "%s %zu '%s' has an invalid number of elements: %zu", what, i,
                       t->name, t->count);
    if (t->param == NULL && t->count > 0)
        return rt_fail(DDP_EINVAL, "%s %zu '%s' has param NULL", what, i, t->name);
    if ((uintptr_t)t->param % size != 0)
        return rt_fail(DDP_EINVAL, "%s %zu '%s': param (%p) is not aligned to its elements", what,
                       i, t->name, t->param);
    if (!is_buffer && (uintptr_t)t->grad % size != 0)
        return rt_fail(DDP_EINVAL, "%s %zu '%s': grad (%p) is not aligned to its elements", what, i,
                       t->name, t->grad);
    return 0;
}

static int check_local(const struct ddp_model_opts *o)
{
    if (o->local_steps > UINT32_MAX)
        return rt_fail(DDP_EINVAL, "invalid value %zu for local_steps: expected at most %lu",
                       o->local_steps, (unsigned long)UINT32_MAX);
    if (!(o->outer_lr > 0) || !isfinite(o->outer_lr))
        return rt_fail(DDP_EINVAL, "invalid value %g for outer_lr: expected a number above 0",
                       o->outer_lr);
    if (o->outer_momentum != DDP_OUTER_NO_MOMENTUM &&
        !(o->outer_momentum > 0 && o->outer_momentum < 1))
        return rt_fail(DDP_EINVAL,
                       "invalid value %g for outer_momentum: expected a number above 0 and below "
                       "1, or DDP_OUTER_NO_MOMENTUM",
                       o->outer_momentum);
    if (o->allow_unused || o->tell_nonfinite || o->stream != NULL)
        return rt_fail(DDP_EINVAL, "local_steps cannot be used together with %s",
                       o->allow_unused     ? "allow_unused"
                       : o->tell_nonfinite ? "tell_nonfinite"
                                           : "a stream");
    return 0;
}

static int check_opts(const struct ddp_model_opts *o)
{
    int rc;
    if (!(o->predivide_factor >= 0) || !isfinite(o->predivide_factor))
        return rt_fail(DDP_EINVAL, "invalid value %g for predivide_factor: expected 0 or more",
                       o->predivide_factor);
    if (o->weighted && o->predivide_factor > 0)
        return rt_fail(DDP_EINVAL, "weighted and predivide_factor cannot be used together");
    if (o->check_finite && o->tell_nonfinite)
        return rt_fail(DDP_EINVAL, "check_finite and tell_nonfinite cannot be used together");
    if ((unsigned)o->compress > DDP_COMPRESS_INT8)
        return rt_fail(DDP_EINVAL,
                       "invalid value %d for compress: expected one of enum ddp_compress",
                       (int)o->compress);
    if (o->hook != NULL &&
        (o->compress != 0 || o->always_fp32 || o->weighted || o->predivide_factor > 0))
        return rt_fail(DDP_EINVAL,
                       "hook cannot be used together with compress, always_fp32, weighted or "
                       "predivide_factor, because a hook averages the gradients itself");
    if (o->local_steps > 0 && (rc = check_local(o)) != 0)
        return rc;
    if (o->compress == DDP_COMPRESS_INT8 && o->stream != NULL)
        return rt_fail(DDP_EINVAL, "DDP_COMPRESS_INT8 and stream cannot be used together");
    if (o->nccl_memory && o->stream == NULL)
        return rt_fail(DDP_EINVAL, "nccl_memory requires a stream");
    if (o->keep_buffers && o->stream != NULL)
        return rt_fail(DDP_EINVAL, "keep_buffers and stream cannot be used together");
    if (o->buffers == NULL && o->n_buffers > 0)
        return rt_fail(DDP_EINVAL, "buffers is NULL, but n_buffers is %zu", o->n_buffers);
    if (o->constants == NULL && o->n_constants > 0)
        return rt_fail(DDP_EINVAL, "constants is NULL, but n_constants is %zu", o->n_constants);
    if (o->local_steps == 0 && (o->local_fragments || o->outer_lr != 0 || o->outer_momentum != 0))
        return rt_fail(DDP_EINVAL,
                       "local_fragments, outer_lr and outer_momentum require local_steps");
    return 0;
}

/* The difference of two 16-bit parameters has too few digits to be added up. */
static int check_local_type(const struct ddp_tensor *t, size_t i)
{
    if (t->dtype == DDP_FLOAT32 || t->dtype == DDP_FLOAT64)
        return 0;
    return rt_fail(DDP_EINVAL,
                   "tensor %zu '%s' has 16-bit elements: local_steps requires float32 or float64",
                   i, t->name);
}

static int check_all(const struct ddp_tensor *tensors, size_t n, const struct ddp_model_opts *o)
{
    if (tensors == NULL || n == 0)
        return rt_fail(DDP_EINVAL, "a model needs at least one tensor");
    int rc = check_opts(o);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if ((rc = check_tensor(&tensors[i], i, "tensor")) == 0 && o->local_steps > 0)
            rc = check_local_type(&tensors[i], i);
    for (size_t i = 0; rc == 0 && i < o->n_buffers; i++)
        rc = check_tensor(&o->buffers[i], i, "buffer");
    for (size_t i = 0; rc == 0 && i < o->n_constants; i++)
        rc = check_tensor(&o->constants[i], i, "constant");
    return rc;
}

static struct ddp_model_opts with_defaults(const struct ddp_model_opts *opts)
{
    struct ddp_model_opts o = opts != NULL ? *opts : (struct ddp_model_opts){0};
    if (o.first_bucket_bytes == 0)
        o.first_bucket_bytes = o.bucket_bytes > 0 ? o.bucket_bytes : BUCKET_FIRST_DEFAULT;
    if (o.bucket_bytes == 0)
        o.bucket_bytes = BUCKET_BYTES_DEFAULT;
    if (o.local_steps == 0)
        return o;
    o.keep_order = true; /* no backward pass is waited for */
    if (o.outer_lr == 0)
        o.outer_lr = o.local_fragments ? 0.4 : 0.7;
    if (o.outer_momentum == 0)
        o.outer_momentum = 0.9;
    return o;
}

/* --- making and destroying -------------------------------------------------------------------- */

/* Without waiting for anybody: the group ends. */
static void destroy_child(struct group_child *child)
{
    struct ddp_model *m = (struct ddp_model *)child;
    model_average_stop(m, m->g->progress_thread);
    ddp_model_destroy(m);
}

static int allocate_arrays(struct ddp_model *m)
{
    m->sizes = calloc(m->n_tensors, sizeof(*m->sizes));
    m->order = calloc(m->n_tensors, sizeof(*m->order));
    m->order_words = calloc(m->n_tensors + 1, sizeof(*m->order_words));
    if (m->opts.allow_unused) {
        m->used = calloc(m->n_tensors, sizeof(*m->used));
        m->used_in_graph = calloc(m->n_tensors, sizeof(*m->used));
    }
    if (m->sizes == NULL || m->order == NULL || m->order_words == NULL ||
        (m->opts.allow_unused && (m->used == NULL || m->used_in_graph == NULL)))
        return rt_fail(DDP_ENOMEM, "out of memory for a model of %zu tensors", m->n_tensors);
    for (size_t i = 0; i < m->n_tensors; i++)
        m->sizes[i] = (struct bucket_tensor){.bytes = m->tensors[i].count *
                                                      ddp_dtype_size(m->tensors[i].dtype),
                                             .dtype = m->tensors[i].dtype};
    return 0;
}

/* All that can fail on one rank alone; no other rank is asked. */
static int prepare_model(struct ddp_model *m)
{
    struct co_error err = {0};
    int rc = check_all(m->tensors, m->n_tensors, &m->opts);
    if (rc == 0 && model_is_on_device(m))
        rc = model_device_prepare(m);
    if (rc == 0)
        rc = allocate_arrays(m);
    if (rc == 0)
        rc = model_kept_take(m);
    if (rc == 0)
        rc = model_local_prepare(m);
    if (rc == 0)
        rc = model_homes_create(m);
    if (rc == 0)
        rc = model_buckets_plan(m, NULL, &m->set);
    if (rc == 0)
        rc = rt_return(trace_get(m->g, &m->trace, &err), &err);
    return rc;
}

/* Give every rank the state of one: at the start rank 0's, later that of a rank which has it.
 * Buffers are always sent: they are equalized after the end of a step, and a death may have come
 * before that. */
static int take_state(struct ddp_model *m)
{
    const bool is_due = recovery_is_due(m->g);
    int giver;
    int rc = recovery_find_giver(m->g, &giver);
    if (rc == 0)
        rc = recovery_take_memory(m->g, giver);
    if (rc == 0)
        model_local_restore(m);
    if (rc == 0 && recovery_sends(m->g))
        rc = model_broadcast(m->g, m->tensors, m->n_tensors, giver, m->opts.stream);
    if (rc == 0 && recovery_sends(m->g))
        rc = model_broadcast(m->g, m->opts.constants, m->opts.n_constants, giver, m->opts.stream);
    if (rc == 0 && (!is_due || recovery_has_state(m->g->world->recovery)))
        model_kept_restore(m);
    if (rc == 0)
        rc = model_kept_equalize(m, giver);
    if (rc == 0)
        model_kept_save(m, is_due);
    if (rc == 0)
        rc = model_local_take(m, giver);
    for (size_t i = 0; rc == 0 && (is_due || m->are_homes_old) && i < m->n_tensors; i++)
        if (m->tensors[i].grad != NULL || m->are_homes_old) /* else it is new, and zeroed */
            rc = model_clear(m, m->grad[i], model_bytes_of(m, i));
    return rc;
}

/* Compare and synchronize with the peers. */
static int meet_ranks(struct ddp_model *m)
{
    const struct model_description d = {
        .tensors = m->tensors, .n_tensors = m->n_tensors, .opts = &m->opts};
    int rc = model_agree(m->g, &d);
    if (rc == 0 && model_device_averages(m))
        rc = device_open(m->g);
    if (rc == 0)
        rc = model_int8_open(m);
    if (rc == 0)
        rc = model_buckets_place(m, &m->set);
    return rc == 0 ? take_state(m) : rc;
}

static int model_create(struct ddp_model *m)
{
    int rc = prepare_model(m);
    if (rc == 0)
        return meet_ranks(m);
    char text[CO_ERROR_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", ddp_last_error());
    model_agree(m->g, NULL); /* so that no rank waits; its result is not this rank's reason */
    return rt_fail(rc, "ddp_model_create: %s", text);
}

co_define_auto(ddp_model, ddp_model_destroy);

int ddp_model_create(struct ddp_group *g, struct ddp_tensor *tensors, size_t n_tensors,
                     const struct ddp_model_opts *opts, struct ddp_model **ret_model)
{
    if (g == NULL || ret_model == NULL)
        return rt_fail(DDP_EINVAL, "ddp_model_create: group or ret_model is NULL");
    co_auto(ddp_model) m = calloc(1, sizeof(*m));
    if (m == NULL) {
        model_agree(g, NULL);
        return rt_fail(DDP_ENOMEM, "ddp_model_create: out of memory");
    }
    m->child.destroy = destroy_child;
    m->g = g;
    m->tensors = tensors;
    m->n_tensors = n_tensors;
    m->opts = with_defaults(opts);
    m->weight = 1;
    m->checkpoint_fd = checkpoint_request_find(g);
    int rc = model_create(m);
    if (rc != 0)
        return rc;
    model_homes_hand_out(m);
    model_begin_step(m);
    group_adopt(g, &m->child);
    *ret_model = co_take(&m);
    return 0;
}

void ddp_model_destroy(struct ddp_model *m)
{
    if (m == NULL)
        return;
    group_disown(&m->child);
    model_average_stop(m, true);
    model_buckets_destroy(m, &m->set);
    model_int8_close(m);
    model_kept_leave(m);
    model_device_fini(m);
    free(m->grad);
    free(m->sizes);
    free(m->order);
    free(m->order_words);
    free(m->outer_at);
    free(m->used);
    free(m->used_in_graph);
    free(m);
}

/* --- between steps ---------------------------------------------------------------------------- */

static int check_between_steps(const struct ddp_model *m, const char *name)
{
    if (m->set.ready.n_said > 0)
        return rt_fail(
            DDP_EINVAL,
            "%s: the step has begun: %zu gradients are ready; call ddp_model_sync() first", name,
            m->set.ready.n_said);
    return 0;
}

int ddp_model_accumulate(struct ddp_model *m, bool on)
{
    if (m == NULL)
        return rt_fail_null("ddp_model_accumulate", "model");
    int rc = check_between_steps(m, "ddp_model_accumulate");
    if (rc == 0)
        m->accumulates = on;
    return rc;
}

int ddp_model_weight(struct ddp_model *m, double weight)
{
    if (m == NULL)
        return rt_fail_null("ddp_model_weight", "model");
    if (!m->opts.weighted)
        return rt_fail(
            DDP_EINVAL,
            "ddp_model_weight: the model was created without ddp_model_opts.weighted: set it");
    if (!(weight >= 0) || !isfinite(weight))
        return rt_fail(DDP_EINVAL,
                       "ddp_model_weight: invalid value %g for weight: expected 0 or more", weight);
    int rc = check_between_steps(m, "ddp_model_weight");
    if (rc == 0)
        m->weight = weight;
    return rc;
}

/* The norm of all gradients, as of one vector. Every rank has the same gradients and adds up in the
 * same order: no rank need be asked. */
int ddp_model_clip(struct ddp_model *m, double max_norm, double *ret_norm)
{
    double sum = 0;
    if (m == NULL || !(max_norm > 0))
        return rt_fail(DDP_EINVAL,
                       "ddp_model_clip: the model is NULL, or max_norm is not greater than 0");
    if (m->n_launched > 0)
        return rt_fail(DDP_EINVAL,
                       "ddp_model_clip: %zu gradient buckets are still being averaged: call "
                       "ddp_model_sync() first",
                       m->n_launched);
    if (model_is_on_device(m))
        return model_device_clip(m, max_norm, ret_norm);
    for (size_t i = 0; i < m->n_tensors; i++)
        sum += convert_sum_of_squares(m->grad[i], m->tensors[i].dtype, m->tensors[i].count);
    const double norm = sqrt(sum), factor = max_norm / (norm + 1e-6);
    if (isfinite(norm) && factor < 1)
        for (size_t i = 0; i < m->n_tensors; i++)
            convert_scale(process_kernels(), m->grad[i], m->tensors[i].dtype, m->tensors[i].count,
                          factor);
    if (ret_norm != NULL)
        *ret_norm = norm;
    return 0;
}

bool ddp_model_is_used(const struct ddp_model *m, size_t i)
{
    return m != NULL && i < m->n_tensors && (m->used == NULL || m->used[i] != 0);
}

bool ddp_model_found_inf(const struct ddp_model *m)
{
    return m != NULL && m->found_inf;
}

void ddp_model_get_stats(const struct ddp_model *m, struct ddp_model_stats *ret)
{
    if (ret == NULL)
        return;
    *ret = m != NULL ? m->stats : (struct ddp_model_stats){0};
    if (m == NULL)
        return;
    ret->n_buckets = m->set.plan.n_buckets;
    ret->n_in_place = 0;
    for (size_t k = 0; k < m->set.plan.n_buckets; k++)
        ret->n_in_place += m->set.at[k].where != BUCKET_COPIED;
}
