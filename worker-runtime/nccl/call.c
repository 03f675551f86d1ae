/* call.c - collectives and messages, into the order of a stream.
 *
 * NCCL has the common ones; those with counts, and those it lacks in older versions, are made of
 * its broadcasts, reductions and messages, in one group each: NCCL makes them together. */
#include "device.h"

#include "worker-runtime/arithmetic/reduce.h"

#include <errno.h>

struct work {
    struct device_group *g;
    const struct collective *what; /* or: */
    const struct message *message;
    ncclComm_t comm;
    cudaStream_t stream; /* that NCCL is given */
    ncclDataType_t dtype;
    ncclRedOp_t op;
    size_t size; /* of an element */
    const char *in;
    char *out;
    void *temp; /* of an all_to_all in place: what `in` was; NULL */
};

/* Elements of the block for rank r, or from it. */
static size_t count_in(const struct work *c, int r)
{
    const struct collective *w = c->what;
    return w->in_counts != NULL ? w->in_counts[r] : w->counts != NULL ? w->counts[r] : w->count;
}

static size_t count_out(const struct work *c, int r)
{
    return c->what->counts != NULL ? c->what->counts[r] : c->what->count;
}

/* --- what is made of several calls, in one group ---------------------------------------------- */

/* Blocks of different lengths: a broadcast or a reduction for each rank. */
static void make_by_rank(const struct work *c, ncclResult_t *first)
{
    const bool gathers = c->what->kind == CALL_ALL_GATHER;
    size_t at = 0; /* bytes */
    for (int r = 0; r < c->g->n; r++) {
        const bool is_own = r == c->g->rank;
        const size_t count = c->what->counts[r];
        if (count > 0 && gathers)
            nccl_map_keep_first(first, ncclBroadcast(is_own ? c->in : c->out + at, c->out + at,
                                                     count, c->dtype, r, c->comm, c->stream));
        else if (count > 0)
            nccl_map_keep_first(first, ncclReduce(c->in + at, is_own ? c->out : NULL, count,
                                                  c->dtype, c->op, r, c->comm, c->stream));
        at += count * c->size;
    }
}

/* `count` elements to rank r (is_send), or from it; of this rank itself nothing travels. */
static void pass_block(const struct work *c, bool is_send, const char *at, size_t count, int r,
                       ncclResult_t *first)
{
    if (count == 0 || r == c->g->rank)
        return;
    nccl_map_keep_first(first, is_send
                                   ? ncclSend(at, count, c->dtype, r, c->comm, c->stream)
                                   : ncclRecv((char *)at, count, c->dtype, r, c->comm, c->stream));
}

static void pass_blocks(const struct work *c, bool is_send, ncclResult_t *first)
{
    const char *at = !is_send ? c->out : c->temp != NULL ? c->temp : c->in;
    for (int r = 0; r < c->g->n; r++) {
        const size_t count = is_send ? count_in(c, r) : count_out(c, r);
        pass_block(c, is_send, at, count, r, first);
        at += count * c->size;
    }
}

/* A gather, a scatter, an all_to_all: of messages. */
static void make_by_message(const struct work *c, ncclResult_t *first)
{
    const int root = c->what->root, me = c->g->rank;
    const enum call_kind kind = c->what->kind;
    if (kind == CALL_ALL_TO_ALL || (kind == CALL_SCATTER && me == root))
        pass_blocks(c, true, first);
    else if (kind == CALL_GATHER)
        pass_block(c, true, c->in, count_in(c, me), root, first);
    if (kind == CALL_ALL_TO_ALL || (kind == CALL_GATHER && me == root))
        pass_blocks(c, false, first);
    else if (kind == CALL_SCATTER)
        pass_block(c, false, c->out, count_out(c, me), root, first);
}

static ncclResult_t make_call(const struct work *c)
{
    const struct collective *w = c->what;
    const struct message *m = c->message;
    void (*make)(const struct work *, ncclResult_t *);
    if (m != NULL)
        return m->is_send ? ncclSend(m->data, m->count, c->dtype, m->peer, c->comm, c->stream)
                          : ncclRecv(m->data, m->count, c->dtype, m->peer, c->comm, c->stream);
    switch (w->kind) {
    case CALL_ALL_REDUCE:
        return ncclAllReduce(c->in, c->out, w->count, c->dtype, c->op, c->comm, c->stream);
    case CALL_REDUCE:
        return ncclReduce(c->in, c->out, w->count, c->dtype, c->op, w->root, c->comm, c->stream);
    case CALL_BROADCAST:
        return ncclBroadcast(c->in, c->out, w->count, c->dtype, w->root, c->comm, c->stream);
    case CALL_ALL_GATHER:
        if (w->counts == NULL)
            return ncclAllGather(c->in, c->out, w->count, c->dtype, c->comm, c->stream);
        make = make_by_rank;
        break;
    case CALL_REDUCE_SCATTER:
        if (w->counts == NULL)
            return ncclReduceScatter(c->in, c->out, w->count, c->dtype, c->op, c->comm, c->stream);
        make = make_by_rank;
        break;
    case CALL_GATHER:
    case CALL_SCATTER:
    case CALL_ALL_TO_ALL:
        make = make_by_message;
        break;
    default:
        return ncclInvalidUsage;
    }
    ncclResult_t first = ncclGroupStart();
    make(c, &first);
    nccl_map_keep_first(&first, ncclGroupEnd());
    return first;
}

/* --- what stays on this rank ------------------------------------------------------------------ */

/* The stream copies the block that this rank has for itself: in a gather, a scatter, an
 * all_to_all. */
static cudaError_t copy_own(struct work *c)
{
    const struct collective *w = c->what;
    const int me = c->g->rank;
    const bool deals = w->kind == CALL_SCATTER || w->kind == CALL_ALL_TO_ALL;
    const bool collects = w->kind == CALL_GATHER || w->kind == CALL_ALL_TO_ALL;
    const bool has_own = w->kind == CALL_ALL_TO_ALL || ((deals || collects) && w->root == me);
    const char *from = c->temp != NULL ? c->temp : c->in;
    char *to = c->out;
    if (!has_own || count_out(c, me) == 0)
        return cudaSuccess;
    for (int r = 0; r < me; r++) {
        from += deals ? count_in(c, r) * c->size : 0;
        to += collects ? count_out(c, r) * c->size : 0;
    }
    return from == to ? cudaSuccess
                      : cudaMemcpyAsync(to, from, count_out(c, me) * c->size, cudaMemcpyDefault,
                                        c->stream); /* also of the host */
}

/* An all_to_all in place sends what it overwrites: from a copy, which lives in the stream's
 * order. */
static cudaError_t take_temp(struct work *c)
{
    const struct collective *w = c->what;
    const size_t bytes = w->count * (size_t)c->g->n * c->size;
    if (w->kind != CALL_ALL_TO_ALL || w->counts != NULL || c->in != c->out || bytes == 0)
        return cudaSuccess;
    cudaError_t result = cudaMallocAsync(&c->temp, bytes, c->stream);
    if (result == cudaSuccess)
        result = cudaMemcpyAsync(c->temp, c->in, bytes, cudaMemcpyDefault, c->stream);
    return result;
}

/* In the stream's order. returns `before` if that is an error */
static cudaError_t give_temp(struct work *c, cudaStream_t stream, cudaError_t before)
{
    const cudaError_t result = c->temp != NULL ? cudaFreeAsync(c->temp, stream) : cudaSuccess;
    c->temp = NULL;
    return before != cudaSuccess ? before : result;
}

/* --- checks ----------------------------------------------------------------------------------- */

int call_check_memory(const struct device *d, const void *p, const char *which,
                      struct co_error *err)
{
    struct cudaPointerAttributes a;
    if (p == NULL)
        return 0;
    const cudaError_t result = cudaPointerGetAttributes(&a, p);
    if (result != cudaSuccess)
        cudaGetLastError(); /* reported below */
    if (result != cudaSuccess || a.type == cudaMemoryTypeUnregistered)
        return co_fail(err, -EINVAL,
                       "%s (%p) is not GPU memory and not known to CUDA: pass GPU memory to calls "
                       "with a stream",
                       which, p);
    if (a.type == cudaMemoryTypeDevice && a.device != d->index)
        return co_fail(err, -EINVAL, "%s (%p) is memory of GPU %d, but this rank uses GPU %d",
                       which, p, a.device, d->index);
    return 0;
}

static int work_check(const struct device_group *g, const struct collective *w, struct work *c,
                      struct co_error *err)
{
    if (call_is_reduction(w->kind) && !nccl_map_op(w->op, &c->op))
        return co_fail(
            err, -ENOTSUP,
            "NCCL does not support DDP_BAND and DDP_BOR: pass stream NULL to use the CPU");
    if (w->found_inf != NULL)
        return co_fail(err, -ENOTSUP,
                       "the check for non-finite values is not supported with a stream");
    int code = call_check_memory(g->device, w->in, "in", err);
    return code != 0 ? code : call_check_memory(g->device, w->out, "out", err);
}

int call_is_capturing(struct device *d, void *stream, bool *ret, struct co_error *err)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t result = cudaSetDevice(d->index);
    if (result == cudaSuccess)
        result = cudaStreamIsCapturing(stream, &status);
    if (nccl_map_is_of_capture(result))
        return nccl_map_cuda("cannot query whether a graph is captured on the stream", result, err);
    if (result != cudaSuccess)
        cudaGetLastError(); /* of work before: what comes next has it, and breaks the job */
    if (status == cudaStreamCaptureStatusInvalidated)
        return co_fail(err, -EINVAL,
                       "CUDA invalidated the capture of the stream because of a call that is not "
                       "allowed in a capture: end the capture");
    *ret = status == cudaStreamCaptureStatusActive;
    return 0;
}

/* --- making it -------------------------------------------------------------------------------- */

int call_settle(struct device_group *g, ncclResult_t result, const char *what, struct co_error *err)
{
    if (result == ncclSuccess)
        return 0;
    if (result == ncclInProgress)
        return wait_settled(g, g, what, err);
    return device_break(g, COMM_FAILED, nccl_map_nccl_failed(what, result, g->comm, err), err);
}

int call_fail(struct device_group *g, int code, struct co_error *err)
{
    return code == -EINVAL ? code : device_break(g, COMM_FAILED, code, err);
}

int call_settle_cuda(struct device_group *g, cudaError_t result, const char *what,
                     struct co_error *err)
{
    const int code = nccl_map_cuda(what, result, err);
    return code != 0 ? call_fail(g, code, err) : 0;
}

static int work_run(struct work *c, const char *name, struct co_error *err)
{
    struct device_group *g = c->g;
    const cudaStream_t stream = c->stream;
    cudaError_t cuda = cudaSetDevice(g->device->index);
    if (cuda == cudaSuccess && c->what != NULL)
        cuda = take_temp(c);
    if (cuda == cudaSuccess && c->what != NULL)
        cuda = copy_own(c);
    if (cuda == cudaSuccess)
        cuda = side_stream_begin(&g->detour, stream, &c->stream);
    if (cuda == cudaSuccess)
        cuda = graph_hold(g, c->stream);
    if (cuda != cudaSuccess)
        return call_settle_cuda(g, give_temp(c, stream, cuda), name, err);
    /* no thread ends a communicator while a call is made on it */
    pthread_mutex_lock(&g->device->mutex);
    /* if it was broken meanwhile: the waiting call gets the reason */
    c->comm = g->comm;
    const ncclResult_t result = g->is_broken ? ncclInProgress : make_call(c);
    pthread_mutex_unlock(&g->device->mutex);
    int code = call_settle(g, result, name, err);
    cuda = give_temp(c, stream, side_stream_end(&g->detour, stream));
    return code == 0 ? call_settle_cuda(g, cuda, name, err) : code;
}

int call_run(struct device_group *g, const struct collective *what, struct co_error *err)
{
    struct work c = {.g = g,
                     .what = what,
                     .stream = what->stream,
                     .dtype = nccl_map_dtype(what->dtype),
                     .size = reduce_size(what->dtype),
                     .in = what->in,
                     .out = what->out};
    int code = wait_check(g, err);
    if (code == 0)
        code = work_check(g, what, &c, err);
    return code != 0 ? code : work_run(&c, call_kind_name(what->kind), err);
}

int call_message(struct device_group *g, const struct message *m, void *stream,
                 struct co_error *err)
{
    int code = wait_check(g, err);
    if (code == 0 && m->tag != 0)
        code = co_fail(err, -EINVAL,
                       "invalid value %d for tag: expected 0, because messages on a stream are "
                       "matched by their order",
                       m->tag);
    if (code == 0)
        code = call_check_memory(g->device, m->data, "the buffer", err);
    if (code != 0 || m->count == 0)
        return code;
    struct work c = {.g = g, .message = m, .stream = stream, .dtype = nccl_map_dtype(m->dtype)};
    return work_run(&c, m->is_send ? "send" : "recv", err);
}
