/* collective.c - the public calls, blocking and asynchronous.
 *
 * Each describes itself as a struct collective. run_call() or start_call() checks that by
 * check_call(), and hands it to the queue of requests.c, or to the GPU where it has a stream. */
#include "collective.h"

#include "common/error.h"
#include "common/scope.h"
#include "requests.h"
#include "worker-runtime/arithmetic/reduce.h"

#include <ddp/collective.h>
#include <errno.h>
#include <string.h>

/* What is checked, in addition to the collective itself.
 *
 * n_in, n_out   `in` and `out` have so many elements; 0: not looked at */
struct check {
    const char *name;
    size_t n_in, n_out;
};

static int check_buffer(const struct check *c, const char *which, const void *p, size_t count,
                        enum ddp_dtype dtype)
{
    if (count == 0)
        return DDP_OK;
    if (p == NULL)
        return rt_fail(DDP_EINVAL, "%s: %s is NULL where it has %zu elements", c->name, which,
                       count);
    if (((uintptr_t)p & (reduce_size(dtype) - 1)) != 0) /* a power of two */
        return rt_fail(DDP_EINVAL, "%s: %s (%p) is not aligned to its element of %zu bytes",
                       c->name, which, p, reduce_size(dtype));
    return DDP_OK;
}

/* The sum of n counts, of as many bytes as memory can hold. */
static int add_up(const struct check *c, const size_t *counts, int n, enum ddp_dtype dtype,
                  size_t *ret_sum)
{
    const size_t most = PTRDIFF_MAX / reduce_size(dtype);
    size_t sum = 0;
    for (int r = 0; r < n; r++) {
        if (counts[r] > most - sum)
            return rt_fail(DDP_EINVAL, "%s: %zu elements for rank %d exceed the address space",
                           c->name, counts[r], r);
        sum += counts[r];
    }
    *ret_sum = sum;
    return DDP_OK;
}

/* `times` blocks of `count` elements. */
static int multiply(const struct check *c, size_t count, size_t times, enum ddp_dtype dtype,
                    size_t *ret_product)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, times * reduce_size(dtype), &bytes) || bytes > PTRDIFF_MAX)
        return rt_fail(DDP_EINVAL, "%s: %zu elements exceed the address space", c->name, count);
    *ret_product = count * times;
    return DDP_OK;
}

static int check_scalars(const char *name, const struct ddp_group *g, const struct collective *what)
{
    if (reduce_size(what->dtype) == 0)
        return rt_fail(DDP_EINVAL, "%s: invalid value %d for dtype: expected one of enum ddp_dtype",
                       name, (int)what->dtype);
    if (!reduce_is_defined(DDP_INT32, what->op))
        return rt_fail(DDP_EINVAL, "%s: invalid value %d for op: expected one of enum ddp_op", name,
                       (int)what->op);
    if (!reduce_is_defined(what->dtype, what->op))
        return rt_fail(DDP_EINVAL, "%s: DDP_BAND and DDP_BOR need an integer type", name);
    if (what->root < 0 || what->root >= g->world_size)
        return rt_fail(DDP_EINVAL, "%s: invalid value %d for root: expected 0 to %d", name,
                       what->root, g->world_size - 1);
    return DDP_OK;
}

/* How many elements `in` and `out` have on this rank; none where they are not looked at. */
static int count_elements(const struct ddp_group *g, const struct collective *what, struct check *c)
{
    const bool deals = what->kind == CALL_SCATTER || what->kind == CALL_REDUCE_SCATTER ||
                       what->kind == CALL_ALL_TO_ALL;
    const bool collects =
        what->kind == CALL_ALL_GATHER || what->kind == CALL_GATHER || what->kind == CALL_ALL_TO_ALL;
    const bool is_root = what->root == g->rank;
    int rc;
    if (what->counts == NULL) {
        size_t n = (size_t)g->world_size;
        rc = multiply(c, what->count, deals ? n : 1, what->dtype, &c->n_in);
        if (rc == DDP_OK)
            rc = multiply(c, what->count, collects ? n : 1, what->dtype, &c->n_out);
    } else {
        const size_t *in_counts = what->in_counts != NULL ? what->in_counts : what->counts;
        rc = add_up(c, in_counts, g->world_size, what->dtype, &c->n_in);
        if (rc == DDP_OK)
            rc = add_up(c, what->counts, g->world_size, what->dtype, &c->n_out);
        c->n_in = deals ? c->n_in : what->counts[g->rank];
        c->n_out = collects ? c->n_out : what->counts[g->rank];
    }
    if ((what->kind == CALL_BROADCAST || what->kind == CALL_SCATTER) && !is_root)
        c->n_in = 0;
    if ((what->kind == CALL_REDUCE || what->kind == CALL_GATHER) && !is_root)
        c->n_out = 0;
    return rc;
}

static int check_call(const char *name, const struct ddp_group *g, const struct collective *what)
{
    struct check c = {.name = name};
    int rc = group_check(name, g);
    if (rc == DDP_OK)
        rc = check_scalars(name, g, what);
    if (rc == DDP_OK)
        rc = count_elements(g, what, &c);
    if (rc == DDP_OK)
        rc = check_buffer(&c, "in", what->in, c.n_in, what->dtype);
    if (rc == DDP_OK)
        rc = check_buffer(&c, "out", what->out, c.n_out, what->dtype);
    if (rc == DDP_OK && what->in_counts != NULL && what->in == what->out && c.n_in > 0)
        rc = rt_fail(DDP_EINVAL, "%s: out must not be in, because the blocks have other lengths",
                     name);
    return rc;
}

static int run_call(const char *name, struct ddp_group *g, const struct collective *what)
{
    int rc = check_call(name, g, what);
    if (rc != DDP_OK)
        return rc;
    return what->stream != NULL ? g->world->on_stream->run(g, what) : requests_run(g, what);
}

static int start_call(const char *name, struct ddp_group *g, struct ddp_request **ret_request,
                      const struct collective *what)
{
    int rc = check_call(name, g, what);
    if (rc != DDP_OK)
        return rc;
    if (ret_request == NULL)
        return rt_fail(DDP_EINVAL, "%s: ret_request is NULL", name);
    if (what->stream == NULL)
        return requests_start(g, what, ret_request);
    rc = g->world->on_stream->run(g, what); /* in the stream's order: nothing to wait for */
    return rc == DDP_OK ? requests_start_done(g, ret_request) : rc;
}

/* A call with counts must have some: without, it would be the one that has none. */
static int check_counts(const char *name, const struct collective *what)
{
    if (what->counts == NULL || (what->kind == CALL_ALL_TO_ALL && what->in_counts == NULL))
        return rt_fail(DDP_EINVAL, "%s: counts is NULL", name);
    return DDP_OK;
}

static int run_call_v(const char *name, struct ddp_group *g, const struct collective *what)
{
    int rc = check_counts(name, what);
    return rc == DDP_OK ? run_call(name, g, what) : rc;
}

static int start_call_v(const char *name, struct ddp_group *g, struct ddp_request **ret_request,
                        const struct collective *what)
{
    int rc = check_counts(name, what);
    return rc == DDP_OK ? start_call(name, g, ret_request, what) : rc;
}

/* --- descriptions of calls -------------------------------------------------------------------- */

/* Macros, so that each description is built in the caller's frame and not copied: the copy would
 * wait for the stores before it, and that is a tenth of an all-reduce of 4 bytes. */
#define REDUCTION(kind_, in_, out_, count_, dtype_, op_, root_, stream_)                           \
    (&(const struct collective){.kind = (kind_),                                                   \
                                .in = (in_),                                                       \
                                .out = (out_),                                                     \
                                .count = (count_),                                                 \
                                .dtype = (dtype_),                                                 \
                                .op = (op_),                                                       \
                                .root = (root_),                                                   \
                                .stream = (stream_)})

#define COPY(kind_, in_, out_, count_, dtype_, root_, stream_)                                     \
    REDUCTION(kind_, in_, out_, count_, dtype_, DDP_SUM, root_, stream_)

/* With a count for each rank. in_counts_: of all_to_all_v; else NULL */
#define COUNTS(kind_, in_, in_counts_, out_, counts_, dtype_, op_, root_, stream_)                 \
    (&(const struct collective){.kind = (kind_),                                                   \
                                .in = (in_),                                                       \
                                .in_counts = (in_counts_),                                         \
                                .out = (out_),                                                     \
                                .counts = (counts_),                                               \
                                .dtype = (dtype_),                                                 \
                                .op = (op_),                                                       \
                                .root = (root_),                                                   \
                                .stream = (stream_)})

/* --- reductions ------------------------------------------------------------------------------- */

int ddp_all_reduce(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, enum ddp_op op, void *stream)
{
    return run_call("ddp_all_reduce", g,
                    REDUCTION(CALL_ALL_REDUCE, in, out, count, dtype, op, 0, stream));
}

int ddp_all_reduce_checked(struct ddp_group *g, const void *in, void *out, size_t count,
                           enum ddp_dtype dtype, enum ddp_op op, void *stream, int *ret_found_inf)
{
    if (ret_found_inf == NULL)
        return rt_fail(DDP_EINVAL, "ddp_all_reduce_checked: ret_found_inf is NULL");
    const struct collective what = {.kind = CALL_ALL_REDUCE,
                                    .in = in,
                                    .out = out,
                                    .count = count,
                                    .dtype = dtype,
                                    .op = op,
                                    .stream = stream,
                                    .found_inf = ret_found_inf};
    return run_call("ddp_all_reduce_checked", g, &what);
}

int ddp_reduce(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
               enum ddp_op op, int root, void *stream)
{
    return run_call("ddp_reduce", g,
                    REDUCTION(CALL_REDUCE, in, out, count, dtype, op, root, stream));
}

int ddp_reduce_scatter(struct ddp_group *g, const void *in, void *out, size_t count,
                       enum ddp_dtype dtype, enum ddp_op op, void *stream)
{
    return run_call("ddp_reduce_scatter", g,
                    REDUCTION(CALL_REDUCE_SCATTER, in, out, count, dtype, op, 0, stream));
}

int ddp_reduce_scatter_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                         enum ddp_dtype dtype, enum ddp_op op, void *stream)
{
    return run_call_v("ddp_reduce_scatter_v", g,
                      COUNTS(CALL_REDUCE_SCATTER, in, NULL, out, counts, dtype, op, 0, stream));
}

int ddp_iall_reduce(struct ddp_group *g, const void *in, void *out, size_t count,
                    enum ddp_dtype dtype, enum ddp_op op, void *stream,
                    struct ddp_request **ret_request)
{
    return start_call("ddp_iall_reduce", g, ret_request,
                      REDUCTION(CALL_ALL_REDUCE, in, out, count, dtype, op, 0, stream));
}

int ddp_iall_reduce_checked(struct ddp_group *g, const void *in, void *out, size_t count,
                            enum ddp_dtype dtype, enum ddp_op op, void *stream, int *ret_found_inf,
                            struct ddp_request **ret_request)
{
    if (ret_found_inf == NULL)
        return rt_fail(DDP_EINVAL, "ddp_iall_reduce_checked: ret_found_inf is NULL");
    const struct collective what = {.kind = CALL_ALL_REDUCE,
                                    .in = in,
                                    .out = out,
                                    .count = count,
                                    .dtype = dtype,
                                    .op = op,
                                    .stream = stream,
                                    .found_inf = ret_found_inf};
    return start_call("ddp_iall_reduce_checked", g, ret_request, &what);
}

int ddp_ireduce(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                enum ddp_op op, int root, void *stream, struct ddp_request **ret_request)
{
    return start_call("ddp_ireduce", g, ret_request,
                      REDUCTION(CALL_REDUCE, in, out, count, dtype, op, root, stream));
}

int ddp_ireduce_scatter(struct ddp_group *g, const void *in, void *out, size_t count,
                        enum ddp_dtype dtype, enum ddp_op op, void *stream,
                        struct ddp_request **ret_request)
{
    return start_call("ddp_ireduce_scatter", g, ret_request,
                      REDUCTION(CALL_REDUCE_SCATTER, in, out, count, dtype, op, 0, stream));
}

int ddp_ireduce_scatter_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                          enum ddp_dtype dtype, enum ddp_op op, void *stream,
                          struct ddp_request **ret_request)
{
    return start_call_v("ddp_ireduce_scatter_v", g, ret_request,
                        COUNTS(CALL_REDUCE_SCATTER, in, NULL, out, counts, dtype, op, 0, stream));
}

/* --- copies ----------------------------------------------------------------------------------- */

int ddp_broadcast(struct ddp_group *g, const void *in, void *out, size_t count,
                  enum ddp_dtype dtype, int root, void *stream)
{
    return run_call("ddp_broadcast", g, COPY(CALL_BROADCAST, in, out, count, dtype, root, stream));
}

int ddp_broadcast_bytes(struct ddp_group *g, void *memory, size_t bytes, int root)
{
    return run_call("ddp_broadcast_bytes", g,
                    COPY(CALL_BROADCAST, memory, memory, bytes, DDP_UINT8, root, NULL));
}

int ddp_all_gather(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, void *stream)
{
    return run_call("ddp_all_gather", g, COPY(CALL_ALL_GATHER, in, out, count, dtype, 0, stream));
}

int ddp_all_gather_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                     enum ddp_dtype dtype, void *stream)
{
    return run_call_v("ddp_all_gather_v", g,
                      COUNTS(CALL_ALL_GATHER, in, NULL, out, counts, dtype, DDP_SUM, 0, stream));
}

int ddp_gather(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
               int root, void *stream)
{
    return run_call("ddp_gather", g, COPY(CALL_GATHER, in, out, count, dtype, root, stream));
}

int ddp_gather_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                 enum ddp_dtype dtype, int root, void *stream)
{
    return run_call_v("ddp_gather_v", g,
                      COUNTS(CALL_GATHER, in, NULL, out, counts, dtype, DDP_SUM, root, stream));
}

int ddp_scatter(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                int root, void *stream)
{
    return run_call("ddp_scatter", g, COPY(CALL_SCATTER, in, out, count, dtype, root, stream));
}

int ddp_scatter_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                  enum ddp_dtype dtype, int root, void *stream)
{
    return run_call_v("ddp_scatter_v", g,
                      COUNTS(CALL_SCATTER, in, NULL, out, counts, dtype, DDP_SUM, root, stream));
}

int ddp_all_to_all(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, void *stream)
{
    return run_call("ddp_all_to_all", g, COPY(CALL_ALL_TO_ALL, in, out, count, dtype, 0, stream));
}

int ddp_all_to_all_v(struct ddp_group *g, const void *in, const size_t *in_counts, void *out,
                     const size_t *out_counts, enum ddp_dtype dtype, void *stream)
{
    return run_call_v(
        "ddp_all_to_all_v", g,
        COUNTS(CALL_ALL_TO_ALL, in, in_counts, out, out_counts, dtype, DDP_SUM, 0, stream));
}

int ddp_ibroadcast(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, int root, void *stream, struct ddp_request **ret_request)
{
    return start_call("ddp_ibroadcast", g, ret_request,
                      COPY(CALL_BROADCAST, in, out, count, dtype, root, stream));
}

int ddp_iall_gather(struct ddp_group *g, const void *in, void *out, size_t count,
                    enum ddp_dtype dtype, void *stream, struct ddp_request **ret_request)
{
    return start_call("ddp_iall_gather", g, ret_request,
                      COPY(CALL_ALL_GATHER, in, out, count, dtype, 0, stream));
}

int ddp_iall_gather_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                      enum ddp_dtype dtype, void *stream, struct ddp_request **ret_request)
{
    return start_call_v("ddp_iall_gather_v", g, ret_request,
                        COUNTS(CALL_ALL_GATHER, in, NULL, out, counts, dtype, DDP_SUM, 0, stream));
}

int ddp_igather(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                int root, void *stream, struct ddp_request **ret_request)
{
    return start_call("ddp_igather", g, ret_request,
                      COPY(CALL_GATHER, in, out, count, dtype, root, stream));
}

int ddp_igather_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                  enum ddp_dtype dtype, int root, void *stream, struct ddp_request **ret_request)
{
    return start_call_v("ddp_igather_v", g, ret_request,
                        COUNTS(CALL_GATHER, in, NULL, out, counts, dtype, DDP_SUM, root, stream));
}

int ddp_iscatter(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                 int root, void *stream, struct ddp_request **ret_request)
{
    return start_call("ddp_iscatter", g, ret_request,
                      COPY(CALL_SCATTER, in, out, count, dtype, root, stream));
}

int ddp_iscatter_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                   enum ddp_dtype dtype, int root, void *stream, struct ddp_request **ret_request)
{
    return start_call_v("ddp_iscatter_v", g, ret_request,
                        COUNTS(CALL_SCATTER, in, NULL, out, counts, dtype, DDP_SUM, root, stream));
}

int ddp_iall_to_all(struct ddp_group *g, const void *in, void *out, size_t count,
                    enum ddp_dtype dtype, void *stream, struct ddp_request **ret_request)
{
    return start_call("ddp_iall_to_all", g, ret_request,
                      COPY(CALL_ALL_TO_ALL, in, out, count, dtype, 0, stream));
}

int ddp_iall_to_all_v(struct ddp_group *g, const void *in, const size_t *in_counts, void *out,
                      const size_t *out_counts, enum ddp_dtype dtype, void *stream,
                      struct ddp_request **ret_request)
{
    return start_call_v(
        "ddp_iall_to_all_v", g, ret_request,
        COUNTS(CALL_ALL_TO_ALL, in, in_counts, out, out_counts, dtype, DDP_SUM, 0, stream));
}

/* --- barriers --------------------------------------------------------------------------------- */

int ddp_barrier(struct ddp_group *g)
{
    return run_call("ddp_barrier", g, &(const struct collective){.kind = CALL_BARRIER});
}

int ddp_monitored_barrier(struct ddp_group *g, uint64_t timeout_ms)
{
    return run_call("ddp_monitored_barrier", g,
                    &(const struct collective){.kind = CALL_BARRIER, .timeout_ms = timeout_ms});
}

int ddp_ibarrier(struct ddp_group *g, struct ddp_request **ret_request)
{
    return start_call("ddp_ibarrier", g, ret_request,
                      &(const struct collective){.kind = CALL_BARRIER});
}

/* --- agreement -------------------------------------------------------------------------------- */

int ddp_mean(struct ddp_group *g, double *values, size_t n)
{
    return run_call("ddp_mean", g,
                    REDUCTION(CALL_ALL_REDUCE, values, values, n, DDP_FLOAT64, DDP_AVG, 0, NULL));
}

int collective_compare(struct ddp_group *g, uint64_t own, bool *ret_same)
{
    uint64_t most[2] = {own, ~own}; /* the largest, and the complement of the smallest */
    int rc = ddp_all_reduce(g, most, most, 2, DDP_UINT64, DDP_MAX, NULL);
    *ret_same = most[0] == ~most[1];
    return rc;
}

struct verdict { /* result of the rank that failed; as it travels */
    int32_t code;
    char text[CO_ERROR_TEXT_BYTES];
};

int collective_agree(struct ddp_group *g, int code, const struct co_error *err)
{
    if (g->backend == NULL)
        return rt_return(code, err);
    int64_t first = code != 0 ? g->rank : INT64_MAX;
    int rc = ddp_all_reduce(g, &first, &first, 1, DDP_INT64, DDP_MIN, NULL);
    if (rc != 0 || first == INT64_MAX)
        return rc;

    struct verdict v = {.code = code};
    if (err != NULL && first == g->rank)
        memcpy(v.text, err->text, sizeof v.text);
    if ((rc = ddp_broadcast_bytes(g, &v, sizeof v, (int)first)) != 0)
        return rc;
    v.text[sizeof v.text - 1] = '\0';
    struct co_error reported;
    co_fail(&reported, v.code, "rank %d: %s", (int)first,
            v.text[0] != '\0' ? v.text : strerror(-v.code));
    return rt_return(v.code, &reported);
}

void *collective_gather(struct ddp_group *g, const void *own, size_t bytes, int *ret_status)
{
    struct co_error err = {0};
    co_autofree void *all = calloc((size_t)g->world_size, bytes);
    *ret_status = collective_agree(g, all == NULL ? -ENOMEM : 0, &err);
    if (*ret_status == DDP_OK)
        *ret_status = ddp_all_gather(g, own, all, bytes, DDP_UINT8, NULL);
    return *ret_status == DDP_OK ? co_take(&all) : NULL;
}
