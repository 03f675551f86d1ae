/* supervisor_world.c - the ranks, and how orders are carried out. */
#include "supervisor_world.h"

#include "schedules.h"

#include "common/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_STATUS(code) ((code) << 8)

static void give_up(const struct world *w, const char *what)
{
    fprintf(stderr, "seed %" PRIu64 ", at %" PRIu64 " ms in %s: %s\n", w->seed, w->now_ms,
            supervisor_state_name(supervisor_get_state(w->s)), what);
    exit(1);
}

void check(const struct world *w, bool holds, const char *what)
{
    if (!holds)
        give_up(w, what);
}

struct process make_process(struct world *w)
{
    struct process p = {.runs = true, .obeys = (int)draw(w, 3000), .ends_at_ms = CO_NEVER_MS};
    if (draw(w, 8) == 0)
        p.obeys = -1;
    p.hangs = draw(w, 200) == 0;
    return p;
}

static void make_ranks(struct world *w)
{
    bool all_well = draw(w, 3) == 0;
    memset(w->ranks, 0, sizeof w->ranks);
    for (int i = 0; i < w->limits.n_ranks; i++) {
        struct rank *r = &w->ranks[i];
        r->start_error = draw(w, 100) == 0 ? (draw(w, 2) == 0 ? ENOENT : EACCES) : 0;
        r->p = make_process(w);
        r->p.runs = false;
        r->p.status = all_well || draw(w, 2) == 0 ? 0
                      : draw(w, 2) == 0           ? EXIT_STATUS(1 + (int)draw(w, 255))
                                                  : SIGSEGV;
        r->n_descendants = draw(w, 5) == 0 ? (int)draw(w, 3) : 0;
        r->is_plain = draw(w, 40) == 0;
        r->loses_peer = draw(w, 3) == 0;
        r->tells_early = !r->loses_peer && draw(w, 8) == 0;
    }
}

/* What a generation begins with. */
static void make_generation(struct world *w)
{
    w->n_asked = w->n_unanswered = w->n_descendants = 0;
    w->stop_seen = w->rank_failed = w->is_consequence = false;
    w->sweep_signal = 0;
    w->expected_code = -1;
    w->culprit = -1;
    w->stopped_at_ms = CO_NEVER_MS;
    w->first_step_ms = draw(w, 2) == 0 ? w->now_ms + draw(w, 6000) : CO_NEVER_MS;
    w->failed_after_progress = w->has_progressed = w->is_late = false;
    make_ranks(w);
}

void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){.seed = seed, .chance = chance_from(seed)};
    w->now_ms = 1;
    w->spawner_lives = true;
    w->stop_code = -1;
    w->timeout_at_ms = draw(w, 8) == 0 ? 1 + draw(w, 12000) : CO_NEVER_MS;
    w->limits = (struct supervisor_limits){.n_ranks = 1 + (int)draw(w, MAX_RANKS),
                                           .window = 1 + (int)draw(w, 4),
                                           .grace_ms = 1 + draw(w, 5000),
                                           .failure_grace_ms = 1 + draw(w, 2000),
                                           .cause_ms = draw(w, 3) == 0 ? 0 : 1 + draw(w, 4000)};
    w->max_restarts = (int)draw(w, 5);
    w->limits.batch = (int)draw(w, 4);
    w->after_progress = draw(w, 4) == 0;
    w->limits.recovers = draw(w, 2) == 0;
    w->limits.drops = w->limits.recovers && draw(w, 2) == 0;
    w->limits.recovery_ms = 1 + draw(w, 3000);
    w->spawner_deaf_from_ms = draw(w, 50) == 0 ? draw(w, 6000) : CO_NEVER_MS;
    w->spawner_dies_at_ms = draw(w, 10) == 0 ? 1 + draw(w, 6000) : CO_NEVER_MS;
    w->signal_at_ms = draw(w, 2) == 0 ? 1 + draw(w, 6000) : CO_NEVER_MS;
    make_generation(w);
    w->is_alone = draw(w, 2) != 0;
    w->limits.has_others = !w->is_alone;
    w->limits.recovers = w->limits.recovers && w->is_alone; /* else that is for sim_nodes.c */
    w->order_at_ms = CO_NEVER_MS;
    w->final_code = -1;
}

bool is_empty(const struct world *w)
{
    for (int i = 0; i < w->limits.n_ranks; i++)
        if (w->ranks[i].p.runs)
            return false;
    for (int i = 0; i < w->n_descendants; i++)
        if (w->descendants[i].runs)
            return false;
    return true;
}

/* --- Carrying out orders --- */

bool spawner_acts(const struct world *w)
{
    return w->spawner_lives && w->now_ms < w->spawner_deaf_from_ms;
}

static void tell(struct world *w, struct process *p, int sig)
{
    if (!p->runs || p->hangs || p->ends_slowly || !spawner_acts(w))
        return;
    uint64_t ends = w->now_ms + (sig == SIGKILL ? draw(w, 3) : (uint64_t)p->obeys);
    if (sig == SIGKILL && draw(w, 50) == 0) {
        p->ends_slowly = w->some_end_slowly = true;
        p->ends_at_ms = w->now_ms + SUPERVISOR_KILL_MS + draw(w, SUPERVISOR_TEARDOWN_MS);
        p->status = sig;
        return;
    }
    if ((sig != SIGKILL && p->obeys < 0) || ends >= p->ends_at_ms)
        return;
    p->ends_at_ms = ends;
    if (sig == SIGKILL || draw(w, 2) == 0)
        p->status = sig;
}

static void renew_as_ordered(struct world *w)
{
    check(w, is_empty(w), "a generation while something of the one before runs");
    check(w, supervisor_generation(w->s) == w->generation, "another generation than was ordered");
    make_generation(w);
    w->order_at_ms = draw(w, 2) == 0 ? w->now_ms + draw(w, 8000) : CO_NEVER_MS;
}

static void renew(struct world *w)
{
    if (supervisor_generation(w->s) == 0) /* made already */
        return;
    if (!w->is_alone) {
        renew_as_ordered(w);
        return;
    }
    check(w, w->rank_failed && !w->went_alone && w->spawner_lives, "a restart that cannot be");
    check(w, w->stop_code < 0, "a restart although the job was told to stop");
    check(w, is_empty(w), "a restart while something of the old generation runs");
    bool is_free = w->after_progress && w->failed_after_progress;
    w->n_restarts++;
    check(w, is_free || w->n_counted++ < w->max_restarts, "one restart too many");
    check(w, supervisor_generation(w->s) == (uint32_t)w->n_restarts, "the wrong generation");
    make_generation(w);
}

/* --- Replacing --- */

static bool budget_allows(const struct world *w)
{
    return (w->after_progress && w->now_ms >= w->first_step_ms) || w->n_counted < w->max_restarts;
}

bool is_to_be_replaced(const struct world *w, int i)
{
    enum supervisor_state state = supervisor_get_state(w->s);
    bool any_joined = false, any_runs = false;
    if (!w->limits.recovers || w->stop_code >= 0 || w->ranks[i].p.status == 0 ||
        (state != SUPERVISOR_RUNNING && state != SUPERVISOR_RECOVERING) || !budget_allows(w) ||
        w->n_unanswered >= w->limits.window)
        return false;
    for (int k = 0; k < w->limits.n_ranks; k++) {
        const struct rank *r = &w->ranks[k];
        any_joined |= r->has_joined && !r->is_plain;
        any_runs |= k != i && r->p.runs;
        if (k != i && !r->is_dropped &&
            ((r->answered && !r->p.runs) || (r->has_joined && r->is_plain)))
            return false;
    }
    return any_joined && any_runs;
}

/* Rank i has ended, and the other ranks join another generation. */
static void continue_without(struct world *w, int i)
{
    const struct rank *r = &w->ranks[i];
    bool is_free = w->after_progress && w->now_ms >= w->first_step_ms;
    check(w, !r->p.runs && r->answered, "a rank replaced that runs");
    w->n_counted += !is_free;
    w->n_restarts++;
    check(w, supervisor_generation(w->s) == (uint32_t)w->n_restarts, "the wrong generation");
    for (int k = 0; k < w->limits.n_ranks; k++)
        if ((w->ranks[k].is_called = w->ranks[k].has_joined))
            w->ranks[k].joins_at_ms =
                draw(w, 10) == 0 ? CO_NEVER_MS : w->now_ms + draw(w, w->limits.recovery_ms);
    w->first_step_ms = draw(w, 2) == 0 ? w->now_ms + draw(w, 6000) : CO_NEVER_MS;
    w->was_replaced = true;
    w->expected_code = w->culprit = -1; /* it was not a cause */
    w->rank_failed = w->is_consequence = w->failed_after_progress = w->has_progressed = false;
    w->stopped_at_ms = CO_NEVER_MS;
}

static void replace(struct world *w, int i)
{
    struct rank *r = &w->ranks[i];
    r->has_joined = false;
    continue_without(w, i);
    *r = (struct rank){.asked = true, .joins_at_ms = CO_NEVER_MS, .p = make_process(w)};
    r->p.runs = false;
    r->p.status = draw(w, 2) == 0 ? 0 : SIGSEGV;
    r->answer_at_ms = w->now_ms + draw(w, 20);
    w->n_unanswered++;
}

static void drop(struct world *w, int i)
{
    w->ranks[i].is_dropped = true;
    w->ranks[i].has_joined = false;
    continue_without(w, i);
}

static void carry_out(struct world *w, const struct supervisor_orders *o)
{
    if (o->renew)
        renew(w);
    check(w, o->n_restart == (o->recover && !w->limits.drops), "not one rank is replaced");
    check(w, o->n_dropped == (o->recover && w->limits.drops), "not one rank is left out");
    if (o->n_dropped > 0)
        drop(w, o->dropped[0]);
    else if (o->recover)
        replace(w, o->restart[0]);
    for (int i = 0; i < o->n_start; i++) {
        check(w, w->n_asked < w->limits.n_ranks, "more ranks asked for than there are");
        check(w, !w->stop_seen, "a rank asked for after a stop");
        struct rank *r = &w->ranks[w->n_asked++];
        r->asked = true;
        r->answer_at_ms = w->now_ms + draw(w, 20);
        w->n_unanswered++;
    }
    check(w, w->n_unanswered <= w->limits.window, "the window is too small for that");
    if (o->signal == SIGTERM || o->signal == SIGINT || o->signal == SIGHUP ||
        o->signal == SIGQUIT || o->signal == SIGKILL) {
        w->stop_seen = true;
        /* the spawner starts all it was asked for before it comes to the signal */
        for (int i = 0; i < w->n_asked; i++) {
            struct rank *r = &w->ranks[i];
            if (!r->answered && r->start_error == 0 && !r->p.runs && spawner_acts(w)) {
                r->p.runs = true;
                r->p.ends_at_ms = w->now_ms + 1 + draw(w, 8000);
            }
            tell(w, &r->p, o->signal);
        }
    }
    if (o->signal == SIGKILL || o->sweep_signal == SIGKILL)
        w->kill_ms = w->now_ms;
    if (o->sweep_signal != 0) {
        w->sweep_signal = o->sweep_signal;
        for (int i = 0; i < w->n_descendants; i++)
            tell(w, &w->descendants[i], o->sweep_signal);
    }
    if (o->sweep_alone) {
        bool hangs = false;
        w->went_alone = true;
        if (w->culprit >= 0 && w->ranks[w->culprit].p.runs)
            w->expected_code = w->witness_code;
        w->spawner_lives = false; /* if it was not lost, it is killed first */
        w->spawner_dies_at_ms = CO_NEVER_MS;
        for (int i = 0; i < w->limits.n_ranks; i++) {
            hangs |= w->ranks[i].p.runs && w->ranks[i].p.hangs;
            w->ranks[i].p.runs &= w->ranks[i].p.hangs;
        }
        for (int i = 0; i < w->n_descendants; i++) {
            hangs |= w->descendants[i].runs && w->descendants[i].hangs;
            w->descendants[i].runs &= w->descendants[i].hangs;
        }
        feed(w, (struct supervisor_event){SUPERVISOR_EV_SWEPT, .status = hangs ? ETIMEDOUT : 0});
    }
    if (o->drain)
        check(w, is_empty(w) || supervisor_get_verdict(w->s)->some_hang,
              "drained while something runs");
    w->draining |= o->drain;
    w->ended |= o->ended;
}

void note_cause(struct world *w, int code)
{
    if (w->expected_code < 0) {
        w->expected_code = code;
        w->stopped_at_ms = w->now_ms;
    }
}

void note_failure(struct world *w, int code)
{
    if (w->expected_code < 0) {
        w->rank_failed = true;
        w->failed_after_progress = w->now_ms >= w->first_step_ms;
    }
    note_cause(w, code);
}

void note_cause_behind(struct world *w, int code)
{
    w->expected_code = code;
    w->rank_failed = true;
    w->is_consequence = false;
}

void note_stop(struct world *w, int code)
{
    if (w->stop_code < 0)
        w->stop_code = code;
}

bool is_between_generations(const struct world *w)
{
    enum supervisor_state state = supervisor_get_state(w->s);
    return state == SUPERVISOR_DRAINING || state == SUPERVISOR_WAITING;
}

void carry_out_of_job(void *arg, const struct supervisor_orders *o)
{
    struct world *w = arg;
    w->s = w->job.supervisor; /* its first orders come before solo_job_begin() returns */
    carry_out(w, o);
}

void feed(struct world *w, struct supervisor_event e)
{
    struct supervisor_orders o;
    e.now_ms = w->job.now_ms = w->now_ms;
    schedules_tell(w->now_ms, "%s in %s: rank %d, status %d, signal %d",
                   supervisor_event_name(e.type), supervisor_state_name(supervisor_get_state(w->s)),
                   e.rank, e.status, e.sig);
    if (w->is_alone) {
        solo_job_feed(&w->job, e);
        return;
    }
    supervisor_step(w->s, &e, &o);
    carry_out(w, &o);
}
