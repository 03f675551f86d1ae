/* collective.h - what the blocking and the asynchronous calls share, and how the ranks of a group
 * come to one answer. */
#ifndef DDP_WORKER_RUNTIME_CORE_COLLECTIVE_H
#define DDP_WORKER_RUNTIME_CORE_COLLECTIVE_H

#include "backend.h"
#include "group.h"

struct ddp_request;

/* --- descriptions of calls -------------------------------------------------------------------- */

static inline struct collective collective_reduction(enum call_kind kind, const void *in, void *out,
                                                     size_t count, enum ddp_dtype dtype,
                                                     enum ddp_op op, int root, void *stream)
{
    return (struct collective){.kind = kind,
                               .in = in,
                               .out = out,
                               .count = count,
                               .dtype = dtype,
                               .op = op,
                               .root = root,
                               .stream = stream};
}

static inline struct collective collective_copy(enum call_kind kind, const void *in, void *out,
                                                size_t count, enum ddp_dtype dtype, int root,
                                                void *stream)
{
    return collective_reduction(kind, in, out, count, dtype, DDP_SUM, root, stream);
}

/* A call with counts must have some: without, it would be the one that has none. returns DDP_OK;
 * DDP_EINVAL */
static inline int collective_check_counts(const char *name, const struct collective *what)
{
    if (what->counts == NULL || (what->kind == CALL_ALL_TO_ALL && what->in_counts == NULL))
        return rt_fail(DDP_EINVAL, "%s: the counts are NULL", name);
    return DDP_OK;
}

/* A call that says whether the result is finite needs a place for the answer. Likewise. */
static inline int collective_check_found(const char *name, const int *ret_found_inf)
{
    return ret_found_inf != NULL ? DDP_OK : rt_fail(DDP_EINVAL, "%s: ret_found_inf is NULL", name);
}

/* Check what a caller gave, and begin the call.
 *
 * name      of the public call, for messages
 * returns   a public status */
int collective_start(const char *name, struct ddp_group *g, const struct collective *what,
                     struct ddp_request **ret_request);

/* --- one answer of all ranks ------------------------------------------------------------------ */

/* Whether all ranks of a group have the same number. Collective. returns as ddp_all_reduce() */
int collective_compare(struct ddp_group *g, uint64_t own, bool *ret_same);

/* Compare how this rank's part of a call ended with the others', so that all ranks fail together,
 * or none does: for calls of which a part happens on one rank alone (a file is read, memory is
 * taken). Collective, but for a group without a back end, which has one rank only.
 *
 * code, err   0, or -errno with its text
 * returns     DDP_OK where all parts went well. Else the status of the first rank whose part did
 *             not, on all ranks, with its text, "rank 2: " in front where there are several; the
 *             group is whole. Else as ddp_all_reduce() */
int collective_agree(struct ddp_group *g, int code, const struct co_error *err);

#endif
