/* checkpoint_request.h - whether a node waits to join, for the exchange at the end of a step: it
 * passes the request that one rank received to all ranks, so that ddp_checkpoint_requested() need
 * not ask them again. */
#ifndef DDP_WORKER_RUNTIME_GROUP_CHECKPOINT_REQUEST_H
#define DDP_WORKER_RUNTIME_GROUP_CHECKPOINT_REQUEST_H

#include <stdbool.h>

struct ddp_group;

/* The descriptor by which ddprun asks; -1: no node can join, or the group is not the world. */
int checkpoint_request_find(const struct ddp_group *g);
bool checkpoint_request_is_asked(int fd); /* a system call */

/* Throw away what was asked in a generation that is over. */
void checkpoint_request_forget(void);

#endif
