#include "node.h"

#include "event_log.h"
#include "events.h"
#include "generation.h"
#include "job_spec.h"
#include "node_memory.h"
#include "nursery.h"
#include "oom_watch.h"
#include "output.h"
#include "post_mortem.h"
#include "rank_io.h"
#include "runtime_dir.h"
#include "start.h"
#include "supervisor.h"
#include "sweep.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

struct node {
    const struct job_spec *spec;
    int null_fd;
    char *runtime_dir; /* owned */
    struct nursery nursery;
    struct supervisor *supervisor; /* owned */
    struct events events;
    struct event_log event_log;
    struct output *output; /* owned */
    struct rank_io io;
    struct generation gen;
    struct start start;
    struct oom_watch oom;
    int renew_failure; /* -errno: there is nothing to start the next ranks with */
    int signal_fd;
    int n_started; /* ranks asked for: the next one's number */
    uint64_t begun_ms;
    bool ended;
    uv_loop_t loop;
    bool has_loop;
    uv_poll_t nursery_poll, signal_poll;
    uv_timer_t timer, timeout, settled;
};

/* From the last start until OOM kills are counted: that must not take a CPU from ranks that have
 * just begun, and it takes longer to use up any memory. */
enum { SETTLED_MS = 10 };

static void feed(struct node *n, struct supervisor_event *e);

__attribute__((format(printf, 2, 3))) static void say(struct node *n, const char *format, ...)
{
    char line[CO_ERROR_TEXT_BYTES + 64];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    output_say(n->output, line);
}

/* --- Starting ranks --- */

static void lose_nursery(struct node *n)
{
    feed(n, &(struct supervisor_event){.type = SUPERVISOR_EV_NURSERY_LOST});
}

static void fail_rank(struct node *n, int code)
{
    feed(n, &(struct supervisor_event){.type = SUPERVISOR_EV_START_FAILED,
                                       .rank = n->n_started++,
                                       .status = -code,
                                       .stage = SUPERVISOR_START_INTERNAL});
}

/* Each rank that the supervisor asked for gets an answer, also those that were not tried. */
static void start_next(struct node *n, int n_start)
{
    int failure = n->renew_failure;
    while (n_start > 0) {
        int n_asked = 0;
        int n_batch = n_start < SPAWN_AT_ONCE ? n_start : SPAWN_AT_ONCE;
        if (failure == 0)
            failure = start_ranks(&n->start, supervisor_generation(n->supervisor), n->n_started,
                                  n_batch, &n_asked);
        if (failure == -EPIPE || failure == -EAGAIN) {
            lose_nursery(n);
            return;
        }
        n->n_started += n_asked;
        n_start -= n_asked;
        if (failure != 0) {
            n_start--;
            fail_rank(n, failure);
        }
    }
}

static void on_refused(void *arg, const char *text)
{
    struct node *n = arg;
    say(n, "ddprun: store: %s\n", text);
}

static void on_memory_note(void *arg, const char *text)
{
    struct node *n = arg;
    say(n, "ddprun: %s\n", text);
}

static struct generation_notes make_notes(struct node *n)
{
    return (struct generation_notes){
        .on_store_refused = on_refused, .on_memory_note = on_memory_note, .arg = n};
}

/* What the ranks of the generation before had is gone with them; the next ones find all empty. */
static void renew(struct node *n)
{
    struct co_error err;
    const struct generation_notes notes = make_notes(n);
    n->n_started = 0;
    start_fini(&n->start);
    n->io.generation = supervisor_generation(n->supervisor);
    runtime_dir_empty(n->runtime_dir);
    oom_watch_renew(&n->oom);
    uint64_t begun_ns = co_now_ns();
    n->renew_failure = generation_renew(n->spec, &n->loop, &notes, &n->gen, &err);
    if (n->renew_failure < 0)
        say(n, "ddprun: %s\n", err.text);
    event_log_generation(&n->event_log, n->io.generation, (double)(co_now_ns() - begun_ns) / 1e6);
}

/* --- Orders --- */

static void on_all_said(void *arg)
{
    feed(arg, &(struct supervisor_event){.type = SUPERVISOR_EV_DRAINED});
}

/* The ranks' last words are out, or kept: ours come after them, by the same way. */
static void on_drained(void *arg)
{
    struct node *n = arg;
    bool restarts = supervisor_get_verdict(n->supervisor)->restarts;
    co_autofree char *report = post_mortem(&(struct post_mortem){
        .spec = n->spec,
        .supervisor = n->supervisor,
        .events = &n->events,
        .oom = &n->oom,
        .io = &n->io,
        .runtime_dir = n->runtime_dir,
        .begun_ms = n->begun_ms,
    });
    if (restarts)
        events_restart(&n->events, n->supervisor);
    else
        event_log_end(&n->event_log, n->supervisor);
    if (report != NULL)
        output_report(n->output, report);
    if (restarts)
        on_all_said(n);
    else
        output_drain(n->output, on_all_said, n);
}

static void dismiss_nursery(struct node *n)
{
    if (!uv_is_closing((uv_handle_t *)&n->nursery_poll))
        uv_close((uv_handle_t *)&n->nursery_poll, NULL); /* before its descriptor goes */
    nursery_dismiss(&n->nursery);
}

static void do_sweep_alone(struct node *n)
{
    kill(n->nursery.pid, SIGKILL); /* it may be alive, but stopped */
    dismiss_nursery(n);
    int rc = sweep_kill_all(co_deadline_ms(SUPERVISOR_KILL_MS));
    n->nursery = (struct nursery){.sock = -1}; /* reaped with the others */
    feed(n, &(struct supervisor_event){.type = SUPERVISOR_EV_SWEPT, .status = -rc});
}

static void on_timer(uv_timer_t *timer)
{
    struct node *n = timer->data;
    feed(n, &(struct supervisor_event){.type = SUPERVISOR_EV_TIME});
}

static void on_timeout(uv_timer_t *timer)
{
    struct node *n = timer->data;
    feed(n, &(struct supervisor_event){.type = SUPERVISOR_EV_TIMEOUT});
}

static void on_settled(uv_timer_t *timer)
{
    struct node *n = timer->data;
    oom_watch_begin(&n->oom);
    const char *group = oom_watch_group(&n->oom);
    if (n->spec->verbose > 0)
        say(n, "ddprun: OOM kills: counted by %s%s\n",
            *group != '\0' ? "control group " : "no control group", group);
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

/* What follows from one event may feed another one: that comes last in each branch. */
static void carry_out(struct node *n, const struct supervisor_orders *o)
{
    int rc = 0;
    if (o->renew)
        renew(n);
    if (o->signal != 0)
        rc = nursery_signal(&n->nursery, o->to_groups ? NURSERY_GROUP : NURSERY_MAIN, o->except,
                            o->signal);
    if (rc == 0 && o->sweep_signal != 0)
        rc = nursery_sweep(&n->nursery, o->sweep_signal);
    if (rc < 0)
        lose_nursery(n);
    else if (o->n_start > 0)
        start_next(n, o->n_start);
    else if (o->sweep_alone)
        do_sweep_alone(n);
    else if (o->drain && supervisor_get_verdict(n->supervisor)->restarts)
        output_retire(n->output, on_drained, n);
    else if (o->drain) {
        dismiss_nursery(n); /* it goes while we pass on and clean up */
        output_drain(n->output, on_drained, n);
    } else if (o->ended)
        n->ended = true;
}

static void say_transition(struct node *n, enum supervisor_state from,
                           const struct supervisor_event *e)
{
    enum supervisor_state to = supervisor_get_state(n->supervisor);
    if (from == to)
        return;
    if (to == SUPERVISOR_STOPPING)
        events_stop(&n->events, n->supervisor);
    if (n->spec->verbose > 0)
        say(n, "ddprun: %s -> %s on %s\n", supervisor_state_name(from), supervisor_state_name(to),
            supervisor_event_name(e->type));
    if (e->type == SUPERVISOR_EV_TIME && to == SUPERVISOR_KILLING)
        say(n, "ddprun: some ranks did not stop in time, they are killed\n");
    if (e->type == SUPERVISOR_EV_TIME && to == SUPERVISOR_SWEEPING)
        say(n, "ddprun: processes that the ranks left did not stop in time, they are killed\n");
}

static void feed(struct node *n, struct supervisor_event *e)
{
    struct supervisor_orders orders;
    enum supervisor_state from = supervisor_get_state(n->supervisor);
    e->now_ms = co_now_ms();
    supervisor_step(n->supervisor, e, &orders);
    say_transition(n, from, e);
    if (from == SUPERVISOR_STARTING && supervisor_get_state(n->supervisor) == SUPERVISOR_RUNNING)
        uv_timer_start(&n->settled, on_settled, SETTLED_MS, 0);
    set_timer(n);
    carry_out(n, &orders);
}

/* --- Events --- */

/* Nobody asks, as a rule; and it is a load for each rank. */
static struct restart_progress look_at_progress(const struct node *n)
{
    if (!n->spec->restart_after_progress)
        return (struct restart_progress){0};
    return (struct restart_progress){.n_steps = node_memory_most_steps(n->gen.memory),
                                     .output_ms = output_last_ms(n->output)};
}

static void on_report(struct node *n, const struct nursery_report *r)
{
    struct supervisor_event e = {
        .rank = r->local_rank, .pid = r->pid, .status = r->status, .empty = r->empty};
    switch (r->event) {
    case NURSERY_STARTED:
        e.type = SUPERVISOR_EV_STARTED;
        break;
    case NURSERY_START_FAILED:
        e.type = SUPERVISOR_EV_START_FAILED;
        e.stage = r->stage == SPAWN_EXEC ? SUPERVISOR_START_EXEC : SUPERVISOR_START_INTERNAL;
        break;
    case NURSERY_EXITED:
        e.type = SUPERVISOR_EV_EXITED;
        /* before all else: who waits for it is let go */
        e.culprit = node_memory_rank_gone(n->gen.memory, r->local_rank, r->status);
        e.blames = e.culprit >= 0;
        e.progress = look_at_progress(n);
        break;
    default:
        e.type = SUPERVISOR_EV_EMPTY;
        break;
    }
    if (e.type == SUPERVISOR_EV_EXITED && e.status != 0 &&
        supervisor_get_verdict(n->supervisor)->outcome == OUTCOME_NONE)
        oom_watch_note_failure(&n->oom);
    events_rank(&n->events, n->supervisor, &e, r->pid);
    if (e.type == SUPERVISOR_EV_STARTED)
        event_log_start(&n->event_log, supervisor_generation(n->supervisor), e.rank, e.pid);
    feed(n, &e);
}

static void on_nursery(uv_poll_t *poll, int status, int events)
{
    struct node *n = poll->data;
    (void)status;
    (void)events;
    struct nursery_report r;
    int rc;
    while (n->nursery.sock >= 0 && (rc = nursery_receive(&n->nursery, &r)) != -EAGAIN) {
        if (rc == 0) {
            uv_poll_stop(&n->nursery_poll);
            lose_nursery(n);
            return;
        }
        on_report(n, &r);
    }
}

static void on_signal(uv_poll_t *poll, int status, int events)
{
    struct node *n = poll->data;
    (void)status;
    (void)events;
    struct signalfd_siginfo info;
    while (!n->ended && read(n->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGWINCH) /* before the ranks hear of it */
            output_resize(n->output, STDERR_FILENO);
        feed(n,
             &(struct supervisor_event){.type = SUPERVISOR_EV_SIGNAL, .sig = (int)info.ssi_signo});
    }
}

/* --- Beginning and end --- */

/* Signals are read from a descriptor, so that none can come at a bad time. A SIGHUP that was
 * ignored when we started stays so: nohup means it. */
static int listen_to_signals(uint64_t stop_signals, int *ret_fd, struct co_error *err)
{
    static const int heard[] = {SIGTERM, SIGINT,  SIGQUIT,  SIGUSR1,
                                SIGUSR2, SIGCONT, SIGWINCH, SIGHUP};
    struct sigaction old;
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof heard / sizeof *heard; i++)
        sigaddset(&set, heard[i]);
    for (int sig = 1; sig < SIGRTMIN; sig++)
        if ((stop_signals >> sig & 1) != 0)
            sigaddset(&set, sig);
    if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
        sigdelset(&set, SIGHUP);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return co_fail(err, -errno, "cannot listen to signals: %s", strerror(errno));
    sigaddset(&set, SIGCHLD); /* see sweep_kill_all() */
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGCHLD, SIG_DFL); /* ignored by our starter, perhaps: then nothing could be reaped */
    signal(SIGPIPE, SIG_IGN);
    *ret_fd = fd;
    return 0;
}

static void allow_many_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max; /* ours alone: the nursery has forked before */
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int watch(struct node *n, uv_poll_t *poll, int fd, uv_poll_cb on_readable,
                 struct co_error *err)
{
    int rc = uv_poll_init(&n->loop, poll, fd);
    poll->data = n;
    if (rc == 0)
        rc = uv_poll_start(poll, UV_READABLE, on_readable);
    return rc < 0 ? co_fail(err, rc, "cannot watch a descriptor: %s", uv_strerror(rc)) : 0;
}

static int open_loop(struct node *n, struct co_error *err)
{
    int rc = uv_loop_init(&n->loop);
    if (rc < 0)
        return co_fail(err, rc, "cannot make an event loop: %s", uv_strerror(rc));
    n->has_loop = true;
    uv_timer_init(&n->loop, &n->timer);
    n->timer.data = n;
    uv_timer_init(&n->loop, &n->timeout);
    n->timeout.data = n;
    uv_timer_init(&n->loop, &n->settled);
    n->settled.data = n;
    rc = watch(n, &n->nursery_poll, n->nursery.sock, on_nursery, err);
    if (rc == 0)
        rc = watch(n, &n->signal_poll, n->signal_fd, on_signal, err);
    return rc;
}

static int node_open(struct node *n, struct co_error *err)
{
    const struct job_spec *spec = n->spec;
    const struct generation_notes notes = make_notes(n);
    int rc = events_open(&n->events, spec->events, spec->run_id, err);
    if (rc == 0)
        rc = listen_to_signals(spec->stop_signals, &n->signal_fd, err);
    if (rc == 0)
        rc = runtime_dir_make(&n->runtime_dir, err);
    if (rc == 0)
        rc = nursery_open(n->runtime_dir, &n->nursery, err);
    if (rc < 0)
        return rc;
    allow_many_files();
    rc = open_loop(n, err);
    if (rc == 0)
        rc = output_create(&n->loop, spec->n_local, (const int[2]){STDOUT_FILENO, STDERR_FILENO},
                           &n->output, err);
    if (rc == 0)
        rc = rank_io_open(&n->io, spec, n->output, n->null_fd, err);
    if (rc < 0)
        return rc;
    event_log_init(&n->event_log, spec, n->output, &n->io, n->runtime_dir);
    uint64_t begun_ns = co_now_ns();
    rc = generation_open(spec, &n->loop, &notes, &n->gen, err);
    if (rc < 0)
        return rc;
    event_log_generation(&n->event_log, 0, (double)(co_now_ns() - begun_ns) / 1e6);
    n->start = (struct start){.spec = spec,
                              .nursery = &n->nursery,
                              .io = &n->io,
                              .runtime_dir = n->runtime_dir,
                              .gen = &n->gen};
    struct supervisor_limits limits = {
        .n_ranks = spec->n_local,
        .window = NURSERY_WINDOW,
        .batch = SPAWN_AT_ONCE,
        .grace_ms = spec->grace_ms,
        .failure_grace_ms = spec->failure_grace_ms,
        .restarts = {.max_restarts = spec->max_restarts,
                     .window_ms = spec->restart_window_ms,
                     .no_restart_on = spec->no_restart_on,
                     .after_progress = spec->restart_after_progress,
                     .output_after_ms = spec->output_after_ms},
        .stop_signals = spec->stop_signals,
        .to_groups = spec->signal_scope == SCOPE_GROUP,
    };
    n->supervisor = supervisor_create(&limits);
    return n->supervisor == NULL ? co_fail(err, -ENOMEM, "no memory for %d ranks", spec->n_local)
                                 : 0;
}

static void close_if_open(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void node_close(struct node *n)
{
    generation_close(&n->gen);
    output_close(n->output);
    rank_io_close(&n->io);
    if (n->has_loop) {
        uv_walk(&n->loop, close_if_open, NULL);
        uv_run(&n->loop, UV_RUN_DEFAULT);
        uv_loop_close(&n->loop);
    }
    start_fini(&n->start);
    supervisor_destroy(n->supervisor);
    if (n->signal_fd >= 0)
        close(n->signal_fd);
    events_close(&n->events);
    oom_watch_close(&n->oom);
    runtime_dir_remove(n->runtime_dir);
    free(n->runtime_dir);
    nursery_close(&n->nursery, co_deadline_ms(SUPERVISOR_KILL_MS));
}

static void run(struct node *n)
{
    struct supervisor_orders orders;
    n->begun_ms = co_now_ms();
    events_job_start(&n->events, n->spec->argv, n->spec->n_local, n->spec->max_restarts);
    supervisor_begin(n->supervisor, n->begun_ms, &orders);
    carry_out(n, &orders);
    if (n->spec->timeout_ms != 0)
        uv_timer_start(&n->timeout, on_timeout, n->spec->timeout_ms, 0);
    while (!n->ended)
        uv_run(&n->loop, UV_RUN_ONCE);
}

static struct node_end the_end(const struct node *n)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(n->supervisor);
    struct node_end end = {.exit_code = supervisor_exit_code(n->supervisor)};
    if (n->spec->as_torchrun)
        end.exit_code = end.exit_code != 0;
    else if (v->outcome == OUTCOME_SIGNAL)
        end.die_of = v->signal;
    return end;
}

int node_run(const struct job_spec *spec, int null_fd, struct node_end *ret_end,
             struct co_error *err)
{
    struct node n = {.spec = spec,
                     .null_fd = null_fd,
                     .signal_fd = -1,
                     .events = {.fd = -1},
                     .nursery = {.sock = -1}};
    oom_watch_init(&n.oom, "");
    int rc = node_open(&n, err);
    if (rc == 0) {
        run(&n);
        events_job_end(&n.events, n.supervisor);
        *ret_end = the_end(&n);
    }
    node_close(&n);
    return rc;
}
