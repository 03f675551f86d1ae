/* collective.c - the public calls: check the arguments, then hand over to the back end. */
#include "backend.h"
#include "common/error.h"
#include "group.h"
#include "process.h"
#include "reduce.h"

#include <ddp/collective.h>
#include <string.h>

/* What is common to all calls.
 *
 * in, out   looked at if they are needed
 * n_out     `out` has that many times count elements */
struct check {
    const char *name;
    const struct ddp_group *g;
    const void *in, *out;
    bool needs_in, needs_out;
    size_t count, n_out;
    enum ddp_dtype dtype;
    enum ddp_op op;
    int root;
    void *stream;
};

static int check_buffer(const struct check *c, const char *which, const void *p, bool needed)
{
    if (!needed || c->count == 0)
        return DDP_OK;
    if (p == NULL)
        return rt_fail(DDP_EINVAL, "%s: %s is NULL where count is %zu", c->name, which, c->count);
    if ((uintptr_t)p % ddp_dtype_size(c->dtype) != 0)
        return rt_fail(DDP_EINVAL, "%s: %s (%p) is not aligned to its element of %zu bytes",
                       c->name, which, p, ddp_dtype_size(c->dtype));
    return DDP_OK;
}

static int check(const struct check *c)
{
    size_t size = ddp_dtype_size(c->dtype);
    if (c->g == NULL)
        return rt_fail(DDP_EINVAL, "%s: the group is NULL", c->name);
    if (process_is_forked() && c->g->backend != NULL)
        return rt_fail(DDP_EINVAL, "%s: this process was forked from the one that joined", c->name);
    if (size == 0)
        return rt_fail(DDP_EINVAL, "%s: %d is not a type", c->name, (int)c->dtype);
    if (!reduce_is_defined(DDP_INT32, c->op))
        return rt_fail(DDP_EINVAL, "%s: %d is not an operation", c->name, (int)c->op);
    if (!reduce_is_defined(c->dtype, c->op))
        return rt_fail(DDP_EINVAL, "%s: bits are combined of integers only", c->name);
    if (c->root < 0 || c->root >= c->g->world_size)
        return rt_fail(DDP_EINVAL, "%s: root is %d, not 0 to %d", c->name, c->root,
                       c->g->world_size - 1);
    if (c->count > PTRDIFF_MAX / size / c->n_out)
        return rt_fail(DDP_EINVAL, "%s: %zu elements are more than memory can hold", c->name,
                       c->count);
    if (c->stream != NULL)
        return rt_fail(DDP_EINVAL, "%s: stream must be NULL for memory of the CPU", c->name);
    int rc = check_buffer(c, "in", c->in, c->needs_in);
    return rc != DDP_OK ? rc : check_buffer(c, "out", c->out, c->needs_out);
}

/* A world of 1: every reduction of one value is that value. */
static int copy_alone(const void *in, void *out, size_t count, enum ddp_dtype dtype)
{
    if (in != out && count > 0)
        memmove(out, in, count * ddp_dtype_size(dtype));
    return DDP_OK;
}

int ddp_all_reduce(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, enum ddp_op op, void *stream)
{
    struct co_error err;
    int rc = check(
        &(struct check){"ddp_all_reduce", g, in, out, true, true, count, 1, dtype, op, 0, stream});
    if (rc != DDP_OK)
        return rc;
    if (g->backend == NULL)
        return copy_alone(in, out, count, dtype);
    int code = g->backend->ops->all_reduce(g->backend, in, out, count, dtype, op, stream, &err);
    return code == 0 ? DDP_OK : rt_return(code, &err);
}

int ddp_reduce(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
               enum ddp_op op, int root, void *stream)
{
    struct co_error err;
    int rc = check(&(struct check){"ddp_reduce", g, in, out, true, g != NULL && g->rank == root,
                                   count, 1, dtype, op, root, stream});
    if (rc != DDP_OK)
        return rc;
    if (g->backend == NULL)
        return copy_alone(in, out, count, dtype);
    int code = g->backend->ops->reduce(g->backend, in, out, count, dtype, op, root, stream, &err);
    return code == 0 ? DDP_OK : rt_return(code, &err);
}

int ddp_broadcast(struct ddp_group *g, const void *in, void *out, size_t count,
                  enum ddp_dtype dtype, int root, void *stream)
{
    struct co_error err;
    int rc = check(&(struct check){"ddp_broadcast", g, in, out, g != NULL && g->rank == root, true,
                                   count, 1, dtype, DDP_SUM, root, stream});
    if (rc != DDP_OK)
        return rc;
    if (g->backend == NULL)
        return copy_alone(in, out, count, dtype);
    int code = g->backend->ops->broadcast(g->backend, in, out, count, dtype, root, stream, &err);
    return code == 0 ? DDP_OK : rt_return(code, &err);
}

int ddp_all_gather(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, void *stream)
{
    struct co_error err;
    int rc =
        check(&(struct check){"ddp_all_gather", g, in, out, true, true, count,
                              g != NULL ? (size_t)g->world_size : 1, dtype, DDP_SUM, 0, stream});
    if (rc != DDP_OK)
        return rc;
    if (g->backend == NULL)
        return copy_alone(in, out, count, dtype);
    int code = g->backend->ops->all_gather(g->backend, in, out, count, dtype, stream, &err);
    return code == 0 ? DDP_OK : rt_return(code, &err);
}

int ddp_barrier(struct ddp_group *g)
{
    struct co_error err;
    int rc = check(&(struct check){"ddp_barrier", g, .n_out = 1});
    if (rc != DDP_OK)
        return rc;
    if (g->backend == NULL)
        return DDP_OK;
    int code = g->backend->ops->barrier(g->backend, &err);
    return code == 0 ? DDP_OK : rt_return(code, &err);
}
