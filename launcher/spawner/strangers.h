/* strangers.h - the first process of a container reaps what dies there, whoever started it.
 *
 * As process 1 ddprun becomes the parent of processes that it has never heard of: of a shell that
 * somebody opens in the container, what that leaves behind. Nobody else can reap them, and each one
 * that is not reaped keeps its number for good. Its own descendants are the nursery's. */
#ifndef DDP_LAUNCHER_STRANGERS_H
#define DDP_LAUNCHER_STRANGERS_H

#include <sys/types.h>
#include <uv.h>

struct co_error;
struct strangers; /* opaque */

/* Reap from now on, if this is process 1. SIGCHLD must be blocked.
 *
 * nursery   its end is its owner's to see; it is not reaped
 * ret       strangers_close() it; NULL: this is no process 1
 * returns   0, -ENOMEM, -errno */
int strangers_open(uv_loop_t *loop, pid_t nursery, struct strangers **ret, struct co_error *err);
void strangers_close(struct strangers *s); /* freed by the loop; NULL is fine */

#endif
