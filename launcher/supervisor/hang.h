/* hang.h - is the job stuck, and which rank is it that the others wait for?
 *
 * Pure. The caller looks at the ranks now and then, and passes in what it saw and when; the answer
 * follows from how long each has stayed as it was.
 *
 * Words:
 *   moves    a rank's page of progress (segments/rank_status.h) has changed; where no rank has a
 *   page,
 *            a rank has written something
 *   waits    a thread of the rank is inside of a call until others arrive; or it has joined, and
 *            others have not
 *   overdue  it did not move for the timeout
 *
 * A rank hangs if
 *   - a rank has waited for the timeout, and another one neither waits nor moves: that is missing;
 *   - all ranks wait and none moves: one of them is stopped, or in another call than the others;
 *   - no rank moves, nor writes anything: the one that has completed fewer steps than
 *     others, or one that is elsewhere than they are.
 * Where the job has ranks on other nodes only the first is certain, unless a rank is stopped: the
 * others may wait for a rank there. */
#ifndef DDP_LAUNCHER_SUPERVISOR_HANG_H
#define DDP_LAUNCHER_SUPERVISOR_HANG_H

#include "segments/rank_status.h"

#include <stdbool.h>
#include <stdint.h>

struct hang; /* opaque; of a node */

#define HANG_PLACE_BYTES 64

struct hang_look { /* a rank, now */
    bool runs;
    bool has_page;      /* of libddp, or it reports its steps by lines (progress.only_steps) */
    uint64_t digest;    /* has_page: another one when it has moved */
    uint64_t output_ms; /* when it last wrote something; 0: never, or its output is not
                               * observed */
    struct progress progress; /* has_page */
    bool is_runnable;         /* its first thread runs, or waits for a CPU (state R) */
    uint64_t cpu_ms;          /* that all of its threads have used so far; 0: not known */
    /* for hang_blame() only: */
    bool is_stopped;              /* by a signal: SIGCONT would continue it */
    char place[HANG_PLACE_BYTES]; /* where in the kernel it sleeps; "": it runs, or not known */
};

enum hang_kind {
    HANG_MISSING,    /* others wait in `call`, it does not */
    HANG_NOT_JOINED, /* others have joined, it has not */
    HANG_ALL_WAIT,   /* all of them wait; this one most likely for none of them */
    HANG_SILENT,     /* nothing moves; no rank reports what it waits for */
    /* found by the caller, which fills rank, still_ms, and: */
    HANG_TIMER,  /* a timer of the rank has expired: timer, late_ms; still_ms: since it was set */
    HANG_ASLEEP, /* the kernel lets it sleep uninterruptibly */
};

enum hang_odd {
    HANG_NOT_ODD,
    HANG_RUNS,   /* it computes, and no other rank does */
    HANG_SLEEPS, /* it sleeps where no other does */
    HANG_LAGS,   /* others wait in a collective that it has not called, as torch reports; set by the
                    caller */
};

#define HANG_NAMED       16
#define HANG_TIMER_BYTES 64

struct hang_finding {
    enum hang_kind kind;
    int rank; /* local */
    bool is_stopped;
    bool is_guess;     /* it could be another one as well */
    enum hang_odd odd; /* SILENT: in what it differs from the others */
    bool has_steps;    /* SILENT: it reports them: so many; and the most of all ranks here */
    uint64_t steps, most_steps;
    uint64_t still_ms; /* it did not move for so long */
    int n_alike;       /* how many more are missing */
    int n_waiting;     /* others, of which the first HANG_NAMED are listed */
    int waiting[HANG_NAMED];
    uint64_t waiting_ms;          /* the longest of them */
    char timer[HANG_TIMER_BYTES]; /* TIMER: its name, without control characters; "": none */
    uint64_t late_ms;             /* TIMER: since it expired */
    bool has_call, has_last;      /* whether there is such a one: */
    struct rank_status_call call; /* in which most of the others wait */
    struct rank_status_call
        last; /* the last one of `rank` in the group of `call`; SILENT: anywhere */
};

enum { HANG_LEARN_MOVES = 20, HANG_LEARN_FACTOR = 5, HANG_LEARN_MIN_MS = 300000 };

/* timeout_ms   > 0
 * learns       the timeout becomes shorter once HANG_LEARN_MOVES movements of ranks after their
 *              first one are known: HANG_LEARN_FACTOR times the longest time that a rank took for
 *              one, but not below HANG_LEARN_MIN_MS
 * returns      NULL without memory */
struct hang *hang_create(int n_ranks, uint64_t timeout_ms, bool learns);
void hang_destroy(struct hang *h); /* NULL is fine */

/* Time begins again for all ranks: they were started, or one of them was replaced.
 *
 * has_others   the job has ranks on other nodes */
void hang_renew(struct hang *h, bool has_others, uint64_t now_ms);

/* The timeout as it is now. */
uint64_t hang_timeout_ms(const struct hang *h);

/* Take notice of how the ranks are now.
 *
 * looks     n_ranks of them
 * returns   whether a rank hangs, most likely: look closer, and ask hang_blame() */
bool hang_note(struct hang *h, const struct hang_look *looks, uint64_t now_ms);

/* Which one is it? After hang_note() of the same looks and time.
 *
 * returns   whether it is known; else no rank hangs, or it is on another node */
bool hang_blame(const struct hang *h, const struct hang_look *looks, uint64_t now_ms,
                struct hang_finding *ret);

/* Of one CPU, by all threads of a rank, over the last looks.
 *
 * returns   percent; more than 100 with several threads; -1: not known yet */
int hang_cpu_percent(const struct hang *h, int rank);

/* How often to look: often enough that an answer is late by a small part of the timeout. */
uint64_t hang_interval_ms(uint64_t timeout_ms);

#endif
