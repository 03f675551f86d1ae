/* hold.h - wait where ddprun --replay has something happen: behind a step, so that it happens to
 * all ranks of the job there (docs/recovery.md, Replay). */
#ifndef DDP_WORKER_RUNTIME_HOLD_H
#define DDP_WORKER_RUNTIME_HOLD_H

struct ddp_group;

/* Behind a step, and where a generation begins: if this is the place, meet the other ranks, and
 * wait until the generation is over or ddprun lets this rank go. Collective over the world
 * there; of other groups, and of a world without ddprun, nothing is asked. What breaks meanwhile
 * is told by the next call. */
void hold_here(struct ddp_group *g);

#endif
