/* average.c - averages of gradients, on a stream of the plug-in's own, while the backward pass
 * continues.
 *
 * That stream follows the program's at each bucket, by an event: what was put there before the
 * bucket was reported complete has written it. In the other direction the host waits: a step ends
 * with a wait anyhow, since all ranks agree that it counts. In a graph it is also an event
 * (average_join()).
 *
 * A bucket is a kernel that packs it, NCCL's, and a kernel that unpacks it. The outer two exist
 * only if there is something to do: another type on the wire, a factor that NCCL does not multiply
 * by itself, or a check whether all is finite; or a hook, instead of NCCL's kernel, wants all of
 * the bucket side by side. */
#include "device.h"

#include "common/clock.h"

#include <errno.h>

enum { FOUND_OWN, FOUND_AVERAGED }; /* the words of device_average.found_inf */

/* --- the stream ------------------------------------------------------------------------------- */

/* The calling thread may not have chosen a device, as one of a backward pass. */
static cudaError_t open_stream(struct device_group *g)
{
    const cudaError_t result = cudaSetDevice(g->device->index);
    return result == cudaSuccess ? side_stream_open(&g->averages) : result;
}

static cudaError_t stream_follow(struct device_group *g, void *stream)
{
    const cudaError_t result = open_stream(g);
    return result == cudaSuccess ? side_stream_follow(&g->averages, g->averages.stream, stream)
                                 : result;
}

int average_fork(struct device_group *g, void *stream, struct co_error *err)
{
    return call_settle_cuda(g, stream_follow(g, stream), "the order of two streams", err);
}

int average_join(struct device_group *g, void *stream, struct co_error *err)
{
    cudaError_t result = open_stream(g);
    if (result == cudaSuccess)
        result = side_stream_follow(&g->averages, stream, g->averages.stream);
    return call_settle_cuda(g, result, "the order of two streams", err);
}

/* --- what NCCL multiplies by itself ----------------------------------------------------------- */

/* Its pre-multiplied sum costs nothing if values travel as they are. For 16-bit types it also
 * rounds the factor to 16 bits, which for 1/3 is an error of a thousandth in each step: there a
 * kernel multiplies, by a float32. With one rank, NCCL before 2.29.7 leaves the last values of a
 * long array as they are. */
static bool is_multiplied_by_nccl(const struct device_group *g, const struct device_average *a)
{
    return g->n > 1 && a->is_sum && a->wire == NULL && a->before != 1 &&
           (a->dtype == DDP_FLOAT32 || a->dtype == DDP_FLOAT64);
}

static ncclResult_t make_op(const struct device_group *g, const struct device_average *a,
                            ncclRedOp_t *ret)
{
    double wide = a->before;
    float narrow = (float)a->before;
    *ret = a->is_sum ? ncclSum : ncclAvg;
    if (!is_multiplied_by_nccl(g, a))
        return ncclSuccess;
    return ncclRedOpCreatePreMulSum(ret, a->dtype == DDP_FLOAT64 ? (void *)&wide : &narrow,
                                    nccl_map_dtype(a->dtype), ncclScalarHostImmediate, g->comm);
}

/* --- kernels around it ------------------------------------------------------------------------ */

/* Launch a kernel for all pieces, as many at a time as it takes. */
static int run_kernel(const struct device_group *g, const struct device_average *a,
                      enum kernel which, struct kernel_pieces *k, struct co_error *err)
{
    uint64_t first = 0;
    int code = 0;
    for (size_t i = 0; i < a->n && code == 0; i++) {
        k->piece[k->n++] = (struct kernel_piece){a->piece[i].at, a->piece[i].count, first};
        first += a->piece[i].count;
        if (k->n < KERNEL_PIECES && i + 1 < a->n)
            continue;
        code = kernels_run_pieces(&g->device->kernels, which, k, g->averages.stream, err);
        k->n = 0;
    }
    return code;
}

/* Nothing where there is nothing to do.
 * found   of a->found_inf, where to record what is not finite */
static int pack_or_unpack(const struct device_group *g, const struct device_average *a,
                          enum kernel which, double factor, int found, struct co_error *err)
{
    struct kernel_pieces k = {.dtype = (uint32_t)a->dtype,
                              .wire_dtype = (uint32_t)a->wire_dtype,
                              .wire = a->wire,
                              .factor = factor,
                              .found_inf = a->found_inf != NULL ? a->found_inf + found : NULL};
    if (k.wire == NULL && k.factor == 1 && k.found_inf == NULL)
        return 0;
    return run_kernel(g, a, which, &k, err);
}

/* --- an average ------------------------------------------------------------------------------- */

/* All pieces by one group: NCCL makes one kernel of them. The operation may go when the last call
 * with it has returned. */
static ncclResult_t reduce_all(struct device_group *g, const struct device_average *a)
{
    ncclRedOp_t op;
    const ncclResult_t made = make_op(g, a, &op);
    if (made != ncclSuccess)
        return made;
    ncclResult_t first = ncclGroupStart();
    struct device_piece wire = {.at = a->wire};
    for (size_t i = 0; i < a->n; i++)
        wire.count += a->piece[i].count;
    const struct device_piece *piece = a->wire != NULL ? &wire : a->piece;
    const ncclDataType_t dtype = nccl_map_dtype(a->wire != NULL ? a->wire_dtype : a->dtype);
    for (size_t i = 0; i < (a->wire != NULL ? 1 : a->n); i++)
        nccl_map_keep_first(&first, ncclAllReduce(piece[i].at, piece[i].at, piece[i].count, dtype,
                                                  op, g->comm, g->averages.stream));
    nccl_map_keep_first(&first, ncclGroupEnd());
    if (is_multiplied_by_nccl(g, a))
        nccl_map_keep_first(&first, ncclRedOpDestroy(op, g->comm));
    return first;
}

static int bucket_reduce(struct device_group *g, const struct device_average *a, const char *what,
                         struct co_error *err)
{
    const cudaError_t held = graph_hold(g, g->averages.stream);
    if (held != cudaSuccess)
        return call_settle_cuda(g, held, what, err);
    pthread_mutex_lock(&g->device->mutex);
    /* if it was broken meanwhile, the waiting call gets the reason */
    const ncclResult_t result = g->is_broken ? ncclInProgress : reduce_all(g, a);
    pthread_mutex_unlock(&g->device->mutex);
    return call_settle(g, result, what, err);
}

int average_run(struct device_group *g, const struct device_average *a, struct co_error *err)
{
    const char what[] = "the average of gradients";
    int code = wait_check(g, err);
    if (code != 0 || (a->n == 0 && a->reduce == NULL))
        return code;
    code = average_fork(g, a->stream, err);
    if (code != 0)
        return code;
    code = pack_or_unpack(g, a, KERNEL_PACK, is_multiplied_by_nccl(g, a) ? 1 : a->before, FOUND_OWN,
                          err);
    if (code != 0)
        return call_fail(g, code, err);
    if (a->reduce != NULL && !a->reduce(a->arg, g->averages.stream))
        return 0;
    if (a->reduce == NULL)
        code = bucket_reduce(g, a, what, err);
    if (code != 0)
        return code;
    code = pack_or_unpack(g, a, KERNEL_UNPACK, a->after, FOUND_AVERAGED, err);
    return code != 0 ? call_fail(g, code, err) : 0;
}

int average_take(struct device_group *g, uint32_t *words, uint32_t *ret_words, size_t n,
                 struct co_error *err)
{
    cudaError_t result = open_stream(g);
    if (result == cudaSuccess)
        result = cudaMemcpyAsync(ret_words, words, n * sizeof *words, cudaMemcpyDeviceToHost,
                                 g->averages.stream);
    if (result == cudaSuccess)
        result = cudaMemsetAsync(words, 0, n * sizeof *words, g->averages.stream);
    return call_settle_cuda(g, result, "the check for non-finite values", err);
}

int average_copy_out(struct device_group *g, void *to, const void *from, size_t bytes,
                     struct co_error *err)
{
    cudaError_t result = open_stream(g);
    if (result == cudaSuccess)
        result = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, g->averages.stream);
    const int code = call_settle_cuda(g, result, "copying", err);
    return code != 0 ? code : wait_stream(g, g->averages.stream, 0, err);
}

int average_wait(struct device_group *g, uint64_t timeout_ms, struct co_error *err)
{
    return g->averages.stream != NULL ? wait_stream(g, g->averages.stream, timeout_ms, err)
                                      : wait_check(g, err);
}

bool average_drain(struct device_group *g)
{
    const uint64_t deadline_ms = co_deadline_ms(g->device->abort_timeout_ms);
    struct nap nap = {0};
    bool is_late = g->is_undrained;
    while (!is_late && g->averages.stream != NULL &&
           wait_ask_stream(g->averages.stream) == cudaErrorNotReady) {
        is_late = co_left_ms(deadline_ms) == 0;
        nap_take(&nap);
    }
    pthread_mutex_lock(&g->device->mutex);
    g->is_undrained = is_late;
    pthread_mutex_unlock(&g->device->mutex);
    return !is_late;
}

/* A graph that was launched has kernels after those of the communicator, as the stream of averages
 * has. While a stream captures nothing runs on it,
 * and it must not be queried. */
bool average_drain_behind(struct device_group *g, void *stream)
{
    struct co_error err;
    bool is_capturing;
    if (device_check(g->device, &err) != 0)
        return false; /* what could not be ended may stay there forever */
    if (call_is_capturing(g->device, stream, &is_capturing, &err) == 0 && !is_capturing)
        stream_follow(g, stream); /* where CUDA has failed nothing runs any more */
    return average_drain(g);
}
