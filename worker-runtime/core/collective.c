/* collective.c - the public calls: check the arguments, then hand over to the back end. */
#include "collective.h"

#include "common/error.h"
#include "process.h"
#include "requests.h"
#include "worker-runtime/arithmetic/reduce.h"
#include "worker-runtime/device/device.h"

#include <ddp/collective.h>
#include <string.h>

/* What is checked, beside the collective itself.
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
            return rt_fail(DDP_EINVAL, "%s: %zu elements for rank %d are more than memory can hold",
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
        return rt_fail(DDP_EINVAL, "%s: %zu elements are more than memory can hold", c->name,
                       count);
    *ret_product = count * times;
    return DDP_OK;
}

int collective_check_group(const char *name, const struct ddp_group *g)
{
    if (g == NULL)
        return rt_fail(DDP_EINVAL, "%s: the group is NULL", name);
    rt_set_apart(g->is_apart);
    if (process_is_forked() && g->backend != NULL)
        return rt_fail(DDP_EINVAL, "%s: this process was forked from the one that joined", name);
    return DDP_OK;
}

static int check_scalars(const char *name, const struct ddp_group *g, const struct collective *what)
{
    if (reduce_size(what->dtype) == 0)
        return rt_fail(DDP_EINVAL, "%s: %d is not a type", name, (int)what->dtype);
    if (!reduce_is_defined(DDP_INT32, what->op))
        return rt_fail(DDP_EINVAL, "%s: %d is not an operation", name, (int)what->op);
    if (!reduce_is_defined(what->dtype, what->op))
        return rt_fail(DDP_EINVAL, "%s: bits are combined of integers only", name);
    if (what->root < 0 || what->root >= g->world_size)
        return rt_fail(DDP_EINVAL, "%s: root is %d, not 0 to %d", name, what->root,
                       g->world_size - 1);
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

int collective_check_counts(const char *name, const struct collective *what)
{
    if (what->counts == NULL || (what->kind == CALL_ALL_TO_ALL && what->in_counts == NULL))
        return rt_fail(DDP_EINVAL, "%s: the counts are NULL", name);
    return DDP_OK;
}

int collective_check(const char *name, const struct ddp_group *g, const struct collective *what,
                     size_t *ret_bytes)
{
    struct check c = {.name = name};
    int rc = collective_check_group(name, g);
    if (rc == DDP_OK)
        rc = check_scalars(name, g, what);
    if (rc == DDP_OK)
        rc = count_elements(g, what, &c);
    if (rc == DDP_OK)
        rc = check_buffer(&c, "in", what->in, c.n_in, what->dtype);
    if (rc == DDP_OK)
        rc = check_buffer(&c, "out", what->out, c.n_out, what->dtype);
    if (rc == DDP_OK && what->in_counts != NULL && what->in == what->out && c.n_in > 0)
        rc = rt_fail(DDP_EINVAL, "%s: out must not be in: blocks of other lengths take its place",
                     name);
    *ret_bytes = c.n_in * reduce_size(what->dtype);
    return rc;
}

void collective_look_through(const struct collective *what)
{
    *what->found_inf = !reduce_is_finite(what->dtype, what->out, what->count);
}

void collective_run_alone(const struct collective *what, size_t bytes)
{
    if (what->in != what->out && bytes > 0)
        memmove(what->out, what->in, bytes);
    if (what->found_inf != NULL)
        collective_look_through(what);
}

int collective_check_found(const char *name, const int *ret_found_inf)
{
    return ret_found_inf != NULL ? DDP_OK : rt_fail(DDP_EINVAL, "%s: ret_found_inf is NULL", name);
}

int collective_check_alone(const struct ddp_group *g)
{
    struct co_error err = {0};
    return rt_return(group_check_alone(g, &err), &err);
}

static int run(const char *name, struct ddp_group *g, const struct collective *what)
{
    size_t bytes;
    int rc = collective_check(name, g, what, &bytes);
    if (rc != DDP_OK)
        return rc;
    if (what->stream != NULL)
        return device_run(g, what);
    if (g->backend != NULL)
        return requests_run(g, what);
    rc = collective_check_alone(g);
    if (rc == DDP_OK)
        collective_run_alone(what, bytes);
    return rc;
}

/* The same of a call with counts. Without them it would be the one that has none. */
static int run_v(const char *name, struct ddp_group *g, const struct collective *what)
{
    int rc = collective_check_counts(name, what);
    return rc != DDP_OK ? rc : run(name, g, what);
}

/* --- reductions ------------------------------------------------------------------------------- */

int ddp_all_reduce(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, enum ddp_op op, void *stream)
{
    return run("ddp_all_reduce", g,
               &(struct collective){.kind = CALL_ALL_REDUCE,
                                    .in = in,
                                    .out = out,
                                    .count = count,
                                    .dtype = dtype,
                                    .op = op,
                                    .stream = stream});
}

int ddp_all_reduce_checked(struct ddp_group *g, const void *in, void *out, size_t count,
                           enum ddp_dtype dtype, enum ddp_op op, void *stream, int *ret_found_inf)
{
    int rc = collective_check_found("ddp_all_reduce_checked", ret_found_inf);
    if (rc != DDP_OK)
        return rc;
    return run("ddp_all_reduce_checked", g,
               &(struct collective){.kind = CALL_ALL_REDUCE,
                                    .in = in,
                                    .out = out,
                                    .count = count,
                                    .dtype = dtype,
                                    .op = op,
                                    .stream = stream,
                                    .found_inf = ret_found_inf});
}

int ddp_reduce(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
               enum ddp_op op, int root, void *stream)
{
    return run("ddp_reduce", g,
               &(struct collective){.kind = CALL_REDUCE,
                                    .in = in,
                                    .out = out,
                                    .count = count,
                                    .dtype = dtype,
                                    .op = op,
                                    .root = root,
                                    .stream = stream});
}

int ddp_reduce_scatter(struct ddp_group *g, const void *in, void *out, size_t count,
                       enum ddp_dtype dtype, enum ddp_op op, void *stream)
{
    return run("ddp_reduce_scatter", g,
               &(struct collective){.kind = CALL_REDUCE_SCATTER,
                                    .in = in,
                                    .out = out,
                                    .count = count,
                                    .dtype = dtype,
                                    .op = op,
                                    .stream = stream});
}

int ddp_reduce_scatter_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                         enum ddp_dtype dtype, enum ddp_op op, void *stream)
{
    return run_v("ddp_reduce_scatter_v", g,
                 &(struct collective){.kind = CALL_REDUCE_SCATTER,
                                      .in = in,
                                      .out = out,
                                      .counts = counts,
                                      .dtype = dtype,
                                      .op = op,
                                      .stream = stream});
}

/* --- copies ----------------------------------------------------------------------------------- */

int ddp_broadcast(struct ddp_group *g, const void *in, void *out, size_t count,
                  enum ddp_dtype dtype, int root, void *stream)
{
    return run("ddp_broadcast", g,
               &(struct collective){.kind = CALL_BROADCAST,
                                    .in = in,
                                    .out = out,
                                    .count = count,
                                    .dtype = dtype,
                                    .root = root,
                                    .stream = stream});
}

int ddp_broadcast_bytes(struct ddp_group *g, void *memory, size_t bytes, int root)
{
    return run("ddp_broadcast_bytes", g,
               &(struct collective){.kind = CALL_BROADCAST,
                                    .in = memory,
                                    .out = memory,
                                    .count = bytes,
                                    .dtype = DDP_UINT8,
                                    .root = root});
}

int ddp_all_gather(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, void *stream)
{
    return run("ddp_all_gather", g,
               &(struct collective){.kind = CALL_ALL_GATHER,
                                    .in = in,
                                    .out = out,
                                    .count = count,
                                    .dtype = dtype,
                                    .stream = stream});
}

int ddp_all_gather_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                     enum ddp_dtype dtype, void *stream)
{
    return run_v("ddp_all_gather_v", g,
                 &(struct collective){.kind = CALL_ALL_GATHER,
                                      .in = in,
                                      .out = out,
                                      .counts = counts,
                                      .dtype = dtype,
                                      .stream = stream});
}

int ddp_gather(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
               int root, void *stream)
{
    return run("ddp_gather", g,
               &(struct collective){.kind = CALL_GATHER,
                                    .in = in,
                                    .out = out,
                                    .count = count,
                                    .dtype = dtype,
                                    .root = root,
                                    .stream = stream});
}

int ddp_gather_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                 enum ddp_dtype dtype, int root, void *stream)
{
    return run_v("ddp_gather_v", g,
                 &(struct collective){.kind = CALL_GATHER,
                                      .in = in,
                                      .out = out,
                                      .counts = counts,
                                      .dtype = dtype,
                                      .root = root,
                                      .stream = stream});
}

int ddp_scatter(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                int root, void *stream)
{
    return run("ddp_scatter", g,
               &(struct collective){.kind = CALL_SCATTER,
                                    .in = in,
                                    .out = out,
                                    .count = count,
                                    .dtype = dtype,
                                    .root = root,
                                    .stream = stream});
}

int ddp_scatter_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                  enum ddp_dtype dtype, int root, void *stream)
{
    return run_v("ddp_scatter_v", g,
                 &(struct collective){.kind = CALL_SCATTER,
                                      .in = in,
                                      .out = out,
                                      .counts = counts,
                                      .dtype = dtype,
                                      .root = root,
                                      .stream = stream});
}

int ddp_all_to_all(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, void *stream)
{
    return run("ddp_all_to_all", g,
               &(struct collective){.kind = CALL_ALL_TO_ALL,
                                    .in = in,
                                    .out = out,
                                    .count = count,
                                    .dtype = dtype,
                                    .stream = stream});
}

int ddp_all_to_all_v(struct ddp_group *g, const void *in, const size_t *in_counts, void *out,
                     const size_t *out_counts, enum ddp_dtype dtype, void *stream)
{
    return run_v("ddp_all_to_all_v", g,
                 &(struct collective){.kind = CALL_ALL_TO_ALL,
                                      .in = in,
                                      .out = out,
                                      .in_counts = in_counts,
                                      .counts = out_counts,
                                      .dtype = dtype,
                                      .stream = stream});
}

/* --- barriers --------------------------------------------------------------------------------- */

int ddp_barrier(struct ddp_group *g)
{
    return run("ddp_barrier", g, &(struct collective){.kind = CALL_BARRIER});
}

int ddp_monitored_barrier(struct ddp_group *g, uint64_t timeout_ms)
{
    return run("ddp_monitored_barrier", g,
               &(struct collective){.kind = CALL_BARRIER, .timeout_ms = timeout_ms});
}
