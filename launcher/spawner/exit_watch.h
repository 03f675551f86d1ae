/* exit_watch.h - the first sign that a rank is dying, long before it can be waited for.
 *
 * The threads of a process that is killed end one by one. All but the last do so within a tenth of
 * a millisecond; the last one takes the memory apart, 10 ms and more for each 100 MB, and only then
 * there is something to reap. So two threads of each rank are watched, by descriptors that become
 * readable at their end (Linux 6.9). That one has ended says no more than that it is time to look
 * at the rank: threads come and go (early_exit.h knows whether it is dying).
 *
 * Best effort: of a rank with one thread, of those behind the first EXIT_WATCH_RANKS, and on an
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
    uint64_t next_ms; /* when to look for threads; CO_NEVER_MS: they are known, or there are none */
    uint64_t wait_ms; /* until the look behind that one */
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

#endif
