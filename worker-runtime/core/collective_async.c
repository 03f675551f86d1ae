/* collective_async.c - asynchronous forms of the collectives: the same checks, then the queue. */
#include "collective.h"
#include "requests.h"
#include "worker-runtime/device/device.h"

#include <ddp/collective.h>

static int start(const char *name, struct ddp_group *g, const struct collective *what,
                 struct ddp_request **ret_request)
{
    size_t bytes;
    int rc = collective_check(name, g, what, &bytes);
    if (rc != DDP_OK)
        return rc;
    if (ret_request == NULL)
        return rt_fail(DDP_EINVAL, "%s: ret_request is NULL", name);
    if (what->stream != NULL) { /* its order is the stream's: there is nothing to wait for */
        rc = device_run(g, what);
        return rc == DDP_OK ? requests_start_done(g, ret_request) : rc;
    }
    if (g->backend != NULL)
        return requests_start(g, what, ret_request);
    rc = collective_check_alone(g);
    if (rc == DDP_OK)
        rc = requests_start_done(g, ret_request);
    if (rc == DDP_OK)
        collective_run_alone(what, bytes);
    return rc;
}

/* The same of a call with counts. Without them it would be the one that has none. */
static int start_v(const char *name, struct ddp_group *g, const struct collective *what,
                   struct ddp_request **ret_request)
{
    int rc = collective_check_counts(name, what);
    return rc != DDP_OK ? rc : start(name, g, what, ret_request);
}

/* --- reductions ------------------------------------------------------------------------------- */

int ddp_iall_reduce(struct ddp_group *g, const void *in, void *out, size_t count,
                    enum ddp_dtype dtype, enum ddp_op op, void *stream,
                    struct ddp_request **ret_request)
{
    return start("ddp_iall_reduce", g,
                 &(struct collective){.kind = CALL_ALL_REDUCE,
                                      .in = in,
                                      .out = out,
                                      .count = count,
                                      .dtype = dtype,
                                      .op = op,
                                      .stream = stream},
                 ret_request);
}

int ddp_iall_reduce_checked(struct ddp_group *g, const void *in, void *out, size_t count,
                            enum ddp_dtype dtype, enum ddp_op op, void *stream, int *ret_found_inf,
                            struct ddp_request **ret_request)
{
    int rc = collective_check_found("ddp_iall_reduce_checked", ret_found_inf);
    if (rc != DDP_OK)
        return rc;
    return start("ddp_iall_reduce_checked", g,
                 &(struct collective){.kind = CALL_ALL_REDUCE,
                                      .in = in,
                                      .out = out,
                                      .count = count,
                                      .dtype = dtype,
                                      .op = op,
                                      .stream = stream,
                                      .found_inf = ret_found_inf},
                 ret_request);
}

int ddp_ireduce(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                enum ddp_op op, int root, void *stream, struct ddp_request **ret_request)
{
    return start("ddp_ireduce", g,
                 &(struct collective){.kind = CALL_REDUCE,
                                      .in = in,
                                      .out = out,
                                      .count = count,
                                      .dtype = dtype,
                                      .op = op,
                                      .root = root,
                                      .stream = stream},
                 ret_request);
}

int ddp_ireduce_scatter(struct ddp_group *g, const void *in, void *out, size_t count,
                        enum ddp_dtype dtype, enum ddp_op op, void *stream,
                        struct ddp_request **ret_request)
{
    return start("ddp_ireduce_scatter", g,
                 &(struct collective){.kind = CALL_REDUCE_SCATTER,
                                      .in = in,
                                      .out = out,
                                      .count = count,
                                      .dtype = dtype,
                                      .op = op,
                                      .stream = stream},
                 ret_request);
}

int ddp_ireduce_scatter_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                          enum ddp_dtype dtype, enum ddp_op op, void *stream,
                          struct ddp_request **ret_request)
{
    return start_v("ddp_ireduce_scatter_v", g,
                   &(struct collective){.kind = CALL_REDUCE_SCATTER,
                                        .in = in,
                                        .out = out,
                                        .counts = counts,
                                        .dtype = dtype,
                                        .op = op,
                                        .stream = stream},
                   ret_request);
}

/* --- copies ----------------------------------------------------------------------------------- */

int ddp_ibroadcast(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, int root, void *stream, struct ddp_request **ret_request)
{
    return start("ddp_ibroadcast", g,
                 &(struct collective){.kind = CALL_BROADCAST,
                                      .in = in,
                                      .out = out,
                                      .count = count,
                                      .dtype = dtype,
                                      .root = root,
                                      .stream = stream},
                 ret_request);
}

int ddp_iall_gather(struct ddp_group *g, const void *in, void *out, size_t count,
                    enum ddp_dtype dtype, void *stream, struct ddp_request **ret_request)
{
    return start("ddp_iall_gather", g,
                 &(struct collective){.kind = CALL_ALL_GATHER,
                                      .in = in,
                                      .out = out,
                                      .count = count,
                                      .dtype = dtype,
                                      .stream = stream},
                 ret_request);
}

int ddp_iall_gather_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                      enum ddp_dtype dtype, void *stream, struct ddp_request **ret_request)
{
    return start_v("ddp_iall_gather_v", g,
                   &(struct collective){.kind = CALL_ALL_GATHER,
                                        .in = in,
                                        .out = out,
                                        .counts = counts,
                                        .dtype = dtype,
                                        .stream = stream},
                   ret_request);
}

int ddp_igather(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                int root, void *stream, struct ddp_request **ret_request)
{
    return start("ddp_igather", g,
                 &(struct collective){.kind = CALL_GATHER,
                                      .in = in,
                                      .out = out,
                                      .count = count,
                                      .dtype = dtype,
                                      .root = root,
                                      .stream = stream},
                 ret_request);
}

int ddp_igather_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                  enum ddp_dtype dtype, int root, void *stream, struct ddp_request **ret_request)
{
    return start_v("ddp_igather_v", g,
                   &(struct collective){.kind = CALL_GATHER,
                                        .in = in,
                                        .out = out,
                                        .counts = counts,
                                        .dtype = dtype,
                                        .root = root,
                                        .stream = stream},
                   ret_request);
}

int ddp_iscatter(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                 int root, void *stream, struct ddp_request **ret_request)
{
    return start("ddp_iscatter", g,
                 &(struct collective){.kind = CALL_SCATTER,
                                      .in = in,
                                      .out = out,
                                      .count = count,
                                      .dtype = dtype,
                                      .root = root,
                                      .stream = stream},
                 ret_request);
}

int ddp_iscatter_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                   enum ddp_dtype dtype, int root, void *stream, struct ddp_request **ret_request)
{
    return start_v("ddp_iscatter_v", g,
                   &(struct collective){.kind = CALL_SCATTER,
                                        .in = in,
                                        .out = out,
                                        .counts = counts,
                                        .dtype = dtype,
                                        .root = root,
                                        .stream = stream},
                   ret_request);
}

int ddp_iall_to_all(struct ddp_group *g, const void *in, void *out, size_t count,
                    enum ddp_dtype dtype, void *stream, struct ddp_request **ret_request)
{
    return start("ddp_iall_to_all", g,
                 &(struct collective){.kind = CALL_ALL_TO_ALL,
                                      .in = in,
                                      .out = out,
                                      .count = count,
                                      .dtype = dtype,
                                      .stream = stream},
                 ret_request);
}

int ddp_iall_to_all_v(struct ddp_group *g, const void *in, const size_t *in_counts, void *out,
                      const size_t *out_counts, enum ddp_dtype dtype, void *stream,
                      struct ddp_request **ret_request)
{
    return start_v("ddp_iall_to_all_v", g,
                   &(struct collective){.kind = CALL_ALL_TO_ALL,
                                        .in = in,
                                        .out = out,
                                        .in_counts = in_counts,
                                        .counts = out_counts,
                                        .dtype = dtype,
                                        .stream = stream},
                   ret_request);
}

/* --- barriers --------------------------------------------------------------------------------- */

int ddp_ibarrier(struct ddp_group *g, struct ddp_request **ret_request)
{
    return start("ddp_ibarrier", g, &(struct collective){.kind = CALL_BARRIER}, ret_request);
}
