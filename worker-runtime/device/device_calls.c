/* device_calls.c - what the runtime asks of the plug-in beside collectives: each call has a public
 * status. */
#include "device.h"

#include "common/error.h"
#include "device_link.h"
#include "device_load.h"
#include "worker-runtime/core/call_marker.h"

#include <errno.h>

struct use { /* of the process's device: loading it again is a look */
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err;
};

/* returns   0, -errno: this thread's last error stays */
static int find(const struct ddp_group *g, struct use *u)
{
    u->err = (struct co_error){0};
    return device_load(g->world->group.local_rank, &u->plugin, &u->device, &u->err);
}

static int load(const struct ddp_group *g, struct use *u)
{
    return rt_return(find(g, u), &u->err);
}

/* The group's own communicator, or another one of its world: each of them looks for all. NULL:
 * there is none, and nothing waits for a peer. */
static const struct device_link *any_link(const struct ddp_group *g)
{
    return g->device != NULL ? g->device : g->world->devices;
}

/* --- memory ----------------------------------------------------------------------------------- */

int device_check_memory(const struct ddp_group *g, const void *p, const char *which)
{
    struct use u;
    int rc = load(g, &u);
    return rc != DDP_OK ? rc
                        : rt_return(u.plugin->check_memory(u.device, p, which, &u.err), &u.err);
}

int device_alloc(const struct ddp_group *g, size_t bytes, bool for_nccl, void *stream, void **ret)
{
    struct use u;
    int rc = load(g, &u);
    return rc != DDP_OK
               ? rc
               : rt_return(u.plugin->alloc(u.device, bytes, for_nccl, stream, ret, &u.err), &u.err);
}

/* CUDA waits for all kernels where memory is freed, and knows nothing of peers that died: nobody's
 * kernel may wait for them by then. What cannot be freed, nor anything of a device that is lost,
 * stays. */
void device_free(struct ddp_group *g, void *at, void *stream)
{
    struct use u;
    if (at != NULL && find(g, &u) == 0 && device_end_waits(g, stream) &&
        u.plugin->check(u.device, &u.err) == 0)
        u.plugin->free(u.device, at);
}

int device_clear(const struct ddp_group *g, void *at, size_t bytes, void *stream)
{
    struct use u;
    int rc = load(g, &u);
    return rc != DDP_OK ? rc
                        : rt_return(u.plugin->clear(u.device, at, bytes, stream, &u.err), &u.err);
}

int device_alloc_host(const struct ddp_group *g, size_t bytes, void **ret)
{
    struct use u;
    int rc = load(g, &u);
    return rc != DDP_OK ? rc
                        : rt_return(u.plugin->alloc_host(u.device, bytes, ret, &u.err), &u.err);
}

void device_free_host(const struct ddp_group *g, void *at)
{
    struct use u;
    if (at != NULL && find(g, &u) == 0 && u.plugin->check(u.device, &u.err) == 0)
        u.plugin->free_host(u.device, at);
}

/* --- waits ------------------------------------------------------------------------------------ */

int device_look(struct ddp_group *g, void *stream, bool is_late, struct co_error *err)
{
    enum { AT_ONCE_MS = 1 };
    void *comm;
    const struct device_link *l = any_link(g);
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
    const struct device_link *l = any_link(g);
    if (l == NULL || (l->plugin->wait(l->group, stream, 0, &err) == 0 &&
                      l->plugin->wait_averages(l->group, 0, &err) == 0))
        return true;
    return l->plugin->drain(l->group, stream);
}

int device_wait(struct ddp_group *g, void *stream)
{
    struct use u;
    const struct device_link *l = any_link(g);
    const struct device_job job = device_job_of(g);
    int rc = load(g, &u);
    if (rc != DDP_OK)
        return rc;
    call_marker_wait_untold(g, 1);
    const int code = l != NULL
                         ? u.plugin->wait(l->group, stream, g->timeout_ms, &u.err)
                         : u.plugin->wait_alone(u.device, &job, stream, g->timeout_ms, &u.err);
    call_marker_wait_untold(g, -1);
    return rt_return(code, &u.err);
}

void device_tell_mismatch(struct ddp_group *g, const char *text)
{
    const struct device_job job = device_job_of(g);
    job.tell(job.arg, -EPROTO, text);
}

/* --- kernels: work on this rank's GPU that no other rank takes part in ------------------------ */

/* CUDA may wait for the whole device to load them, and knows nothing of peers that died. */
int device_load_kernels(struct ddp_group *g, void *stream)
{
    struct use u;
    int rc = load(g, &u);
    if (rc == DDP_OK && any_link(g) != NULL)
        rc = device_wait(g, stream);
    return rc != DDP_OK ? rc : rt_return(u.plugin->load_kernels(u.device, &u.err), &u.err);
}

int device_norm(const struct ddp_group *g, enum device_norm step, const struct device_layer *layer,
                void *stream)
{
    struct use u;
    int rc = load(g, &u);
    return rc != DDP_OK ? rc
                        : rt_return(u.plugin->norm(u.device, step, layer, stream, &u.err), &u.err);
}

int device_clip(const struct ddp_group *g, const struct device_clip *c)
{
    struct use u;
    int rc = load(g, &u);
    return rc != DDP_OK ? rc : rt_return(u.plugin->clip(u.device, c, &u.err), &u.err);
}

/* --- averages of gradients: of a group that has a communicator -------------------------------- */

int device_average(struct ddp_group *g, const struct device_average *a)
{
    struct co_error err = {0};
    const struct device_link *l = g->device;
    return rt_return(l->plugin->average(l->group, a, &err), &err);
}

int device_enlist(struct ddp_group *g, const void *at)
{
    struct co_error err = {0};
    return rt_return(g->device->plugin->enlist(g->device->group, at, &err), &err);
}

void device_delist(struct ddp_group *g, const void *at)
{
    g->device->plugin->delist(g->device->group, at);
}

int device_take_words(struct ddp_group *g, uint32_t *words, uint32_t *ret_words, size_t n)
{
    struct co_error err = {0};
    const struct device_link *l = g->device;
    return rt_return(l->plugin->take_words(l->group, words, ret_words, n, &err), &err);
}

int device_copy_out(struct ddp_group *g, void *to, const void *from, size_t bytes)
{
    struct co_error err = {0};
    const struct device_link *l = g->device;
    return rt_return(l->plugin->copy_out(l->group, to, from, bytes, &err), &err);
}

int device_wait_averages(struct ddp_group *g)
{
    struct co_error err = {0};
    const struct device_link *l = g->device;
    return rt_return(l->plugin->wait_averages(l->group, 0, &err), &err);
}

/* --- in a graph ------------------------------------------------------------------------------- */

int device_is_capturing(const struct ddp_group *g, void *stream, bool *ret)
{
    struct use u;
    int rc = load(g, &u);
    return rc != DDP_OK ? rc
                        : rt_return(u.plugin->is_capturing(u.device, stream, ret, &u.err), &u.err);
}

int device_fork_averages(struct ddp_group *g, void *stream)
{
    struct co_error err = {0};
    return rt_return(g->device->plugin->fork_averages(g->device->group, stream, &err), &err);
}

int device_join_averages(struct ddp_group *g, void *stream)
{
    struct co_error err = {0};
    return rt_return(g->device->plugin->join_averages(g->device->group, stream, &err), &err);
}
