/* model_device.c - gradients that lie on a GPU: averaged where they are, since NCCL takes any
 * number of places at once; or, where another type travels, packed onto a wire and back by
 * kernels. */
#include "model_priv.h"

#include "common/scope.h"
#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/device/device.h"
#include "worker-runtime/device/device_link.h"

#include <ddp/collective.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Words of the device, which are copied to the host after the averages of a step, and are zeroed:
 * those of device_average.found_inf. The device always writes 0 to the last one, by which the host
 * sees that a graph has run. */
enum { FOUND_OWN, FOUND_AVERAGED, FOUND_NOT_RUN, N_FOUND };

/* --- what this rank has ----------------------------------------------------------------------- */

static int check_tensor(const struct ddp_model *m, const struct ddp_tensor *t)
{
    char which[128];
    snprintf(which, sizeof(which), "'%.96s': param", t->name);
    int rc = t->count > 0 ? device_check_memory(m->g, t->param, which) : 0;
    snprintf(which, sizeof(which), "'%.96s': grad", t->name);
    return rc == 0 && t->count > 0 ? device_check_memory(m->g, t->grad, which) : rc;
}

/* Buffers or constants: of tensors that have no gradient. */
static int check_params(const struct ddp_model *m, const struct ddp_tensor *all, size_t n)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct ddp_tensor one = {
            .name = all[i].name, .param = all[i].param, .count = all[i].count};
        rc = check_tensor(m, &one);
    }
    return rc;
}

static int check_memory(const struct ddp_model *m)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->n_tensors; i++)
        rc = check_tensor(m, &m->tensors[i]);
    if (rc == 0)
        rc = check_params(m, m->opts.buffers, m->opts.n_buffers);
    return rc == 0 ? check_params(m, m->opts.constants, m->opts.n_constants) : rc;
}

static bool needs_kernels(const struct ddp_model_opts *o)
{
    return o->compress != DDP_COMPRESS_NONE || o->always_fp32 || o->weighted ||
           o->predivide_factor > 0 || o->check_finite || o->tell_nonfinite || o->hook != NULL;
}

/* By the time that gradients are clipped it is too late to load kernels: the device may be waiting
 * for peers. Without kernels for this GPU a model that needs no others continues. */
static int prepare_clip(struct ddp_model *m)
{
    void *host = NULL;
    int rc = device_load_kernels(m->g, m->opts.stream);
    if ((rc == DDP_EUNSUPPORTED || rc == DDP_ESYSTEM) && !needs_kernels(&m->opts)) {
        snprintf(m->no_kernels, sizeof(m->no_kernels), "%s", ddp_last_error());
        return 0;
    }
    if (rc == 0)
        rc = device_alloc_host(m->g, sizeof(*m->clip_norm), &host);
    m->clip_norm = host;
    return rc == 0 ? device_alloc(m->g, DEVICE_CLIP_BYTES, false, m->opts.stream, &m->clip_work)
                   : rc;
}

int model_device_prepare(struct ddp_model *m)
{
    void *found = NULL, *host = NULL;
    int rc = check_memory(m);
    if (rc == 0)
        rc = prepare_clip(m);
    if (rc == 0 && model_device_averages(m))
        rc = device_alloc(m->g, N_FOUND * sizeof(*m->found), false, m->opts.stream, &found);
    if (rc == 0 && model_device_averages(m))
        rc = device_alloc_host(m->g, N_FOUND * sizeof(*m->found), &host);
    m->found = found;
    m->found_host = host;
    return rc;
}

void model_device_fini(struct ddp_model *m)
{
    device_free(m->g, m->found, m->opts.stream);
    device_free_host(m->g, m->found_host);
    device_free(m->g, m->clip_work, m->opts.stream);
    device_free_host(m->g, m->clip_norm);
}

/* --- buckets ---------------------------------------------------------------------------------- */

int model_clear(struct ddp_model *m, void *at, size_t bytes)
{
    if (model_is_on_device(m))
        return device_clear(m->g, at, bytes, m->opts.stream);
    memset(at, 0, bytes);
    return 0;
}

void model_device_scatter(struct ddp_model *m, struct bucket_set *set, size_t k)
{
    struct model_bucket *b = &set->at[k];
    b->n_pieces = 0;
    for (size_t i = 0; i < m->n_tensors; i++)
        if (set->plan.place[i].bucket == k && model_bytes_of(m, i) > 0)
            b->piece[b->n_pieces++] = (struct bucket_piece){
                .memory = m->grad[i], .end = m->grad[i] + model_bytes_of(m, i)};
}

/* One piece of memory of a bucket after the other: what NCCL is given. */
static void *memory_of(const struct model_bucket *b, size_t i)
{
    if (b->wire != NULL)
        return i == 0 ? b->wire : NULL;
    return i < b->n_pieces ? b->piece[i].memory : NULL;
}

/* The first failure of this rank; the caller, which gets it, deregisters what was registered. */
static int enlist_all(struct ddp_model *m, const struct bucket_set *set)
{
    struct co_error err = {0};
    const struct device_link *l = m->g->device;
    int code = 0;
    for (size_t k = 0; k < set->plan.n_buckets; k++)
        for (size_t i = 0; code == 0 && memory_of(&set->at[k], i) != NULL; i++)
            code = l->plugin->enlist(l->group, memory_of(&set->at[k], i), &err);
    return rt_return(code, &err);
}

static void delist_all(struct ddp_model *m, const struct bucket_set *set)
{
    const struct device_link *l = m->g->device;
    for (size_t k = 0; k < set->plan.n_buckets; k++)
        for (size_t i = 0; memory_of(&set->at[k], i) != NULL; i++)
            l->plugin->delist(l->group, memory_of(&set->at[k], i));
}

int model_device_enlist(struct ddp_model *m, const struct bucket_set *set)
{
    if (m->g->world_size == 1) {
        m->stats.unregistered = "the group has only one rank";
        return 0;
    }
    int own = enlist_all(m, set);
    snprintf(m->unregistered, sizeof(m->unregistered), "%s",
             own != 0 ? ddp_last_error() : "the memory of another rank cannot be registered");
    if (own != 0 && own != DDP_EUNSUPPORTED)
        return own;
    uint8_t all_ok = own == 0;
    int rc = ddp_all_reduce(m->g, &all_ok, &all_ok, 1, DDP_UINT8, DDP_BAND, NULL);
    if (rc == 0 && !all_ok)
        delist_all(m, set);
    m->stats.is_registered = rc == 0 && all_ok;
    m->stats.unregistered = m->stats.is_registered ? NULL : m->unregistered;
    return rc;
}

/* Fill in what all averages of a bucket have, and send it. */
static int send_bucket(struct ddp_model *m, const struct model_bucket *b, struct device_average a)
{
    const struct device_link *l = m->g->device;
    struct co_error err = {0};
    co_autofree struct device_piece *piece = calloc(b->n_pieces + 1, sizeof(*piece));
    if (piece == NULL)
        return rt_fail(DDP_ENOMEM, "out of memory");
    for (size_t i = 0; i < b->n_pieces; i++)
        piece[i] = (struct device_piece){.at = b->piece[i].memory,
                                         .count = (size_t)(b->piece[i].end - b->piece[i].memory) /
                                                  ddp_dtype_size(b->dtype)};
    a.piece = piece;
    a.n = b->n_pieces;
    a.dtype = b->dtype;
    a.wire = b->wire;
    a.wire_dtype = b->wire_dtype;
    a.found_inf = model_looks_for_nonfinite(m) ? m->found : NULL;
    a.stream = m->opts.stream;
    return rt_return(l->plugin->average(l->group, &a, &err), &err);
}

int model_device_send(struct ddp_model *m, const struct model_bucket *b, bool is_sum, double before,
                      double after)
{
    struct device_average a = {.is_sum = is_sum, .before = before, .after = after};
    if (m->g->world_size == 1) /* nothing is changed */
        a = (struct device_average){.before = 1, .after = 1};
    return b->n_pieces > 0 ? send_bucket(m, b, a) : 0;
}

int model_device_hook(struct ddp_model *m, const struct model_bucket *b,
                      bool (*call)(void *arg, void *stream), void *arg)
{
    return send_bucket(
        m, b, (struct device_average){.before = 1, .after = 1, .reduce = call, .arg = arg});
}

/* --- what is not finite ----------------------------------------------------------------------- */

/* Kernels report that there is something, not where: the host looks for that, by copies, since a
 * step that fails may take its time. *ret_at is t->count: there is nothing in this tensor. */
static int find_nonfinite(struct ddp_model *m, size_t i, size_t *ret_at)
{
    _Alignas(double) uint8_t chunk[16 << 10];
    const struct ddp_tensor *t = &m->tensors[i];
    const size_t size = ddp_dtype_size(t->dtype), most = sizeof(chunk) / size;
    const struct device_link *l = m->g->device;
    struct co_error err = {0};
    *ret_at = t->count;
    for (size_t at = 0; at < t->count; at += most) {
        const size_t n = t->count - at < most ? t->count - at : most;
        int code = l->plugin->copy_out(l->group, chunk, m->grad[i] + at * size, n * size, &err);
        const size_t bad = code == 0 ? convert_find_nonfinite(chunk, t->dtype, n) : n;
        if (code != 0)
            return rt_return(code, &err);
        if (bad == n)
            continue;
        *ret_at = at + bad;
        m->bad_value = convert_get(chunk, t->dtype, bad);
        return 0;
    }
    return 0;
}

static int hear_found(struct ddp_model *m)
{
    if (!model_looks_for_nonfinite(m))
        return 0;
    if (m->opts.check_finite && m->found_host[FOUND_OWN] != 0)
        m->own_bad = 0;
    if (m->found_host[FOUND_AVERAGED] == 0)
        return 0;
    if (m->opts.tell_nonfinite)
        m->bad = 0; /* the caller does not ask which */
    for (size_t i = 0; i < m->n_tensors && m->bad == MODEL_NONE; i++) {
        int rc = find_nonfinite(m, i, &m->bad_at);
        if (rc != 0)
            return rc;
        if (m->bad_at < m->tensors[i].count)
            m->bad = i;
    }
    return 0;
}

int model_device_wait(struct ddp_model *m)
{
    struct co_error err = {0};
    const struct device_link *l = m->g->device;
    int code = 0;
    if (!model_device_averages(m))
        return 0;
    if (model_looks_for_nonfinite(m))
        code = l->plugin->take_words(l->group, m->found, m->found_host, N_FOUND, &err);
    if (code == 0)
        code = l->plugin->wait_averages(l->group, 0, &err);
    model_device_arm_replay(m); /* the words have come without one */
    return code == 0 ? hear_found(m) : rt_return(code, &err);
}

/* --- in a graph ------------------------------------------------------------------------------- */

/* A model without gradients has sent no bucket: the stream of averages comes into the graph
 * here. */
int model_device_close_graph(struct ddp_model *m)
{
    struct co_error err = {0};
    const struct device_link *l = m->g->device;
    if (!model_device_averages(m))
        return 0;
    int code = l->plugin->fork_averages(l->group, m->opts.stream, &err);
    if (code == 0)
        code = l->plugin->take_words(l->group, m->found, m->found_host, N_FOUND, &err);
    if (code == 0)
        code = l->plugin->join_averages(l->group, m->opts.stream, &err);
    return rt_return(code, &err);
}

void model_device_arm_replay(struct ddp_model *m)
{
    if (m->found_host != NULL)
        m->found_host[FOUND_NOT_RUN] = 1;
}

int model_device_wait_replay(struct ddp_model *m)
{
    if (!model_device_averages(m))
        return 0;
    int rc = device_wait(m->g, m->opts.stream);
    if (rc != 0)
        return rc;
    const bool has_run = m->found_host[FOUND_NOT_RUN] == 0;
    model_device_arm_replay(m);
    if (has_run)
        return hear_found(m);
    return rt_fail(DDP_EINVAL, "ddp_model_replayed: no graph with a step of the model has run on "
                               "its stream since the last call: launch the graph first");
}

/* --- clipping --------------------------------------------------------------------------------- */

int model_device_clip(struct ddp_model *m, double max_norm, double *ret_norm)
{
    if (m->clip_work == NULL)
        return rt_fail(DDP_EUNSUPPORTED, "ddp_model_clip: %s", m->no_kernels);
    int rc = device_clip(m->g, &(struct device_clip){
                                   .tensor = m->tensors,
                                   .grad = m->grad,
                                   .n = m->n_tensors,
                                   .max_norm = max_norm,
                                   .work = m->clip_work,
                                   .ret_norm = ret_norm != NULL ? m->clip_norm : NULL,
                                   .stream = m->opts.stream,
                               });
    if (rc != 0 || ret_norm == NULL)
        return rc;
    rc = device_wait(m->g, m->opts.stream);
    if (rc == 0)
        *ret_norm = *m->clip_norm;
    return rc;
}
