/* h2d_copy.c - batches on their way to the device: a stream of copies concurrent with the one that
 * computes.
 *
 * A place is memory of the host, pinned, and as much of the device. It goes round:
 *
 *     the host writes it -> send: a copy, after what used the place before (event `used`)
 *       -> take: the program's stream continues after the copy (event `sent`)
 *       -> give: what is on the program's stream by then has used it -> and again
 *
 * No call waits, except close. Host memory may be written again once `sent` has come to pass, which
 * the writer queries. */
#include "device.h"

#include <errno.h>
#include <stdlib.h>

struct place {
    char *host, *gpu; /* owned, by CUDA */
    cudaEvent_t sent, used;
    bool was_sent, was_used;
};

struct device_feed {
    struct device *device;
    cudaStream_t stream; /* of copies */
    unsigned n;
    struct place place[];
};

/* Only if nothing has failed before, so that one reason is reported. */
static cudaError_t make_place(struct place *p, size_t bytes)
{
    void *host = NULL, *gpu = NULL;
    cudaError_t result = cudaHostAlloc(&host, bytes, cudaHostAllocDefault);
    if (result == cudaSuccess)
        p->host = host;
    if (result == cudaSuccess)
        result = cudaMalloc(&gpu, bytes);
    if (result == cudaSuccess)
        p->gpu = gpu;
    if (result == cudaSuccess)
        result = cudaEventCreateWithFlags(&p->sent, cudaEventDisableTiming);
    if (result == cudaSuccess)
        result = cudaEventCreateWithFlags(&p->used, cudaEventDisableTiming);
    return result;
}

int h2d_copy_open(struct device *d, unsigned n, size_t bytes, struct device_feed **ret,
                  struct co_error *err)
{
    struct device_feed *f = calloc(1, sizeof *f + n * sizeof f->place[0]);
    if (f == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    f->device = d;
    f->n = n;
    cudaError_t result = cudaSetDevice(d->index);
    if (result == cudaSuccess)
        result = cudaStreamCreateWithFlags(&f->stream, cudaStreamNonBlocking);
    for (unsigned i = 0; i < n && result == cudaSuccess; i++)
        result = make_place(&f->place[i], bytes);
    if (result == cudaSuccess) {
        *ret = f;
        return 0;
    }
    nccl_map_cuda("GPU memory for batches", result, err);
    h2d_copy_close(f);
    return result == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
}

void h2d_copy_place(const struct device_feed *f, unsigned place, void **ret_host, void **ret_gpu)
{
    *ret_host = f->place[place].host;
    *ret_gpu = f->place[place].gpu;
}

static cudaError_t spans_copy(struct device_feed *f, struct place *p,
                              const struct device_span *span, size_t n)
{
    cudaError_t result = cudaSetDevice(f->device->index); /* of the calling thread */
    if (result == cudaSuccess && p->was_used)
        result = cudaStreamWaitEvent(f->stream, p->used, 0);
    for (size_t i = 0; i < n && result == cudaSuccess; i++)
        result = cudaMemcpyAsync(p->gpu + span[i].at, p->host + span[i].at, span[i].bytes,
                                 cudaMemcpyHostToDevice, f->stream);
    return result == cudaSuccess ? cudaEventRecord(p->sent, f->stream) : result;
}

int h2d_copy_send(struct device_feed *f, unsigned place, const struct device_span *span, size_t n,
                  struct co_error *err)
{
    struct place *p = &f->place[place];
    const cudaError_t result = spans_copy(f, p, span, n);
    p->was_sent = p->was_sent || result == cudaSuccess;
    return nccl_map_cuda("the copy of a batch to the GPU", result, err);
}

/* A thread that reads ahead queries while the program may capture a graph, which a query of another
 * thread would spoil: CUDA forbids it to all threads that do not declare themselves apart. */
static cudaError_t event_ask(cudaEvent_t event)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    cudaError_t result = cudaThreadExchangeStreamCaptureMode(&mode);
    if (result != cudaSuccess)
        return result;
    result = cudaEventQuery(event);
    const cudaError_t back = cudaThreadExchangeStreamCaptureMode(&mode);
    return result == cudaSuccess ? back : result;
}

int h2d_copy_sent(struct device_feed *f, unsigned place, struct co_error *err)
{
    const struct place *p = &f->place[place];
    const cudaError_t result = p->was_sent ? event_ask(p->sent) : cudaSuccess;
    if (result == cudaSuccess)
        return 1;
    if (result != cudaErrorNotReady)
        return nccl_map_cuda("the copy of a batch to the GPU", result, err);
    cudaGetLastError(); /* it is not an error, but CUDA keeps it as the thread's last one */
    return 0;
}

int h2d_copy_take(struct device_feed *f, unsigned place, void *stream, struct co_error *err)
{
    cudaError_t result = cudaSetDevice(f->device->index); /* of the calling thread */
    if (result == cudaSuccess)
        result = cudaStreamWaitEvent(stream, f->place[place].sent, 0);
    return nccl_map_cuda("the wait for a batch on the GPU", result, err);
}

int h2d_copy_give(struct device_feed *f, unsigned place, void *stream, struct co_error *err)
{
    struct place *p = &f->place[place];
    cudaError_t result = cudaSetDevice(f->device->index);
    if (result == cudaSuccess)
        result = cudaEventRecord(p->used, stream);
    p->was_used = p->was_used || result == cudaSuccess;
    return nccl_map_cuda("the release of a batch on the GPU", result, err);
}

void h2d_copy_close(struct device_feed *f)
{
    if (f == NULL)
        return;
    if (f->stream != NULL)
        cudaStreamSynchronize(f->stream); /* it has failed, then: nothing runs there any more */
    for (unsigned i = 0; i < f->n; i++) {
        const struct place *p = &f->place[i];
        if (p->sent != NULL)
            cudaEventDestroy(p->sent);
        if (p->used != NULL)
            cudaEventDestroy(p->used);
        cudaFree(p->gpu);
        cudaFreeHost(p->host);
    }
    if (f->stream != NULL)
        cudaStreamDestroy(f->stream);
    cudaGetLastError(); /* a caller that closes a broken one has got the reason before */
    free(f);
}
