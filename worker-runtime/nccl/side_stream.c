/* side_stream.c - a stream concurrent with one of the program's, and the event by which each
 * continues after the other.
 *
 * One use is averages (average.c), the other calls on a thread's own default stream:
 * cudaStreamPerThread names another stream in each thread, and NCCL, whose communicators are
 * non-blocking here, puts its kernels on streams by threads of its own. So these calls use the
 * group's stream, which begins after the caller's and is followed by it:
 *
 *     caller's stream   ... before | event ------------------ waits | after ...
 *     the group's                    waits | NCCL | event
 *
 * Other streams have one name for all threads, and need no other one. */
#include "device.h"

cudaError_t side_stream_open(struct side *s)
{
    cudaError_t result = cudaSuccess;
    if (s->stream == NULL)
        result = cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
    if (result == cudaSuccess && s->event == NULL)
        result = cudaEventCreateWithFlags(&s->event, cudaEventDisableTiming);
    return result;
}

cudaError_t side_stream_follow(const struct side *s, cudaStream_t to, cudaStream_t from)
{
    const cudaError_t result = cudaEventRecord(s->event, from);
    return result == cudaSuccess ? cudaStreamWaitEvent(to, s->event, 0) : result;
}

void side_stream_close(struct side *s)
{
    if (s->event != NULL)
        cudaEventDestroy(s->event);
    if (s->stream != NULL)
        cudaStreamDestroy(s->stream);
    *s = (struct side){0};
}

cudaError_t side_stream_begin(struct side *s, cudaStream_t stream, cudaStream_t *ret)
{
    *ret = stream;
    if (stream != cudaStreamPerThread)
        return cudaSuccess;
    cudaError_t result = side_stream_open(s);
    if (result == cudaSuccess)
        result = side_stream_follow(s, s->stream, stream);
    *ret = s->stream;
    return result;
}

cudaError_t side_stream_end(struct side *s, cudaStream_t stream)
{
    return stream == cudaStreamPerThread ? side_stream_follow(s, stream, s->stream) : cudaSuccess;
}
