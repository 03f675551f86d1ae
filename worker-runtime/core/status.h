/* status.h - what only ddp_init() tells status.c; the rest is in group.h. */
#ifndef DDP_WORKER_RUNTIME_CORE_STATUS_H
#define DDP_WORKER_RUNTIME_CORE_STATUS_H

/* Which rank this process is, for the messages of ddp_fatal(). */
void rt_set_rank(int rank);

#endif
