#include "recovery.h"

#include "common/clock.h"
#include "supervisor_priv.h"

#include <signal.h>

/* --- Conditions --- */

bool recovery_all_joined(const struct supervisor *s, const struct supervisor_event *e)
{
    (void)e;
    for (int i = 0; i < s->n_asked; i++)
        if (s->ranks[i].called)
            return false;
    return supervisor_has_all_answers(s);
}

static bool is_there(const struct supervisor_rank *r)
{
    return r->phase == RANK_RUNS || r->phase == RANK_ASKED;
}

/* Can the ranks continue in another generation, with a replacement for `failed`? -1: no rank has
 * failed */
static bool others_are_recoverable(const struct supervisor *s, int failed)
{
    bool any = failed >= 0 && s->ranks[failed].joined == RANK_RECOVERABLE, some_run = false;
    for (int i = 0; i < s->limits.n_ranks; i++) {
        const struct supervisor_rank *r = &s->ranks[i];
        any |= r->joined == RANK_RECOVERABLE;
        if (i == failed || r->is_dropped)
            continue;
        if (!is_there(r) || r->joined == RANK_JOINED)
            return false;
        some_run |= r->phase == RANK_RUNS || r->joined == RANK_RECOVERABLE;
    }
    return any && some_run;
}

/* Others may also have died just now. */
static bool has_room_for_a_start(const struct supervisor *s)
{
    return s->n_asked - s->n_answered < s->limits.window;
}

static bool is_wanted(const struct supervisor *s)
{
    return s->limits.recovers && s->stop_signal == 0 && !s->timed_out;
}

bool recovery_outlive(const struct supervisor *s, const struct supervisor_event *e)
{
    return is_wanted(s) && e->status != 0 && has_room_for_a_start(s) &&
           others_are_recoverable(s, e->rank);
}

bool recovery_may_park(const struct supervisor *s, const struct supervisor_event *e)
{
    return e->may_park && is_wanted(s) && others_are_recoverable(s, -1);
}

bool recovery_stay_parked(const struct supervisor *s, const struct supervisor_event *e)
{
    (void)s;
    return e->may_park;
}

/* -1: none does */
static int find_asking(const struct supervisor *s)
{
    for (int i = 0; i < s->n_asked; i++)
        if (s->ranks[i].asks && is_there(&s->ranks[i]))
            return i;
    return -1;
}

bool recovery_is_parted(const struct supervisor *s, const struct supervisor_event *e)
{
    (void)e;
    return is_wanted(s) && find_asking(s) >= 0 && others_are_recoverable(s, -1);
}

int recovery_n_next(const struct supervisor *s)
{
    int n_here = 0, n_left = 0;
    for (int i = 0; i < s->limits.n_ranks; i++) {
        n_left += !s->ranks[i].is_dropped;
        n_here += !s->ranks[i].is_dropped && is_there(&s->ranks[i]);
    }
    return s->limits.drops && n_here > 0 ? n_here : n_left;
}

/* --- Actions --- */

static void forget_rank(struct supervisor *s, int rank)
{
    s->ranks[rank] = (struct supervisor_rank){.phase = RANK_NOT_STARTED};
}

/* As many as may be unanswered; the others follow as these are answered. */
static void start_forgotten(struct supervisor *s, struct supervisor_orders *o)
{
    for (int i = 0; i < s->n_asked && has_room_for_a_start(s); i++) {
        if (s->ranks[i].phase != RANK_NOT_STARTED)
            continue;
        s->ranks[i].phase = RANK_ASKED;
        s->n_answered--;
        s->restart[o->n_restart++] = i;
    }
    o->restart = s->restart;
}

static void call_all(struct supervisor *s)
{
    for (int i = 0; i < s->n_asked; i++) {
        s->ranks[i].called = s->ranks[i].joined != RANK_NOT_JOINED;
        s->ranks[i].asks = false;
    }
}

static void begin_generation(struct supervisor *s, uint32_t generation, uint64_t now_ms,
                             struct supervisor_orders *o)
{
    call_all(s);
    s->primary = s->aborter = -1; /* what failed before fails the job no more */
    s->generation = generation;
    s->begun_ms = now_ms;
    s->progress = (struct supervisor_progress){0};
    s->deadline_ms = now_ms + s->limits.recovery_ms;
    start_forgotten(s, o);
    o->recover = true;
}

static void drop_rank(struct supervisor *s, int rank, struct supervisor_orders *o)
{
    s->ranks[rank].is_dropped = true;
    s->ranks[rank].joined = RANK_NOT_JOINED; /* it is not called */
    s->dropped[o->n_dropped++] = rank;
    o->dropped = s->dropped;
}

void recovery_park(struct supervisor *s, const struct supervisor_event *e,
                   struct supervisor_orders *o)
{
    (void)e;
    s->deadline_ms = CO_NEVER_MS;
    o->park = true;
}

void recovery_park_others(struct supervisor *s, const struct supervisor_event *e,
                          struct supervisor_orders *o)
{
    supervisor_blame(s, e);
    s->verdict.recovers = true;
    recovery_park(s, e, o);
}

/* The one of those that have ended that did so first; -1: none has. */
static int find_first_ended(const struct supervisor *s)
{
    int first = -1;
    for (int i = 0; i < s->n_asked; i++) {
        const struct supervisor_rank *r = &s->ranks[i];
        if (!r->is_dropped && !is_there(r) && (first < 0 || r->ended_ms < s->ranks[first].ended_ms))
            first = i;
    }
    return first;
}

/* What ended last may have ended when the place was given already: that place is filled. */
static void drop_beyond(struct supervisor *s, int n_ranks, struct supervisor_orders *o)
{
    int rank, n_left = 0;
    for (int i = 0; i < s->limits.n_ranks; i++)
        n_left += !s->ranks[i].is_dropped;
    for (; n_left > n_ranks && (rank = find_first_ended(s)) >= 0; n_left--)
        drop_rank(s, rank, o);
}

/* The rank that has failed, before it is forgotten; a rank that lost others and lives has not. */
static void note_replacement(struct supervisor *s)
{
    const struct supervisor_verdict *v = &s->verdict;
    const int rank = v->witness >= 0 ? v->witness : v->rank;
    if (v->outcome == OUTCOME_RANK_FAILED && !is_there(&s->ranks[rank]))
        s->replacement = (struct supervisor_replacement){
            .rank = rank, .was = s->ranks[rank], .is_dropped = s->limits.drops};
    else
        s->replacement.rank = -1;
}

void recovery_go_on(struct supervisor *s, const struct supervisor_event *e,
                    struct supervisor_orders *o)
{
    note_replacement(s);
    if (s->limits.drops)
        drop_beyond(s, e->n_ranks, o);
    for (int i = 0; i < s->n_asked; i++)
        if (!is_there(&s->ranks[i]) && !s->ranks[i].is_dropped)
            forget_rank(s, i);
    s->verdict = (struct supervisor_verdict){.witness = -1, .rank = -1};
    begin_generation(s, e->generation, e->now_ms, o);
    if (recovery_all_joined(s, e)) /* then there is nothing to wait for */
        s->deadline_ms = CO_NEVER_MS;
}

void recovery_start_more(struct supervisor *s, const struct supervisor_event *e,
                         struct supervisor_orders *o)
{
    (void)e;
    start_forgotten(s, o);
}

void recovery_settle(struct supervisor *s, const struct supervisor_event *e,
                     struct supervisor_orders *o)
{
    const bool waits = s->limits.has_others && s->limits.recovers && find_asking(s) >= 0;
    (void)o;
    s->deadline_ms = waits ? e->now_ms + s->limits.recovery_ms : CO_NEVER_MS;
}

void recovery_part(struct supervisor *s, const struct supervisor_event *e,
                   struct supervisor_orders *o)
{
    s->verdict.outcome = OUTCOME_RANK_FAILED;
    s->verdict.rank = find_asking(s);
    s->verdict.recovers = s->verdict.is_parted = true;
    recovery_park(s, e, o);
}

void recovery_blame_late(struct supervisor *s, const struct supervisor_event *e,
                         struct supervisor_orders *o)
{
    s->verdict.outcome = OUTCOME_RANK_FAILED;
    for (int i = 0; i < s->n_asked && s->verdict.rank < 0; i++)
        if (s->ranks[i].called)
            s->verdict.rank = i;
    if (s->verdict.rank < 0) /* it is the spawner that does not answer */
        s->verdict.outcome = OUTCOME_INTERNAL;
    supervisor_signal_ranks(s, SIGTERM, -1, s->limits.to_groups, o);
    s->deadline_ms = e->now_ms + s->limits.failure_grace_ms;
}

void recovery_stop_parked(struct supervisor *s, const struct supervisor_event *e,
                          struct supervisor_orders *o)
{
    if (s->verdict.outcome == OUTCOME_NONE)
        s->verdict.outcome = OUTCOME_ORDERED;
    supervisor_stop_others(
        s, e->now_ms + (e->gently ? s->limits.grace_ms : s->limits.failure_grace_ms), o);
}
