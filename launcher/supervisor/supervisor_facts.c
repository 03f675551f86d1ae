/* supervisor_facts.c - the facts in an event, recorded before anything is decided; what the ends of
 * all ranks mean: which one is the cause, and with which status ddprun exits; and the facts as
 * others read them. */
#include "supervisor_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h> /* W..., and the signals' numbers */

/* --- Signals --- */

bool supervisor_is_stop(const struct supervisor *s, int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGHUP || sig == SIGQUIT ||
           (sig > 0 && sig < 64 && (s->limits.stop_signals >> sig & 1) != 0);
}

void supervisor_signal_ranks(struct supervisor *s, int sig, int except, bool to_groups,
                             struct supervisor_orders *o)
{
    for (int i = 0; i < s->n_asked; i++) {
        struct supervisor_rank *r = &s->ranks[i];
        if (i == except || (r->phase != RANK_RUNS && r->phase != RANK_ASKED))
            continue;
        if (r->signaled_first == 0)
            r->signaled_first = sig;
        r->signaled_last = sig;
    }
    o->signal = sig;
    o->except = except;
    o->to_groups = to_groups;
}

/* --- Events --- */

/* The others lose their peer when a rank calls MPI_Abort, and may be seen to end before it. */
struct supervisor_event supervisor_exit_event(const struct supervisor_exit *x)
{
    const bool is_of_abort = x->status != 0 && x->aborter >= 0 && x->aborter != x->rank;
    const int culprit = x->lost < 0 && is_of_abort ? x->aborter : x->lost;
    return (struct supervisor_event){.type = SUPERVISOR_EV_EXITED,
                                     .rank = x->rank,
                                     .status = x->status,
                                     .empty = x->empty,
                                     .was_ending = x->was_ending,
                                     .lost_peer = x->lost_peer,
                                     .was_failing = x->was_failing,
                                     .aborts = x->aborts,
                                     .blames = culprit >= 0,
                                     .culprit = culprit,
                                     .held_ms = x->held_ms,
                                     .progress = x->progress};
}

bool supervisor_is_of_ours(const struct supervisor_rank *r)
{
    return WIFSIGNALED(r->status) &&
           (WTERMSIG(r->status) == r->signaled_first || WTERMSIG(r->status) == r->signaled_last);
}

/* Nothing that we know of made it fail. */
static bool is_primary(const struct supervisor_rank *r, const struct supervisor_event *e)
{
    const bool by_itself = !supervisor_is_of_ours(r) && (r->signaled_first == 0 || e->was_ending);
    return e->status != 0 && !e->lost_peer && !e->blames && !r->aborts &&
           (by_itself || e->was_failing);
}

static bool is_outlived(const struct supervisor *s, const struct supervisor_rank *r)
{
    return s->limits.recovers && r->joined == RANK_RECOVERABLE;
}

/* No rank fails because of one that is outlived: its end is early enough. */
static void note_abort(struct supervisor *s, const struct supervisor_event *e)
{
    struct supervisor_rank *r = &s->ranks[e->rank];
    if (s->aborter >= 0 || r->signaled_first != 0 || is_outlived(s, r))
        return;
    s->aborter = e->rank;
    r->aborts = true;
    r->status = e->status;
    r->ended_ms = e->now_ms;
    if (s->verdict.outcome == OUTCOME_NONE)
        s->progress = e->progress;
}

void supervisor_note_facts(struct supervisor *s, const struct supervisor_event *e)
{
    struct supervisor_rank *r = &s->ranks[e->rank];
    switch (e->type) {
    case SUPERVISOR_EV_STARTED:
        *r = (struct supervisor_rank){.phase = RANK_RUNS,
                                      .pid = e->pid,
                                      .started_ms = e->now_ms,
                                      .joined = r->joined, /* it may have been faster ... */
                                      .called = r->called, /* ... by a generation, even */
                                      .asks = r->asks,
                                      .signaled_first = r->signaled_first,
                                      .signaled_last = r->signaled_last,
                                      .forwarded = r->forwarded};
        s->n_answered++;
        s->n_running++;
        s->empty = false;
        break;
    case SUPERVISOR_EV_START_FAILED:
        r->phase = RANK_FAILED_TO_START;
        r->status = e->status;
        r->ended_ms = e->now_ms;
        s->n_answered++;
        s->empty = e->empty;
        break;
    case SUPERVISOR_EV_EXITED:
        r->phase = RANK_ENDED;
        r->status = e->status;
        r->called = false;
        r->lost_peer = e->lost_peer;
        r->was_failing = e->was_failing;
        r->aborts |= e->aborts && !is_outlived(s, r);
        r->ended_ms = e->now_ms - e->held_ms;
        if (s->primary < 0 && is_primary(r, e))
            s->primary = e->rank;
        if (s->verdict.outcome ==
            OUTCOME_NONE) /* steps that ranks complete while they are stopped do not count */
            s->progress = e->progress;
        s->n_running--;
        s->empty = e->empty;
        break;
    case SUPERVISOR_EV_JOINED:
        r->joined = e->recovers ? RANK_RECOVERABLE : RANK_JOINED;
        r->called = false;
        break;
    case SUPERVISOR_EV_ASKED:
        r->asks = true;
        break;
    case SUPERVISOR_EV_ABORTED:
        note_abort(s, e);
        break;
    case SUPERVISOR_EV_EMPTY:
        s->empty = true;
        break;
    case SUPERVISOR_EV_SIGNAL:
        if (e->sig == SIGINT)
            s->n_interrupts++;
        if (s->stop_signal == 0 && !s->timed_out && supervisor_is_stop(s, e->sig))
            s->stop_signal = e->sig;
        break;
    case SUPERVISOR_EV_TIMEOUT:
        s->timed_out = s->stop_signal == 0;
        break;
    default:
        break;
    }
}

/* --- The cause --- */

void supervisor_blame(struct supervisor *s, const struct supervisor_event *e)
{
    enum supervisor_outcome outcome = OUTCOME_RANK_FAILED;
    if (e->type == SUPERVISOR_EV_START_FAILED)
        outcome = e->stage == SUPERVISOR_START_EXEC ? OUTCOME_START_FAILED : OUTCOME_INTERNAL;
    s->verdict.outcome = outcome;
    s->verdict.rank = e->rank;
    s->verdict.recovers = s->limits.recovers && outcome == OUTCOME_RANK_FAILED &&
                          s->ranks[e->rank].joined == RANK_RECOVERABLE;
    if (e->blames && e->culprit >= 0 && e->culprit < s->n_asked &&
        s->ranks[e->culprit].phase == RANK_RUNS) {
        s->verdict.rank = e->culprit;
        s->verdict.witness = e->rank;
    }
}

void supervisor_stop_others(struct supervisor *s, uint64_t deadline_ms, struct supervisor_orders *o)
{
    const int rank = s->verdict.rank;
    const bool ends = s->verdict.witness >= 0 ||
                      (rank >= 0 && s->ranks[rank].aborts && s->ranks[rank].phase == RANK_RUNS);
    supervisor_signal_ranks(s, SIGTERM, ends ? rank : -1, s->limits.to_groups, o);
    s->deadline_ms = deadline_ms;
}

/* The witness was wrong if the culprit exited with 0. A culprit killed by us when the grace was
 * over stays one: freeing a hundred gigabytes takes longer than that. */
static void hear_witness(struct supervisor *s)
{
    if (s->verdict.witness < 0)
        return;
    const struct supervisor_rank *culprit = &s->ranks[s->verdict.rank];
    if (culprit->phase != RANK_ENDED || culprit->status == 0)
        s->verdict.rank = s->verdict.witness;
    s->verdict.witness = -1;
}

/* All ends are known: is what was heard first a consequence of what was heard later? The roster may
 * have had the ranks stopped before any was heard. */
static void find_primary(struct supervisor *s)
{
    struct supervisor_verdict *v = &s->verdict;
    bool is_consequence =
        v->outcome == OUTCOME_ORDERED ||
        (v->outcome == OUTCOME_RANK_FAILED &&
         (s->ranks[v->rank].lost_peer || s->ranks[v->rank].aborts)); /* or may be one */
    if (!is_consequence || s->primary < 0)
        return;
    v->outcome = OUTCOME_RANK_FAILED;
    v->rank = s->primary;
}

void supervisor_settle_verdict(struct supervisor *s)
{
    hear_witness(s);
    find_primary(s);
}

/* --- The end of the job --- */

/* A node that is the whole job ends by its own verdict, and the roster has only reported that
 * nothing follows. If something would have followed, what prevents it is what ends the job. */
static void agree_with_end(struct supervisor *s, enum supervisor_ender ender)
{
    struct supervisor_verdict *v = &s->verdict;
    if (ender == ENDED_BY_HEALTH) {
        v->is_unfit = true;
        v->outcome = OUTCOME_ORDERED;
        v->witness = v->rank = -1;
        return;
    }
    const bool had_hope = v->outcome == OUTCOME_NONE || v->outcome == OUTCOME_ORDERED ||
                          (v->outcome == OUTCOME_RANK_FAILED && !s->swept_alone);
    if (ender == ENDED_BY_ROSTER || !had_hope)
        return;
    v->outcome = ender == ENDED_BY_LOSS ? OUTCOME_INTERNAL
                 : s->stop_signal != 0  ? OUTCOME_SIGNAL
                                        : OUTCOME_TIMEOUT;
    v->signal = s->stop_signal;
    v->witness = v->rank = -1;
}

void supervisor_note_finish(struct supervisor *s, const struct supervisor_event *e)
{
    s->verdict.is_final = true;
    s->verdict.exit_code = e->exit_code;
    s->verdict.is_stuck = e->is_stuck;
    s->verdict.die_of = e->sig;
    if (!s->limits.has_others)
        agree_with_end(s, e->ender);
}

bool supervisor_has_progressed(const struct supervisor *s)
{
    const struct supervisor_progress *p = &s->progress;
    return p->n_steps > 0 ||
           (p->output_ms > s->begun_ms && p->output_ms - s->begun_ms >= s->limits.output_after_ms);
}

uint64_t supervisor_total_steps(const struct supervisor *s)
{
    return s->progress.total_steps;
}

/* --- The exit status --- */

int supervisor_code_of_status(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int supervisor_exit_code(const struct supervisor *s)
{
    const struct supervisor_verdict *v = &s->verdict;
    if (v->is_final && (s->limits.has_others || v->is_stuck || v->is_unfit))
        return v->exit_code;
    switch (v->outcome) {
    case OUTCOME_WELL:
        return 0;
    case OUTCOME_RANK_FAILED: {
        const struct supervisor_rank *r = &s->ranks[v->rank];
        if (r->was_failing && supervisor_is_of_ours(r))
            return EXIT_FAILURE; /* the code that it was to end with is not known */
        int code = supervisor_code_of_status(r->status);
        return code != 0 ? code : 70; /* one that was late, and exits with 0 when stopped */
    }
    case OUTCOME_START_FAILED: {
        int error = s->ranks[v->rank].status;
        return error == ENOENT || error == ENOTDIR ? 127 : 126;
    }
    case OUTCOME_SIGNAL:
        return 128 + v->signal;
    case OUTCOME_TIMEOUT:
        return SUPERVISOR_EXIT_TIMEOUT;
    case OUTCOME_NONE:
    case OUTCOME_INTERNAL:
    case OUTCOME_ORDERED:
        break;
    }
    return 70;
}

int supervisor_die_of(const struct supervisor *s)
{
    const struct supervisor_verdict *v = &s->verdict;
    if (s->limits.has_others)
        return v->die_of;
    return v->outcome == OUTCOME_SIGNAL ? v->signal : 0;
}

/* --- What others read --- */

enum supervisor_state supervisor_get_state(const struct supervisor *s)
{
    return s->state;
}

uint64_t supervisor_deadline_ms(const struct supervisor *s)
{
    return s->deadline_ms;
}

const struct supervisor_rank *supervisor_get_rank(const struct supervisor *s, int rank)
{
    return &s->ranks[rank];
}

int supervisor_n_ranks(const struct supervisor *s)
{
    return s->limits.n_ranks;
}

int supervisor_place_of(const struct supervisor *s, int rank)
{
    int place = 0;
    for (int i = 0; i < rank; i++)
        place += !s->ranks[i].is_dropped;
    return place;
}

uint32_t supervisor_generation(const struct supervisor *s)
{
    return s->generation;
}

uint64_t supervisor_generation_ms(const struct supervisor *s)
{
    return s->begun_ms;
}

const struct supervisor_verdict *supervisor_get_verdict(const struct supervisor *s)
{
    return &s->verdict;
}

int supervisor_get_aborter(const struct supervisor *s)
{
    const bool is_open = s->state == SUPERVISOR_STARTING || s->state == SUPERVISOR_RUNNING ||
                         s->state == SUPERVISOR_RECOVERING || s->state == SUPERVISOR_AWAITING;
    return is_open && s->aborter >= 0 && s->ranks[s->aborter].phase == RANK_RUNS ? s->aborter : -1;
}

const struct supervisor_replacement *supervisor_get_replacement(const struct supervisor *s)
{
    return &s->replacement;
}

int supervisor_stop_signal(const struct supervisor *s)
{
    return s->stop_signal;
}

bool supervisor_timed_out(const struct supervisor *s)
{
    return s->timed_out;
}

bool supervisor_is_alone(const struct supervisor *s)
{
    return s->alone;
}
