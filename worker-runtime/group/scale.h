/* scale.h - whether a node waits to join, for the exchange at the end of a step: it tells all ranks
 * what one of them was asked, so that ddp_scale_pending() need not ask them again. */
#ifndef DDP_WORKER_RUNTIME_SCALE_H
#define DDP_WORKER_RUNTIME_SCALE_H

#include <stdbool.h>

struct ddp_group;

/* The descriptor by which ddprun asks; -1: no node can join, or the group is not the world. */
int scale_find(const struct ddp_group *g);
bool scale_is_asked(int fd); /* a system call */

/* Throw away what was asked in a generation that is over. */
void scale_forget(void);

#endif
