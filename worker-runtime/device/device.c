/* device.c - the communicator of a group, and the calls that go through it.
 *
 * The first call with a stream makes the communicator, device_open(): make_plan() gathers what each
 * rank has, from which all ranks derive the same plan; share_ids() distributes the ids of the
 * roots; make_group() calls the plug-in; attach_group() adds the result to those of the world.
 * run_collective() and run_message() put calls into the order of a stream. Read device_open()
 * first. */
#include "device.h"

#include "common/error.h"
#include "common/scope.h"
#include "device_link.h"
#include "worker-runtime/core/call_marker.h"

#include <ddp/collective.h>
#include <ddp/device.h>
#include <ddp/env.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct id_note { /* ids of a root; travels between ranks */
    uint32_t ok;
    uint8_t id[DEVICE_ID_BYTES];
    char why[DEVICE_WHY_BYTES];
};

/* Only this rank knows of a failure that the others would wait for. */
static int fail_alone(struct ddp_group *g, const char *what)
{
    const struct device_job job = device_job_of(g);
    job.tell(job.arg, -ECONNRESET, what);
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

/* What this rank has. A communicator that was kept is the world's. */
static void fill_note(const struct ddp_group *g, struct making *m, struct device_note *note)
{
    struct co_error err = {0};
    *note = (struct device_note){0};
    note->ok = device_take(g, &m->plugin, &m->device, &err) == 0;
    if (note->ok)
        m->plugin->describe(m->device, note);
    if (!group_is_world(g))
        note->tag = 0;
    snprintf(note->why, sizeof note->why, "%s", err.text);
}

/* Exchange notes with all ranks, and derive the plan that all of them derive. */
static int make_plan(struct ddp_group *g, struct making *m)
{
    const size_t n = (size_t)g->world_size;
    struct device_note own;
    co_autofree struct device_note *all = calloc(n, sizeof *all);
    if (all == NULL)
        return fail_alone(g, "out of memory");
    fill_note(g, m, &own);
    int rc = ddp_all_gather(g, &own, all, sizeof own, DDP_UINT8, NULL);
    if (rc != DDP_OK)
        return rc;
    if (device_plan_init(&m->plan, all, g->world_size) != 0)
        return fail_alone(g, "out of memory");
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

static void make_own_id(struct ddp_group *g, struct making *m, struct id_note *note)
{
    struct co_error err = {0};
    *note = (struct id_note){0};
    for (int k = 0; k < m->plan.n_roots; k++)
        if (device_plan_root(k, g->world_size, m->plan.n_roots) == g->rank) {
            note->ok = m->plugin->make_id(m->device, note->id, &err) == 0;
            snprintf(note->why, sizeof note->why, "%s", err.text);
            return;
        }
}

static int take_id(struct making *m, int k, int root, struct id_note *note)
{
    note->why[sizeof note->why - 1] = '\0';
    if (note->ok != 1)
        return rt_fail(DDP_EUNSUPPORTED, "rank %d cannot create a communicator: %s", root,
                       note->why);
    memcpy(m->ids + (size_t)k * DEVICE_ID_BYTES, note->id, DEVICE_ID_BYTES);
    return DDP_OK;
}

/* Of many roots: each rank's note to each. */
static int gather_ids(struct ddp_group *g, struct making *m, const struct id_note *own)
{
    co_autofree struct id_note *all = calloc((size_t)g->world_size, sizeof *all);
    if (all == NULL)
        return fail_alone(g, "out of memory");
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
        return fail_alone(g, "out of memory");
    make_own_id(g, m, &own);
    if (m->plan.n_roots > 1)
        return gather_ids(g, m, &own);
    int rc = ddp_broadcast_bytes(g, &own, sizeof own, 0);
    return rc == DDP_OK ? take_id(m, 0, 0, &own) : rc;
}

static int make_group(struct ddp_group *g, struct making *m, struct device_group **ret)
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
        .may_be_kept = group_is_world(g) && g->world->recovery != NULL,
        .timeout_ms = g->timeout_ms,
        .job = device_job_of(g)};
    return rt_return(m->plugin->make(m->device, &how, ret, &err), &err);
}

static int attach_group(struct ddp_group *g, const struct device_plugin *plugin,
                        struct device_group *group)
{
    struct device_link *link = malloc(sizeof *link);
    if (link == NULL) {
        plugin->close(group);
        return fail_alone(g, "out of memory");
    }
    *link = (struct device_link){.plugin = plugin, .group = group, .next = g->world->devices};
    g->device = g->world->devices = link;
    return DDP_OK;
}

int device_open(struct ddp_group *g)
{
    struct making m = {0};
    struct device_group *group = NULL;
    if (g->device != NULL)
        return DDP_OK;
    int rc = make_plan(g, &m);
    if (rc == DDP_OK && m.plan.way == DEVICE_NEW)
        rc = share_ids(g, &m);
    if (rc == DDP_OK)
        rc = make_group(g, &m, &group);
    if (rc == DDP_OK)
        rc = attach_group(g, m.plugin, group);
    device_plan_fini(&m.plan);
    free(m.ids);
    return rc;
}

/* The group's, for a call that not all ranks make: it cannot make one. */
static int get_made(const char *name, const struct ddp_group *g)
{
    if (g->device != NULL)
        return DDP_OK;
    return rt_fail(DDP_EINVAL,
                   "%s: the group has no communicator yet: call a collective with a stream or "
                   "ddp_nccl_comm() first",
                   name);
}

/* --- calls with a stream ---------------------------------------------------------------------- */

static int run_collective(struct ddp_group *g, const struct collective *what)
{
    int rc = device_open(g);
    if (rc != DDP_OK)
        return rc;
    struct co_error err;
    err.text[0] = '\0';
    const int code = g->device->plugin->run(g->device->group, what, &err);
    return code == 0 ? DDP_OK : rt_return(code, &err);
}

static int run_message(const char *name, struct ddp_group *g, const struct message *m, void *stream)
{
    struct co_error err = {0};
    int rc = get_made(name, g);
    if (rc != DDP_OK)
        return rc;
    return rt_return(g->device->plugin->message(g->device->group, m, stream, &err), &err);
}

const struct stream_ops device_stream_ops = {.run = run_collective, .message = run_message};

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
                                    .job = device_job_of(g)};
    int code = plugin->split(g->device->group, sub != NULL ? color : -1, key, &how, &group, &err);
    if (code != 0)
        return rt_return(code, &err);
    return sub != NULL ? attach_group(sub, plugin, group) : DDP_OK;
}

int device_begin(struct ddp_group *world)
{
    const char *backend = getenv(DDP_ENV_BACKEND);
    return backend != NULL && strcmp(backend, "nccl") == 0 ? device_open(world) : DDP_OK;
}

void device_close(struct ddp_group *g)
{
    struct device_link *link = g->device;
    if (link == NULL)
        return;
    struct device_link **at = &g->world->devices;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    g->device = NULL;
    link->plugin->close(link->group);
    free(link);
}

/* --- public ----------------------------------------------------------------------------------- */

int ddp_stream_wait(struct ddp_group *g, void *stream, uint64_t timeout_ms)
{
    struct co_error err = {0};
    int rc = group_check("ddp_stream_wait", g);
    if (rc == DDP_OK)
        rc = get_made("ddp_stream_wait", g);
    if (rc != DDP_OK)
        return rc;
    call_marker_wait_unplaced(g, 1);
    const int code = g->device->plugin->wait(g->device->group, stream, timeout_ms, &err);
    call_marker_wait_unplaced(g, -1);
    return rt_return(code, &err);
}

int ddp_nccl_comm(struct ddp_group *g, void **ret_comm)
{
    struct co_error err = {0};
    int rc = group_check("ddp_nccl_comm", g);
    if (rc == DDP_OK && ret_comm == NULL)
        rc = rt_fail(DDP_EINVAL, "ddp_nccl_comm: ret_comm is NULL");
    if (rc == DDP_OK)
        rc = device_open(g);
    if (rc != DDP_OK)
        return rc;
    return rt_return(g->device->plugin->comm(g->device->group, ret_comm, &err), &err);
}

int ddp_device(struct ddp_group *g, int *ret_index)
{
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err = {0};
    int rc = group_check("ddp_device", g);
    if (rc == DDP_OK && ret_index == NULL)
        rc = rt_fail(DDP_EINVAL, "ddp_device: ret_index is NULL");
    if (rc != DDP_OK)
        return rc;
    int code = device_load(g, &plugin, &device, &err);
    if (code == 0)
        code = plugin->use(device, ret_index, &err);
    return rt_return(code, &err);
}
