/* bucket.c - memory for gradients, and their averages on a stream of the plug-in's own: what a
 * backward pass goes on beside.
 *
 * That stream follows the program's at each bucket, by an event: what was put there before the
 * bucket was said to be complete has written it. The way back is a wait of the host: a step ends
 * with one anyhow, since all ranks agree that it counts. */
#include "device.h"

#include "words.h"

#include <errno.h>

/* --- memory ----------------------------------------------------------------------------------- */

int bucket_alloc(struct device *d, size_t bytes, void *stream, void **ret, struct co_error *err)
{
    void *at = NULL;
    cudaError_t result = cudaSetDevice(d->index);
    if (result == cudaSuccess)
        result = cudaMalloc(&at, bytes);
    if (result == cudaSuccess)
        result = cudaMemsetAsync(at, 0, bytes, stream);
    if (result == cudaSuccess) {
        *ret = at;
        return 0;
    }
    words_cuda_failed("memory for gradients", result, err);
    cudaFree(at);
    return result == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
}

void bucket_free(struct device *d, void *at)
{
    (void)d;
    cudaFree(at);
}

int bucket_clear(struct device *d, void *at, size_t bytes, void *stream, struct co_error *err)
{
    (void)d;
    const cudaError_t result = bytes > 0 ? cudaMemsetAsync(at, 0, bytes, stream) : cudaSuccess;
    return result == cudaSuccess ? 0 : words_cuda_failed("zeros for gradients", result, err);
}

/* --- averages --------------------------------------------------------------------------------- */

static cudaError_t open_stream(struct device_group *g)
{
    cudaError_t result = cudaSuccess;
    if (g->stream == NULL)
        result = cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking);
    if (result == cudaSuccess && g->event == NULL)
        result = cudaEventCreateWithFlags(&g->event, cudaEventDisableTiming);
    return result;
}

static cudaError_t follow(struct device_group *g, void *stream)
{
    cudaError_t result = open_stream(g);
    if (result == cudaSuccess)
        result = cudaEventRecord(g->event, stream);
    return result == cudaSuccess ? cudaStreamWaitEvent(g->stream, g->event, 0) : result;
}

/* All pieces by one group: NCCL makes one kernel of them. */
static ncclResult_t average_all(struct device_group *g, const struct device_piece *piece, size_t n,
                                enum ddp_dtype dtype)
{
    ncclResult_t first = ncclGroupStart();
    for (size_t i = 0; i < n; i++) {
        const ncclResult_t result = ncclAllReduce(piece[i].at, piece[i].at, piece[i].count,
                                                  words_dtype(dtype), ncclAvg, g->comm, g->stream);
        first = first == ncclSuccess ? result : first;
    }
    const ncclResult_t end = ncclGroupEnd();
    return first == ncclSuccess || first == ncclInProgress ? end : first;
}

int bucket_average(struct device_group *g, const struct device_piece *piece, size_t n,
                   enum ddp_dtype dtype, void *stream, struct co_error *err)
{
    const char what[] = "the average of gradients";
    int code = wait_check(g, err);
    if (code != 0 || n == 0)
        return code;
    const cudaError_t followed = follow(g, stream);
    if (followed != cudaSuccess)
        return device_break(g, LIFE_FAILED, words_cuda_failed(what, followed, err), err);
    pthread_mutex_lock(&g->device->mutex);
    /* of one that was broken meanwhile who waits hears why */
    const ncclResult_t result = g->is_broken ? ncclInProgress : average_all(g, piece, n, dtype);
    pthread_mutex_unlock(&g->device->mutex);
    return call_settle(g, result, what, err);
}

int bucket_wait(struct device_group *g, uint64_t timeout_ms, struct co_error *err)
{
    return g->stream != NULL ? wait_stream(g, g->stream, timeout_ms, err) : wait_check(g, err);
}

void bucket_close(struct device_group *g)
{
    if (g->event != NULL)
        cudaEventDestroy(g->event);
    if (g->stream != NULL)
        cudaStreamDestroy(g->stream);
    g->event = NULL;
    g->stream = NULL;
}
