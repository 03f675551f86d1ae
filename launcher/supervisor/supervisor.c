/* supervisor.c - the rules: the table of states, its conditions and actions.
 *
 * Read supervisor_step() first, then the table, from top to bottom. An event first updates the
 * facts (supervisor_note_facts() in supervisor_facts.c: which ranks run, how each ended). Then the
 * first row that has the state and the event, and whose condition holds, gives the action and the
 * next state. An action fills in orders (signal, sweep, start, drain) and the verdict; recovery.c
 * has the conditions and actions of in-place recovery. No other code writes the state.
 *
 * Invariants: the verdict keeps the first failure, and later ends only correct it if they prove an
 * earlier cause. A state in which ranks are being stopped has a deadline, after which they are
 * killed, so no rank can hold up the end. Ranks start only by order of the roster (NEXT). ENDED
 * follows DRAINING, when the output of the ranks has been passed on. */
#include "supervisor_priv.h"

#include "common/clock.h"
#include "common/machine.h"
#include "recovery.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h> /* the signals' numbers */

/* --- Conditions --- */

typedef bool condition(const struct supervisor *s, const struct supervisor_event *e);

static bool always(const struct supervisor *s, const struct supervisor_event *e)
{
    (void)s;
    (void)e;
    return true;
}

static bool all_started(const struct supervisor *s, const struct supervisor_event *e)
{
    (void)e;
    return supervisor_has_all_answers(s);
}

static bool no_rank_left(const struct supervisor *s, const struct supervisor_event *e)
{
    (void)e;
    return s->n_running == 0 && s->n_answered == s->n_asked;
}

static bool nothing_left(const struct supervisor *s, const struct supervisor_event *e)
{
    return no_rank_left(s, e) && s->empty;
}

static bool failed(const struct supervisor *s, const struct supervisor_event *e)
{
    (void)s;
    return e->status != 0;
}

/* It lost a peer, whose own failure may still be seen, here or on another node. If it names that
 * peer, it is known already. */
static bool lost_a_peer(const struct supervisor *s, const struct supervisor_event *e)
{
    const bool names_it = e->blames && e->culprit >= 0 && e->culprit < s->n_asked &&
                          s->ranks[e->culprit].phase == RANK_RUNS;
    const bool some_are_left = s->limits.has_others || !no_rank_left(s, e);
    return failed(s, e) && e->lost_peer && !names_it && some_are_left && s->limits.cause_ms > 0;
}

static bool waits_for_others(const struct supervisor *s, const struct supervisor_event *e)
{
    return s->limits.has_others && (!failed(s, e) || lost_a_peer(s, e));
}

static bool failed_last(const struct supervisor *s, const struct supervisor_event *e)
{
    return failed(s, e) && no_rank_left(s, e);
}

static bool failed_alone(const struct supervisor *s, const struct supervisor_event *e)
{
    return failed(s, e) && nothing_left(s, e);
}

static bool all_done(const struct supervisor *s, const struct supervisor_event *e)
{
    return no_rank_left(s, e) && all_started(s, e);
}

static bool all_done_alone(const struct supervisor *s, const struct supervisor_event *e)
{
    return nothing_left(s, e) && all_started(s, e);
}

static bool says_stop(const struct supervisor *s, const struct supervisor_event *e)
{
    return supervisor_is_stop(s, e->sig);
}

static bool second_interrupt(const struct supervisor *s, const struct supervisor_event *e)
{
    return e->sig == SIGINT && s->n_interrupts > 1;
}

static bool stop_for_nobody(const struct supervisor *s, const struct supervisor_event *e)
{
    return says_stop(s, e) && no_rank_left(s, e);
}

static bool stop_for_nothing(const struct supervisor *s, const struct supervisor_event *e)
{
    return says_stop(s, e) && nothing_left(s, e);
}

static bool some_run(const struct supervisor *s, const struct supervisor_event *e)
{
    return e->some_run && s->deadline_ms < s->teardown_ms;
}

/* The end of the job is not decided yet. */
static bool awaits_orders(const struct supervisor *s, const struct supervisor_event *e)
{
    (void)e;
    return !s->verdict.is_final;
}

static bool stop_awaits_orders(const struct supervisor *s, const struct supervisor_event *e)
{
    return awaits_orders(s, e) && says_stop(s, e);
}

/* --- What a row does, and what entering a state does --- */

typedef void action(struct supervisor *s, const struct supervisor_event *e,
                    struct supervisor_orders *o);

static void nothing(struct supervisor *s, const struct supervisor_event *e,
                    struct supervisor_orders *o)
{
    (void)s;
    (void)e;
    (void)o;
}

/* How many ranks are asked for together next. */
static int next_batch(const struct supervisor *s)
{
    int n = s->limits.batch > 1 ? s->limits.batch : 1;
    int n_left = s->limits.n_ranks - s->n_asked;
    if (n > s->limits.window)
        n = s->limits.window;
    return n < n_left ? n : n_left;
}

static void start_more(struct supervisor *s, const struct supervisor_event *e,
                       struct supervisor_orders *o)
{
    (void)e;
    int n;
    while ((n = next_batch(s)) > 0 && s->n_asked - s->n_answered + n <= s->limits.window) {
        o->n_start += n;
        while (n-- > 0)
            s->ranks[s->n_asked++].phase = RANK_ASKED;
    }
}

/* SIGUSR1 and its like: the job continues, so no rank counts as stopped. */
static void pass_on(struct supervisor *s, const struct supervisor_event *e,
                    struct supervisor_orders *o)
{
    for (int i = 0; i < s->n_asked; i++)
        if (s->ranks[i].phase == RANK_RUNS || s->ranks[i].phase == RANK_ASKED)
            s->ranks[i].forwarded = e->sig;
    o->signal = e->sig;
    o->to_groups = s->limits.to_groups;
}

static void pass_on_stop(struct supervisor *s, const struct supervisor_event *e,
                         struct supervisor_orders *o)
{
    supervisor_signal_ranks(s, e->sig, -1, s->limits.to_groups, o);
}

static void blame_signal(struct supervisor *s, const struct supervisor_event *e,
                         struct supervisor_orders *o)
{
    (void)o;
    if (s->verdict.outcome == OUTCOME_NONE || s->verdict.outcome == OUTCOME_WELL) {
        s->verdict.outcome = OUTCOME_SIGNAL;
        s->verdict.signal = e->sig;
    }
}

static void begin_timeout(struct supervisor *s, const struct supervisor_event *e,
                          struct supervisor_orders *o)
{
    s->verdict.outcome = OUTCOME_TIMEOUT;
    supervisor_signal_ranks(s, SIGTERM, -1, s->limits.to_groups, o);
    s->deadline_ms = e->now_ms + s->limits.grace_ms;
}

static void begin_stop(struct supervisor *s, const struct supervisor_event *e,
                       struct supervisor_orders *o)
{
    blame_signal(s, e, o);
    pass_on_stop(s, e, o);
    s->deadline_ms = e->now_ms + s->limits.grace_ms;
}

static void blame_rank(struct supervisor *s, const struct supervisor_event *e,
                       struct supervisor_orders *o)
{
    (void)o;
    supervisor_blame(s, e);
}

static void blame_and_stop(struct supervisor *s, const struct supervisor_event *e,
                           struct supervisor_orders *o)
{
    supervisor_blame(s, e);
    supervisor_stop_others(s, e->now_ms + s->limits.failure_grace_ms, o);
}

static void blame_and_await(struct supervisor *s, const struct supervisor_event *e,
                            struct supervisor_orders *o)
{
    (void)o;
    supervisor_blame(s, e);
    s->deadline_ms = e->now_ms + s->limits.cause_ms;
}

/* What has failed stays the cause, for all that is known by now. */
static void stop_waiting(struct supervisor *s, const struct supervisor_event *e,
                         struct supervisor_orders *o)
{
    supervisor_stop_others(s, e->now_ms + s->limits.failure_grace_ms, o);
}

static uint64_t ordered_deadline_ms(const struct supervisor *s, const struct supervisor_event *e)
{
    return e->now_ms + (e->gently ? s->limits.grace_ms : s->limits.failure_grace_ms);
}

/* An aborter ends by itself, or is ended by the one that has held it. */
static void begin_ordered_stop(struct supervisor *s, const struct supervisor_event *e,
                               struct supervisor_orders *o)
{
    const int aborter = supervisor_get_aborter(s);
    s->verdict.outcome = aborter >= 0 ? OUTCOME_RANK_FAILED : OUTCOME_ORDERED;
    s->verdict.rank = aborter;
    supervisor_signal_ranks(s, SIGTERM, aborter, s->limits.to_groups, o);
    s->deadline_ms = ordered_deadline_ms(s, e);
}

static void stop_waiting_as_ordered(struct supervisor *s, const struct supervisor_event *e,
                                    struct supervisor_orders *o)
{
    const int aborter = supervisor_get_aborter(s);
    if (aborter >= 0)
        s->verdict.rank = aborter;
    supervisor_stop_others(s, ordered_deadline_ms(s, e), o);
}

/* They have their signal already; the reason may have become a more urgent one. */
static void hasten(struct supervisor *s, const struct supervisor_event *e,
                   struct supervisor_orders *o)
{
    uint64_t deadline_ms = ordered_deadline_ms(s, e);
    (void)o;
    if (deadline_ms < s->deadline_ms)
        s->deadline_ms = deadline_ms;
}

static void blame_timeout(struct supervisor *s, const struct supervisor_event *e,
                          struct supervisor_orders *o)
{
    (void)e;
    (void)o;
    s->verdict.outcome = OUTCOME_TIMEOUT;
}

static void note_order(struct supervisor *s, const struct supervisor_event *e,
                       struct supervisor_orders *o)
{
    (void)e;
    (void)o;
    s->verdict.outcome = OUTCOME_ORDERED;
}

static void praise(struct supervisor *s, const struct supervisor_event *e,
                   struct supervisor_orders *o)
{
    (void)e;
    (void)o;
    s->verdict.outcome = OUTCOME_WELL;
}

static void blame_spawner(struct supervisor *s, const struct supervisor_event *e,
                          struct supervisor_orders *o)
{
    (void)e;
    (void)o;
    if (s->verdict.outcome == OUTCOME_NONE || s->verdict.outcome == OUTCOME_WELL)
        s->verdict.outcome = OUTCOME_INTERNAL;
}

static void note_hang(struct supervisor *s, const struct supervisor_event *e,
                      struct supervisor_orders *o)
{
    (void)e;
    (void)o;
    s->verdict.some_hang = true;
}

/* The end of what was killed is awaited. */
static void begin_kill(struct supervisor *s, const struct supervisor_event *e)
{
    s->deadline_ms = e->now_ms + SUPERVISOR_KILL_MS;
    s->teardown_ms = e->now_ms + SUPERVISOR_TEARDOWN_MS;
}

static void await_teardown(struct supervisor *s, const struct supervisor_event *e,
                           struct supervisor_orders *o)
{
    (void)e;
    (void)o;
    s->deadline_ms += SUPERVISOR_KILL_MS;
}

static void kill_ranks(struct supervisor *s, const struct supervisor_event *e,
                       struct supervisor_orders *o)
{
    supervisor_signal_ranks(s, SIGKILL, -1, true, o);
    begin_kill(s, e);
}

static void signal_descendants(struct supervisor *s, const struct supervisor_event *e,
                               struct supervisor_orders *o)
{
    o->sweep_signal = SIGTERM;
    s->deadline_ms = e->now_ms + s->limits.failure_grace_ms;
}

static void kill_descendants(struct supervisor *s, const struct supervisor_event *e,
                             struct supervisor_orders *o)
{
    o->sweep_signal = SIGKILL;
    begin_kill(s, e);
}

static void sweep_alone(struct supervisor *s, const struct supervisor_event *e,
                        struct supervisor_orders *o)
{
    (void)e;
    s->alone = s->swept_alone = true;
    s->deadline_ms = CO_NEVER_MS; /* the sweep has a deadline of its own */
    o->sweep_alone = true;
}

static void drain(struct supervisor *s, const struct supervisor_event *e,
                  struct supervisor_orders *o)
{
    (void)e;
    supervisor_settle_verdict(s);
    s->deadline_ms = CO_NEVER_MS; /* a pager may be read for hours; a signal ends it */
    o->drain = true;
}

/* The roster is notified, and decides what follows. */
static void note_alone(struct supervisor *s, const struct supervisor_event *e,
                       struct supervisor_orders *o)
{
    (void)e;
    (void)o;
    s->alone = true;
}

/* Without the spawner no generation can follow; that is what ends this node's part. */
static void lose_next(struct supervisor *s, const struct supervisor_event *e,
                      struct supervisor_orders *o)
{
    note_alone(s, e, o);
    s->verdict =
        (struct supervisor_verdict){.outcome = OUTCOME_INTERNAL, .witness = -1, .rank = -1};
}

static void finish(struct supervisor *s, const struct supervisor_event *e,
                   struct supervisor_orders *o)
{
    (void)o;
    supervisor_note_finish(s, e);
}

/* The next generation knows nothing of the one before. */
static void renew(struct supervisor *s, const struct supervisor_event *e,
                  struct supervisor_orders *o)
{
    memset(s->ranks, 0, (size_t)s->limits.n_ranks * sizeof s->ranks[0]);
    s->verdict = (struct supervisor_verdict){.witness = -1, .rank = -1};
    s->deadline_ms = CO_NEVER_MS;
    s->n_asked = s->n_answered = s->n_running = 0;
    s->primary = s->aborter = -1;
    s->generation = e->generation;
    s->begun_ms = e->now_ms;
    s->progress = (struct supervisor_progress){0};
    o->renew = true;
}

static void end(struct supervisor *s, const struct supervisor_event *e, struct supervisor_orders *o)
{
    (void)s;
    (void)e;
    o->ended = true;
}

/* --- The table: read from the top, the first row that fits is it --- */

struct row {
    struct co_machine_row at;
    condition *only_if;
    action *does;
};

#define ROW(in, on, only_if, does, then)                                                           \
    {                                                                                              \
        {SUPERVISOR_##in, SUPERVISOR_EV_##on, SUPERVISOR_##then, #only_if, #does}, only_if, does   \
    }

/* clang-format off */
static const struct row rows[] = {
    /*  in         on            only if           does            then     */
    ROW(STARTING,  STARTED,      all_started,      recovery_settle,    RUNNING),
    ROW(STARTING,  STARTED,      always,           start_more,     STARTING),
    ROW(STARTING,  START_FAILED, nothing_left,     blame_rank,     DRAINING),
    ROW(STARTING,  START_FAILED, no_rank_left,     blame_rank,     LEFTOVERS),
    ROW(STARTING,  START_FAILED, always,           blame_and_stop, STOPPING),
    ROW(STARTING,  EXITED,       lost_a_peer,      blame_and_await, AWAITING),
    ROW(STARTING,  EXITED,       failed_alone,     blame_rank,     DRAINING),
    ROW(STARTING,  EXITED,       failed_last,      blame_rank,     LEFTOVERS),
    ROW(STARTING,  EXITED,       failed,           blame_and_stop, STOPPING),
    ROW(STARTING,  EXITED,       always,           nothing,        STARTING),
    ROW(STARTING,  JOINED,       always,           nothing,        STARTING),
    ROW(STARTING,  SIGNAL,       says_stop,        begin_stop,     STOPPING),
    ROW(STARTING,  SIGNAL,       always,           pass_on,        STARTING),
    ROW(STARTING,  TIMEOUT,      always,           begin_timeout,  STOPPING),
    ROW(STARTING,  SPAWNER_LOST, always,           blame_spawner,  ALONE),
    /* a rank that has joined runs, though the spawner has not reported it yet */
    ROW(STARTING,  ORDER_STOP,   recovery_may_park,    recovery_park,      PARKED),
    ROW(STARTING,  ORDER_STOP,   always,           begin_ordered_stop, STOPPING),
    ROW(STARTING,  ORDER_KILL,   always,           note_order,     KILLING),

    ROW(RUNNING,   EXITED,       recovery_outlive,     recovery_park_others, PARKED),
    ROW(RUNNING,   EXITED,       lost_a_peer,      blame_and_await, AWAITING),
    ROW(RUNNING,   EXITED,       failed_alone,     blame_rank,     DRAINING),
    ROW(RUNNING,   EXITED,       failed_last,      blame_rank,     LEFTOVERS),
    ROW(RUNNING,   EXITED,       failed,           blame_and_stop, STOPPING),
    ROW(RUNNING,   EXITED,       all_done_alone,   praise,         DRAINING),
    ROW(RUNNING,   EXITED,       all_done,         praise,         LEFTOVERS),
    ROW(RUNNING,   EXITED,       always,           nothing,        RUNNING),
    ROW(RUNNING,   JOINED,       always,           nothing,        RUNNING),
    ROW(RUNNING,   ASKED,        always,           recovery_settle, RUNNING),
    ROW(RUNNING,   TIME,         recovery_is_parted,   recovery_part,      PARKED),
    ROW(RUNNING,   TIME,         always,           recovery_settle,    RUNNING),
    ROW(RUNNING,   SIGNAL,       says_stop,        begin_stop,     STOPPING),
    ROW(RUNNING,   SIGNAL,       always,           pass_on,        RUNNING),
    ROW(RUNNING,   TIMEOUT,      always,           begin_timeout,  STOPPING),
    ROW(RUNNING,   SPAWNER_LOST, always,           blame_spawner,  ALONE),
    ROW(RUNNING,   ORDER_STOP,   recovery_may_park,    recovery_park,      PARKED),
    ROW(RUNNING,   ORDER_STOP,   always,           begin_ordered_stop, STOPPING),
    ROW(RUNNING,   ORDER_KILL,   always,           note_order,     KILLING),

    ROW(RECOVERING,   STARTED,      recovery_all_joined,  recovery_settle,    RUNNING),
    ROW(RECOVERING,   STARTED,      always,           recovery_start_more, RECOVERING),
    ROW(RECOVERING,   START_FAILED, nothing_left,     blame_rank,     DRAINING),
    ROW(RECOVERING,   START_FAILED, no_rank_left,     blame_rank,     LEFTOVERS),
    ROW(RECOVERING,   START_FAILED, always,           blame_and_stop, STOPPING),
    ROW(RECOVERING,   EXITED,       recovery_outlive,     recovery_park_others, PARKED),
    ROW(RECOVERING,   EXITED,       lost_a_peer,      blame_and_await, AWAITING),
    ROW(RECOVERING,   EXITED,       failed_alone,     blame_rank,     DRAINING),
    ROW(RECOVERING,   EXITED,       failed_last,      blame_rank,     LEFTOVERS),
    ROW(RECOVERING,   EXITED,       failed,           blame_and_stop, STOPPING),
    ROW(RECOVERING,   EXITED,       all_done_alone,   praise,         DRAINING),
    ROW(RECOVERING,   EXITED,       all_done,         praise,         LEFTOVERS),
    ROW(RECOVERING,   EXITED,       recovery_all_joined,  recovery_settle,    RUNNING),
    ROW(RECOVERING,   EXITED,       always,           nothing,        RECOVERING),
    ROW(RECOVERING,   JOINED,       recovery_all_joined,  recovery_settle,    RUNNING),
    ROW(RECOVERING,   JOINED,       always,           nothing,        RECOVERING),
    ROW(RECOVERING,   ASKED,        always,           nothing,        RECOVERING),
    ROW(RECOVERING,   TIME,         always,           recovery_blame_late, STOPPING),
    ROW(RECOVERING,   SIGNAL,       says_stop,        begin_stop,     STOPPING),
    ROW(RECOVERING,   SIGNAL,       always,           pass_on,        RECOVERING),
    ROW(RECOVERING,   TIMEOUT,      always,           begin_timeout,  STOPPING),
    ROW(RECOVERING,   SPAWNER_LOST, always,           blame_spawner,  ALONE),
    ROW(RECOVERING,   ORDER_STOP,   recovery_may_park,    recovery_park,      PARKED),
    ROW(RECOVERING,   ORDER_STOP,   always,           begin_ordered_stop, STOPPING),
    ROW(RECOVERING,   ORDER_KILL,   always,           note_order,     KILLING),

    /* all parked ranks may have ended meanwhile */
    ROW(PARKED,   STARTED,      always,           nothing,        PARKED),
    ROW(PARKED,   START_FAILED, always,           nothing,        PARKED),
    ROW(PARKED,   EXITED,       always,           nothing,        PARKED),
    ROW(PARKED,   JOINED,       always,           nothing,        PARKED),
    ROW(PARKED,   NEXT,         always,           recovery_go_on,     RECOVERING),
    ROW(PARKED,   SIGNAL,       stop_for_nothing, blame_signal,   DRAINING),
    ROW(PARKED,   SIGNAL,       stop_for_nobody,  blame_signal,   LEFTOVERS),
    ROW(PARKED,   SIGNAL,       says_stop,        begin_stop,     STOPPING),
    ROW(PARKED,   SIGNAL,       always,           pass_on,        PARKED),
    ROW(PARKED,   TIMEOUT,      nothing_left,     blame_timeout,  DRAINING),
    ROW(PARKED,   TIMEOUT,      no_rank_left,     blame_timeout,  LEFTOVERS),
    ROW(PARKED,   TIMEOUT,      always,           begin_timeout,  STOPPING),
    ROW(PARKED,   SPAWNER_LOST, always,           blame_spawner,  ALONE),
    ROW(PARKED,   ORDER_STOP,   recovery_stay_parked,     nothing,        PARKED),
    ROW(PARKED,   ORDER_STOP,   nothing_left,     note_order,     DRAINING),
    ROW(PARKED,   ORDER_STOP,   no_rank_left,     note_order,     LEFTOVERS),
    ROW(PARKED,   ORDER_STOP,   always,           recovery_stop_parked, STOPPING),
    ROW(PARKED,   ORDER_KILL,   nothing_left,     note_order,     DRAINING),
    ROW(PARKED,   ORDER_KILL,   no_rank_left,     note_order,     SWEEPING),
    ROW(PARKED,   ORDER_KILL,   always,           note_order,     KILLING),

    /* the wait ends with the first failure of another kind; more that lost a peer prove nothing.
     * where other nodes take part, all ranks of this one may have ended */
    ROW(AWAITING,  STARTED,      always,           nothing,        AWAITING),
    ROW(AWAITING,  START_FAILED, nothing_left,     blame_rank,     DRAINING),
    ROW(AWAITING,  START_FAILED, no_rank_left,     blame_rank,     LEFTOVERS),
    ROW(AWAITING,  START_FAILED, always,           blame_and_stop, STOPPING),
    ROW(AWAITING,  EXITED,       waits_for_others, nothing,        AWAITING),
    ROW(AWAITING,  EXITED,       nothing_left,     nothing,        DRAINING),
    ROW(AWAITING,  EXITED,       no_rank_left,     nothing,        LEFTOVERS),
    ROW(AWAITING,  EXITED,       lost_a_peer,      nothing,        AWAITING),
    ROW(AWAITING,  EXITED,       failed,           blame_and_stop, STOPPING),
    ROW(AWAITING,  EXITED,       always,           nothing,        AWAITING),
    ROW(AWAITING,  SIGNAL,       stop_for_nothing, blame_signal,   DRAINING),
    ROW(AWAITING,  SIGNAL,       stop_for_nobody,  blame_signal,   LEFTOVERS),
    ROW(AWAITING,  SIGNAL,       says_stop,        begin_stop,     STOPPING),
    ROW(AWAITING,  SIGNAL,       always,           pass_on,        AWAITING),
    ROW(AWAITING,  TIME,         nothing_left,     nothing,        DRAINING),
    ROW(AWAITING,  TIME,         no_rank_left,     nothing,        LEFTOVERS),
    ROW(AWAITING,  TIME,         always,           stop_waiting,   STOPPING),
    ROW(AWAITING,  TIMEOUT,      nothing_left,     nothing,        DRAINING),
    ROW(AWAITING,  TIMEOUT,      no_rank_left,     nothing,        LEFTOVERS),
    ROW(AWAITING,  TIMEOUT,      always,           stop_waiting,   STOPPING),
    ROW(AWAITING,  SPAWNER_LOST, always,           blame_spawner,  ALONE),
    ROW(AWAITING,  ORDER_STOP,   nothing_left,     nothing,        DRAINING),
    ROW(AWAITING,  ORDER_STOP,   no_rank_left,     nothing,        LEFTOVERS),
    ROW(AWAITING,  ORDER_STOP,   always,           stop_waiting_as_ordered, STOPPING),
    ROW(AWAITING,  ORDER_KILL,   nothing_left,     nothing,        DRAINING),
    ROW(AWAITING,  ORDER_KILL,   no_rank_left,     nothing,        SWEEPING),
    ROW(AWAITING,  ORDER_KILL,   always,           nothing,        KILLING),

    ROW(STOPPING,  STARTED,      always,           nothing,        STOPPING),
    ROW(STOPPING,  START_FAILED, nothing_left,     nothing,        DRAINING),
    ROW(STOPPING,  START_FAILED, no_rank_left,     nothing,        LEFTOVERS),
    ROW(STOPPING,  START_FAILED, always,           nothing,        STOPPING),
    ROW(STOPPING,  EXITED,       nothing_left,     nothing,        DRAINING),
    ROW(STOPPING,  EXITED,       no_rank_left,     nothing,        LEFTOVERS),
    ROW(STOPPING,  EXITED,       always,           nothing,        STOPPING),
    ROW(STOPPING,  SIGNAL,       second_interrupt, nothing,        KILLING),
    ROW(STOPPING,  SIGNAL,       says_stop,        pass_on_stop,   STOPPING),
    ROW(STOPPING,  SIGNAL,       always,           pass_on,        STOPPING),
    ROW(STOPPING,  TIME,         always,           nothing,        KILLING),
    ROW(STOPPING,  SPAWNER_LOST, always,           blame_spawner,  ALONE),
    ROW(STOPPING,  ORDER_STOP,   always,           hasten,         STOPPING),
    ROW(STOPPING,  ORDER_KILL,   always,           nothing,        KILLING),

    ROW(KILLING,   STARTED,      always,           nothing,        KILLING),
    ROW(KILLING,   START_FAILED, nothing_left,     nothing,        DRAINING),
    ROW(KILLING,   START_FAILED, no_rank_left,     nothing,        SWEEPING),
    ROW(KILLING,   START_FAILED, always,           nothing,        KILLING),
    ROW(KILLING,   EXITED,       nothing_left,     nothing,        DRAINING),
    ROW(KILLING,   EXITED,       no_rank_left,     nothing,        SWEEPING),
    ROW(KILLING,   EXITED,       always,           nothing,        KILLING),
    ROW(KILLING,   TIME,         some_run,         await_teardown, KILLING),
    ROW(KILLING,   TIME,         always,           nothing,        ALONE),
    ROW(KILLING,   SPAWNER_LOST, always,           blame_spawner,  ALONE),

    ROW(LEFTOVERS, EMPTY,        always,           nothing,        DRAINING),
    ROW(LEFTOVERS, SIGNAL,       says_stop,        blame_signal,   SWEEPING),
    ROW(LEFTOVERS, SIGNAL,       always,           nothing,        LEFTOVERS),
    ROW(LEFTOVERS, TIME,         always,           nothing,        SWEEPING),
    ROW(LEFTOVERS, SPAWNER_LOST, always,           blame_spawner,  ALONE),
    ROW(LEFTOVERS, ORDER_KILL,   always,           nothing,        SWEEPING),

    ROW(SWEEPING,  EMPTY,        always,           nothing,        DRAINING),
    ROW(SWEEPING,  SIGNAL,       says_stop,        blame_signal,   SWEEPING),
    ROW(SWEEPING,  SIGNAL,       always,           nothing,        SWEEPING),
    ROW(SWEEPING,  TIME,         some_run,         await_teardown, SWEEPING),
    ROW(SWEEPING,  TIME,         always,           nothing,        ALONE),
    ROW(SWEEPING,  SPAWNER_LOST, always,           blame_spawner,  ALONE),

    ROW(ALONE,     SWEPT,        failed,           note_hang,    DRAINING),
    ROW(ALONE,     SWEPT,        always,           nothing,        DRAINING),

    ROW(DRAINING,  DRAINED,      awaits_orders,    nothing,        WAITING),
    ROW(DRAINING,  DRAINED,      always,           nothing,        ENDED),
    ROW(DRAINING,  SIGNAL,       stop_awaits_orders, blame_signal, WAITING),
    ROW(DRAINING,  SIGNAL,       says_stop,        blame_signal,   ENDED),
    ROW(DRAINING,  SIGNAL,       always,           nothing,        DRAINING),
    ROW(DRAINING,  TIMEOUT,      awaits_orders,    nothing,        WAITING),
    ROW(DRAINING,  TIMEOUT,      always,           nothing,        DRAINING),
    ROW(DRAINING,  SPAWNER_LOST, awaits_orders,    note_alone,     WAITING),
    ROW(DRAINING,  SPAWNER_LOST, always,           nothing,        DRAINING),

    ROW(WAITING,   SIGNAL,       says_stop,        blame_signal,   WAITING),
    ROW(WAITING,   SIGNAL,       always,           nothing,        WAITING),
    ROW(WAITING,   TIMEOUT,      always,           nothing,        WAITING),
    ROW(WAITING,   SPAWNER_LOST, always,           lose_next,      WAITING),
    ROW(WAITING,   NEXT,         always,           renew,          STARTING),
    ROW(WAITING,   FINISH,       always,           finish,         DRAINING),
};

/* Pairs that cannot happen, or that mean nothing when they do. */
static const struct co_machine_pair ignored[] = {
#define IGNORE(in, on) {SUPERVISOR_##in, SUPERVISOR_EV_##on}
    /* they will hear what follows */
    IGNORE(STARTING, ASKED), IGNORE(PARKED, ASKED), IGNORE(AWAITING, ASKED), IGNORE(STOPPING, ASKED), IGNORE(KILLING, ASKED),
    IGNORE(LEFTOVERS, ASKED), IGNORE(SWEEPING, ASKED), IGNORE(ALONE, ASKED), IGNORE(DRAINING, ASKED),
    IGNORE(WAITING, ASKED), IGNORE(ENDED, ASKED),
    /* the last descendant may end while ranks run or are about to be started */
    IGNORE(STARTING, EMPTY), IGNORE(RUNNING, EMPTY), IGNORE(RECOVERING, EMPTY),
    IGNORE(PARKED, EMPTY), IGNORE(AWAITING, EMPTY),
    IGNORE(STOPPING, EMPTY), IGNORE(KILLING, EMPTY),
    /* no deadline runs */
    IGNORE(STARTING, TIME), IGNORE(ALONE, TIME), IGNORE(DRAINING, TIME),
    IGNORE(WAITING, TIME), IGNORE(ENDED, TIME), IGNORE(PARKED, TIME),
    /* no rank is waited for; that it has joined is recorded as a fact */
    IGNORE(AWAITING, JOINED), IGNORE(STOPPING, JOINED), IGNORE(KILLING, JOINED), IGNORE(LEFTOVERS, JOINED),
    IGNORE(SWEEPING, JOINED), IGNORE(ALONE, JOINED), IGNORE(DRAINING, JOINED),
    IGNORE(WAITING, JOINED), IGNORE(ENDED, JOINED),
    /* the job ends already; that no restart follows is written down as a fact */
    IGNORE(STOPPING, TIMEOUT), IGNORE(KILLING, TIMEOUT), IGNORE(LEFTOVERS, TIMEOUT),
    IGNORE(SWEEPING, TIMEOUT), IGNORE(ALONE, TIMEOUT), IGNORE(ENDED, TIMEOUT),
    /* a fact; what follows is decided with the other nodes, or is its end */
    IGNORE(STARTING, ABORTED), IGNORE(RUNNING, ABORTED), IGNORE(RECOVERING, ABORTED), IGNORE(PARKED, ABORTED),
    IGNORE(AWAITING, ABORTED), IGNORE(STOPPING, ABORTED), IGNORE(KILLING, ABORTED), IGNORE(LEFTOVERS, ABORTED),
    IGNORE(SWEEPING, ABORTED), IGNORE(ALONE, ABORTED), IGNORE(DRAINING, ABORTED), IGNORE(WAITING, ABORTED),
    IGNORE(ENDED, ABORTED),
    /* each rank was answered for */
    IGNORE(RUNNING, STARTED), IGNORE(RUNNING, START_FAILED),
    IGNORE(LEFTOVERS, STARTED), IGNORE(LEFTOVERS, START_FAILED), IGNORE(LEFTOVERS, EXITED),
    IGNORE(SWEEPING, STARTED), IGNORE(SWEEPING, START_FAILED), IGNORE(SWEEPING, EXITED),
    /* no process is left to report, or one that hung in the kernel returned after all */
    IGNORE(ALONE, STARTED), IGNORE(ALONE, START_FAILED), IGNORE(ALONE, EXITED),
    IGNORE(ALONE, EMPTY),
    IGNORE(ALONE, SPAWNER_LOST), IGNORE(ALONE, SIGNAL),
    IGNORE(DRAINING, STARTED), IGNORE(DRAINING, START_FAILED), IGNORE(DRAINING, EXITED),
    IGNORE(DRAINING, EMPTY),
    IGNORE(ENDED, STARTED), IGNORE(ENDED, START_FAILED), IGNORE(ENDED, EXITED),
    IGNORE(ENDED, EMPTY),
    IGNORE(ENDED, SPAWNER_LOST), IGNORE(ENDED, SIGNAL), IGNORE(ENDED, DRAINED),
    IGNORE(ENDED, SWEPT),
    /* there is nothing stronger than SIGKILL */
    IGNORE(KILLING, SIGNAL),
    /* nothing is below the spawner */
    IGNORE(WAITING, STARTED), IGNORE(WAITING, START_FAILED), IGNORE(WAITING, EXITED),
    IGNORE(WAITING, EMPTY),
    /* asked for in one state only */
    IGNORE(WAITING, SWEPT), IGNORE(WAITING, DRAINED),
    IGNORE(STARTING, SWEPT), IGNORE(RUNNING, SWEPT), IGNORE(RECOVERING, SWEPT), IGNORE(PARKED, SWEPT),
    IGNORE(AWAITING, SWEPT), IGNORE(STOPPING, SWEPT), IGNORE(KILLING, SWEPT),
    IGNORE(LEFTOVERS, SWEPT), IGNORE(SWEEPING, SWEPT), IGNORE(DRAINING, SWEPT),
    IGNORE(STARTING, DRAINED), IGNORE(RUNNING, DRAINED), IGNORE(RECOVERING, DRAINED),
    IGNORE(PARKED, DRAINED), IGNORE(AWAITING, DRAINED),
    IGNORE(STOPPING, DRAINED), IGNORE(KILLING, DRAINED), IGNORE(LEFTOVERS, DRAINED), IGNORE(SWEEPING, DRAINED),
    IGNORE(ALONE, DRAINED),
    /* the roster waits for WAITING or PARKED before it starts anything, for WAITING before it ends
     * anything */
    IGNORE(STARTING, NEXT), IGNORE(RUNNING, NEXT), IGNORE(RECOVERING, NEXT), IGNORE(AWAITING, NEXT),
    IGNORE(STOPPING, NEXT), IGNORE(KILLING, NEXT),
    IGNORE(LEFTOVERS, NEXT), IGNORE(SWEEPING, NEXT), IGNORE(ALONE, NEXT), IGNORE(DRAINING, NEXT),
    IGNORE(ENDED, NEXT),
    IGNORE(STARTING, FINISH), IGNORE(RUNNING, FINISH), IGNORE(RECOVERING, FINISH), IGNORE(PARKED, FINISH), IGNORE(AWAITING, FINISH),
    IGNORE(STOPPING, FINISH), IGNORE(KILLING, FINISH), IGNORE(LEFTOVERS, FINISH), IGNORE(SWEEPING, FINISH),
    IGNORE(ALONE, FINISH), IGNORE(DRAINING, FINISH), IGNORE(ENDED, FINISH),
    /* it is done already, or nothing runs */
    IGNORE(KILLING, ORDER_STOP), IGNORE(LEFTOVERS, ORDER_STOP), IGNORE(SWEEPING, ORDER_STOP),
    IGNORE(ALONE, ORDER_STOP), IGNORE(DRAINING, ORDER_STOP), IGNORE(WAITING, ORDER_STOP),
    IGNORE(ENDED, ORDER_STOP),
    IGNORE(KILLING, ORDER_KILL), IGNORE(SWEEPING, ORDER_KILL), IGNORE(ALONE, ORDER_KILL),
    IGNORE(DRAINING, ORDER_KILL), IGNORE(WAITING, ORDER_KILL), IGNORE(ENDED, ORDER_KILL),
#undef IGNORE
};
/* clang-format on */

static const struct co_machine_state states[] = {SUPERVISOR_STATES(CO_MACHINE_STATE)};
static action *const entries[] = {SUPERVISOR_STATES(CO_MACHINE_ENTRY)};
static const char *const event_names[] = {SUPERVISOR_EVENTS(CO_MACHINE_EVENT)};

const struct co_machine supervisor_machine = CO_MACHINE(
    "supervisor", "launcher/supervisor/supervisor.c", states, event_names, rows, ignored);

/* The only place that writes the state. */
static void enter(struct supervisor *s, enum supervisor_state state,
                  const struct supervisor_event *e, struct supervisor_orders *o)
{
    s->state = state;
    entries[state](s, e, o);
}

/* Does the event name a rank of which it can be true? The spawner is ours, a wrong report is a bug;
 * it must not become a wrong index. */
static bool is_about_a_rank(const struct supervisor *s, const struct supervisor_event *e)
{
    if (e->rank < 0 || e->rank >= s->n_asked)
        return false;
    enum supervisor_phase phase = s->ranks[e->rank].phase;
    if (e->type == SUPERVISOR_EV_JOINED || e->type == SUPERVISOR_EV_ASKED)
        return phase == RANK_RUNS || phase == RANK_ASKED;
    return e->type == SUPERVISOR_EV_EXITED || e->type == SUPERVISOR_EV_ABORTED
               ? phase == RANK_RUNS
               : phase == RANK_ASKED;
}

void supervisor_step(struct supervisor *s, const struct supervisor_event *e,
                     struct supervisor_orders *ret)
{
    *ret = (struct supervisor_orders){.except = -1};
    if ((e->type == SUPERVISOR_EV_STARTED || e->type == SUPERVISOR_EV_START_FAILED ||
         e->type == SUPERVISOR_EV_EXITED || e->type == SUPERVISOR_EV_JOINED ||
         e->type == SUPERVISOR_EV_ASKED || e->type == SUPERVISOR_EV_ABORTED) &&
        !is_about_a_rank(s, e))
        return;
    if (s->state != SUPERVISOR_ENDED)
        supervisor_note_facts(s, e);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        if (row->at.in != s->state || row->at.on != e->type || !row->only_if(s, e))
            continue;
        row->does(s, e, ret);
        if (row->at.then != s->state)
            enter(s, row->at.then, e, ret);
        return;
    }
}

struct supervisor *supervisor_create(const struct supervisor_limits *limits)
{
    size_t n = (size_t)limits->n_ranks;
    struct supervisor *s = calloc(1, sizeof *s + n * sizeof s->ranks[0]);
    if (s == NULL)
        return NULL;
    s->limits = *limits;
    s->restart = calloc(n, sizeof *s->restart);
    s->dropped = calloc(n, sizeof *s->dropped);
    s->deadline_ms = CO_NEVER_MS;
    s->verdict.rank = -1;
    s->verdict.witness = -1;
    s->replacement.rank = -1;
    s->primary = s->aborter = -1;
    s->state = SUPERVISOR_WAITING;
    if (s->restart != NULL && s->dropped != NULL)
        return s;
    supervisor_destroy(s);
    return NULL;
}

void supervisor_destroy(struct supervisor *s)
{
    if (s == NULL)
        return;
    free(s->dropped);
    free(s->restart);
    free(s);
}

int supervisor_n_next(const struct supervisor *s)
{
    return s->state == SUPERVISOR_PARKED ? recovery_n_next(s) : s->limits.n_ranks;
}

const char *supervisor_state_name(enum supervisor_state state)
{
    return states[state].name;
}

const char *supervisor_event_name(enum supervisor_event_type type)
{
    return event_names[type];
}
