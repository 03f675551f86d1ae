/* exit_watch.h - the first sign that a rank is dying, long before it can be waited for.
 *
 * The threads of a process that is killed end one by one. All but the last do so within a tenth of
 * a millisecond; the last one takes the memory apart, 10 ms and more for each 100 MB, and only then
 * the process can be reaped. So two threads of each rank are watched, by descriptors that become
 * readable at their end (Linux 6.9). The end of a thread means only that it is time to look at the
 * rank: threads start and end (early_exit_is_ending() knows whether the rank is dying).
 *
 * Best effort: for a rank with one thread, for ranks after the first EXIT_WATCH_RANKS, and on an
 * older kernel, nothing is known before the end itself. */
#ifndef DDP_LAUNCHER_SPAWNER_EXIT_WATCH_H
#define DDP_LAUNCHER_SPAWNER_EXIT_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define EXIT_WATCH_RANKS 64 /* of a node; the descriptors are few even where 1024 are the limit */
#define EXIT_WATCH_EACH  2  /* should one of them be the last to end, the other one is not */

struct exit_watch_one {
    pid_t rank;
    pid_t thread;
    int fd;
};

struct exit_watch {
    int fd; /* readable: exit_watch_hear() has something to do; -1: nothing is watched */
    struct exit_watch_one of[EXIT_WATCH_RANKS * EXIT_WATCH_EACH];
    int n;
    uint64_t next_ms; /* when to look for threads; CO_NEVER_MS: they are known, or none exist */
    uint64_t wait_ms; /* time until the one after it */
};

void exit_watch_init(struct exit_watch *w);
void exit_watch_fini(struct exit_watch *w);

/* There are new ranks. A rank has its threads when it has begun, so they are looked for soon, and
 * then, for those that have not enough, ever less often, for four minutes. */
void exit_watch_begin(struct exit_watch *w, uint64_t now_ms);

/* Look for threads, if it is time.
 *
 * ranks     their pids, 0: none; children of this process that have not been reaped */
void exit_watch_look(struct exit_watch *w, const pid_t *ranks, int n_ranks, uint64_t now_ms);

/* Stop watching those that have ended, and look for others in their place.
 *
 * returns   whether there were any */
bool exit_watch_hear(struct exit_watch *w, uint64_t now_ms);

/* This rank has ended, or is about to. */
void exit_watch_forget(struct exit_watch *w, pid_t rank);

/* --- ranks that are as good as ended --- */

/* These ranks cannot be reaped yet. The kernel marks a process as ending, and wakes its peers
 * (robust futexes), before it frees its memory; only after that it can be waited for: 7 ms and more
 * for each 100 MB. The mark and the status are the kernel's own, so no rank can be taken for dead
 * that lives. */

/* Has it begun to end, for any reason? If it ends with 0, or the kernel does not permit us to read
 * its status, returns false until its last thread ends: before, it may be just the first thread
 * that has ended, and the program continues without it.
 *
 * pid   a process that has not been reaped: no other process can have the number */
bool early_exit_is_ending(pid_t pid);

/* Does it end, and fail?
 *
 * ret_status   as waitpid() will have it, never 0
 * returns      false also where the kernel does not let us know: then its end is reported when it
 *              is reaped, like all others */
bool early_exit_has_failed(pid_t pid, int *ret_status);

/* Its memory is freed on a processor that the others need now: all of its threads get the lowest
 * priority, since the last of them does it. Not a priority that would stop it where all processors
 * are busy: its files are closed after that. A process that is gone, or not ours, is left alone. */
void early_exit_step_aside(pid_t pid);

/* ddprun waits for its end: if it is ending, all of its threads get the priority of this process.
 * At the lowest priority, 130 ms of work take more than 20 s where 30 processes want two
 * processors. Without CAP_SYS_NICE or RLIMIT_NICE the kernel refuses, and nothing changes. */
void early_exit_step_back(pid_t pid);

/* When to look again. A rank's threads end one after the other, and one of them may wake its peers
 * before the first is marked: one look may be too early; a few looks at growing intervals are not.
 * Pure; zeroed: no looks. */
struct early_exit_watch {
    uint64_t wait_ms; /* between the next look and the one after it; 0: no look is left */
    uint64_t next_ms;
};

void early_exit_watch_begin(struct early_exit_watch *w,
                            uint64_t now_ms);                        /* the first is due at once */
uint64_t early_exit_watch_next_ms(const struct early_exit_watch *w); /* CO_NEVER_MS: none is left */

/* returns   whether one is due, which counts as done then */
bool early_exit_watch_take(struct early_exit_watch *w, uint64_t now_ms);

#endif
