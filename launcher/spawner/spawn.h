/* spawn.h - start workers from the spawner.
 *
 * A child borrows the spawner's memory until it executes (CLONE_VM), so that a start costs the same
 * whatever the spawner's size. Several are under way at once: most of a start is the kernel's
 * execve(), and that runs on as many CPUs as are idle. A worker gets a session of its own, default
 * signal dispositions and an empty mask, and SIGKILL from the kernel should the spawner die. Only
 * for the spawner: single-threaded, all signals blocked, all its descriptors close-on-exec and none
 * that is passed on below SPAWN_N_FDS. */
#ifndef DDP_LAUNCHER_SPAWNER_SPAWN_H
#define DDP_LAUNCHER_SPAWNER_SPAWN_H

#include <sys/types.h>

struct cpu_set;

enum spawn_stage { SPAWN_CLONE, SPAWN_SETUP, SPAWN_EXEC, SPAWN_GONE /* spawner_renumber() */ };

/* After stdin, stdout and stderr; that is their number in the worker. */
enum {
    SPAWN_NODE_FD = 3,
    SPAWN_CHECKPOINT_FD,
    SPAWN_PMI_FD,
    SPAWN_PROGRESS_FD,
    SPAWN_ENCRYPT_FD,
    SPAWN_MEMORY_FD,
    SPAWN_N_FDS
};

#define SPAWN_AT_ONCE 8 /* more gain little: each holds the descriptors of all until it executes */

struct spawn_order {
    char *path;
    char **argv; /* argv[-1] is a free slot: for "/bin/sh" in front */
    char **env;
    const struct cpu_set *cpus; /* that it may run on; NULL: where the spawner may */
    int fds[SPAWN_N_FDS]; /* what its descriptors 0 .. 8 shall be; -1: leave that number closed */
    /* The answer: */
    pid_t pid;              /* it was started; 0: it was not ... */
    int error;              /* ... for this errno of clone (no more processes), of setting up, or of
                               execve() ... */
    enum spawn_stage stage; /* ... here */
};

/* Start n workers, 1 to SPAWN_AT_ONCE, and write the answers. Returns when all of them execute, or
 * were not started. */
void spawn_workers(struct spawn_order *orders, int n);

#endif
