/* collective.h - calls that all ranks of a group make together, and messages between two of them.
 *
 * Every rank must make the same calls in the same order with the same count, type, operation and
 * root: each call carries a signature, and where ranks differ all of them get DDP_EMISMATCH with
 * both sides in the text instead of a hang.
 *
 * Common to all collective calls:
 *   n         ddp_world_size(g)
 *   in, out   aligned to their elements. Apart from the places that each call allows they do not
 *             overlap
 *   count     elements, not bytes; 0 is allowed (and still synchronizes); no 2^31 limit
 *   counts    of the calls that end in _v: n numbers, counts[r] for rank r. The same on all ranks,
 *             except in ddp_all_to_all_v(). Blocks are contiguous
 *   stream    NULL for CPU memory; else a CUDA stream: see device.h
 *   blocking  the call returns when this rank's `out` may be read and its `in` written again, and
 *             no other rank touches either any more, even if it returns an error
 *   order     additions happen in rank order 0, 1, 2, ... for every element, whatever the size,
 *             algorithm and arrival: same inputs, same bits, on all ranks and in every run. On
 *             several nodes: the ranks of each node in their order, then the nodes' sums in the
 *             order of the nodes (of the lowest rank on each), which depends on the shape of the
 *             job alone. 16-bit floats are rounded once more there, where a node's sum ends; an
 *             average of floats is that of the nodes' averages, weighed by their ranks where these
 *             differ
 *   threads   one thread at a time for each group; different groups, at the same time, by different
 *             threads
 *   returns   0
 *             DDP_EINVAL     bad type, operation, root, or NULL with count > 0; a forked child.
 *                            No communication took place; the group is unchanged
 *             DDP_EMISMATCH  another rank called something else; the job is broken
 *             DDP_EPEER      a rank died or left; the job is broken
 *             DDP_ETIMEOUT   the time of ddp_init_opts.timeout_ms passed in one step of the call;
 *                            the text names the ranks that are missing and what they called last;
 *                            broken
 *             After one of the last three every further call on every group of the job returns the
 *             same.
 *   cost      S is what one rank puts in, or gets, whichever is more. "zero copy" holds where the
 *             buffers come from ddp_alloc(); docs/design/collectives.md has the other algorithms */
#ifndef DDP_COLLECTIVE_H
#define DDP_COLLECTIVE_H

#include <ddp/group.h>
#include <ddp/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- reductions ------------------------------------------------------------------------------- */

/* Combine every rank's `in` and leave the result in every rank's `out`.
 *
 * in, out   count elements; out == in is allowed
 * cost      zero copy: each rank reads S and writes S, shared evenly among the ranks; about three
 *           times that through a staging area otherwise */
int ddp_all_reduce(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, enum ddp_op op, void *stream);

/* The same, and report whether the result can be used: a loss scaler needs this before each step.
 *
 * ret_found_inf   1 if an element of the result, in its type, is infinite or not a number, else 0
 *                 (of integers, always); the same on all ranks. Written on success only
 * cost            as ddp_all_reduce(): it is determined during the reduction, without another pass
 *                 over the memory. In a world of 1, and where the group is on several nodes, each
 *                 rank reads `out` once more
 * returns         also DDP_EMISMATCH where a rank calls ddp_all_reduce() instead */
int ddp_all_reduce_checked(struct ddp_group *g, const void *in, void *out, size_t count,
                           enum ddp_dtype dtype, enum ddp_op op, void *stream, int *ret_found_inf);

/* Combine as ddp_all_reduce() does, but only `root` gets the result. `out` is not touched elsewhere
 * and may be NULL there. */
int ddp_reduce(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
               enum ddp_op op, int root, void *stream);

/* Combine every rank's `in`, and leave the r-th n-th of the result in rank r's `out`.
 *
 * in        n * count elements
 * out       count elements; may be in + rank * count
 * cost      zero copy: each rank reads S and writes S/n */
int ddp_reduce_scatter(struct ddp_group *g, const void *in, void *out, size_t count,
                       enum ddp_dtype dtype, enum ddp_op op, void *stream);

/* in        the sum of all counts; out: counts[rank], may be its place in `in` */
int ddp_reduce_scatter_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                         enum ddp_dtype dtype, enum ddp_op op, void *stream);

/* The mean of n numbers over the ranks, each of its own: losses and accuracies for a report. What
 * weighs more counts more by giving sums and their counts.
 *
 * values   in place; the same mean on all ranks. n is 0 or more
 * returns  as ddp_all_reduce() */
int ddp_mean(struct ddp_group *g, double *values, size_t n);

/* --- copies ----------------------------------------------------------------------------------- */

/* Copy root's `in` to every rank's `out`.
 *
 * in        read on root only, may be NULL elsewhere
 * out       count elements on every rank; out == in is allowed on root
 * cost      zero copy: each rank but root reads S and writes S */
int ddp_broadcast(struct ddp_group *g, const void *in, void *out, size_t count,
                  enum ddp_dtype dtype, int root, void *stream);

/* Copy root's `memory` to every rank's: a struct, a text, anything without pointers in it. No
 * alignment is asked for. */
int ddp_broadcast_bytes(struct ddp_group *g, void *memory, size_t bytes, int root);

/* Concatenate every rank's `in`, in rank order, into every rank's `out`.
 *
 * in        count elements; may be out + rank * count
 * out       n * count elements
 * cost      zero copy: each rank reads n * S and writes n * S */
int ddp_all_gather(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, void *stream);

/* in        counts[rank] elements, may be its place in `out`; out: the sum of all counts */
int ddp_all_gather_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                     enum ddp_dtype dtype, void *stream);

/* The same, but only `root` gets it. `out` is not touched elsewhere and may be NULL there. */
int ddp_gather(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
               int root, void *stream);
int ddp_gather_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                 enum ddp_dtype dtype, int root, void *stream);

/* Deal root's `in` out: the r-th n-th of it goes to rank r.
 *
 * in        n * count elements (_v: the sum of all counts); read on root only, may be NULL
 *           elsewhere
 * out       count elements (_v: counts[rank]); on root it may be in + rank * count */
int ddp_scatter(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                int root, void *stream);
int ddp_scatter_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                  enum ddp_dtype dtype, int root, void *stream);

/* Every rank deals its `in` out: block d of rank s's `in` becomes block s of rank d's `out`.
 *
 * in, out   n * count elements; out == in is allowed
 * cost      zero copy (not where out == in): each rank reads S and writes S */
int ddp_all_to_all(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, void *stream);

/* The same with a count for every pair.
 *
 * in_counts    n numbers: elements for each rank
 * out_counts   n numbers: elements from each rank; what rank s has in in_counts[d] is what rank d
 *              must have in out_counts[s], else all ranks get DDP_EMISMATCH
 * in, out      the sums of these; out == in is not allowed */
int ddp_all_to_all_v(struct ddp_group *g, const void *in, const size_t *in_counts, void *out,
                     const size_t *out_counts, enum ddp_dtype dtype, void *stream);

/* --- barriers --------------------------------------------------------------------------------- */

/* Return once every rank has called it. */
int ddp_barrier(struct ddp_group *g);

/* A barrier that reports the missing ranks.
 *
 * timeout_ms   how long to wait; 0: as any other call
 * returns      as ddp_barrier(); the text of DDP_ETIMEOUT names up to eight ranks that are missing,
 *              and what each of them called last */
int ddp_monitored_barrier(struct ddp_group *g, uint64_t timeout_ms);

/* --- messages between two ranks --------------------------------------------------------------- */

/* Send `count` elements to rank `to`, which receives them with the same tag, type and count.
 *
 * tag       0 or more; messages of one tag between two ranks arrive in the order of sending
 * blocking  up to 4096 bytes return at once, as long as the 64th-last message to that rank has been
 *           received. Longer ones return when they are received: two ranks that both send before
 *           they receive wait for each other until the timeout, unless one uses ddp_isend()
 * cost      zero copy: the receiver reads and writes each byte once, when `in` comes from
 *           ddp_alloc(). Plain memory: the same where the system lets a process read another's
 *           memory, else one more copy
 * returns   0
 *           DDP_EINVAL     bad rank (this rank itself is one), tag, type, or NULL with count > 0
 *           DDP_EMISMATCH  the message has another type or count than the receiver expects; the job
 *                          is broken
 *           DDP_EPEER      a rank died or left; broken
 *           DDP_ETIMEOUT   the text names the other side; broken */
int ddp_send(struct ddp_group *g, const void *in, size_t count, enum ddp_dtype dtype, int to,
             int tag, void *stream);
int ddp_recv(struct ddp_group *g, void *out, size_t count, enum ddp_dtype dtype, int from, int tag,
             void *stream);

/* --- asynchronous forms ----------------------------------------------------------------------- */

/* Each ddp_i... takes the arguments of its blocking form, begins the call and returns. Memory it
 * was given belongs to the call until ddp_wait() or ddp_test() reports its completion; arrays of
 * counts are copied.
 *
 * order     the collectives of a group run one after the other, in the order in which the rank
 *           called them, including blocking ones. Messages overtake collectives and each other, but
 *           not those of the same two ranks and tag
 * progress  is made inside of calls of the library on the same group: a long computation between
 *           ddp_i... and ddp_wait() holds the others up, unless ddp_init_opts.progress_thread (or
 *           DDP_PROGRESS_THREAD=1) has a thread do it. The thread costs processor time, and each
 *           asynchronous call, and blocking calls after it, some microseconds
 * threads   with such a thread other threads of the program may wait, by ddp_wait(), for
 *           collectives, while one of them uses the group
 *
 * ret_request   owned by the caller, which calls ddp_wait() on each exactly once, in any order;
 *               written only on success
 * returns       0; DDP_EINVAL as the blocking form, or ret_request is NULL; DDP_ENOMEM. What goes
 *               wrong later is returned by ddp_wait() */
struct ddp_request; /* opaque */

int ddp_iall_reduce(struct ddp_group *g, const void *in, void *out, size_t count,
                    enum ddp_dtype dtype, enum ddp_op op, void *stream,
                    struct ddp_request **ret_request);
int ddp_iall_reduce_checked(struct ddp_group *g, const void *in, void *out, size_t count,
                            enum ddp_dtype dtype, enum ddp_op op, void *stream, int *ret_found_inf,
                            struct ddp_request **ret_request);
int ddp_ireduce(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                enum ddp_op op, int root, void *stream, struct ddp_request **ret_request);
int ddp_ireduce_scatter(struct ddp_group *g, const void *in, void *out, size_t count,
                        enum ddp_dtype dtype, enum ddp_op op, void *stream,
                        struct ddp_request **ret_request);
int ddp_ireduce_scatter_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                          enum ddp_dtype dtype, enum ddp_op op, void *stream,
                          struct ddp_request **ret_request);
int ddp_ibroadcast(struct ddp_group *g, const void *in, void *out, size_t count,
                   enum ddp_dtype dtype, int root, void *stream, struct ddp_request **ret_request);
int ddp_iall_gather(struct ddp_group *g, const void *in, void *out, size_t count,
                    enum ddp_dtype dtype, void *stream, struct ddp_request **ret_request);
int ddp_iall_gather_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                      enum ddp_dtype dtype, void *stream, struct ddp_request **ret_request);
int ddp_igather(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                int root, void *stream, struct ddp_request **ret_request);
int ddp_igather_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                  enum ddp_dtype dtype, int root, void *stream, struct ddp_request **ret_request);
int ddp_iscatter(struct ddp_group *g, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                 int root, void *stream, struct ddp_request **ret_request);
int ddp_iscatter_v(struct ddp_group *g, const void *in, void *out, const size_t *counts,
                   enum ddp_dtype dtype, int root, void *stream, struct ddp_request **ret_request);
int ddp_iall_to_all(struct ddp_group *g, const void *in, void *out, size_t count,
                    enum ddp_dtype dtype, void *stream, struct ddp_request **ret_request);
int ddp_iall_to_all_v(struct ddp_group *g, const void *in, const size_t *in_counts, void *out,
                      const size_t *out_counts, enum ddp_dtype dtype, void *stream,
                      struct ddp_request **ret_request);
int ddp_ibarrier(struct ddp_group *g, struct ddp_request **ret_request);
int ddp_isend(struct ddp_group *g, const void *in, size_t count, enum ddp_dtype dtype, int to,
              int tag, void *stream, struct ddp_request **ret_request);
int ddp_irecv(struct ddp_group *g, void *out, size_t count, enum ddp_dtype dtype, int from, int tag,
              void *stream, struct ddp_request **ret_request);

/* Wait until the call is done, and free the request. NULL gives 0.
 *
 * returns   what the blocking form would have returned; DDP_EINVAL its group has ended before */
int ddp_wait(struct ddp_request *request);

/* Make some progress, without waiting for anybody; at most the work of one call's piece.
 *
 * ret_done   1 the call is done, well or not: ddp_wait() returns at once; 0 not yet
 * returns    0; DDP_EINVAL an argument is NULL, or the group has ended */
int ddp_test(struct ddp_request *request, int *ret_done);

#ifdef __cplusplus
}
#endif
#endif
