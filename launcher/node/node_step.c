/* node_step.c - events of the supervisor, and its orders.
 *
 * Read node_consume() first: features observe the event, the supervisor makes its step, and
 * carry_out() does what it orders. A report of the spawner arrives in node_on_spawner(), a signal
 * in node_on_signal(); both become events in the queue (node_feed()). make_exit() collects what is
 * known about the end of a rank before the supervisor receives it.
 *
 * Invariant: node_consume() never runs inside itself. What a step causes is posted to the queue. */
#include "node_priv.h"

#include "launcher/generation/node_memory.h"
#include "launcher/generation/progress_pipes.h"
#include "launcher/job/job_spec.h"
#include "launcher/reporting/post_mortem.h"
#include "launcher/reporting/report.h"
#include "launcher/spawner/sweep.h"
#include "launcher/stdio/output.h"
#include "node_dump.h"
#include "node_errors.h"
#include "node_goodput.h"
#include "node_hang.h"
#include "node_leave.h"
#include "node_pmi.h"
#include "node_report.h"
#include "node_roster.h"
#include "node_stacks.h"
#include "node_standby.h"
#include "node_steps.h"

#include "common/clock.h"
#include "common/scope.h"
#include "rendezvous/membership/roster.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* From the last start until OOM kills are counted: that must not take a CPU from ranks that have
 * just begun, and it takes longer to use up any memory. */
enum {
    SETTLED_MS = 10,
    SAME_SIGNAL_MS = 1000, /* by ways of different length: a launching ddprun and its srun */
};

/* --- Orders --- */

/* More of this job may follow on this node. */
static bool goes_on(const struct node *n)
{
    return !supervisor_get_verdict(n->supervisor)->is_final;
}

static void on_all_said(void *arg)
{
    node_feed(arg, &(struct supervisor_event){.type = SUPERVISOR_EV_DRAINED});
}

/* Whether what failed was ended since it hung. */
static const struct hang_finding *hang_of_root(const struct node *n)
{
    const int rank = supervisor_get_verdict(n->supervisor)->rank;
    return rank >= 0 ? node_hang_of(&n->view, supervisor_get_rank(n->supervisor, rank)->pid) : NULL;
}

struct node_result_place node_result_place(const struct node *n)
{
    struct node_result_place place = node_roster_place(n->parts.roster);
    if (!n->spec->world.has_others)
        place.n_restarts = n->n_charged;
    return place;
}

static void report(struct node *n, const struct roster_restart *restart)
{
    struct report_job job;
    const struct node_result_place place = node_result_place(n);
    const uint64_t now_ms = co_now_ms();
    co_autofree char *text = post_mortem(&(struct post_mortem){
        .spec = n->spec,
        .supervisor = n->supervisor,
        .events = &n->events,
        .oom = &n->oom,
        .io = &n->io,
        .runtime_dir = n->runtime_dir,
        .hang = hang_of_root(n),
        .spawner = n->spawner.pid,
        .begun_ms = n->view.begun_ms,
        .now_ms = now_ms,
        .goodput = node_goodput_read(&n->view, now_ms),
        .job = n->spec->world.has_others ? node_roster_fill_report(n->parts.roster, &job) : NULL,
        .restart = restart,
        .result = restart == NULL ? node_report_result(&n->view) : NULL,
        .place = &place,
    });
    if (text != NULL)
        output_report(n->output, text);
    node_dump_note_report(&n->view, text);
}

static void note_charge(struct node *n, const struct roster_restart *restart)
{
    if (!restart->is_free)
        n->n_charged = restart->n_counted;
}

void node_on_restart(void *arg, const struct roster_restart *restart)
{
    struct node *n = arg;
    note_charge(n, restart);
    report(n, restart);
    node_stacks_tell_flights(&n->view);
    node_dump_finish(&n->view);
    events_restart(&n->events, n->supervisor, restart);
}

static void on_reported(void *arg)
{
    struct node *n = arg;
    output_drain(n->output, on_all_said, n);
}

static void report_final(struct node *n, void (*on_done)(void *arg))
{
    n->has_reported = true;
    report(n, NULL);
    node_stacks_tell_flights(&n->view);
    node_dump_finish(&n->view);
    event_log_end(&n->event_log, n->supervisor);
    node_report_finish(&n->view, on_done, n);
}

/* The ranks' last output is written, or kept: ours comes after it, on the same way. It waits until
 * the roster has decided what follows. */
static void on_drained(void *arg)
{
    struct node *n = arg;
    node_steps_tell_pace(&n->view);
    if (!goes_on(n)) {
        report_final(n, on_reported);
        return;
    }
    if (n->spec->world.has_others)
        node_stacks_tell_flights(&n->view);
    on_all_said(n);
}

static void dismiss_spawner(struct node *n)
{
    if (!uv_is_closing((uv_handle_t *)&n->spawner_poll))
        uv_close((uv_handle_t *)&n->spawner_poll, NULL); /* before its descriptor goes */
    spawner_dismiss(&n->spawner);
}

static void do_sweep_alone(struct node *n)
{
    kill(n->spawner.pid, SIGKILL); /* it may be alive, but stopped */
    dismiss_spawner(n);
    int rc = sweep_kill_all(co_deadline_ms(SUPERVISOR_KILL_MS));
    n->spawner = (struct spawner){.sock = -1}; /* reaped with the others */
    node_feed(n, &(struct supervisor_event){.type = SUPERVISOR_EV_SWEPT, .status = -rc});
}

/* What SIGKILL has not ended in SUPERVISOR_KILL_MS is awaited further if it runs. */
static bool some_run(struct node *n)
{
    const enum supervisor_state state = supervisor_get_state(n->supervisor);
    if (state != SUPERVISOR_KILLING && state != SUPERVISOR_SWEEPING)
        return false;
    const pid_t pid = sweep_find_teardown(n->spawner.pid);
    if (pid != 0 && !n->has_told_teardown)
        node_say(&n->view, CO_NOTE,
                 "process %d has not ended within %d s of SIGKILL, but is still running in the "
                 "kernel, which frees its memory: waiting up to %d s",
                 (int)pid, SUPERVISOR_KILL_MS / 1000, SUPERVISOR_TEARDOWN_MS / 1000);
    n->has_told_teardown = n->has_told_teardown || pid != 0;
    return pid != 0;
}

static void on_timer(uv_timer_t *timer)
{
    struct node *n = timer->data;
    node_feed(n, &(struct supervisor_event){.type = SUPERVISOR_EV_TIME, .some_run = some_run(n)});
}

static void on_settled(uv_timer_t *timer)
{
    struct node *n = timer->data;
    oom_watch_begin(&n->oom);
    const char *group = oom_watch_group(&n->oom);
    if (n->spec->verbose > 0)
        node_say(&n->view, CO_NOTE, "OOM kills are counted by %s%s",
                 *group != '\0' ? "control group " : "no control group", group);
}

void node_on_timeout(uv_timer_t *timer)
{
    struct node *n = timer->data;
    const struct supervisor_event e = {.type = SUPERVISOR_EV_TIMEOUT};
    if (!node_dump_holds(&n->view, &e))
        node_feed(n, &e);
}

static void set_timer(struct node *n)
{
    uint64_t deadline_ms = supervisor_deadline_ms(n->supervisor);
    if (deadline_ms == CO_NEVER_MS) {
        uv_timer_stop(&n->timer);
        return;
    }
    uint64_t now_ms = co_now_ms();
    uv_update_time(&n->loop);
    uv_timer_start(&n->timer, on_timer, deadline_ms > now_ms ? deadline_ms - now_ms : 0, 0);
}

/* As a further stop signal does. */
static void on_drain_time(uv_timer_t *timer)
{
    struct node *n = timer->data;
    node_feed(n, &(struct supervisor_event){.type = SUPERVISOR_EV_SIGNAL,
                                            .sig = supervisor_stop_signal(n->supervisor)});
}

static void set_drain_timer(struct node *n)
{
    const bool drains = supervisor_get_state(n->supervisor) == SUPERVISOR_DRAINING;
    if (!drains || supervisor_stop_signal(n->supervisor) == 0) {
        uv_timer_stop(&n->drain_timer);
    } else if (!uv_is_active((uv_handle_t *)&n->drain_timer)) {
        uv_update_time(&n->loop);
        uv_timer_start(&n->drain_timer, on_drain_time, OUTPUT_STOPPED_MS, 0);
    }
}

static void on_late_report(void *arg)
{
    (void)arg;
}

static void carry_out(struct node *n, const struct supervisor_orders *o)
{
    int rc = 0;
    if (o->renew)
        node_renew(n);
    if (o->signal != 0)
        rc = spawner_signal(&n->spawner, o->to_groups ? SPAWNER_GROUP : SPAWNER_MAIN, o->except,
                            o->signal);
    if (rc == 0 && o->sweep_signal != 0)
        rc = spawner_sweep(&n->spawner, o->sweep_signal);
    if (rc < 0)
        node_lose_spawner(&n->view);
    else if (o->recover || o->n_restart > 0)
        node_recover(n, o);
    else if (o->n_start > 0)
        node_start_ranks(n, o->n_start);
    else if (o->sweep_alone)
        do_sweep_alone(n);
    else if (o->drain && goes_on(n))
        output_retire(n->output, on_drained, n);
    else if (o->drain) {
        dismiss_spawner(n); /* it goes while we pass on and clean up */
        output_drain(n->output, on_drained, n);
    } else if (o->ended) {
        n->ended = true;
        if (!n->has_reported) /* a signal has ended the wait for a reader */
            report_final(n, on_late_report);
    }
}

static void say_replacement(struct node *n, const struct roster_restart *restart)
{
    const struct supervisor_replacement *r = supervisor_get_replacement(n->supervisor);
    const int max = n->spec->restart_window_ms == 0 ? n->spec->max_restarts : 0;
    char status[REPORT_STATUS_BYTES];
    char time[REPORT_DURATION_BYTES];
    char count[32] = "";
    if (restart == NULL || r->rank < 0)
        return;
    note_charge(n, restart);
    if (restart->is_free)
        snprintf(count, sizeof count, ", after progress");
    else if (max > 0)
        snprintf(count, sizeof count, ", restart %u of %d", restart->n_counted, max);
    node_say(&n->view, CO_NOTE, "rank %d failed: %s, %s after its start; %s%s",
             supervisor_place_of(n->supervisor, r->rank),
             report_end(&r->was, status, sizeof status),
             report_duration(r->was.ended_ms - r->was.started_ms, time, sizeof time),
             r->is_dropped ? "continuing without it" : "replacing it", count);
    node_steps_tell_pace(&n->view);
    events_replace(&n->events, n->supervisor, restart);
}

static void say_late(struct node *n)
{
    node_say(&n->view, CO_WARNING,
             "timed out after %.3g s waiting for rank %d to join its peers (--recovery-timeout); "
             "stopping all ranks",
             (double)n->spec->recovery_ms / 1e3, supervisor_get_verdict(n->supervisor)->rank);
}

static void say_transition(struct node *n, enum supervisor_state from,
                           const struct supervisor_event *e)
{
    enum supervisor_state to = supervisor_get_state(n->supervisor);
    if (from == to)
        return;
    const int rank = supervisor_get_verdict(n->supervisor)->rank;
    const bool is_ordered = from == SUPERVISOR_AWAITING && e->type == SUPERVISOR_EV_ORDER_STOP &&
                            !(rank >= 0 && supervisor_get_rank(n->supervisor, rank)->aborts);
    if (to == SUPERVISOR_STOPPING && !is_ordered) /* by note_order() in node_roster.c */
        events_stop(&n->events, n->supervisor, !n->spec->world.has_others);
    if (n->spec->verbose > 0)
        node_say(&n->view, CO_NOTE, "%s -> %s on %s", supervisor_state_name(from),
                 supervisor_state_name(to), supervisor_event_name(e->type));
    if (e->type == SUPERVISOR_EV_TIME && from == SUPERVISOR_RECOVERING)
        say_late(n);
    if (e->type == SUPERVISOR_EV_TIME && to == SUPERVISOR_KILLING)
        node_say(&n->view, CO_WARNING, "some ranks did not stop in time; killing them");
    if (e->type == SUPERVISOR_EV_TIME && to == SUPERVISOR_SWEEPING)
        node_say(&n->view, CO_WARNING,
                 "processes started by the ranks did not stop in time; killing them");
}

/* A rank may report that it joined before the spawner reports its start. So STARTING can also lead
 * to PARKED. */
static bool all_run(const struct node *n)
{
    const enum supervisor_state state = supervisor_get_state(n->supervisor);
    return state == SUPERVISOR_RUNNING || state == SUPERVISOR_PARKED;
}

/* No generation follows for a rank that waits for one. */
static bool is_hopeless(const struct node *n, enum supervisor_state from,
                        const struct supervisor_event *e)
{
    const enum supervisor_state to = supervisor_get_state(n->supervisor);
    return (e->type == SUPERVISOR_EV_EXITED && to != SUPERVISOR_PARKED) ||
           (from == SUPERVISOR_PARKED && to != SUPERVISOR_PARKED && to != SUPERVISOR_RECOVERING);
}

void node_consume(void *arg, struct supervisor_event *e)
{
    struct node *n = arg;
    struct supervisor_orders orders;
    enum supervisor_state from = supervisor_get_state(n->supervisor);
    node_features_on_event(&n->view, e);
    e->now_ms = co_now_ms();
    const bool is_open = supervisor_get_verdict(n->supervisor)->outcome == OUTCOME_NONE ||
                         from == SUPERVISOR_AWAITING;
    supervisor_step(n->supervisor, e, &orders);
    const enum supervisor_state to = supervisor_get_state(n->supervisor);
    if (is_open && supervisor_get_verdict(n->supervisor)->outcome == OUTCOME_RANK_FAILED &&
        to != SUPERVISOR_AWAITING)
        oom_watch_note_failure(&n->oom); /* before others are stopped */
    if (orders.signal != 0)
        node_errors_note_stop(&n->view, from, e);
    say_transition(n, from, e);
    if (is_hopeless(n, from, e))
        node_memory_give_up(n->gen.memory);
    if (orders.recover)
        say_replacement(n, node_roster_get_restart(n->parts.roster));
    if (orders.park)
        node_memory_part(n->gen.memory);
    if (from == SUPERVISOR_STARTING && all_run(n)) {
        uv_timer_start(&n->settled, on_settled, SETTLED_MS, 0);
        node_warm_up(n);
    }
    set_timer(n);
    set_drain_timer(n);
    if (to != SUPERVISOR_STARTING)
        node_drop_held(n);
    carry_out(n, &orders);
    node_features_on_step(&n->view);
    node_roster_look(n->parts.roster);
}

/* --- Events --- */

void node_feed(struct node *n, const struct supervisor_event *e)
{
    node_post(&n->view, e);
    node_queue_drain(&n->queue);
}

void node_settle(struct node *n)
{
    do {
        node_queue_drain(&n->queue);
        node_roster_look(n->parts.roster);
    } while (!node_queue_is_empty(&n->queue));
}

static struct supervisor_event make_exit(struct node *n, const struct spawner_report *r)
{
    struct supervisor_exit x = {.rank = r->local_rank,
                                .status = r->status,
                                .empty = r->empty,
                                .was_ending = r->signaled == 0,
                                .aborter = -1,
                                .held_ms =
                                    n->held_since_ms != 0 ? co_now_ms() - n->held_since_ms : 0};
    /* before all else: ranks that wait for it are let go */
    x.lost = node_memory_rank_gone(n->gen.memory, x.rank, x.status);
    x.lost_peer = node_memory_has_lost_peer(n->gen.memory, x.rank);
    progress_pipes_drain(n->gen.pipes, x.rank);
    x.progress = node_progress(&n->view);
    node_errors_note_exit(&n->view, &x);
    node_pmi_note_exit(&n->view, &x);
    return supervisor_exit_event(&x);
}

static struct supervisor_event make_event(struct node *n, const struct spawner_report *r)
{
    if (r->event == SPAWNER_EXITED)
        return make_exit(n, r);
    return (struct supervisor_event){
        .type = r->event == SPAWNER_STARTED        ? SUPERVISOR_EV_STARTED
                : r->event == SPAWNER_START_FAILED ? SUPERVISOR_EV_START_FAILED
                                                   : SUPERVISOR_EV_EMPTY,
        .rank = r->local_rank,
        .pid = r->pid,
        .status = r->status,
        .empty = r->empty,
        .stage = r->stage == SPAWN_EXEC ? SUPERVISOR_START_EXEC : SUPERVISOR_START_INTERNAL};
}

static void on_rank_report(struct node *n, const struct spawner_report *r)
{
    const struct supervisor_event e = make_event(n, r);
    uint64_t step;
    const bool has_step = /* other reports may be of no rank */
        e.type == SUPERVISOR_EV_EXITED && node_steps_of(&n->view, r->local_rank, &step);
    events_rank(&n->events, n->supervisor, &e, r->pid, r->way == SPAWNER_FORKED,
                has_step ? &step : NULL);
    if (e.type == SUPERVISOR_EV_STARTED)
        event_log_start(&n->event_log, supervisor_generation(n->supervisor), e.rank, e.pid);
    node_feed(n, &e);
}

static void on_report(struct node *n, const struct spawner_report *r)
{
    node_queue_drain(&n->queue); /* what came before it is known */
    warm_on_report(&n->warm, r);
    if (r->event == SPAWNER_PREFORK_READY || r->event == SPAWNER_PARENT_GONE ||
        node_roster_hear(n->parts.roster, r))
        return;
    if (r->event == SPAWNER_START_FAILED && r->stage == SPAWN_GONE)
        node_start_again(n, r->local_rank); /* the standby that was to be this rank has ended */
    else if (node_standby_hear(&n->view, r))
        return;
    else if (r->event != SPAWNER_LAPSED)
        on_rank_report(n, r);
    else
        node_roster_lapse(n->parts.roster);
}

/* Where the other ranks are is known. */
static void on_dumped(void *arg)
{
    struct node *n = arg;
    on_report(n, &n->held);
    n->held_since_ms = 0;
    node_queue_drain(&n->queue);
    if (n->spawner.sock >= 0 && !uv_is_closing((uv_handle_t *)&n->spawner_poll))
        uv_poll_start(&n->spawner_poll, UV_READABLE, node_on_spawner);
}

/* A failure, and all that the spawner reports after it, waits for a dump. */
static bool hold(struct node *n, const struct spawner_report *r)
{
    node_queue_drain(&n->queue);
    if (r->event != SPAWNER_EXITED || r->status == 0 || r->local_rank >= n->spec->n_local ||
        !node_dump_waits(&n->view, on_dumped, n))
        return false;
    n->held = *r;
    n->held_since_ms = co_now_ms();
    uv_poll_stop(&n->spawner_poll);
    return true;
}

void node_on_spawner(uv_poll_t *poll, int status, int events)
{
    struct node *n = poll->data;
    (void)status;
    (void)events;
    struct spawner_report r;
    int rc;
    while (n->spawner.sock >= 0 && (rc = spawner_receive(&n->spawner, &r)) != -EAGAIN) {
        if (rc == 0) {
            uv_poll_stop(&n->spawner_poll);
            node_lose_spawner(&n->view);
            break;
        }
        if (hold(n, &r))
            break;
        on_report(n, &r);
        node_queue_drain(&n->queue);
    }
    node_queue_drain(&n->queue);
}

bool node_hears_again(struct node *n, int sig)
{
    const size_t max = sizeof n->heard_ms / sizeof n->heard_ms[0];
    const uint64_t now_ms = co_now_ms();
    if (!n->spec->under_slurm || sig <= 0 || (size_t)sig >= max || sig == SIGINT || sig == SIGHUP ||
        sig == SIGQUIT || sig == SIGWINCH || sig == SIGCONT)
        return false;
    if (n->heard_ms[sig] != 0 && now_ms - n->heard_ms[sig] < SAME_SIGNAL_MS)
        return true;
    n->heard_ms[sig] = now_ms;
    return false;
}

void node_on_signal(uv_poll_t *poll, int status, int events)
{
    struct node *n = poll->data;
    (void)status;
    (void)events;
    struct signalfd_siginfo info;
    while (!n->ended && read(n->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGWINCH) /* before the ranks receive it */
            output_resize(n->output, STDERR_FILENO);
        if (node_hears_again(n, (int)info.ssi_signo))
            continue;
        node_leave_signal(&n->view, (int)info.ssi_signo, false);
        node_queue_drain(&n->queue);
    }
}
