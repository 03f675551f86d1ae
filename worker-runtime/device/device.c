#include "device.h"

#include "common/error.h"
#include "common/scope.h"
#include "device_link.h"
#include "device_load.h"
#include "device_plugin.h"
#include "worker-runtime/core/call_marker.h"
#include "worker-runtime/core/collective.h"

#include <ddp/collective.h>
#include <ddp/device.h>
#include <ddp/env.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct id_note { /* what a root says; travels between ranks */
    uint32_t ok;
    uint8_t id[DEVICE_ID_BYTES];
    char why[DEVICE_WHY_BYTES];
};

/* --- the job ---------------------------------------------------------------------------------- */

static int on_look(void *world, struct co_error *err)
{
    struct ddp_group *w = world;
    if (w->backend == NULL)
        return group_check_alone(w, err);
    return w->backend->ops->look(w->backend, err);
}

static bool on_tell(void *world, int code, const char *text)
{
    char named[CO_ERROR_TEXT_BYTES];
    struct ddp_group *w = world;
    snprintf(named, sizeof named, "rank %d: %s", w->rank, text);
    return w->backend == NULL || w->backend->ops->tell(w->backend, code, named);
}

static struct device_job job_of(const struct ddp_group *g)
{
    return (struct device_job){.arg = g->world, .look = on_look, .tell = on_tell};
}

void device_tell_mismatch(struct ddp_group *g, const char *text)
{
    on_tell(g->world, -EPROTO, text);
}

/* Only this rank knows of a failure that the others would wait for. */
static int fail_alone(struct ddp_group *g, const char *what)
{
    on_tell(g->world, -ECONNRESET, what);
    return rt_fail(DDP_ENOMEM, "%s", what);
}

/* --- making it -------------------------------------------------------------------------------- */

struct making {
    const struct device_plugin *plugin;
    struct device *device;
    struct device_plan plan;
    uint8_t *ids; /* owned; plan.n_roots of them */
    uint64_t tag;
};

static void fini(struct making *m)
{
    device_plan_fini(&m->plan);
    free(m->ids);
}

/* What this rank has. A communicator that was kept is the world's. */
static void fill_note(const struct ddp_group *g, struct making *m, struct device_note *note)
{
    struct co_error err = {0};
    *note = (struct device_note){0};
    int code = g->is_apart ? co_fail(&err, -ENOTSUP,
                                     "threads of a process share its GPU: ranks "
                                     "that use GPUs are processes")
                           : device_load(g->world->local_rank, &m->plugin, &m->device, &err);
    if (code == 0)
        code = m->plugin->check(m->device, &err);
    note->ok = code == 0;
    if (code == 0)
        m->plugin->describe(m->device, note);
    if (g->world != g)
        note->tag = 0;
    snprintf(note->why, sizeof note->why, "%s", err.text);
}

/* Tell all ranks, hear all ranks, and come to the plan that all of them come to. */
static int make_plan(struct ddp_group *g, struct making *m)
{
    const size_t n = (size_t)g->world_size;
    struct device_note own;
    co_autofree struct device_note *all = calloc(n, sizeof *all);
    if (all == NULL)
        return fail_alone(g, "no memory for what the ranks say of their GPUs");
    fill_note(g, m, &own);
    int rc = ddp_all_gather(g, &own, all, sizeof own, DDP_UINT8, NULL);
    if (rc != DDP_OK)
        return rc;
    if (device_plan_init(&m->plan, all, g->world_size) != 0)
        return fail_alone(g, "no memory for a communicator");
    m->tag = all[0].tag;
    if (m->plan.way != DEVICE_NOT)
        return DDP_OK;
    struct device_note *bad = &all[m->plan.bad];
    bad->why[sizeof bad->why - 1] = '\0';
    if (g->world_size == 1)
        return rt_fail(DDP_EUNSUPPORTED, "%s", bad->why);
    return rt_fail(DDP_EUNSUPPORTED, "rank %d has no GPU for this group: %s", m->plan.bad,
                   bad->why);
}

static bool is_root(const struct ddp_group *g, const struct device_plan *p)
{
    for (int k = 0; k < p->n_roots; k++)
        if (device_plan_root(k, g->world_size, p->n_roots) == g->rank)
            return true;
    return false;
}

static void make_own_id(struct ddp_group *g, struct making *m, struct id_note *note)
{
    struct co_error err = {0};
    *note = (struct id_note){0};
    if (!is_root(g, &m->plan))
        return;
    note->ok = m->plugin->make_id(m->device, note->id, &err) == 0;
    snprintf(note->why, sizeof note->why, "%s", err.text);
}

static int take_id(struct making *m, int k, int root, struct id_note *note)
{
    note->why[sizeof note->why - 1] = '\0';
    if (note->ok != 1)
        return rt_fail(DDP_EUNSUPPORTED, "rank %d cannot begin a communicator: %s", root,
                       note->why);
    memcpy(m->ids + (size_t)k * DEVICE_ID_BYTES, note->id, DEVICE_ID_BYTES);
    return DDP_OK;
}

/* Of many roots: each rank's note to each. */
static int gather_ids(struct ddp_group *g, struct making *m, const struct id_note *own)
{
    co_autofree struct id_note *all = calloc((size_t)g->world_size, sizeof *all);
    if (all == NULL)
        return fail_alone(g, "no memory for the ids of a communicator");
    int rc = ddp_all_gather(g, own, all, sizeof *own, DDP_UINT8, NULL);
    for (int k = 0; rc == DDP_OK && k < m->plan.n_roots; k++) {
        const int root = device_plan_root(k, g->world_size, m->plan.n_roots);
        rc = take_id(m, k, root, &all[root]);
    }
    return rc;
}

static int share_ids(struct ddp_group *g, struct making *m)
{
    struct id_note own;
    m->ids = calloc((size_t)m->plan.n_roots, DEVICE_ID_BYTES);
    if (m->ids == NULL)
        return fail_alone(g, "no memory for the ids of a communicator");
    make_own_id(g, m, &own);
    if (m->plan.n_roots > 1)
        return gather_ids(g, m, &own);
    int rc = ddp_broadcast_bytes(g, &own, sizeof own, 0);
    return rc == DDP_OK ? take_id(m, 0, 0, &own) : rc;
}

static int make(struct ddp_group *g, struct making *m, struct device_group **ret)
{
    struct co_error err = {0};
    const struct device_plan *p = &m->plan;
    const bool shrinks = p->way == DEVICE_SHRINK;
    const struct device_make how = {
        .way = p->way,
        .rank = g->rank,
        .n = g->world_size,
        .ids = m->ids,
        .n_ids = p->n_roots,
        .lost = p->lost,
        .n_lost = p->n_lost,
        .tag = shrinks ? device_plan_tag_shrunk(m->tag, p)
                       : device_plan_tag_new(m->ids, (size_t)p->n_roots * DEVICE_ID_BYTES),
        .may_be_kept = g->world == g && g->recovery != NULL,
        .timeout_ms = g->timeout_ms,
        .job = job_of(g)};
    return rt_return(m->plugin->make(m->device, &how, ret, &err), &err);
}

static int attach(struct ddp_group *g, const struct device_plugin *plugin,
                  struct device_group *group)
{
    struct device_link *link = malloc(sizeof *link);
    if (link == NULL) {
        plugin->close(group);
        return fail_alone(g, "no memory for a communicator");
    }
    *link = (struct device_link){.plugin = plugin, .group = group};
    g->device = link;
    return DDP_OK;
}

static int open_group(struct ddp_group *g)
{
    struct making m = {0};
    struct device_group *group = NULL;
    int rc = make_plan(g, &m);
    if (rc == DDP_OK && m.plan.way == DEVICE_NEW)
        rc = share_ids(g, &m);
    if (rc == DDP_OK)
        rc = make(g, &m, &group);
    if (rc == DDP_OK)
        rc = attach(g, m.plugin, group);
    fini(&m);
    return rc;
}

/* The group's, made now if this is the first call. */
static int get(struct ddp_group *g)
{
    return g->device != NULL ? DDP_OK : open_group(g);
}

/* The group's, for a call that not all ranks make: it cannot make one. */
static int get_made(const char *name, const struct ddp_group *g)
{
    if (g->device != NULL)
        return DDP_OK;
    return rt_fail(
        DDP_EINVAL,
        "%s: the group has no communicator yet: the first collective with a stream makes "
        "one, or ddp_nccl_comm()",
        name);
}

/* --- for the other files ---------------------------------------------------------------------- */

int device_run(struct ddp_group *g, const struct collective *what)
{
    int rc = get(g);
    if (rc != DDP_OK)
        return rc;
    struct co_error err;
    err.text[0] = '\0';
    const int code = g->device->plugin->run(g->device->group, what, &err);
    return code == 0 ? DDP_OK : rt_return(code, &err);
}

int device_message(const char *name, struct ddp_group *g, const struct message *m, void *stream)
{
    struct co_error err = {0};
    int rc = get_made(name, g);
    if (rc != DDP_OK)
        return rc;
    return rt_return(g->device->plugin->message(g->device->group, m, stream, &err), &err);
}

int device_open(struct ddp_group *g)
{
    return get(g);
}

/* The process's; loading it again is a look. */
int device_get(const struct ddp_group *g, const struct device_plugin **ret_plugin,
               struct device **ret)
{
    struct co_error err = {0};
    return rt_return(device_load(g->world->local_rank, ret_plugin, ret, &err), &err);
}

int device_check_memory(const struct ddp_group *g, const void *p, const char *which)
{
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err = {0};
    int rc = device_get(g, &plugin, &device);
    return rc != DDP_OK ? rc : rt_return(plugin->check_memory(device, p, which, &err), &err);
}

int device_alloc(const struct ddp_group *g, size_t bytes, bool for_nccl, void *stream, void **ret)
{
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err = {0};
    int rc = device_get(g, &plugin, &device);
    return rc != DDP_OK
               ? rc
               : rt_return(plugin->alloc(device, bytes, for_nccl, stream, ret, &err), &err);
}

int device_look(struct ddp_group *g, void *stream, bool is_late, struct co_error *err)
{
    enum { AT_ONCE_MS = 1 };
    void *comm;
    const struct device_link *l = group_any_device(g); /* which looks for all; NULL: none waits */
    if (l == NULL)
        return 0;
    return is_late ? l->plugin->wait(l->group, stream, AT_ONCE_MS, err)
                   : l->plugin->comm(l->group, &comm, err); /* which looks at the job first */
}

/* Of a broken group the waits return at once: its kernels were told to end, and do so on their
 * way. */
bool device_end_waits(struct ddp_group *g, void *stream)
{
    struct co_error err = {0};
    const struct device_link *l = group_any_device(g); /* which looks for all; NULL: none waits */
    if (l == NULL || (l->plugin->wait(l->group, stream, 0, &err) == 0 &&
                      l->plugin->wait_averages(l->group, 0, &err) == 0))
        return true;
    return l->plugin->drain(l->group, stream);
}

int device_wait(struct ddp_group *g, void *stream)
{
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err = {0};
    const struct device_link *l = group_any_device(g); /* which looks for all; NULL: none waits */
    const struct device_job job = job_of(g);
    int rc = device_get(g, &plugin, &device);
    if (rc != DDP_OK)
        return rc;
    call_marker_wait_untold(g, 1);
    const int code = l != NULL ? plugin->wait(l->group, stream, g->timeout_ms, &err)
                               : plugin->wait_alone(device, &job, stream, g->timeout_ms, &err);
    call_marker_wait_untold(g, -1);
    return rt_return(code, &err);
}

/* CUDA waits for all kernels where memory is freed, and knows nothing of peers that died: nobody's
 * kernel may wait for them by then. What cannot be freed, nor anything of a device that is lost,
 * stays. */
void device_free(struct ddp_group *g, void *at, void *stream)
{
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err = {0};
    if (at == NULL || device_load(g->world->local_rank, &plugin, &device, &err) != 0)
        return;
    if (device_end_waits(g, stream) && plugin->check(device, &err) == 0)
        plugin->free(device, at);
}

int device_clear(const struct ddp_group *g, void *at, size_t bytes, void *stream)
{
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err = {0};
    int rc = device_get(g, &plugin, &device);
    return rc != DDP_OK ? rc : rt_return(plugin->clear(device, at, bytes, stream, &err), &err);
}

int device_alloc_host(const struct ddp_group *g, size_t bytes, void **ret)
{
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err = {0};
    int rc = device_get(g, &plugin, &device);
    return rc != DDP_OK ? rc : rt_return(plugin->alloc_host(device, bytes, ret, &err), &err);
}

void device_free_host(const struct ddp_group *g, void *at)
{
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err = {0};
    if (at != NULL && device_load(g->world->local_rank, &plugin, &device, &err) == 0 &&
        plugin->check(device, &err) == 0)
        plugin->free_host(device, at);
}

int device_split(struct ddp_group *g, int color, int key, struct ddp_group *sub)
{
    struct co_error err = {0};
    struct device_group *group = NULL;
    if (g->device == NULL)
        return DDP_OK; /* each of the new ones makes its own, should it need one */
    const struct device_plugin *plugin = g->device->plugin;
    const struct device_make how = {.rank = sub != NULL ? sub->rank : 0,
                                    .n = sub != NULL ? sub->world_size : 0,
                                    .timeout_ms = g->timeout_ms,
                                    .job = job_of(g)};
    int code = plugin->split(g->device->group, sub != NULL ? color : -1, key, &how, &group, &err);
    if (code != 0)
        return rt_return(code, &err);
    return sub != NULL ? attach(sub, plugin, group) : DDP_OK;
}

int device_begin(struct ddp_group *world)
{
    const char *backend = getenv(DDP_ENV_BACKEND);
    return backend != NULL && strcmp(backend, "nccl") == 0 ? get(world) : DDP_OK;
}

void device_close(struct ddp_group *g)
{
    struct device_link *link = g->device;
    if (link == NULL)
        return;
    g->device = NULL;
    link->plugin->close(link->group);
    free(link);
}

int device_check(void)
{
    struct co_error err = {0};
    return rt_return(device_load_check(&err), &err);
}

/* --- public ----------------------------------------------------------------------------------- */

int ddp_stream_wait(struct ddp_group *g, void *stream, uint64_t timeout_ms)
{
    struct co_error err = {0};
    int rc = collective_check_group("ddp_stream_wait", g);
    if (rc == DDP_OK)
        rc = get_made("ddp_stream_wait", g);
    if (rc != DDP_OK)
        return rc;
    call_marker_wait_untold(g, 1);
    const int code = g->device->plugin->wait(g->device->group, stream, timeout_ms, &err);
    call_marker_wait_untold(g, -1);
    return rt_return(code, &err);
}

int ddp_nccl_comm(struct ddp_group *g, void **ret_comm)
{
    struct co_error err = {0};
    int rc = collective_check_group("ddp_nccl_comm", g);
    if (rc == DDP_OK && ret_comm == NULL)
        rc = rt_fail(DDP_EINVAL, "ddp_nccl_comm: ret_comm is NULL");
    if (rc == DDP_OK)
        rc = get(g);
    if (rc != DDP_OK)
        return rc;
    return rt_return(g->device->plugin->comm(g->device->group, ret_comm, &err), &err);
}

int ddp_device(struct ddp_group *g, int *ret_index)
{
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err = {0};
    int rc = collective_check_group("ddp_device", g);
    if (rc == DDP_OK && ret_index == NULL)
        rc = rt_fail(DDP_EINVAL, "ddp_device: ret_index is NULL");
    if (rc != DDP_OK)
        return rc;
    int code = device_load(g->world->local_rank, &plugin, &device, &err);
    if (code == 0)
        code = plugin->use(device, ret_index, &err);
    return rt_return(code, &err);
}
