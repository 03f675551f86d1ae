/* detour.c - calls on a thread's own default stream.
 *
 * cudaStreamPerThread names another stream in each thread, and NCCL, whose communicators are
 * non-blocking here, puts its kernels on streams by threads of its own. So they go on a stream of
 * the group's, that begins behind the caller's and is followed by it:
 *
 *     caller's stream   ... before | event ------------------ waits | after ...
 *     the group's                    waits | NCCL | event
 *
 * Other streams have one name for all threads, and take no detour. */
#include "device.h"

static cudaError_t open_stream(struct detour *d)
{
    cudaError_t result = cudaSuccess;
    if (d->stream == NULL)
        result = cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking);
    if (result == cudaSuccess && d->event == NULL)
        result = cudaEventCreateWithFlags(&d->event, cudaEventDisableTiming);
    return result;
}

/* `to` goes on behind what is on `from` by now. */
static cudaError_t follow(struct detour *d, cudaStream_t to, cudaStream_t from)
{
    const cudaError_t result = cudaEventRecord(d->event, from);
    return result == cudaSuccess ? cudaStreamWaitEvent(to, d->event, 0) : result;
}

cudaError_t detour_begin(struct detour *d, cudaStream_t stream, cudaStream_t *ret)
{
    *ret = stream;
    if (stream != cudaStreamPerThread)
        return cudaSuccess;
    cudaError_t result = open_stream(d);
    if (result == cudaSuccess)
        result = follow(d, d->stream, stream);
    *ret = d->stream;
    return result;
}

cudaError_t detour_end(struct detour *d, cudaStream_t stream)
{
    return stream == cudaStreamPerThread ? follow(d, stream, d->stream) : cudaSuccess;
}

void detour_close(struct detour *d)
{
    if (d->event != NULL)
        cudaEventDestroy(d->event);
    if (d->stream != NULL)
        cudaStreamDestroy(d->stream);
    *d = (struct detour){0};
}
