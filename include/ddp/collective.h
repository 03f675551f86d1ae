/* collective.h - calls that all ranks of a group make together.
 *
 * Every rank must make the same calls in the same order with the same count, type, operation and
 * root: each call carries a signature, and where ranks differ all of them get DDP_EMISMATCH with
 * both sides in the text instead of a hang.
 *
 * Common to all calls:
 *   count     elements, not bytes; 0 is allowed (and still meets the others); no 2^31 limit
 *   stream    NULL for memory of the CPU
 *   blocking  the call returns when this rank's `out` may be read and its `in` written again
 *   order     additions happen in rank order 0, 1, 2, ... for every element, whatever the size,
 *             algorithm and arrival: same inputs, same bits, on all ranks and in every run
 *   returns   0
 *             DDP_EINVAL     bad type, operation, root, or NULL with count > 0
 *             DDP_EMISMATCH  another rank called something else; the group is broken
 *             DDP_EPEER      a rank died or left; the group is broken
 *             DDP_ETIMEOUT   ddp_init_opts.timeout_ms passed; the text names who is missing; broken
 *             After one of the last three every further call returns the same. */
#ifndef DDP_COLLECTIVE_H
#define DDP_COLLECTIVE_H

#include <ddp/group.h>
#include <ddp/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Combine every rank's `in` and leave the result in every rank's `out`.
 *
 * in, out   count elements; out == in is allowed, partial overlap is not
 * cost      on a node: each rank reads world_size * count elements once in total and writes as
 *           many, shared evenly among the ranks, when `in` and `out` come from ddp_alloc(); about
 *           three times that through a staging area otherwise */
int ddp_all_reduce(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, enum ddp_op op, void *stream);

/* The same, but only `root` gets the result. `out` is not touched elsewhere and may be NULL
 * there. */
int ddp_reduce(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
               enum ddp_op op, int root, void *stream);

/* Copy root's `in` to every rank's `out`.
 *
 * in        read on root only, may be NULL elsewhere
 * out       count elements on every rank; out == in is allowed on root */
int ddp_broadcast(struct ddp_group *g, const void *in, void *out, size_t count,
                  enum ddp_dtype dtype, int root, void *stream);

/* Lay every rank's `in` one behind the other, in rank order, into every rank's `out`.
 *
 * in        count elements; may be out + rank * count
 * out       world_size * count elements */
int ddp_all_gather(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, void *stream);

/* Return once every rank has called it. */
int ddp_barrier(struct ddp_group *g);

#ifdef __cplusplus
}
#endif
#endif
