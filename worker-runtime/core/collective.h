/* collective.h - how the ranks of a group come to one answer. */
#ifndef DDP_WORKER_RUNTIME_CORE_COLLECTIVE_H
#define DDP_WORKER_RUNTIME_CORE_COLLECTIVE_H

#include "group.h"

/* Whether all ranks of a group have the same number. Collective. returns as ddp_all_reduce() */
int collective_compare(struct ddp_group *g, uint64_t own, bool *ret_same);

/* Gather `bytes` bytes of each rank. Collective; fails on all ranks if one is out of memory.
 *
 * returns   those of all ranks, in their order: free() it; NULL where *ret_status is not DDP_OK */
void *collective_gather(struct ddp_group *g, const void *own, size_t bytes, int *ret_status);

/* Compare how this rank's part of a call ended with the others', so that all ranks fail together,
 * or none does: for calls of which a part happens on one rank alone (a file is read, memory is
 * taken). Collective, except for a group without a back end, which has one rank only.
 *
 * code, err   0, or -errno with its text
 * returns     DDP_OK where all parts went well. Else the status of the first rank whose part did
 *             not, on all ranks, with its text, "rank 2: " in front where there are several; the
 *             group is whole. Else as ddp_all_reduce() */
int collective_agree(struct ddp_group *g, int code, const struct co_error *err);

#endif
