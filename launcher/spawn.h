/* spawn.h - start one worker from the nursery.
 *
 * The child borrows the nursery's memory until it executes (CLONE_VM|CLONE_VFORK), so that a start
 * costs the same whatever the nursery's size, and the errno of a failed exec is known exactly. The
 * worker gets a session of its own, default signal dispositions and an empty mask, and SIGKILL from
 * the kernel should the nursery die. Only for the nursery: single-threaded, all signals blocked,
 * all its descriptors close-on-exec and none that is passed on below SPAWN_N_FDS. */
#ifndef DDP_LAUNCHER_SPAWN_H
#define DDP_LAUNCHER_SPAWN_H

#include <sys/types.h>

struct image;

enum spawn_stage { SPAWN_CLONE, SPAWN_SETUP, SPAWN_EXEC };

#define SPAWN_N_FDS                                                                                \
    4 /* stdin, stdout, stderr, the node socket; that is their number in the worker */

/* fds       what the worker's descriptors 0 .. 3 shall be; -1: leave that number closed
 * ret_pid   of the worker, on success
 * ret_stage on failure: where
 * returns   0; -errno of clone (no more processes), of setting up, or of execve() */
int spawn_worker(struct image *image, const int fds[SPAWN_N_FDS], pid_t *ret_pid,
                 enum spawn_stage *ret_stage);

#endif
