/* hold.h - wait where ddprun --replay has something happen: in the middle of a step, so that it
 * happens to all ranks of the job there (docs/recovery.md, Replay). */
#ifndef DDP_WORKER_RUNTIME_GROUP_HOLD_H
#define DDP_WORKER_RUNTIME_GROUP_HOLD_H

struct ddp_group;

/* In a step that nobody has completed yet: if it is the one behind that which ddprun has named,
 * meet the other ranks, and wait until the generation is over or ddprun lets this rank go.
 * Collective over the world then; of other groups, and of a world without ddprun, nothing is
 * asked.
 *
 * returns   0; DDP_RETRY or DDP_EPEER: the generation is over, and the step with it */
int hold_here(struct ddp_group *g);

#endif
