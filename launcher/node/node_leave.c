#include "node_leave.h"

#include "launcher/generation/checkpoint_request.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/worker_env.h"
#include "launcher/reporting/report.h"
#include "node_goodput.h"

#include "common/error.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

struct node_leave {
    const struct node_view *n;
    uv_timer_t timer;
    int held; /* the signal that is held back; 0: none */
    bool of_all;
    bool is_over; /* it will be let go, from the loop */
    bool is_late; /* the time is over, and others are heard first */
};

/* Those that have not saved report it before the first of those that have saved ends the job. */
enum { OTHERS_MS = 500 };

static bool is_going_on(const struct node_view *n)
{
    const enum supervisor_state state = supervisor_get_state(n->supervisor);
    return state == SUPERVISOR_STARTING || state == SUPERVISOR_RUNNING ||
           state == SUPERVISOR_RECOVERING;
}

/* SIGTERM, and what --signals-to-handle adds, as a scheduler sends them. A user who presses ^C or
 * closes the terminal wants the job to end, not to save. */
uint64_t node_leave_signals(const struct job_spec *spec)
{
    const uint64_t of_people =
        UINT64_C(1) << SIGINT | UINT64_C(1) << SIGHUP | UINT64_C(1) << SIGQUIT;
    return spec->stop_signals & ~of_people;
}

static bool announces(const struct node_view *n, int sig)
{
    return sig > 0 && sig < 64 && (node_leave_signals(n->spec) >> sig & 1) != 0;
}

static bool stops(const struct node_view *n, int sig)
{
    return announces(n, sig) || sig == SIGINT || sig == SIGHUP || sig == SIGQUIT;
}

/* All ranks have exited with 0, before they were stopped. */
static bool has_ended_well(const struct node_view *n)
{
    return supervisor_get_verdict(n->supervisor)->outcome == OUTCOME_WELL;
}

/* Give the signal that was held back to the supervisor. */
static void let_go(struct node_leave *l)
{
    const int sig = l->held;
    l->held = 0;
    uv_timer_stop(&l->timer);
    if (sig != 0 && !has_ended_well(l->n))
        node_post(l->n, &(struct supervisor_event){.type = SUPERVISOR_EV_SIGNAL, .sig = sig});
}

static void on_time(uv_timer_t *timer)
{
    struct node_leave *l = timer->data;
    const bool all_saved = checkpoint_request_all_saved(l->n->gen->checkpoint_request);
    if (l->of_all && all_saved && is_going_on(l->n) && !l->is_over && !l->is_late) {
        l->is_late = true;
        uv_timer_start(&l->timer, on_time, OTHERS_MS, 0);
        return;
    }
    if (is_going_on(l->n) && !all_saved)
        node_say(l->n, CO_WARNING,
                 "timed out after %.3g s waiting for all ranks to save their state (--on-term)",
                 (double)l->n->spec->on_term_ms / 1e3);
    events_leaving(l->n->events, supervisor_generation(l->n->supervisor),
                   all_saved           ? "saved"
                   : is_going_on(l->n) ? "late"
                                       : "ended",
                   l->held, 0);
    let_go(l);
}

/* Once in a generation; or they were asked since a node waits: the same answer will do. */
static void ask(const struct node_view *n)
{
    if (checkpoint_request_ask(n->gen->checkpoint_request) &&
        spawner_signal(n->spawner,
                       n->spec->signal_scope == SCOPE_GROUP ? SPAWNER_GROUP : SPAWNER_MAIN, -1,
                       WORKER_CHECKPOINT_SIGNAL) < 0)
        node_lose_spawner(n);
}

static void announce(struct node_leave *l, int sig, bool of_all)
{
    const struct node_view *n = l->n;
    char name[REPORT_SIGNAL_BYTES];
    l->held = sig;
    l->of_all = of_all;
    l->is_over = l->is_late = false;
    node_say(n, CO_NOTE, "%s: asking the ranks to save their state within %.3g s",
             report_signal(sig, name, sizeof name), (double)n->spec->on_term_ms / 1e3);
    events_leaving(n->events, supervisor_generation(n->supervisor), "announced", sig,
                   n->spec->on_term_ms);
    uv_update_time(n->loop);
    uv_timer_start(&l->timer, on_time, n->spec->on_term_ms, 0);
    node_goodput_note_save(n);
    ask(n);
}

void node_leave_signal(const struct node_view *n, int sig, bool of_all)
{
    struct node_leave *l = n->parts->leave;
    const bool may_hold =
        l != NULL && l->held == 0 && is_going_on(n) && n->gen->checkpoint_request != NULL;
    if (may_hold && announces(n, sig) &&
        (of_all || !checkpoint_request_all_saved(n->gen->checkpoint_request))) {
        announce(l, sig, of_all);
        return;
    }
    if (l != NULL && stops(n, sig))
        let_go(l);
    node_post(n, &(struct supervisor_event){.type = SUPERVISOR_EV_SIGNAL, .sig = sig});
}

void node_leave_widen(const struct node_view *n, int sig)
{
    struct node_leave *l = n->parts->leave;
    if (l != NULL && l->held == sig && !l->is_over)
        l->of_all = true;
}

static void release(struct node_leave *l)
{
    l->is_over = true;
    uv_timer_start(&l->timer, on_time, 0, 0);
}

void node_leave_release(const struct node_view *n)
{
    struct node_leave *l = n->parts->leave;
    if (l != NULL && l->held != 0 && l->of_all && !l->is_over)
        release(l);
}

bool node_leave_may_go_alone(const struct node_view *n, int sig)
{
    const struct node_leave *l = n->parts->leave;
    return l != NULL && l->held == 0 && announces(l->n, sig) && !is_going_on(l->n);
}

bool node_leave_holds_own(const struct node_view *n)
{
    const struct node_leave *l = n->parts->leave;
    return l != NULL && l->held != 0 && !l->of_all;
}

void node_leave_look(const struct node_view *n)
{
    struct node_leave *l = n->parts->leave;
    if (l == NULL || l->held == 0 || l->is_over)
        return;
    if (is_going_on(l->n) && !checkpoint_request_all_saved(l->n->gen->checkpoint_request)) {
        ask(l->n); /* a rank was replaced, and a generation has begun */
        return;
    }
    if (!l->of_all || !is_going_on(l->n))
        release(l);
}

static int leave_open(const struct node_view *n, struct co_error *err)
{
    if (n->spec->on_term_ms == 0)
        return 0;
    struct node_leave *l = calloc(1, sizeof *l);
    if (l == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    l->n = n;
    uv_timer_init(n->loop, &l->timer);
    l->timer.data = l;
    n->parts->leave = l;
    return 0;
}

static void leave_close(const struct node_view *n)
{
    if (n->parts->leave != NULL)
        uv_close((uv_handle_t *)&n->parts->leave->timer, node_free_data);
}

const struct node_feature node_leave_feature = {
    .open = leave_open, .on_step = node_leave_look, .close = leave_close};
