/* side_stream.c - a stream beside one of the program's, and the event by which each goes on behind
 * the other. */
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

/* `to` goes on behind what is on `from` by now. */
static cudaError_t follow(const struct side *s, cudaStream_t to, cudaStream_t from)
{
    const cudaError_t result = cudaEventRecord(s->event, from);
    return result == cudaSuccess ? cudaStreamWaitEvent(to, s->event, 0) : result;
}

cudaError_t side_stream_fork(const struct side *s, cudaStream_t stream)
{
    return follow(s, s->stream, stream);
}

cudaError_t side_stream_join(const struct side *s, cudaStream_t stream)
{
    return follow(s, stream, s->stream);
}

void side_stream_close(struct side *s)
{
    if (s->event != NULL)
        cudaEventDestroy(s->event);
    if (s->stream != NULL)
        cudaStreamDestroy(s->stream);
    *s = (struct side){0};
}
