/* collective_async.c - asynchronous forms of the collectives: the same checks, then the queue. */
#include "collective.h"

#include <ddp/collective.h>

/* A call with counts. Without them it would be the one that has none. */
static int start_v(const char *name, struct ddp_group *g, const struct collective *what,
                   struct ddp_request **ret_request)
{
    int rc = collective_check_counts(name, what);
    return rc != DDP_OK ? rc : collective_start(name, g, what, ret_request);
}

/* --- reductions ------------------------------------------------------------------------------- */

int ddp_iall_reduce(struct ddp_group *g, const void *in, void *out, size_t count,
                    enum ddp_dtype dtype, enum ddp_op op, void *stream,
                    struct ddp_request **ret_request)
{
    const struct collective what =
        collective_reduction(CALL_ALL_REDUCE, in, out, count, dtype, op, 0, stream);
    return collective_start("ddp_iall_reduce", g, &what, ret_request);
}

int ddp_iall_reduce_checked(struct ddp_group *g, const void *in, void *out, size_t count,
                            enum ddp_dtype dtype, enum ddp_op op, void *stream, int *ret_found_inf,
                            struct ddp_request **ret_request)
{
    int rc = collective_check_found("ddp_iall_reduce_checked", ret_found_inf);
    if (rc != DDP_OK)
        return rc;
    struct collective what =
        collective_reduction(CALL_ALL_REDUCE, in, out, count, dtype, op, 0, stream);
    what.found_inf = ret_found_inf;
    return collective_start("ddp_iall_reduce_checked", g, &what, ret_request);
}

int ddp_ireduce(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                enum ddp_op op, int root, void *stream, struct ddp_request **ret_request)
{
    const struct collective what =
        collective_reduction(CALL_REDUCE, in, out, count, dtype, op, root, stream);
    return collective_start("ddp_ireduce", g, &what, ret_request);
}

int ddp_ireduce_scatter(struct ddp_group *g, const void *in, void *out, size_t count,
                        enum ddp_dtype dtype, enum ddp_op op, void *stream,
                        struct ddp_request **ret_request)
{
    const struct collective what =
        collective_reduction(CALL_REDUCE_SCATTER, in, out, count, dtype, op, 0, stream);
    return collective_start("ddp_ireduce_scatter", g, &what, ret_request);
}

int ddp_ireduce_scatter_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                          enum ddp_dtype dtype, enum ddp_op op, void *stream,
                          struct ddp_request **ret_request)
{
    struct collective what =
        collective_reduction(CALL_REDUCE_SCATTER, in, out, 0, dtype, op, 0, stream);
    what.counts = counts;
    return start_v("ddp_ireduce_scatter_v", g, &what, ret_request);
}

/* --- copies ----------------------------------------------------------------------------------- */

int ddp_ibroadcast(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, int root, void *stream, struct ddp_request **ret_request)
{
    const struct collective what =
        collective_copy(CALL_BROADCAST, in, out, count, dtype, root, stream);
    return collective_start("ddp_ibroadcast", g, &what, ret_request);
}

int ddp_iall_gather(struct ddp_group *g, const void *in, void *out, size_t count,
                    enum ddp_dtype dtype, void *stream, struct ddp_request **ret_request)
{
    const struct collective what =
        collective_copy(CALL_ALL_GATHER, in, out, count, dtype, 0, stream);
    return collective_start("ddp_iall_gather", g, &what, ret_request);
}

int ddp_iall_gather_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                      enum ddp_dtype dtype, void *stream, struct ddp_request **ret_request)
{
    struct collective what = collective_copy(CALL_ALL_GATHER, in, out, 0, dtype, 0, stream);
    what.counts = counts;
    return start_v("ddp_iall_gather_v", g, &what, ret_request);
}

int ddp_igather(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                int root, void *stream, struct ddp_request **ret_request)
{
    const struct collective what =
        collective_copy(CALL_GATHER, in, out, count, dtype, root, stream);
    return collective_start("ddp_igather", g, &what, ret_request);
}

int ddp_igather_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                  enum ddp_dtype dtype, int root, void *stream, struct ddp_request **ret_request)
{
    struct collective what = collective_copy(CALL_GATHER, in, out, 0, dtype, root, stream);
    what.counts = counts;
    return start_v("ddp_igather_v", g, &what, ret_request);
}

int ddp_iscatter(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                 int root, void *stream, struct ddp_request **ret_request)
{
    const struct collective what =
        collective_copy(CALL_SCATTER, in, out, count, dtype, root, stream);
    return collective_start("ddp_iscatter", g, &what, ret_request);
}

int ddp_iscatter_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                   enum ddp_dtype dtype, int root, void *stream, struct ddp_request **ret_request)
{
    struct collective what = collective_copy(CALL_SCATTER, in, out, 0, dtype, root, stream);
    what.counts = counts;
    return start_v("ddp_iscatter_v", g, &what, ret_request);
}

int ddp_iall_to_all(struct ddp_group *g, const void *in, void *out, size_t count,
                    enum ddp_dtype dtype, void *stream, struct ddp_request **ret_request)
{
    const struct collective what =
        collective_copy(CALL_ALL_TO_ALL, in, out, count, dtype, 0, stream);
    return collective_start("ddp_iall_to_all", g, &what, ret_request);
}

int ddp_iall_to_all_v(struct ddp_group *g, const void *in, const size_t *in_counts, void *out,
                      const size_t *out_counts, enum ddp_dtype dtype, void *stream,
                      struct ddp_request **ret_request)
{
    struct collective what = collective_copy(CALL_ALL_TO_ALL, in, out, 0, dtype, 0, stream);
    what.in_counts = in_counts;
    what.counts = out_counts;
    return start_v("ddp_iall_to_all_v", g, &what, ret_request);
}

/* --- barriers --------------------------------------------------------------------------------- */

int ddp_ibarrier(struct ddp_group *g, struct ddp_request **ret_request)
{
    return collective_start("ddp_ibarrier", g, &(struct collective){.kind = CALL_BARRIER},
                            ret_request);
}
