/* plugin.c - the table that libddp loads; device_plugin.h has the contract of each function.
 *
 * A collective on a stream is call_run() (call.c), an average of gradients average_run()
 * (average.c), a wait wait_stream() (wait.c): read these first. A failure goes to device_break()
 * (device.c). */
#include "device.h"

#include <errno.h>
#include <string.h>

static void plugin_describe(struct device *d, struct device_note *ret)
{
    ret->can_scale = d->newer.ncclCommInitRankScalable != NULL;
    pthread_mutex_lock(&d->mutex);
    const struct device_group *kept = d->kept;
    if (kept != NULL && kept->life.state == COMM_REVOKED) {
        ret->tag = kept->tag;
        ret->rank = kept->rank;
        ret->n = kept->n;
    }
    pthread_mutex_unlock(&d->mutex);
}

static int make_id(struct device *d, uint8_t id[DEVICE_ID_BYTES], struct co_error *err)
{
    ncclUniqueId made;
    pthread_mutex_lock(&d->mutex);
    d->has_made = true;
    pthread_mutex_unlock(&d->mutex);
    _Static_assert(sizeof made == DEVICE_ID_BYTES, "an id travels in DEVICE_ID_BYTES");
    const ncclResult_t result = ncclGetUniqueId(&made);
    if (result != ncclSuccess)
        return nccl_map_nccl_failed("ncclGetUniqueId", result, NULL, err);
    memcpy(id, &made, sizeof made);
    return 0;
}

static int gpu_use(struct device *d, int *ret_index, struct co_error *err)
{
    const int code = nccl_map_cuda("cudaSetDevice", cudaSetDevice(d->index), err);
    if (code == 0)
        *ret_index = d->index;
    return code;
}

/* returns cudaError_t */
static int load_by_thread(const void *arg)
{
    struct device *d = *(struct device *const *)arg;
    struct kernels loaded;
    const cudaError_t result = kernels_load(&loaded);
    if (result != cudaSuccess)
        return (int)result;
    pthread_mutex_lock(&d->mutex);
    const bool is_first = d->kernels.library == NULL;
    if (is_first)
        d->kernels = loaded;
    pthread_mutex_unlock(&d->mutex);
    if (!is_first)
        cudaLibraryUnload(loaded.library);
    return cudaSuccess;
}

/* Without the mutex: what ends the kernels that the driver waits for takes it. */
static int load_kernels(struct device *d, uint64_t timeout_ms, struct co_error *err)
{
    int index, result = cudaSuccess;
    int code = gpu_use(d, &index, err);
    pthread_mutex_lock(&d->mutex);
    const bool is_loaded = d->kernels.library != NULL;
    pthread_mutex_unlock(&d->mutex);
    if (code != 0 || is_loaded)
        return code;
    code = helper_call_run(d->index, load_by_thread, &d, sizeof d, timeout_ms, &result);
    if (code == -ENOMEM)
        return co_fail(err, code, "out of memory");
    if (code != 0)
        return co_fail(err, code,
                       "timed out waiting for the driver to load the kernels of libddp-nccl.so");
    return result != cudaSuccess ? kernels_load_failed((cudaError_t)result, err) : 0;
}

static int norm(struct device *d, enum device_norm step, const struct device_layer *layer,
                void *stream, struct co_error *err)
{
    int index;
    const int code = gpu_use(d, &index, err);
    return code != 0 ? code : kernels_norm(&d->kernels, step, layer, stream, err);
}

static int comm_of(struct device_group *g, void **ret, struct co_error *err)
{
    const int code = wait_check(g, err);
    if (code == 0)
        *ret = g->comm;
    return code;
}

/* The only name that this library exports. */
__attribute__((visibility("default"))) extern const struct device_plugin ddp_device_plugin;
const struct device_plugin ddp_device_plugin = {
    .abi = DEVICE_PLUGIN_ABI,
    .size = sizeof(struct device_plugin),
    .name = "nccl",
    .open = device_open,
    .use = gpu_use,
    .check = device_check,
    .describe = plugin_describe,
    .encrypt = device_encrypt,
    .make_id = make_id,
    .make = comm_make,
    .split = comm_split,
    .run = call_run,
    .message = call_message,
    .wait = wait_stream,
    .wait_alone = wait_alone,
    .check_memory = call_check_memory,
    .alloc = bucket_alloc,
    .free = bucket_free,
    .clear = bucket_clear,
    .enlist = bucket_enlist,
    .delist = bucket_delist,
    .alloc_host = bucket_alloc_host,
    .free_host = bucket_free_host,
    .load_kernels = load_kernels,
    .norm = norm,
    .clip = clip_run,
    .average = average_run,
    .take_words = average_take,
    .copy_out = average_copy_out,
    .is_capturing = call_is_capturing,
    .fork_averages = average_fork,
    .join_averages = average_join,
    .drain = average_drain_behind,
    .wait_averages = average_wait,
    .h2d_copy_open = h2d_copy_open,
    .h2d_copy_place = h2d_copy_place,
    .h2d_copy_send = h2d_copy_send,
    .h2d_copy_sent = h2d_copy_sent,
    .h2d_copy_take = h2d_copy_take,
    .h2d_copy_give = h2d_copy_give,
    .h2d_copy_close = h2d_copy_close,
    .comm = comm_of,
    .close = comm_close,
};
