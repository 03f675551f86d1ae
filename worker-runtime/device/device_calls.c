/* device_calls.c - the plug-in for devices, found and loaded at most once in a process, and what
 * the runtime needs from it in addition to collectives: each of these calls has a public status.
 *
 * device_load() finds the plug-in and opens the device; use_device() does so for each call, which
 * costs nothing if both are loaded already. */
#include "device.h"

#include "common/error.h"
#include "common/parse.h"
#include "device_link.h"
#include "worker-runtime/core/call_marker.h"
#include "worker-runtime/core/env_value.h"
#include "worker-runtime/core/process.h"

#include <ddp/env.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the plug-in ------------------------------------------------------------------------------ */

enum { ABORT_TIMEOUT_MS = 30 * 1000 };

static struct {
    pthread_mutex_t mutex;
    const struct device_plugin *plugin;
    struct device *device;
} process = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* In the directory of libddp.so, if both were installed; else as any library. */
static void *open_library(struct co_error *err)
{
    Dl_info self;
    char path[PATH_MAX] = DEVICE_PLUGIN_FILE;
    const char *hint = "set LD_LIBRARY_PATH to the directories of libnccl and libcudart";
    if (dladdr((void *)&process, &self) != 0 && strchr(self.dli_fname, '/') != NULL) {
        const int dir = (int)(strrchr(self.dli_fname, '/') - self.dli_fname);
        snprintf(path, sizeof path, "%.*s/" DEVICE_PLUGIN_FILE, dir, self.dli_fname);
        if (access(path, F_OK) < 0) { /* else the library is there, and its error is the one to
                                         report */
            snprintf(path, sizeof path, "%s", DEVICE_PLUGIN_FILE);
            hint = "build it with -Dnccl=enabled and install it next to libddp.so";
        }
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        co_fail(err, -ENOTSUP, "cannot load %s, which collectives with a stream need: %s; %s",
                DEVICE_PLUGIN_FILE, dlerror(), hint);
    return library;
}

static int load_plugin(struct co_error *err)
{
    if (process.plugin != NULL)
        return 0;
    void *library = open_library(err);
    if (library == NULL)
        return -ENOTSUP;
    const struct device_plugin *p = dlsym(library, DEVICE_PLUGIN_SYMBOL);
    if (p == NULL || p->abi != DEVICE_PLUGIN_ABI || p->size != sizeof *p) {
        dlclose(library);
        return co_fail(err, -ENOTSUP,
                       "%s and libddp have different versions: use both from the same build",
                       DEVICE_PLUGIN_FILE);
    }
    process.plugin = p; /* never unloaded: CUDA has threads */
    return 0;
}

static int check_wanted(struct co_error *err)
{
    const char *backend = getenv(DDP_ENV_BACKEND);
    if (backend != NULL && strcmp(backend, "cpu") == 0)
        return co_fail(err, -ENOTSUP,
                       "%s=cpu disables collectives with a stream: unset it to use the GPU",
                       DDP_ENV_BACKEND);
    return env_value_check(DDP_ENV_BACKEND, backend, err);
}

static int read_abort_timeout(uint64_t *ret_ms, struct co_error *err)
{
    const char *text = getenv(DDP_ENV_NCCL_ABORT_TIMEOUT);
    *ret_ms = ABORT_TIMEOUT_MS;
    int code = env_value_check(DDP_ENV_NCCL_ABORT_TIMEOUT, text, err);
    if (code == 0 && text != NULL && text[0] != '\0')
        co_parse_duration_ms(DDP_ENV_NCCL_ABORT_TIMEOUT, text, ret_ms, NULL);
    return code;
}

static int open_device(int local_rank, struct co_error *err)
{
    struct device_opts opts = {.local_rank = local_rank};
    int code = check_wanted(err);
    if (code == 0)
        code = read_abort_timeout(&opts.abort_timeout_ms, err);
    if (code == 0)
        code = load_plugin(err);
    if (code == 0 && process.device == NULL)
        code = process.plugin->open(&opts, &process.device, err);
    return code;
}

int device_load(const struct ddp_group *g, const struct device_plugin **ret_plugin,
                struct device **ret, struct co_error *err)
{
    pthread_mutex_lock(&process.mutex);
    int code = open_device(g->world->group.local_rank, err);
    if (code == 0) {
        *ret_plugin = process.plugin;
        *ret = process.device;
    }
    pthread_mutex_unlock(&process.mutex);
    return code;
}

/* Of a group on several nodes whose other connections are encrypted. */
static int encrypt_device(const struct ddp_group *g, const struct device_plugin *plugin,
                          struct device *d, struct co_error *err)
{
    char key[PROCESS_LIBRARY_KEY_BYTES];
    if (g->world->group.n_nodes == 1)
        return 0;
    process_get_library_key(key);
    return key[0] != '\0' ? plugin->encrypt(d, key, err) : 0;
}

int device_take(const struct ddp_group *g, const struct device_plugin **ret_plugin,
                struct device **ret, struct co_error *err)
{
    if (g->is_apart)
        return co_fail(err, -ENOTSUP,
                       "ranks that are threads cannot use collectives with a stream: use "
                       "ddp_spawn() or ddprun");
    int code = device_load(g, ret_plugin, ret, err);
    if (code == 0)
        code = (*ret_plugin)->check(*ret, err);
    return code == 0 ? encrypt_device(g, *ret_plugin, *ret, err) : code;
}

int device_check(void)
{
    struct co_error err = {0};
    pthread_mutex_lock(&process.mutex);
    int code = process.device != NULL ? process.plugin->check(process.device, &err) : 0;
    pthread_mutex_unlock(&process.mutex);
    return rt_return(code, &err);
}

/* --- the job ---------------------------------------------------------------------------------- */

static int on_look(void *world, struct co_error *err)
{
    const struct ddp_group *g = &((struct world *)world)->group;
    return g->backend != NULL ? g->backend->ops->look(g->backend, err) : group_check_alone(g, err);
}

static bool on_tell(void *world, int code, const char *text)
{
    char named[CO_ERROR_TEXT_BYTES];
    const struct ddp_group *g = &((struct world *)world)->group;
    snprintf(named, sizeof named, "rank %d: %s", g->rank, text);
    return g->backend == NULL || g->backend->ops->tell(g->backend, code, named);
}

struct device_job device_job_of(const struct ddp_group *g)
{
    return (struct device_job){.arg = g->world, .look = on_look, .tell = on_tell};
}

/* --- calls ------------------------------------------------------------------------------------ */

struct use { /* of the process's device */
    const struct device_plugin *plugin;
    struct device *device;
    struct co_error err;
};

/* returns   0, -errno: this thread's last error stays */
static int use_device(const struct ddp_group *g, struct use *u)
{
    u->err = (struct co_error){0};
    return device_load(g, &u->plugin, &u->device, &u->err);
}

/* The group's own communicator, or another one of its world: each of them checks all. NULL: none,
 * and nothing waits for a peer. */
static const struct device_link *any_link(const struct ddp_group *g)
{
    return g->device != NULL ? g->device : g->world->devices;
}

/* --- memory ----------------------------------------------------------------------------------- */

int device_check_memory(const struct ddp_group *g, const void *p, const char *which)
{
    struct use u;
    const int code = use_device(g, &u);
    return rt_return(code != 0 ? code : u.plugin->check_memory(u.device, p, which, &u.err), &u.err);
}

int device_alloc(const struct ddp_group *g, size_t bytes, bool for_nccl, void *stream, void **ret)
{
    struct use u;
    const int code = use_device(g, &u);
    return rt_return(
        code != 0 ? code : u.plugin->alloc(u.device, bytes, for_nccl, stream, ret, &u.err), &u.err);
}

/* CUDA waits for all kernels when memory is freed, and does not know of peers that died: no kernel
 * may wait for them by then. What cannot be freed, and everything of a device that is lost,
 * stays. */
void device_free(struct ddp_group *g, void *at, void *stream)
{
    struct use u;
    if (at != NULL && use_device(g, &u) == 0 && device_end_waits(g, stream) &&
        u.plugin->check(u.device, &u.err) == 0)
        u.plugin->free(u.device, at);
}

int device_clear(const struct ddp_group *g, void *at, size_t bytes, void *stream)
{
    struct use u;
    const int code = use_device(g, &u);
    return rt_return(code != 0 ? code : u.plugin->clear(u.device, at, bytes, stream, &u.err),
                     &u.err);
}

int device_alloc_host(const struct ddp_group *g, size_t bytes, void **ret)
{
    struct use u;
    const int code = use_device(g, &u);
    return rt_return(code != 0 ? code : u.plugin->alloc_host(u.device, bytes, ret, &u.err), &u.err);
}

void device_free_host(const struct ddp_group *g, void *at)
{
    struct use u;
    if (at != NULL && use_device(g, &u) == 0 && u.plugin->check(u.device, &u.err) == 0)
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

/* In a broken group the waits return at once: its kernels were made to end, and will. */
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
    int code = use_device(g, &u);
    if (code != 0)
        return rt_return(code, &u.err);
    call_marker_wait_unplaced(g, 1);
    code = l != NULL ? u.plugin->wait(l->group, stream, g->timeout_ms, &u.err)
                     : u.plugin->wait_alone(u.device, &job, stream, g->timeout_ms, &u.err);
    call_marker_wait_unplaced(g, -1);
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
    int rc = rt_return(use_device(g, &u), &u.err);
    if (rc == DDP_OK && any_link(g) != NULL)
        rc = device_wait(g, stream);
    if (rc != DDP_OK)
        return rc;
    const int code = u.plugin->load_kernels(u.device, g->timeout_ms, &u.err);
    if (code == -ETIMEDOUT) { /* the others wait for this rank */
        const struct device_job job = device_job_of(g);
        job.tell(job.arg, code, u.err.text);
    }
    return rt_return(code, &u.err);
}

int device_norm(const struct ddp_group *g, enum device_norm step, const struct device_layer *layer,
                void *stream)
{
    struct use u;
    const int code = use_device(g, &u);
    return rt_return(code != 0 ? code : u.plugin->norm(u.device, step, layer, stream, &u.err),
                     &u.err);
}

int device_clip(const struct ddp_group *g, const struct device_clip *c)
{
    struct use u;
    const int code = use_device(g, &u);
    return rt_return(code != 0 ? code : u.plugin->clip(u.device, c, &u.err), &u.err);
}

int device_is_capturing(const struct ddp_group *g, void *stream, bool *ret)
{
    struct use u;
    const int code = use_device(g, &u);
    return rt_return(code != 0 ? code : u.plugin->is_capturing(u.device, stream, ret, &u.err),
                     &u.err);
}
