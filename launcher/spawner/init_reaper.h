/* init_reaper.h - the first process of a container reaps the orphans that die there, whichever
 * process started them.
 *
 * As process 1 ddprun becomes the parent of processes that it does not know: for example, the
 * orphans of a shell that a user opens in the container. No other process can reap them, and each
 * one that is not reaped keeps its number for good. Its own descendants are the spawner's. */
#ifndef DDP_LAUNCHER_SPAWNER_INIT_REAPER_H
#define DDP_LAUNCHER_SPAWNER_INIT_REAPER_H

#include <sys/types.h>
#include <uv.h>

struct co_error;
struct init_reaper; /* opaque */

/* Reap from now on, if this is process 1. SIGCHLD must be blocked.
 *
 * spawner   its end is its owner's to see; it is not reaped
 * ret       init_reaper_close() it; NULL: this is not process 1
 * returns   0, -ENOMEM, -errno */
int init_reaper_open(uv_loop_t *loop, pid_t spawner, struct init_reaper **ret,
                     struct co_error *err);
void init_reaper_close(struct init_reaper *s); /* freed by the loop; NULL is fine */

#endif
