/* supervisor_priv.h - the supervisor's inside, for its own files: supervisor.c (the table, the only
 * one that writes the state), supervisor_facts.c (the facts in an event, and what the ends mean)
 * and recovery.c (ranks that live on when others end). */
#ifndef DDP_LAUNCHER_SUPERVISOR_SUPERVISOR_PRIV_H
#define DDP_LAUNCHER_SUPERVISOR_SUPERVISOR_PRIV_H

#include "supervisor.h"

struct supervisor {
    struct supervisor_limits limits;
    enum supervisor_state state;
    uint64_t deadline_ms;
    uint64_t teardown_ms; /* KILLING, SWEEPING: what was killed and runs is awaited until then */
    int n_asked;          /* ranks 0 .. n_asked - 1 were asked for */
    int n_answered;       /* how many of these were started or failed to */
    int n_running;
    int primary;      /* the first that failed by itself, of no other one's end; -1: none */
    int aborter;      /* the first that has aborted, as far as ABORTED was fed; -1: none */
    bool empty;       /* the spawner has no child, according to its last report */
    int n_interrupts; /* SIGINT received */
    int stop_signal;  /* the first that asks for a stop; 0: none, or the time was over before it */
    bool timed_out;   /* before any such signal */
    bool alone;       /* without a spawner nothing can be started */
    bool swept_alone; /* it was lost before the last rank had ended */
    uint32_t generation;
    uint64_t begun_ms; /* this generation */
    struct supervisor_progress progress;
    struct supervisor_verdict verdict;
    struct supervisor_replacement replacement;
    int *restart; /* owned, n_ranks, as the next one: lent with the orders */
    int *dropped;
    struct supervisor_rank ranks[];
};

/* Of all ranks; those that are to begin again may not have been asked for yet. */
static inline bool supervisor_has_all_answers(const struct supervisor *s)
{
    if (s->n_answered < s->limits.n_ranks)
        return false;
    for (int i = 0; i < s->n_asked; i++)
        if (s->ranks[i].phase == RANK_NOT_STARTED)
            return false;
    return true;
}

/* --- supervisor_facts.c --- */

/* Order a signal, and record which ranks got it.
 *
 * except   local rank; -1: none */
void supervisor_signal_ranks(struct supervisor *s, int sig, int except, bool to_groups,
                             struct supervisor_orders *o);

/* Whether a signal to ddprun ends the job. */
bool supervisor_is_stop(const struct supervisor *s, int sig);

/* Record the facts in an event, if they can be true. */
void supervisor_note_facts(struct supervisor *s, const struct supervisor_event *e);

/* START_FAILED, or a rank's failed end: it is the cause, or the rank that it blames and whose own
 * end is not seen yet. */
void supervisor_blame(struct supervisor *s, const struct supervisor_event *e);

/* Order SIGTERM for all ranks, except one that is blamed: it dies already. */
void supervisor_stop_others(struct supervisor *s, uint64_t deadline_ms,
                            struct supervisor_orders *o);

/* All ends are known: which one is the cause. */
void supervisor_settle_verdict(struct supervisor *s);

/* FINISH: the job has ended. */
void supervisor_note_finish(struct supervisor *s, const struct supervisor_event *e);

#endif
