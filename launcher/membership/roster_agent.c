/* roster_agent.c - facts of the supervisor as inputs of the member, orders of the member as events
 * of the supervisor.
 *
 * Read roster_agent_hear() first: it compares the states of both machines and returns the first
 * fact that the member does not know, in the order failure, end, all succeeded, state saved, ranks
 * parked, nothing runs. The flags of struct roster_agent record what the member knows already, so
 * the caller repeats the call until it returns false. roster_agent_obey() is the way back; a new
 * generation resets the flags there.
 *
 * Invariant: each order to stop or kill is answered once, by RANKS_STOPPED or RANKS_PARKED
 * (owes_gone). The roster starts no generation before that. */
#include "roster_agent.h"

#include "launcher/reporting/report.h"

#include <stdio.h>
#include <string.h>

enum { NOBODY = -1 };

void roster_agent_init(struct roster_agent *g, const char *name, const char *path, bool ends_job)
{
    *g = (struct roster_agent){
        .name = name, .path = path, .ends_job = ends_job, .reported_rank = NOBODY};
}

/* --- The node leaves, or ends the job --- */

static void note_signal(struct roster_agent *g, int sig, struct member_input *ret)
{
    char name[REPORT_SIGNAL_BYTES];
    report_signal(sig, name, sizeof name);
    ret->exit_code = 128 + sig;
    ret->signal = sig;
    if (g->ends_job)
        snprintf(g->text, sizeof g->text, "%s was stopped by %s", g->name, name);
    else
        snprintf(g->text, sizeof g->text, "%s", g->leaves != NULL ? g->leaves : name);
}

/* Nothing can be started here any more: the spawner is lost, or does not answer. */
static bool is_disabled(const struct supervisor *s)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(s);
    return supervisor_is_alone(s) || (v->outcome == OUTCOME_INTERNAL && v->rank < 0);
}

static bool hear_end(struct roster_agent *g, const struct supervisor *s, struct member_input *ret)
{
    if (g->has_reported_end)
        return false;
    ret->type = g->ends_job ? MEMBER_END_JOB : MEMBER_LEAVE;
    if (supervisor_stop_signal(s) != 0) {
        note_signal(g, supervisor_stop_signal(s), ret);
    } else if (supervisor_timed_out(s)) {
        ret->type = MEMBER_END_JOB;
        ret->exit_code = SUPERVISOR_EXIT_TIMEOUT;
        snprintf(g->text, sizeof g->text, "the job timed out on %s (--timeout)", g->name);
    } else if (is_disabled(s)) {
        ret->type = MEMBER_LEAVE;
        ret->exit_code = MEMBER_EXIT_INTERNAL;
        snprintf(g->text, sizeof g->text, "the process that starts and reaps its ranks is gone");
    } else {
        return false;
    }
    g->has_reported_end = true;
    return true;
}

/* --- A rank has failed --- */

static void describe_end(struct roster_agent *g, const struct supervisor_rank *r)
{
    char status[REPORT_END_BYTES];
    char lived[REPORT_DURATION_BYTES];
    snprintf(g->text, sizeof g->text, "%s, %s after its start",
             report_end(r, status, sizeof status),
             report_duration(r->ended_ms - r->started_ms, lived, sizeof lived));
}

/* A start that failed once would fail again. */
static void describe_start(struct roster_agent *g, const struct supervisor_verdict *v,
                           const struct supervisor_rank *r, struct member_input *ret)
{
    ret->final = true;
    if (v->outcome == OUTCOME_START_FAILED)
        snprintf(g->text, sizeof g->text, "cannot execute '%.300s': %s", g->path,
                 strerror(r->status));
    else
        snprintf(g->text, sizeof g->text, "cannot be started: %s", strerror(r->status));
}

/* If a witness (a rank that lost its peer) ended before the rank that it blames, the witness is
 * reported first, and the blamed rank when its own end is seen. A rank that aborts is reported
 * while it waits for that; as the consequence that it may be, so that what fails by itself on
 * another node is the cause. */
static bool hear_failure(struct roster_agent *g, const struct supervisor *s, const struct member *m,
                         struct member_input *ret)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(s);
    const int aborter = supervisor_get_aborter(s);
    int rank = aborter >= 0 ? aborter : v->witness >= 0 ? v->witness : v->rank;
    if (!g->has_ranks || rank < 0 || rank == g->reported_rank)
        return false;
    if (aborter < 0 && (supervisor_get_state(s) == SUPERVISOR_AWAITING || /* all would be stopped */
                        (v->outcome != OUTCOME_RANK_FAILED && v->outcome != OUTCOME_START_FAILED &&
                         v->outcome != OUTCOME_INTERNAL)))
        return false;
    const struct supervisor_rank *r = supervisor_get_rank(s, rank);
    const bool is_late = v->outcome == OUTCOME_RANK_FAILED && r->phase == RANK_RUNS && !r->aborts;
    ret->type = MEMBER_RANK_FAILED;
    ret->rank = (int32_t)member_get_place(m)->place.first_rank + supervisor_place_of(s, rank);
    ret->exit_code =
        rank == v->rank ? supervisor_exit_code(s) : supervisor_code_of_status(r->status);
    ret->consequence = (r->lost_peer || r->aborts) && !g->is_alone;
    ret->progressed = supervisor_has_progressed(s);
    ret->recovers = v->recovers;
    if (v->is_parted)
        snprintf(g->text, sizeof g->text,
                 "lost its connection to ranks on other nodes that are still alive; check the "
                 "network between the nodes");
    else if (is_late)
        snprintf(g->text, sizeof g->text, "did not join its peers in time");
    else if (v->outcome == OUTCOME_RANK_FAILED || aborter >= 0)
        describe_end(g, r);
    else
        describe_start(g, v, r, ret);
    g->reported_rank = rank;
    return true;
}

/* --- Nothing more runs --- */

static bool hear_done(struct roster_agent *g, const struct supervisor *s, struct member_input *ret)
{
    if (!g->has_ranks || g->has_reported_done || supervisor_get_verdict(s)->outcome != OUTCOME_WELL)
        return false;
    g->has_reported_done = true;
    ret->type = MEMBER_RANKS_SUCCEEDED;
    return true;
}

/* The ranks run on: it is the roster that ends the generation, once all nodes have reported it. */
static bool hear_saved(struct roster_agent *g, struct member_input *ret)
{
    if (!g->has_ranks || g->has_reported_saved || !g->saved)
        return false;
    g->has_reported_saved = true;
    ret->type = MEMBER_RANKS_SAVED;
    return true;
}

/* Asked for, or not: the spawner may have found the lease over before the member did. */
static bool hear_gone(struct roster_agent *g, const struct supervisor *s, struct member_input *ret)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(s);
    bool by_spawner = g->has_ranks && v->outcome == OUTCOME_ORDERED;
    if (supervisor_get_state(s) != SUPERVISOR_WAITING || g->holds_gone ||
        (!g->owes_gone && !by_spawner))
        return false;
    g->has_ranks = g->owes_gone = false;
    ret->type = MEMBER_RANKS_STOPPED;
    ret->steps = supervisor_total_steps(s);
    ret->hangs = v->some_hang;
    return true;
}

/* They live on: if a generation follows, they are in it. Reported again when one has died since. */
static bool hear_parked(struct roster_agent *g, const struct supervisor *s, const struct member *m,
                        struct member_input *ret)
{
    const int n_next = supervisor_n_next(s);
    bool has_news = member_get_state(m) == MEMBER_PARKED && n_next != g->reported_parked;
    if (supervisor_get_state(s) != SUPERVISOR_PARKED || (!g->owes_gone && !has_news))
        return false;
    g->has_ranks = g->owes_gone = false;
    g->reported_parked = n_next;
    ret->type = MEMBER_RANKS_PARKED;
    ret->steps = supervisor_total_steps(s);
    ret->n_ranks = (uint32_t)n_next;
    return true;
}

/* In a job of one node no other node needs an early warning. The member gets a failure when the
 * ends of all ranks are known, or when ranks are parked and wait for the roster's decision. */
static bool may_speak(const struct roster_agent *g, const struct supervisor *s)
{
    const enum supervisor_state state = supervisor_get_state(s);
    return !g->is_alone || state == SUPERVISOR_WAITING || state == SUPERVISOR_PARKED;
}

bool roster_agent_hear(struct roster_agent *g, const struct supervisor *s, const struct member *m,
                       struct member_input *ret)
{
    if (!may_speak(g, s))
        return false;
    *ret = (struct member_input){.text = g->text};
    return hear_failure(g, s, m, ret) || hear_end(g, s, ret) || hear_done(g, s, ret) ||
           hear_saved(g, ret) || hear_parked(g, s, m, ret) || hear_gone(g, s, ret);
}

/* --- The other way --- */

/* Is it worth to wait for ranks that save their state? After a failure or a loss they hang, most
 * likely, in what they were doing with the others. */
static bool has_time(enum message_why why)
{
    return why == MESSAGE_WHY_JOIN || why == MESSAGE_WHY_LEAVE || why == MESSAGE_WHY_RESTART;
}

static enum supervisor_ender find_ender(const struct member_end *end)
{
    if (end->by_roster)
        return end->outcome == MESSAGE_MISSING || end->outcome == MESSAGE_TOO_FEW ? ENDED_BY_HEALTH
                                                                                  : ENDED_BY_ROSTER;
    return end->signal != 0 || end->exit_code == SUPERVISOR_EXIT_TIMEOUT ? ENDED_BY_STOP
                                                                         : ENDED_BY_LOSS;
}

int roster_agent_obey(struct roster_agent *g, const struct member *m, const struct member_orders *o,
                      struct supervisor_event ret[ROSTER_AGENT_MAX_EVENTS])
{
    int n = 0;
    if (o->start_ranks) {
        g->has_ranks = true;
        g->has_reported_done = g->has_reported_saved = g->saved = false;
        g->reported_rank = NOBODY;
        const struct member_place *p = member_get_place(m);
        ret[n++] = (struct supervisor_event){.type = SUPERVISOR_EV_NEXT,
                                             .generation = p->generation,
                                             .n_ranks = (int)p->place.n_local};
    }
    g->owes_gone |= o->stop_ranks || o->kill_ranks;
    if (o->kill_ranks)
        ret[n++] = (struct supervisor_event){.type = SUPERVISOR_EV_ORDER_KILL};
    else if (o->stop_ranks)
        ret[n++] = (struct supervisor_event){.type = SUPERVISOR_EV_ORDER_STOP,
                                             .gently = has_time(o->why),
                                             .may_park = o->may_park,
                                             .for_failure = o->why == MESSAGE_WHY_FAILURE};
    if (o->ended) {
        const struct member_end *end = member_get_end(m);
        n = 0; /* nothing runs: only that counts */
        ret[n++] =
            (struct supervisor_event){.type = SUPERVISOR_EV_FINISH,
                                      .exit_code = end->exit_code,
                                      .sig = end->signal,
                                      .is_stuck = end->by_roster && end->outcome == MESSAGE_STUCK,
                                      .ender = find_ender(end)};
    }
    return n;
}
