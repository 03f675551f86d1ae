#include "gpu_rank.h"

#include "common/error.h"

#include <dlfcn.h>
#include <stdlib.h>

void rank_fail(const char *what, const char *why)
{
    fprintf(stderr, "gpu_kernels: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

void *rank_host_memory(size_t bytes)
{
    void *at = calloc(1, bytes);
    if (at == NULL)
        rank_fail("memory", "there is none");
    return at;
}

void *rank_gpu_memory(size_t bytes)
{
    void *at;
    check_cuda(cudaMalloc(&at, bytes), "memory");
    return at;
}

/* --- the plug-in ------------------------------------------------------------------------------ */

static int on_look(void *arg, struct co_error *err)
{
    (void)arg, (void)err;
    return 0;
}

static bool on_tell(void *arg, int code, const char *text)
{
    (void)arg, (void)code, (void)text;
    return true;
}

static void must(int code, const char *what, const struct co_error *err)
{
    if (code != 0)
        rank_fail(what, err->text);
}

void rank_open(struct rank *r)
{
    static struct device *device; /* for the life of the process, as in libddp */
    struct co_error err;
    uint8_t id[DEVICE_ID_BYTES];
    const struct device_opts opts = {.abort_timeout_ms = 30000};
    void *library = dlopen(DEVICE_PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        rank_fail(DEVICE_PLUGIN_FILE, dlerror());
    r->plugin = dlsym(library, DEVICE_PLUGIN_SYMBOL);
    if (r->plugin == NULL || r->plugin->abi != DEVICE_PLUGIN_ABI)
        rank_fail(DEVICE_PLUGIN_FILE, "it is of another build");
    must(r->plugin->open(&opts, &device, &err), "a GPU", &err);
    r->device = device;
    must(r->plugin->load_kernels(r->device, 60000, &err), "kernels", &err);
    must(r->plugin->make_id(r->device, id, &err), "an id", &err);
    const struct device_make how = {.way = DEVICE_NEW,
                                    .n = 1,
                                    .ids = id,
                                    .n_ids = 1,
                                    .timeout_ms = 60000,
                                    .job = {.look = on_look, .tell = on_tell}};
    must(r->plugin->make(r->device, &how, &r->group, &err), "a communicator", &err);
    check_cuda(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), "a stream");
}

void rank_close(struct rank *r)
{
    r->plugin->close(r->group);
    check_cuda(cudaStreamDestroy(r->stream), "a stream");
}

void rank_average(struct rank *r, const struct device_average *a)
{
    struct co_error err;
    must(r->plugin->average(r->group, a, &err), "an average", &err);
}

void rank_wait(struct rank *r)
{
    struct co_error err;
    must(r->plugin->wait_averages(r->group, 0, &err), "averages", &err);
}
