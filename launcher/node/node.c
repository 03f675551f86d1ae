/* node.c - one node of a job, from its beginning to its end. node_run() opens all that it needs,
 * runs the loop until the verdict is final, and closes all.
 *
 * In between, a report of the spawner, a signal, a message of the roster or a timer becomes an
 * event in the queue: node_feed(), or node_post() of a feature. node_consume() (node_step.c) takes
 * it out, steps the supervisor with it, and carries the orders out: node_start.c starts ranks and
 * makes what a generation has of its own. Then node_roster_look() reports the state of the ranks to
 * the roster, and posts the roster's orders. Features (node_features.c) are called before and after
 * each step, and at the beginning and the end of each generation. */
#include "node.h"

#include "launcher/generation/checkpoint_request.h"
#include "launcher/job/job_spec.h"
#include "launcher/membership/secret.h"
#include "launcher/platform/resources.h"
#include "launcher/remote/launch_channel.h"
#include "launcher/remote/launch_wire.h"
#include "launcher/spawner/init_reaper.h"
#include "launcher/spawner/runtime_dir.h"
#include "launcher/stdio/output.h"
#include "node_leave.h"
#include "node_priv.h"
#include "node_report.h"
#include "node_roster.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/listener.h"
#include "common/scope.h"
#include "segments/checkpoint_memory.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

static void on_refused(void *arg, const char *text)
{
    struct node *n = arg;
    node_say(&n->view, CO_WARNING, "store: %s", text);
}

static void on_note(void *arg, const char *text)
{
    struct node *n = arg;
    node_say(&n->view, CO_WARNING, "%s", text);
}

/* "ddprun: warning: rank 1 cannot connect to rank 2 on node 2 (n3) at 10.77.0.3 port 4711 ..." */
static void on_wait(void *arg, int rank, const char *text)
{
    struct node *n = arg;
    node_say(&n->view, CO_WARNING, "rank %d %s", rank_number(node_numbers(&n->view), rank), text);
}

static void on_warm(void *arg, const char *text)
{
    struct node *n = arg;
    if (n->spec->verbose > 0)
        node_say(&n->view, CO_NOTE, "warm: %s", text);
}

static void on_joined(void *arg, int rank, bool recovers)
{
    struct node *n = arg;
    if (n->gen.checkpoint_request != NULL)
        checkpoint_request_let_in(n->gen.checkpoint_request, rank);
    node_feed(arg, &(struct supervisor_event){
                       .type = SUPERVISOR_EV_JOINED, .rank = rank, .recovers = recovers});
}

static void on_asked(void *arg, int rank)
{
    node_feed(arg, &(struct supervisor_event){.type = SUPERVISOR_EV_ASKED, .rank = rank});
}

/* Whatever comes of it: the rank's end is also reported when it is reaped. */
static void on_death(void *arg)
{
    struct node *n = arg;
    if (!node_waits_for_devices(n))
        spawner_look(&n->spawner);
}

static void on_saved(void *arg)
{
    struct node *n = arg;
    node_leave_look(&n->view);
    node_settle(n);
}

static void on_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    node_roster_adopt(((struct node *)arg)->parts.roster, fd, bytes, len);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct node *n = prepare->data;
    node_settle(n);
    if (n->ended)
        uv_stop(&n->loop); /* else it would wait */
}

/* --- Beginning --- */

void node_init(struct node *n, const struct job_spec *spec, int null_fd)
{
    *n = (struct node){.spec = spec,
                       .null_fd = null_fd,
                       .signal_fd = -1,
                       .encrypt_fd = -1,
                       .memory_fd = -1,
                       .events = {.fd = -1},
                       .spawner = {.sock = -1},
                       .queue = {.consume = node_consume, .arg = n},
                       .view = {.spec = spec,
                                .loop = &n->loop,
                                .spawner = &n->spawner,
                                .gen = &n->gen,
                                .start = &n->start,
                                .io = &n->io,
                                .events = &n->events,
                                .queue = &n->queue,
                                .parts = &n->parts,
                                .node = n,
                                .resume = node_resume}};
    oom_watch_init(&n->oom, "");
}

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
        return co_fail(err, -errno, "cannot listen for signals: %s", strerror(errno));
    sigaddset(&set, SIGCHLD); /* see sweep_kill_all() */
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGCHLD, SIG_DFL); /* perhaps ignored by our parent: then nothing could be reaped */
    signal(SIGPIPE, SIG_IGN);
    *ret_fd = fd;
    return 0;
}

/* Without a free descriptor, libuv aborts and the spawner ends: better to report it before. What a
 * few ranks need besides their sockets and pipes is an estimate; null_fd was the lowest free
 * one. */
static int check_files(const struct job_spec *spec, int null_fd, struct co_error *err)
{
    struct rlimit limit;
    rlim_t at_once = spec->n_local < SPAWN_AT_ONCE ? (rlim_t)spec->n_local : SPAWN_AT_ONCE;
    rlim_t for_start = 20 + at_once * SPAWN_N_FDS;
    rlim_t for_job = (rlim_t)null_fd + for_start + 3 * (rlim_t)spec->n_local;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 ||
        (limit.rlim_cur >= for_start && limit.rlim_max >= for_job))
        return 0;
    const bool is_hard = limit.rlim_max < for_job; /* the soft one is raised to it later */
    return co_fail(err, -EMFILE,
                   "%d rank%s on this node need%s %ju open files, but the %s limit is %ju; raise "
                   "it %swith 'ulimit -%sn %ju'",
                   spec->n_local, spec->n_local == 1 ? "" : "s", spec->n_local == 1 ? "s" : "",
                   (uintmax_t)for_job, is_hard ? "hard" : "soft",
                   (uintmax_t)(is_hard ? limit.rlim_max : limit.rlim_cur),
                   is_hard ? "as root " : "", is_hard ? "" : "S", (uintmax_t)for_job);
}

static int watch_fd(struct node *n, uv_poll_t *poll, int fd, uv_poll_cb on_readable,
                    struct co_error *err)
{
    int rc = uv_poll_init(&n->loop, poll, fd);
    poll->data = n;
    if (rc == 0)
        rc = uv_poll_start(poll, UV_READABLE, on_readable);
    return rc < 0 ? co_fail(err, rc, "cannot watch a descriptor: %s", uv_strerror(rc)) : 0;
}

/* By the launch channel, it is the job that is stopped: the roster hears so when the signal goes
 * its way. Unless it has nothing to do with what others save first: then this node just goes. */
static void on_launch_signal(void *arg, int sig)
{
    struct node *n = arg;
    if (sig == LAUNCH_ALL_SAVED) {
        node_leave_release(&n->view);
        return;
    }
    const bool stops = sig < 64 && (n->spec->stop_signals >> sig & 1) != 0;
    if (stops && !node_leave_may_go_alone(&n->view, sig))
        node_roster_end_job(n->parts.roster);
    if (n->ended)
        return;
    if (node_hears_again(n, sig))
        node_leave_widen(&n->view, sig);
    else
        node_leave_signal(&n->view, sig, true);
}

/* As with a terminal that is closed: this node leaves. */
static void on_launch_gone(void *arg)
{
    struct node *n = arg;
    node_roster_lose_launch_channel(n->parts.roster);
    if (!n->ended)
        node_feed(n, &(struct supervisor_event){.type = SUPERVISOR_EV_SIGNAL, .sig = SIGHUP});
}

static int watch_launch_channel(struct node *n, struct co_error *err)
{
    const struct launch_watch_callbacks callbacks = {
        .on_signal = on_launch_signal, .on_gone = on_launch_gone, .arg = n};
    if (n->spec->world.launch_fd == 0)
        return 0;
    return launch_watch_open(&n->loop, n->spec->world.launch_fd, &callbacks, &n->launch_channel,
                             err);
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
    uv_timer_init(&n->loop, &n->drain_timer);
    n->drain_timer.data = n;
    uv_prepare_init(&n->loop, &n->prepare);
    n->prepare.data = n;
    rc = watch_fd(n, &n->spawner_poll, n->spawner.sock, node_on_spawner, err);
    if (rc == 0)
        rc = init_reaper_open(&n->loop, n->spawner.pid, &n->init_reaper, err);
    if (rc == 0)
        rc = watch_fd(n, &n->signal_poll, n->signal_fd, node_on_signal, err);
    return rc;
}

static int open_supervisor(struct node *n, struct co_error *err)
{
    const struct job_spec *spec = n->spec;
    struct supervisor_limits limits = {
        .n_ranks = spec->n_local,
        .window = SPAWNER_WINDOW,
        .batch = SPAWN_AT_ONCE,
        .grace_ms = spec->grace_ms,
        .failure_grace_ms = spec->failure_grace_ms,
        .cause_ms = SUPERVISOR_CAUSE_MS,
        .stop_signals = spec->stop_signals,
        .to_groups = spec->signal_scope == SCOPE_GROUP,
        .has_others = spec->world.has_others,
        .recovers = job_spec_recovers(spec),
        .drops = spec->on_failure == FAILURE_SHRINKS,
        .recovery_ms = spec->recovery_ms,
        .output_after_ms = spec->output_after_ms,
    };
    n->supervisor = supervisor_create(&limits);
    return n->supervisor == NULL ? co_fail(err, -ENOMEM, "out of memory") : 0;
}

/* Slurm may also send signals to the ranks: those that are held back must not end them, and others
 * must not arrive twice. */
static int share_signals(const struct node *n, struct co_error *err)
{
    const struct job_spec *spec = n->spec;
    const uint64_t held = spec->on_term_ms > 0 ? node_leave_signals(spec) : 0;
    const uint64_t passed = spec->stop_signals | UINT64_C(1) << SIGUSR1 | UINT64_C(1) << SIGUSR2;
    int rc =
        spec->under_slurm
            ? spawner_share_signals(&n->spawner, held & ~(UINT64_C(1) << SIGTERM), passed & ~held)
            : 0;
    return rc == 0 ? 0 : co_fail(err, rc, "the spawner process exited");
}

/* The spawner, what has to exist before it is forked, and the directory, whose names it knows
 * before the directory is made. The loop does not exist yet. */
static int open_spawner(struct node *n, struct co_error *err)
{
    const struct job_spec *spec = n->spec;
    int rc = check_files(spec, n->null_fd, err);
    if (rc == 0)
        rc = events_open(&n->events, spec->events, spec->run_id, on_note, n, err);
    if (rc == 0)
        rc = listen_to_signals(spec->stop_signals, &n->signal_fd, err);
    if (rc == 0)
        rc = runtime_dir_choose(&n->names, err);
    if (rc == 0)
        rc = spawner_open(&n->names, &n->spawner, err) ?: share_signals(n, err);
    if (rc == 0)
        rc = runtime_dir_make(&n->names, &n->runtime_dir, err);
    return rc;
}

static int open_machines(struct node *n, struct co_error *err)
{
    const struct job_spec *spec = n->spec;
    const int to[] = {STDOUT_FILENO, STDERR_FILENO};
    int rc = open_loop(n, err);
    if (rc == 0)
        rc = output_create(&n->loop, spec->n_local, to, &n->output, err);
    if (rc == 0)
        rc = rank_io_open(&n->io, spec, n->output, n->null_fd, err);
    if (rc == 0)
        rc = open_supervisor(n, err);
    return rc;
}

/* Without it, stacks are found in other ways. */
static void open_torch_hook(struct node *n)
{
    const struct job_spec *spec = n->spec;
    struct co_error err;
    const bool is_wanted =
        spec->worker_server == WORKER_SERVER_ON ||
        (spec->worker_server == WORKER_SERVER_AUTO && spec->warm == WARM_NEVER &&
         (spec->hang_timeout_ms > 0 || spec->failure_dump != NULL || spec->timer_file != NULL));
    if (is_wanted && torch_hook_open(&n->torch_hook, n->runtime_dir, environ, &err) < 0)
        node_say(&n->view, CO_NOTE, "torch's worker server is not available: %s", err.text);
}

/* How ranks are started, and what is written of it. */
static void open_start(struct node *n)
{
    const struct warm_callbacks warm_callbacks = {.say = on_warm, .arg = n};
    n->view.supervisor = n->supervisor;
    n->view.runtime_dir = n->runtime_dir;
    n->view.runtime_names = &n->names;
    n->view.torch_hook = &n->torch_hook;
    n->view.output = n->output;
    warm_open(&n->warm, n->spec, n->runtime_dir, environ, &warm_callbacks);
    open_torch_hook(n);
    event_log_init(&n->event_log, n->spec, n->output, &n->io, n->runtime_dir);
    n->start = (struct start){
        .spec = n->spec,
        .spawner = &n->spawner,
        .io = &n->io,
        .runtime_dir = n->runtime_dir,
        .gen = &n->gen,
        .encrypt_fd = n->encrypt_fd,
        .memory_fd = n->memory_fd,
        .supervisor = n->supervisor,
        .environment = torch_hook_environment(&n->torch_hook, warm_environment(&n->warm, environ))};
    n->events.supervisor = n->supervisor;
    n->callbacks = (struct generation_callbacks){.on_store_refused = on_refused,
                                                 .on_memory_note = on_note,
                                                 .on_joined = on_joined,
                                                 .on_asked = on_asked,
                                                 .on_death = on_death,
                                                 .on_wait = on_wait,
                                                 .on_saved = on_saved,
                                                 .arg = n};
}

/* A job of this node alone begins at once. */
static int open_first_generation(struct node *n, struct co_error *err)
{
    uint64_t begun_ns = co_now_ns();
    int rc = generation_open(n->spec, 0, &n->loop, &n->callbacks, &n->gen, err);
    if (rc == 0)
        event_log_generation(&n->event_log, 0, (double)(co_now_ns() - begun_ns) / 1e6);
    return rc;
}

static int open_roster(struct node *n, const struct roster_link_ops *link, struct co_error *err)
{
    const struct node_roster_opts opts = {.link = link,
                                          .gen = &n->gen,
                                          .callbacks = n->callbacks,
                                          .on_control = on_control,
                                          .on_restart = node_on_restart,
                                          .on_spare = node_on_spare};
    return node_roster_create(&n->view, &opts, &n->parts.roster, err);
}

int node_open(struct node *n, const struct roster_link_ops *link, struct co_error *err)
{
    int rc = open_machines(n, err);
    if (rc < 0)
        return rc;
    if (n->spec->encrypt && n->spec->world.has_others)
        rc = secret_share(&n->spec->world, n->spec->run_id, &n->encrypt_fd, err);
    if (rc == 0 && n->spec->memory_checkpoint_bytes > 0)
        rc = checkpoint_memory_make((unsigned)n->spec->n_local, n->spec->memory_checkpoint_bytes,
                                    &n->memory_fd, err);
    if (rc < 0)
        return rc;
    open_start(n);
    rc = node_features_open(&n->view, err);
    if (rc < 0)
        return rc;
    if (!n->spec->world.has_others)
        rc = open_first_generation(n, err);
    if (rc == 0)
        rc = open_roster(n, link, err);
    return rc < 0 ? rc : watch_launch_channel(n, err);
}

/* --- End --- */

static void close_handle(uv_handle_t *handle)
{
    if (handle->type != UV_UNKNOWN_HANDLE && !uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void close_handles(struct node *n)
{
    close_handle((uv_handle_t *)&n->spawner_poll);
    close_handle((uv_handle_t *)&n->signal_poll);
    close_handle((uv_handle_t *)&n->timer);
    close_handle((uv_handle_t *)&n->timeout);
    close_handle((uv_handle_t *)&n->settled);
    close_handle((uv_handle_t *)&n->drain_timer);
    close_handle((uv_handle_t *)&n->warm_poll);
    close_handle((uv_handle_t *)&n->prepare);
}

void node_close(struct node *n)
{
    generation_close(&n->gen);
    output_close(n->output);
    rank_io_close(&n->io);
    init_reaper_close(n->init_reaper);
    launch_watch_close(n->launch_channel);
    node_roster_close(n->parts.roster);
    node_features_close(&n->view);
    if (n->has_loop) {
        close_handles(n);
        uv_run(&n->loop, UV_RUN_DEFAULT);
        uv_loop_close(&n->loop);
    }
    start_fini(&n->start);
    co_close_at(&n->encrypt_fd);
    co_close_at(&n->memory_fd);
    warm_close(&n->warm);
    torch_hook_close(&n->torch_hook);
    node_roster_destroy(n->parts.roster);
    supervisor_destroy(n->supervisor);
    free(n->queue.events);
    if (n->signal_fd >= 0)
        close(n->signal_fd);
    events_close(&n->events);
    oom_watch_close(&n->oom);
    runtime_dir_remove(n->runtime_dir);
    runtime_dir_forget_names(&n->names);
    spawner_close(&n->spawner, co_deadline_ms(SUPERVISOR_KILL_MS));
}

void node_begin(struct node *n)
{
    n->view.begun_ms = co_now_ms();
    n->events.node = n->spec->world.has_others ? -1 : 0;
    events_job_start(&n->events, job_spec_words(n->spec), n->spec->n_local, n->spec->max_restarts);
    if (n->spec->warm == WARM_START) {
        node_warm_up(n);
        warm_await(&n->warm, &n->spawner, n->signal_fd);
    }
    node_roster_begin(n->parts.roster);
    if (n->spec->timeout_ms != 0)
        uv_timer_start(&n->timeout, node_on_timeout, n->spec->timeout_ms, 0);
    uv_prepare_start(&n->prepare, on_prepare);
}

static struct node_end the_end(const struct node *n)
{
    struct node_end end = {.exit_code = supervisor_exit_code(n->supervisor)};
    if (n->spec->as_torchrun)
        end.exit_code = end.exit_code != 0;
    else
        end.die_of = supervisor_die_of(n->supervisor);
    if (end.exit_code == 0 && end.die_of == 0 && output_has_loss(n->output) &&
        !n->spec->as_torchrun)
        end.exit_code = OUTPUT_EXIT_LOST;
    if (end.die_of != 0 && n->spec->world.launch_fd != 0) /* ssh would not report by which signal */
        end = (struct node_end){.exit_code = 128 + end.die_of};
    return end;
}

static void tell_end(struct node *n)
{
    const struct node_result_place place = node_result_place(n);
    events_job_end(&n->events, n->supervisor, place.n_restarts, place.generation + 1);
}

int node_run(const struct job_spec *spec, const struct roster_link_ops *link, int null_fd,
             struct node_end *ret_end, struct co_error *err)
{
    struct node n;
    node_init(&n, spec, null_fd);
    int rc = open_spawner(&n, err);
    if (rc == 0) {
        co_raise_file_limit(); /* ours alone: the spawner has forked before */
        rc = node_open(&n, link, err);
    }
    if (rc == 0) {
        node_begin(&n);
        while (!n.ended) {
            uv_run(&n.loop, UV_RUN_ONCE);
            node_settle(&n);
        }
        node_report_end(&n.view);
        node_features_on_end(&n.view, false);
        tell_end(&n);
        *ret_end = the_end(&n);
    }
    node_close(&n);
    return rc;
}
