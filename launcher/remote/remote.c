/* A job on other hosts. The bring-up (hosts/bringup.c) decides which host is next, start_host() has
 * the spawner start the way there, and its ddprun answers; when all have answered, tell_all() sends
 * each of them its order. The nodes connect to the roster, which gives them their ranks and some
 * time later has a verdict (on_verdict()); then the nodes and the ways to them end. When none is
 * left, remote_run() also ends. Read follow_bringup() first, then on_host_ended().
 *
 * A host that is abandoned, or whose way ends before it is a node, is FAILED in the bring-up, which
 * knows whether the job can be without it. Pods may start late, and are reached for again instead
 * (reach_again()). A node whose way ends is lost to the roster, or has left
 * it; here it is only counted. */
#include "remote.h"

#include "launch_wire.h"
#include "launcher/hosts/bringup.h"
#include "launcher/hosts/remote_shell.h"
#include "launcher/job/job_spec.h"
#include "launcher/reporting/report.h"
#include "launcher/spawner/init_reaper.h"
#include "launcher/stdio/output.h"
#include "launcher/supervisor/supervisor.h"
#include "remote_priv.h"
#include "remote_roster.h"

#include "common/clock.h"
#include "common/error.h"
#include "rendezvous/membership/message.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LAST_SLACK_MS = 10000,
    PAUSE_MS = 2000, /* before a host is reached for again */
};

__attribute__((format(printf, 3, 4))) static void
say_line(struct remote *r, enum co_severity severity, const char *format, ...)
{
    char text[CO_ERROR_TEXT_BYTES + 64];
    char line[sizeof text + sizeof "ddprun: warning: \n"];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(line, sizeof line, "ddprun: %s: %s\n", co_severity_name(severity), text);
    output_report(r->output, line);
}

static void follow_bringup(struct remote *r);

static size_t host_number(const struct remote_host *h)
{
    return (size_t)(h - h->remote->hosts);
}

/* --- the end --- */

static void on_last(uv_timer_t *timer)
{
    struct remote *r = timer->data;
    r->ended = true;
}

/* From a signal, or the verdict, nodes give their ranks their time, then kill them. Or no host is a
 * node any more, and only ways to abandoned hosts are left: SIGTERM may not end one of them. */
static void set_last(struct remote *r)
{
    const struct job_spec *spec = r->spec;
    uint64_t grace_ms =
        spec->grace_ms > spec->failure_grace_ms ? spec->grace_ms : spec->failure_grace_ms;
    const uint64_t dump_ms = spec->failure_dump != NULL ? JOB_FAILURE_DUMP_MS : 0;
    if (uv_is_active((uv_handle_t *)&r->last))
        return;
    uv_update_time(&r->loop);
    uv_timer_start(&r->last, on_last,
                   dump_ms + spec->on_term_ms + grace_ms + 2 * spec->failure_grace_ms +
                       2 * SUPERVISOR_KILL_MS + LAST_SLACK_MS,
                   0);
}

/* The roster waits for those that are lost to come back, unless none can. */
static void end_if_all_are_gone(struct remote *r)
{
    for (size_t i = 0; i < r->n_hosts; i++)
        if (r->hosts[i].runs)
            return;
    if (r->has_verdict || r->stop_signal != 0 ||
        bringup_look(r->bringup, co_now_ms()) == BRINGUP_IS_OVER)
        r->ended = true;
}

/* Does a node of this name run? That it has understood its order may not have arrived yet. */
static bool is_node(const struct remote *r, const char *name)
{
    for (size_t i = 0; i < r->n_hosts; i++)
        if (strcmp(r->hosts[i].host->name, name) == 0)
            return r->hosts[i].runs && (bringup_get(r->bringup, i) == BRINGUP_READY ||
                                        bringup_get(r->bringup, i) == BRINGUP_ORDERED);
    return false;
}

/* The way to a host that the roster has lost may be long dead, unnoticed. A host that the roster
 * knows is a node, though its own messages may still be on their way, unless it is reached for
 * again. */
static void on_verdict(void *arg)
{
    struct remote *r = arg;
    const struct message_verdict *v = remote_roster_verdict(r->roster);
    r->has_verdict = true;
    r->verdict_code = v->exit_code;
    r->is_ours_to_tell =
        v->exit_code != 0 && (v->outcome != MESSAGE_RANK_FAILED || !is_node(r, v->node));
    snprintf(r->verdict_text, sizeof r->verdict_text, "%s", v->text);
    for (size_t i = 0; i < r->n_hosts; i++)
        if (r->hosts[i].runs && (!remote_roster_knows(r->roster, r->hosts[i].host->name) ||
                                 bringup_get(r->bringup, i) < BRINGUP_ORDERED))
            remote_host_kill(&r->hosts[i]);
    set_last(r);
    end_if_all_are_gone(r);
}

static void on_result(void *arg, const struct message *m)
{
    struct remote *r = arg;
    if (job_report_add(&r->report, m) < 0)
        say_line(r, CO_WARNING, "out of memory: the report lacks some ranks");
}

static void on_line(void *arg, enum co_severity severity, const char *line)
{
    say_line(arg, severity, "%s", line);
}

/* --- hosts --- */

/* Is the job to start without a host that failed? */
static enum co_severity host_severity(const struct remote *r)
{
    return r->spec->world.min_nodes < r->n_hosts ? CO_WARNING : CO_ERROR;
}

/* The same reason of many hosts takes one line for the first, and one for all others. */
static void say_failed(struct remote *r, const char *host, const char *why)
{
    struct remote_same *s = r->same;
    while (s < r->same + r->n_same && strcmp(s->why, why) != 0)
        s++;
    if (s < r->same + r->n_same) {
        const size_t at = strlen(s->names), room = sizeof s->names - at;
        if (s->n_named == s->n && strlen(host) + 3 <= room) {
            snprintf(s->names + at, room, "%s%s", s->n > 0 ? ", " : "", host);
            s->n_named++;
        }
        s->n++;
        return;
    }
    say_line(r, host_severity(r), "%s: %s", host, why);
    if (r->n_same < REMOTE_SAME_WHYS) {
        *s = (struct remote_same){0};
        snprintf(s->why, sizeof s->why, "%s", why);
        r->n_same++;
    }
}

/* The reason is reported again for hosts that fail later. */
static void say_same(struct remote *r)
{
    for (const struct remote_same *s = r->same; s < r->same + r->n_same; s++)
        if (s->n > s->n_named)
            say_line(r, host_severity(r), "%s and %zu more: %s", s->names, s->n - s->n_named,
                     s->why);
        else if (s->n > 0)
            say_line(r, host_severity(r), "%s: %s", s->names, s->why);
    r->n_same = 0;
}

/* A host that gets the payload is REACHING again: it has as long as before to answer. */
static void on_host(struct remote_host *h, enum bringup_phase phase, const char *why)
{
    struct remote *r = h->remote;
    if (bringup_get(r->bringup, host_number(h)) == BRINGUP_FAILED)
        return;
    if (phase == BRINGUP_REACHING && r->spec->verbose > 0)
        say_line(r, CO_NOTE, "%s: sending ddprun %s (%.1f MiB)", h->host->name, r->payload.name,
                 (double)r->payload.n_bytes / (1 << 20));
    if (phase == BRINGUP_FAILED && why[0] != '\0')
        say_failed(r, h->host->name, why);
    bringup_set(r->bringup, host_number(h), phase, co_now_ms());
    follow_bringup(r);
}

static void start_host(struct remote *r, size_t i)
{
    bringup_set(r->bringup, i, BRINGUP_REACHING, co_now_ms());
    if (remote_host_start(&r->hosts[i]) < 0)
        on_host(&r->hosts[i], BRINGUP_FAILED, r->hosts[i].why);
}

static void give_up_late(struct remote *r, size_t i)
{
    struct remote_host *h = &r->hosts[i];
    char time[REPORT_DURATION_BYTES], said[REMOTE_WHY_BYTES - 64];
    remote_host_said(h, said, sizeof said);
    snprintf(h->why, sizeof h->why,
             "timed out after %s waiting for ssh and ddprun to answer (--connect-timeout)%s%s",
             report_duration(r->spec->remote->way.reach_ms, time, sizeof time),
             said[0] != '\0' ? "; last output: " : "", said);
    remote_host_kill(h);
    on_host(h, BRINGUP_FAILED, h->why);
}

/* Those that are up begin; more than one may have come since the last look. */
static void tell_all(struct remote *r)
{
    if (bringup_count(r->bringup, BRINGUP_ORDERED) + bringup_count(r->bringup, BRINGUP_READY) == 0)
        remote_roster_begin(r->roster);
    for (size_t i = 0; i < r->n_hosts && bringup_count(r->bringup, BRINGUP_UP) > 0; i++)
        if (bringup_get(r->bringup, i) == BRINGUP_UP) {
            bringup_set(r->bringup, i, BRINGUP_ORDERED, co_now_ms());
            if (remote_host_tell(&r->hosts[i]) < 0) {
                remote_host_kill(&r->hosts[i]);
                on_host(&r->hosts[i], BRINGUP_FAILED, "out of memory");
            }
        }
}

static void on_bringup_timer(uv_timer_t *timer)
{
    follow_bringup(timer->data);
}

static void set_bringup_timer(struct remote *r)
{
    uint64_t deadline_ms = bringup_deadline_ms(r->bringup), now_ms = co_now_ms();
    if (deadline_ms == CO_NEVER_MS) {
        uv_timer_stop(&r->timer);
        return;
    }
    uv_update_time(&r->loop);
    uv_timer_start(&r->timer, on_bringup_timer, deadline_ms > now_ms ? deadline_ms - now_ms : 0, 0);
}

/* Whatever the bring-up wants now. */
static void follow_bringup(struct remote *r)
{
    ptrdiff_t i;
    if (r->ended || r->stop_signal != 0 || r->has_verdict)
        return;
    while ((i = bringup_late(r->bringup, co_now_ms())) >= 0)
        give_up_late(r, (size_t)i);
    bringup_wake(r->bringup, co_now_ms());
    while ((i = bringup_next(r->bringup)) >= 0)
        start_host(r, (size_t)i);
    switch (bringup_look(r->bringup, co_now_ms())) {
    case BRINGUP_GOES:
        tell_all(r);
        break;
    case BRINGUP_IS_SHORT:
        r->ended = true;
        break;
    case BRINGUP_IS_OVER:
        set_last(r);
        break;
    case BRINGUP_GATHERS:
        break;
    }
    if (bringup_count(r->bringup, BRINGUP_READY) + bringup_count(r->bringup, BRINGUP_FAILED) +
            bringup_count(r->bringup, BRINGUP_ENDED) ==
        r->n_hosts)
        say_same(r);
    set_bringup_timer(r);
}

/* A pod that has not started has no name in the DNS, or no sshd; one that is lost is started again.
 * One line for the whole job: those that are never reached are named in the end. */
static void reach_again(struct remote *r, struct remote_host *h, const char *why)
{
    char time[REPORT_DURATION_BYTES];
    if (!r->has_waited && bringup_get(r->bringup, host_number(h)) == BRINGUP_REACHING) {
        r->has_waited = true;
        say_line(r, CO_NOTE, "%s: %s; ddprun waits up to %s for hosts (--start-timeout)",
                 h->host->name, why,
                 report_duration(r->spec->world.start_timeout_ms, time, sizeof time));
    }
    remote_host_reset(h);
    bringup_set(r->bringup, host_number(h), BRINGUP_AGAIN, co_now_ms());
    follow_bringup(r);
}

/* Its way has ended. May it become a node, by another attempt? */
static bool may_come_back(const struct remote *r, size_t i, int status, const char *why)
{
    const enum bringup_phase phase = bringup_get(r->bringup, i);
    return !r->hosts[i].is_killed && !r->has_verdict && r->stop_signal == 0 &&
           bringup_may_retry(r->bringup, i, co_now_ms()) &&
           ((phase == BRINGUP_REACHING && remote_shell_was_unreached(status, why)) ||
            (phase == BRINGUP_READY && remote_shell_was_lost(status)));
}

static void on_host_ended(struct remote *r, size_t i, int status)
{
    struct remote_host *h = &r->hosts[i];
    char how[REPORT_STATUS_BYTES];
    const char *heard = remote_host_ended(h);
    enum bringup_phase phase = bringup_get(r->bringup, i);
    const char *why = h->is_killed       ? "" /* already reported */
                      : heard[0] != '\0' ? heard
                                         : report_status(status, how, sizeof how);
    if (may_come_back(r, i, status, why)) {
        reach_again(r, h, why);
    } else if (phase == BRINGUP_READY || phase == BRINGUP_ENDED) {
        bringup_set(r->bringup, i, BRINGUP_ENDED, co_now_ms());
        follow_bringup(r);
    } else if (phase != BRINGUP_FAILED) {
        /* the exit status of a ddprun that has not taken its order is also a reason */
        if (phase == BRINGUP_ORDERED && !h->is_killed && WIFEXITED(status) && r->refusal_code == 0)
            r->refusal_code = WEXITSTATUS(status);
        on_host(h, BRINGUP_FAILED, why);
    }
    end_if_all_are_gone(r);
}

static void on_spawner(uv_poll_t *poll, int status, int events)
{
    struct remote *r = poll->data;
    struct spawner_report report;
    int rc;
    (void)status, (void)events;
    while (!r->ended && (rc = spawner_receive(&r->spawner, &report)) != -EAGAIN) {
        if (rc == 0) {
            say_line(r, CO_ERROR, "internal error: the process that starts ssh is gone");
            r->ended = true;
        } else if (report.event == SPAWNER_STARTED) {
            remote_host_started(&r->hosts[report.local_rank], report.pid);
        } else if (report.event == SPAWNER_EXITED) {
            on_host_ended(r, (size_t)report.local_rank, report.status);
        } else if (report.event == SPAWNER_START_FAILED) {
            struct remote_host *h = &r->hosts[report.local_rank];
            snprintf(h->why, sizeof h->why, "cannot execute the command that reaches it: %s",
                     strerror(report.status));
            on_host_ended(r, (size_t)report.local_rank, 0);
        }
    }
}

/* --- signals --- */

/* The way to a host reports that it is a node; that it is known to the roster, and may have ranks,
 * arrives on another connection, possibly first. It reads its launch channel then. */
static bool may_have_ranks(const struct remote *r, size_t i)
{
    enum bringup_phase phase = bringup_get(r->bringup, i);
    return phase == BRINGUP_READY || (phase == BRINGUP_ORDERED && r->hosts[i].runs &&
                                      remote_roster_knows(r->roster, r->hosts[i].host->name));
}

/* What the nodes hold back goes its way now: none of them ends the job while others still save. */
static void on_saved(void *arg)
{
    struct remote *r = arg;
    for (size_t i = 0; i < r->n_hosts; i++)
        if (may_have_ranks(r, i))
            remote_host_signal(&r->hosts[i], LAUNCH_ALL_SAVED);
}

/* A host that has no ranks yet: the way to it ends with us. */
static void stop(struct remote *r, int sig)
{
    if (r->stop_signal == 0)
        r->stop_signal = sig;
    uv_timer_stop(&r->timer);
    bool has_ranks = false;
    for (size_t i = 0; i < r->n_hosts; i++)
        if (may_have_ranks(r, i))
            has_ranks = true;
        else if (r->hosts[i].runs)
            remote_host_kill(&r->hosts[i]);
    if (!has_ranks)
        r->ended = true;
    else if (r->spec->on_term_ms > 0)
        remote_roster_await_saved(r->roster);
    set_last(r);
}

/* Nothing runs any more: what is left is to write, and a job that went well was stopped before its
 * output was written. */
static void hurry(struct remote *r, int sig)
{
    r->is_hurried = true;
    if (r->stop_signal == 0 && r->has_verdict && r->verdict_code == 0)
        r->stop_signal = sig;
}

static void on_signal(uv_poll_t *poll, int status, int events)
{
    struct remote *r = poll->data;
    struct signalfd_siginfo info;
    (void)status, (void)events;
    while (read(r->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        const int sig = (int)info.ssi_signo;
        const bool stops = (r->spec->stop_signals >> sig & 1) != 0;
        if (r->ended) {
            if (stops)
                hurry(r, sig);
            continue;
        }
        for (size_t i = 0; i < r->n_hosts; i++)
            if (may_have_ranks(r, i))
                remote_host_signal(&r->hosts[i], sig);
        if (stops)
            stop(r, sig);
    }
}

/* A SIGHUP that was ignored when we started stays so: nohup means it. Those that stop a job are
 * passed on, and those that mean something to its ranks only. */
static int listen_to_signals(struct remote *r, struct co_error *err)
{
    struct sigaction old;
    sigset_t set;
    sigemptyset(&set);
    for (int sig = 1; sig < SIGRTMIN; sig++)
        if ((r->spec->stop_signals >> sig & 1) != 0 || sig == SIGUSR1 || sig == SIGUSR2)
            sigaddset(&set, sig);
    if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
        sigdelset(&set, SIGHUP);
    r->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (r->signal_fd < 0)
        return co_fail(err, -errno, "cannot listen for signals: %s", strerror(errno));
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

/* --- the beginning --- */

static int make_hosts(struct remote *r, struct co_error *err)
{
    const struct remote_spec *s = r->spec->remote;
    const struct bringup_limits limits = {.n_hosts = s->hosts.n,
                                          .min_nodes = r->spec->world.min_nodes,
                                          .at_once = WAY_AT_ONCE,
                                          .reach_ms = s->way.reach_ms,
                                          .window_ms = r->spec->world.window_ms,
                                          .pause_ms = s->way.starts_late ? PAUSE_MS : 0,
                                          .miss_ms = r->spec->world.start_timeout_ms};
    r->n_hosts = s->hosts.n;
    r->hosts = calloc(s->hosts.n, sizeof *r->hosts);
    r->bringup = bringup_create(&limits);
    if (r->hosts == NULL || r->bringup == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < s->hosts.n; i++)
        r->hosts[i] =
            (struct remote_host){.remote = r,
                                 .host = &s->hosts.hosts[i],
                                 .n_ranks = s->shares[i],
                                 .is_here = remote_shell_is_here(&s->way, &s->hosts.hosts[i]),
                                 .in_fd = -1,
                                 .out_fd = -1,
                                 .err_fd = -1,
                                 .pidfd = -1};
    return 0;
}

static int watch_fd(struct remote *r, uv_poll_t *poll, int fd, uv_poll_cb on_readable,
                    struct co_error *err)
{
    int rc = uv_poll_init(&r->loop, poll, fd) ?: uv_poll_start(poll, UV_READABLE, on_readable);
    poll->data = r;
    return rc < 0 ? co_fail(err, rc, "cannot watch a descriptor: %s", uv_strerror(rc)) : 0;
}

static int open_loop(struct remote *r, struct co_error *err)
{
    const struct remote_roster_callbacks callbacks = {
        .on_line = on_line,
        .on_closed = on_verdict,
        .on_saved = on_saved,
        .on_result = remote_report_is_wanted(r->spec) ? on_result : NULL,
        .arg = r};
    int rc = uv_loop_init(&r->loop);
    if (rc < 0)
        return co_fail(err, rc, "cannot make an event loop: %s", uv_strerror(rc));
    r->has_loop = true;
    uv_timer_init(&r->loop, &r->timer);
    uv_timer_init(&r->loop, &r->last);
    r->timer.data = r->last.data = r;
    return watch_fd(r, &r->spawner_poll, r->spawner.sock, on_spawner, err)
        ?: init_reaper_open(&r->loop, r->spawner.pid, &r->init_reaper, err)
        ?: watch_fd(r, &r->signal_poll, r->signal_fd, on_signal, err)
        ?: output_create(&r->loop, (int)r->n_hosts, (const int[2]){STDOUT_FILENO, STDERR_FILENO},
                         &r->output, err)
        ?: remote_roster_open(&r->loop, r->spec, &callbacks, &r->roster, err);
}

static void remote_close(struct remote *r)
{
    for (size_t i = 0; r->hosts != NULL && i < r->n_hosts; i++)
        remote_host_close(&r->hosts[i]);
    output_close(r->output);
    remote_roster_close(r->roster);
    init_reaper_close(r->init_reaper);
    if (r->has_loop) {
        remote_close_handle(&r->spawner_poll);
        remote_close_handle(&r->signal_poll);
        remote_close_handle(&r->timer);
        remote_close_handle(&r->last);
        uv_run(&r->loop, UV_RUN_DEFAULT);
        uv_loop_close(&r->loop);
    }
    spawner_close(&r->spawner, co_deadline_ms(SUPERVISOR_KILL_MS));
    if (r->signal_fd >= 0)
        close(r->signal_fd);
    bringup_destroy(r->bringup);
    remote_plan_fini(r);
    job_report_fini(&r->report);
    free(r->hosts);
}

/* --- the verdict --- */

static void on_drain_time(uv_timer_t *timer)
{
    struct remote *r = timer->data;
    r->is_hurried = true;
}

static void on_drained(void *arg)
{
    *(bool *)arg = true;
}

/* If all ranks exit with 0 when they are asked to save, the job succeeds. */
static bool was_stopped(const struct remote *r)
{
    bool is_well = r->has_verdict && r->verdict_code == 0;
    return r->stop_signal != 0 && !(is_well && r->spec->on_term_ms > 0);
}

static struct node_end the_end(const struct remote *r)
{
    bool is_short = bringup_look(r->bringup, co_now_ms()) == BRINGUP_IS_SHORT;
    struct node_end end = {.exit_code = r->has_verdict         ? r->verdict_code
                                        : r->refusal_code != 0 ? r->refusal_code
                                        : is_short             ? REMOTE_EXIT_UNREACHABLE
                                                               : REMOTE_EXIT_NODES_GONE};
    if (was_stopped(r))
        end = (struct node_end){.exit_code = 128 + r->stop_signal, .die_of = r->stop_signal};
    if (end.exit_code == 0 && !r->spec->as_torchrun && output_has_loss(r->output))
        end.exit_code = OUTPUT_EXIT_LOST;
    if (r->spec->as_torchrun)
        end = (struct node_end){.exit_code = end.exit_code != 0};
    return end;
}

/* What the nodes wrote last, and then why it ended. A reader that stands still is waited for until
 * a stop signal arrives; if one has stopped the job, for OUTPUT_STOPPED_MS at most. */
static void say_last(struct remote *r)
{
    char took[REPORT_DURATION_BYTES], name[REPORT_SIGNAL_BYTES];
    bool drained = false;
    say_same(r);
    if (was_stopped(r))
        say_line(r, CO_NOTE, "stopped by %s after %s",
                 report_signal(r->stop_signal, name, sizeof name),
                 report_duration(co_now_ms() - r->begun_ms, took, sizeof took));
    else if (r->has_verdict && r->is_ours_to_tell)
        say_line(r, CO_ERROR, "%s", r->verdict_text);
    else if (!r->has_verdict && bringup_look(r->bringup, co_now_ms()) == BRINGUP_IS_SHORT)
        say_line(r, CO_ERROR,
                 "not enough hosts: %u node%s required, but %zu of %zu hosts failed to start; fix "
                 "them or lower --nnodes MIN:MAX",
                 r->spec->world.min_nodes, r->spec->world.min_nodes == 1 ? "" : "s",
                 bringup_count(r->bringup, BRINGUP_FAILED), r->n_hosts);
    else if (!r->has_verdict && r->refusal_code == 0)
        say_line(r, CO_ERROR, "no node is left: all of them exited or lost contact");
    if (r->guessed[0] != '\0' && r->stop_signal == 0 &&
        the_end(r).exit_code == REMOTE_EXIT_UNREACHABLE)
        say_line(r, CO_NOTE,
                 "the hosts cannot determine the address of this host and used %s; use "
                 "--local-addr to pass another one",
                 r->guessed);
    output_drain(r->output, on_drained, &drained);
    uv_update_time(&r->loop);
    if (r->stop_signal != 0 || r->is_hurried)
        uv_timer_start(&r->last, on_drain_time, OUTPUT_STOPPED_MS, 0);
    r->is_hurried = false;
    while (!drained && !r->is_hurried)
        uv_run(&r->loop, UV_RUN_ONCE);
}

static void write_report(struct remote *r, const struct node_end *end)
{
    struct co_error err;
    if (remote_report_write(r, end->exit_code, was_stopped(r) ? r->stop_signal : 0, &err) < 0)
        say_line(r, CO_WARNING, "%s", err.text);
}

int remote_run(struct job_spec *spec, int null_fd, struct node_end *ret_end, struct co_error *err)
{
    struct remote r = {.spec = spec,
                       .null_fd = null_fd,
                       .signal_fd = -1,
                       .spawner = {.sock = -1},
                       .on_host = on_host};
    bool drained;
    int rc = remote_plan_make(&r, &spec->world, err)
        ?: make_hosts(&r, err)
        ?: listen_to_signals(&r, err)
        ?: spawner_open(NULL, &r.spawner, err)
        ?: open_loop(&r, err);
    if (rc == 0) {
        r.begun_ms = co_now_ms();
        if (r.note[0] != '\0')
            say_line(&r, CO_WARNING, "%s", r.note);
        follow_bringup(&r);
        while (!r.ended)
            uv_run(&r.loop, UV_RUN_ONCE);
        uv_timer_stop(&r.last);
        output_drain(r.output, on_drained, &drained); /* what is lost belongs into the report */
        uv_poll_stop(&r.spawner_poll);                /* nothing reads it any more */
        *ret_end = the_end(&r);
        write_report(&r, ret_end);
        say_last(&r);
        *ret_end = the_end(&r); /* the last messages may have been lost */
    }
    remote_close(&r);
    return rc;
}
