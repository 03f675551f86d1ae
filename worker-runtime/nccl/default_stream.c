/* default_stream.c - calls on a thread's own default stream.
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

cudaError_t default_stream_begin(struct side *s, cudaStream_t stream, cudaStream_t *ret)
{
    *ret = stream;
    if (stream != cudaStreamPerThread)
        return cudaSuccess;
    cudaError_t result = side_stream_open(s);
    if (result == cudaSuccess)
        result = side_stream_fork(s, stream);
    *ret = s->stream;
    return result;
}

cudaError_t default_stream_end(struct side *s, cudaStream_t stream)
{
    return stream == cudaStreamPerThread ? side_stream_join(s, stream) : cudaSuccess;
}
