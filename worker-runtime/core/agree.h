/* agree.h - all ranks of a group fail together, or none does.
 *
 * For calls of which a part happens on one rank alone (a file is read, memory is taken): the others
 * shall neither go on without it nor wait for it in vain. */
#ifndef DDP_WORKER_RUNTIME_CORE_AGREE_H
#define DDP_WORKER_RUNTIME_CORE_AGREE_H

struct co_error;
struct ddp_group;

/* Compare how this rank's part ended with the others'. Collective, but for a group without a back
 * end, which has one rank only.
 *
 * code, err   0, or -errno with its text
 * returns     DDP_OK where all parts went well. Else the status of the first rank whose part did
 *             not, on all ranks, with its text, "rank 2: " in front where there are several; the
 *             group is whole. Else as ddp_all_reduce() */
int agree(struct ddp_group *g, int code, const struct co_error *err);

#endif
