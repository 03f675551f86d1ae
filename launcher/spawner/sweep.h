/* sweep.h - signal or kill all descendants of this process, including those that it did not start.
 *
 * For a child subreaper (prctl PR_SET_CHILD_SUBREAPER): a process whose parent died becomes its
 * child, however many times it forked and called setsid(). Only direct children get signals: no
 * other process can reap them, so that their pids cannot have been given to descendants. */
#ifndef DDP_LAUNCHER_SPAWNER_SWEEP_H
#define DDP_LAUNCHER_SPAWNER_SWEEP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Call visit(arg, pid) for each direct child, zombies included. Reads /proc. A child that comes or
 * goes meanwhile may be missed.
 *
 * returns   0, -errno (no /proc) */
int sweep_children(void (*visit)(void *arg, pid_t pid), void *arg);

/* Of the children of a process: one that the kernel takes apart (co_process_tears_down()).
 * returns   0: none */
pid_t sweep_find_teardown(pid_t parent);

/* Wait for the end of a child, for a second at most: a list of children may have been incomplete.
 * SIGCHLD must be blocked. returns false: it is deadline_ms already */
bool sweep_await_child(uint64_t deadline_ms);

/* Kill and reap children until none is left, or until deadline_ms (common/clock.h). SIGCHLD must be
 * blocked.
 *
 * returns   0 none is left; -ETIMEDOUT some do not die (they hang in the kernel) */
int sweep_kill_all(uint64_t deadline_ms);

#endif
