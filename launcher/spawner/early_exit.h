/* early_exit.h - ranks that are as good as ended, though they cannot be reaped yet.
 *
 * The kernel marks a process as ending, and wakes its peers (robust futexes), before it frees its
 * memory; only behind that it can be waited for: 7 ms and more for each 100 MB. The mark and the
 * status are the kernel's own, so no rank can be taken for dead that lives. */
#ifndef DDP_LAUNCHER_SPAWNER_EARLY_EXIT_H
#define DDP_LAUNCHER_SPAWNER_EARLY_EXIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Has it begun to end, whatever of? Of one that ends with 0, or as the kernel does not let us know,
 * no before the last of its threads is at it: till then it may be just the first thread that has
 * ended, and the program goes on without it.
 *
 * pid   of a process that has not been reaped: nobody else can have the number */
bool early_exit_is_ending(pid_t pid);

/* Does it end, and not well?
 *
 * ret_status   as waitpid() will have it, never 0
 * returns      false also where the kernel does not let us know: then its end is told when it is
 *              reaped, as all others are */
bool early_exit_has_failed(pid_t pid, int *ret_status);

/* Its memory is freed on a processor that the others need now: all of its threads, since the last
 * of them does it, get the lowest priority. None that would stop it where all processors are busy:
 * its files are closed behind that. Who is gone, or not ours, is left alone. */
void early_exit_step_aside(pid_t pid);

/* When to look again. A rank's threads end one after the other, and its peers may be woken by one
 * before the first is marked: one look may come too early, a few that are ever further apart do
 * not. Pure; zeroed: nobody looks. */
struct early_exit_watch {
    uint64_t wait_ms; /* between the next look and the one behind it; 0: no look is left */
    uint64_t next_ms;
};

void early_exit_watch_begin(struct early_exit_watch *w,
                            uint64_t now_ms);                        /* the first is due at once */
uint64_t early_exit_watch_next_ms(const struct early_exit_watch *w); /* CO_NEVER_MS: none is left */

/* returns   whether one is due, which counts as done then */
bool early_exit_watch_take(struct early_exit_watch *w, uint64_t now_ms);

#endif
