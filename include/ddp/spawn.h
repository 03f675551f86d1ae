/* spawn.h - several ranks out of one program, without a launcher: as processes, as torch's mp.spawn
 * makes them, or as threads, instead of torch's DataParallel. */
#ifndef DDP_SPAWN_H
#define DDP_SPAWN_H

#include <ddp/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fork n processes, have each join a job of their own as a rank of n and call fn(world, arg), and
 * wait for all of them. When one fails the others are sent SIGTERM, and 5 seconds later SIGKILL.
 *
 * The children have copies of this process's memory: what fn writes stays with them, except memory
 * that is shared (MAP_SHARED), and files. They die with the thread that called this. Call it before
 * ddp_init(), and before threads are started: a child has none of them, only the locks that they
 * held. Buffered output is flushed before, and by each child after fn; atexit() functions are not
 * called there.
 *
 * fn        returns 0 or a negative status
 * n         1 .. 1024
 * returns   0 all have returned 0; else why the first one failed: what fn returned there; what
 *           ddp_init() did; DDP_EPEER it was ended by a signal, or has called exit(). The text
 *           names the rank, and is its ddp_last_error(). Ranks that failed because others were gone
 *           are not the first
 *           DDP_EINVAL     n is out of bounds, or there is no fn; fn has returned a positive
 *                          number, or has called ddp_finalize() of its world
 *           DDP_ESYSTEM    a process cannot be made */
int ddp_spawn(int (*fn)(struct ddp_group *world, void *arg), int n, void *arg);

/* The same with threads of this process: one memory, a rank for each device or part of the
 * processors. All calls of the library work among them as among processes: ddp_scatter() deals a
 * batch out, ddp_model_create() or ddp_broadcast() replicates parameters, ddp_gather() brings
 * results together; and without a copy each thread can read what `arg` points to. Each thread has
 * its own network: tensors are not shared between them.
 *
 * A thread that fails leaves; the others get DDP_EPEER from their next call, and are to return.
 * None is stopped from outside. Memory of ddp_alloc(), and gradients that the library allocates,
 * are unmapped when this returns. ddp_store_... calls and ddp_run() are not for these groups.
 *
 * returns   as ddp_spawn(), DDP_EPEER where a thread has called pthread_exit(); DDP_EENV a
 * variable is invalid, as for ddp_init(); DDP_ENOMEM */
int ddp_spawn_threads(int (*fn)(struct ddp_group *world, void *arg), int n, void *arg);

#ifdef __cplusplus
}
#endif
#endif
