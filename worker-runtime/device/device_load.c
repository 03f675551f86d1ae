#include "device_load.h"

#include "common/error.h"
#include "common/parse.h"
#include "device_plugin.h"

#include <ddp/env.h>
#include <ddp/group.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ABORT_TIMEOUT_MS = 30 * 1000 };

static struct {
    pthread_mutex_t mutex;
    const struct device_plugin *plugin;
    struct device *device;
} process = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Beside libddp.so, where both were installed; else as any library. */
static void *open_library(struct co_error *err)
{
    Dl_info self;
    char path[PATH_MAX] = DEVICE_PLUGIN_FILE;
    const char *hint = "LD_LIBRARY_PATH says where libnccl and libcudart are";
    if (dladdr((void *)&process, &self) != 0 && strchr(self.dli_fname, '/') != NULL) {
        const int dir = (int)(strrchr(self.dli_fname, '/') - self.dli_fname);
        snprintf(path, sizeof path, "%.*s/" DEVICE_PLUGIN_FILE, dir, self.dli_fname);
        if (access(path, F_OK) < 0) { /* else what is wrong with it is the thing to tell */
            snprintf(path, sizeof path, "%s", DEVICE_PLUGIN_FILE);
            hint = "-Dnccl=enabled builds it, to be beside libddp.so";
        }
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        co_fail(err, -ENOTSUP, "%s cannot be loaded, which collectives with a stream need: %s; %s",
                DEVICE_PLUGIN_FILE, dlerror(), hint);
    return library;
}

static int load(struct co_error *err)
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
                       "%s is of another version than libddp: install both from the same build",
                       DEVICE_PLUGIN_FILE);
    }
    process.plugin = p; /* never unloaded: CUDA has threads */
    return 0;
}

static int check_wanted(struct co_error *err)
{
    const char *backend = getenv(DDP_ENV_BACKEND);
    if (backend == NULL || backend[0] == '\0' || strcmp(backend, "nccl") == 0)
        return 0;
    if (strcmp(backend, "cpu") == 0)
        return co_fail(err, -ENOTSUP, "%s=cpu: there are no collectives with a stream",
                       DDP_ENV_BACKEND);
    return co_fail(err, -ENOEXEC, "%s '%.100s' is neither cpu nor nccl", DDP_ENV_BACKEND, backend);
}

static int read_abort_timeout(uint64_t *ret_ms, struct co_error *err)
{
    const char *text = getenv(DDP_ENV_NCCL_ABORT_TIMEOUT);
    *ret_ms = ABORT_TIMEOUT_MS;
    if (text == NULL || text[0] == '\0')
        return 0;
    return co_parse_duration_ms(DDP_ENV_NCCL_ABORT_TIMEOUT, text, ret_ms, err) == 0 ? 0 : -ENOEXEC;
}

static int open_device(int local_rank, struct co_error *err)
{
    struct device_opts opts = {.local_rank = local_rank};
    int code = check_wanted(err);
    if (code == 0)
        code = read_abort_timeout(&opts.abort_timeout_ms, err);
    if (code == 0)
        code = load(err);
    if (code == 0 && process.device == NULL)
        code = process.plugin->open(&opts, &process.device, err);
    return code;
}

int device_load(int local_rank, const struct device_plugin **ret_plugin, struct device **ret,
                struct co_error *err)
{
    pthread_mutex_lock(&process.mutex);
    int code = open_device(local_rank, err);
    if (code == 0) {
        *ret_plugin = process.plugin;
        *ret = process.device;
    }
    pthread_mutex_unlock(&process.mutex);
    return code;
}

int device_load_check(struct co_error *err)
{
    pthread_mutex_lock(&process.mutex);
    int code = process.device != NULL ? process.plugin->check(process.device, err) : 0;
    pthread_mutex_unlock(&process.mutex);
    return code;
}
