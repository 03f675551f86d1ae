/* One line of JSON for each event. Each function below makes the keys of one event; put_rank() adds
 * the numbers of a rank, put_event() what all lines begin with, and write_line() writes the line at
 * once. Read put_event() first. A line that cannot be written costs a note, the first time. */
#include "events.h"

#include "goodput_json.h"
#include "launcher/diagnosis/hang_report.h"
#include "launcher/diagnosis/oom.h"
#include "launcher/diagnosis/oom_report.h"
#include "launcher/platform/json_value.h"
#include "launcher/supervisor/hang.h"
#include "launcher/supervisor/pace.h"
#include "launcher/supervisor/rank_numbers.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/membership/message.h"
#include "rendezvous/membership/roster.h"
#include "report.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A pipe is not waited for. One without a reader keeps what is written until a reader opens it, as
 * it is opened for reading here. */
static int open_file(const char *path)
{
    static const int flags = O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = open(path, O_WRONLY | flags, 0666);
    if (fd < 0 && errno == ENXIO)
        fd = open(path, O_RDWR | flags, 0666);
    return fd < 0 ? -errno : fd;
}

int events_open(struct events *e, const char *path, const char *job,
                void (*on_note)(void *arg, const char *text), void *arg, struct co_error *err)
{
    *e = (struct events){.fd = -1,
                         .path = path,
                         .job = job,
                         .on_note = on_note,
                         .arg = arg,
                         .begun_ms = co_now_ms()};
    struct stat st;
    gethostname(e->host, sizeof e->host - 1);
    if (path == NULL)
        return 0;
    e->fd = open_file(path);
    if (e->fd < 0)
        return co_fail(err, e->fd, "cannot open events file %s: %s; check the path of --events",
                       path, strerror(-e->fd));
    e->is_regular = fstat(e->fd, &st) == 0 && S_ISREG(st.st_mode);
    e->real_path = realpath(path, NULL);
    return 0;
}

void events_close(struct events *e)
{
    if (e->fd >= 0)
        close(e->fd);
    free(e->real_path);
    e->real_path = NULL;
    e->fd = -1;
}

void events_set_reader(struct events *e, void (*on_line)(void *arg, const char *line, size_t len),
                       void *arg)
{
    e->on_line = on_line;
    e->reader_arg = arg;
}

static bool is_on(const struct events *e)
{
    return e->fd >= 0 || e->on_line != NULL;
}

static void tell_missing(struct events *e, const char *why)
{
    char text[CO_ERROR_TEXT_BYTES];
    if (e->has_reported_gap)
        return;
    e->has_reported_gap = true;
    snprintf(text, sizeof text, "cannot write all events to %.300s: %s", e->path, why);
    e->on_note(e->arg, text);
}

/* In one write(), so that lines of several writers stay whole: `line` begins with a newline, which
 * is written only after a torn line. */
static void write_line(struct events *e, const char *line)
{
    const char *text = e->is_torn ? line : line + 1;
    size_t len = strlen(text);
    ssize_t n;
    while ((n = write(e->fd, text, len)) < 0 && errno == EINTR) {
    }
    if (n < 0 && errno != EAGAIN)
        tell_missing(e, strerror(errno));
    else if (n < 0 || ((size_t)n < len && !e->is_regular))
        tell_missing(e, "it is full, and its reader does not read");
    else if ((size_t)n < len)
        tell_missing(e, strerror(ENOSPC)); /* only a part was written */
    if (n > 0)
        e->is_torn = (size_t)n < len;
}

/* Write one line; `more` is its own keys, given up here. */
static void put_event(struct events *e, const char *name, uint32_t generation, json_t *more)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    json_t *line = json_pack("{s:i,s:f,s:I,s:s,s:s,s:i,s:o,s:s}", "v", 1, "t",
                             (double)now.tv_sec + (double)now.tv_nsec / 1e9, "ms",
                             (json_int_t)(co_now_ms() - e->begun_ms), "ev", name, "job", e->job,
                             "gen", (int)generation, "node",
                             json_value_number(e->node >= 0, e->node), "host", e->host);
    if (line != NULL && more != NULL)
        json_object_update(line, more);
    json_decref(more);
    co_autofree char *dump = json_dumps(line, JSON_COMPACT | JSON_VALUE_PRECISION);
    json_decref(line);
    co_autofree char *text = NULL;
    if (e->on_line != NULL && dump != NULL)
        e->on_line(e->reader_arg, dump, strlen(dump));
    if (e->fd < 0)
        return;
    if (dump != NULL && asprintf(&text, "\n%s\n", dump) > 0)
        write_line(e, text);
    else
        tell_missing(e, strerror(ENOMEM));
}

void events_job_start(struct events *e, char *const *argv, int n_ranks, int max_restarts)
{
    if (!is_on(e))
        return;
    json_t *words = json_array();
    for (char *const *word = argv; *word != NULL; word++)
        /* it may be no UTF-8 */
        json_array_append_new(words, json_value_or_null(json_string(*word)));
    put_event(e, "job_start", 0,
              json_pack("{s:o,s:i,s:i,s:i}", "argv", words, "ranks", n_ranks, "max_restarts",
                        max_restarts, "pid", (int)getpid()));
}

static json_t *signal_name(int sig)
{
    char name[REPORT_SIGNAL_BYTES];
    return json_string(report_signal(sig, name, sizeof name));
}

/* forwarded: the signal that ddprun has passed on to it last */
static json_t *rank_exit(const struct supervisor_event *what, int pid, int forwarded,
                         const uint64_t *step)
{
    bool by_signal = WIFSIGNALED(what->status);
    return json_pack("{s:i,s:o,s:o,s:b,s:b,s:o}", "pid", pid, "code",
                     by_signal ? json_null() : json_integer(WEXITSTATUS(what->status)), "signal",
                     by_signal ? signal_name(WTERMSIG(what->status)) : json_null(), "forwarded",
                     by_signal && WTERMSIG(what->status) == forwarded, "lost_peer", what->lost_peer,
                     "step", step != NULL ? json_integer((json_int_t)*step) : json_null());
}

static struct rank_numbers numbers(const struct events *e)
{
    return (struct rank_numbers){.first = e->first_rank, .supervisor = e->supervisor};
}

/* About a rank: its numbers first. `more` is released here. */
static void put_rank(struct events *e, const char *name, uint32_t generation, int local_rank,
                     json_t *more)
{
    json_t *all =
        json_pack("{s:i,s:i}", "rank", rank_number(numbers(e), local_rank), "lrank", local_rank);
    if (all != NULL && more != NULL)
        json_object_update(all, more);
    json_decref(more);
    put_event(e, name, generation, all);
}

void events_rank(struct events *e, const struct supervisor *s, const struct supervisor_event *what,
                 int pid, bool forked, const uint64_t *step)
{
    uint32_t generation = supervisor_generation(s);
    if (!is_on(e))
        return;
    if (what->type == SUPERVISOR_EV_STARTED)
        put_rank(e, "rank_start", generation, what->rank,
                 json_pack("{s:i,s:b}", "pid", pid, "forked", forked));
    else if (what->type == SUPERVISOR_EV_START_FAILED)
        put_rank(e, "rank_start_failed", generation, what->rank,
                 json_pack("{s:i}", "errno", what->status));
    else if (what->type == SUPERVISOR_EV_EXITED)
        put_rank(e, "rank_exit", generation, what->rank,
                 rank_exit(what, pid, supervisor_get_rank(s, what->rank)->forwarded, step));
}

void events_steps(struct events *e, uint32_t generation, const struct events_steps *steps)
{
    if (is_on(e))
        put_event(e, "steps", generation,
                  json_pack("{s:o,s:I,s:b}", "before",
                            steps->has_met ? json_integer((json_int_t)steps->before) : json_null(),
                            "after", (json_int_t)steps->after, "lives", steps->lives));
}

void events_stop(struct events *e, const struct supervisor *s, bool by_request)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(s);
    json_t *why;
    if (!is_on(e) || (v->outcome == OUTCOME_ORDERED && !by_request))
        return;
    if (v->outcome == OUTCOME_ORDERED)
        why = json_pack("{s:s}", "why", "restart");
    else if (v->outcome == OUTCOME_SIGNAL)
        why = json_pack("{s:s,s:o}", "why", "signal", "signal", signal_name(v->signal));
    else if (v->outcome == OUTCOME_TIMEOUT)
        why = json_pack("{s:s}", "why", "timeout");
    else
        why = json_pack("{s:s,s:i}", "why", "failure", "rank", rank_number(numbers(e), v->rank));
    put_event(e, "stop", supervisor_generation(s), why);
}

void events_oom(struct events *e, const struct supervisor *s, const struct oom_finding *f)
{
    int rank = supervisor_get_verdict(s)->rank;
    if (!is_on(e) || f->blame == OOM_BLAME_NONE)
        return;
    json_t *more = json_pack("{s:i}", "pid", supervisor_get_rank(s, rank)->pid);
    json_t *oom = oom_json_make(f);
    json_object_update(more, oom);
    json_decref(oom);
    put_rank(e, "oom", supervisor_generation(s), rank, more);
}

/* What came from another node, or from the kernel, may be no UTF-8. */
static json_t *text_of(const char *text)
{
    return json_value_or_null(json_string(text));
}

void events_hang(struct events *e, const struct supervisor *s, const struct hang_finding *f,
                 const struct hang_proc *proc)
{
    if (!is_on(e))
        return;
    json_t *more = hang_json_make(f, numbers(e));
    json_object_set_new(more, "pid", json_integer(supervisor_get_rank(s, f->rank)->pid));
    json_object_set_new(more, "state", json_stringn(&proc->state, 1));
    json_object_set_new(more, "place", proc->place[0] != '\0' ? text_of(proc->place) : json_null());
    put_rank(e, "hang", supervisor_generation(s), f->rank, more);
}

static json_t *milliseconds(uint64_t ns)
{
    return json_value_real((double)ns / 1e6);
}

void events_pace(struct events *e, uint32_t generation, const struct pace *pace,
                 const struct pace_rank *ranks, int n)
{
    if (!is_on(e))
        return;
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        if (ranks[i].is_known)
            json_array_append_new(list,
                                  json_pack("{s:i,s:I,s:o,s:o}", "rank", rank_number(numbers(e), i),
                                            "steps", (json_int_t)ranks[i].steps, "step_ms",
                                            milliseconds(ranks[i].step_ns), "own_ms",
                                            milliseconds(ranks[i].own_ns)));
    put_event(e, "pace", generation,
              json_pack("{s:I,s:o,s:i,s:o,s:o}", "steps", (json_int_t)pace->steps, "step_ms",
                        milliseconds(pace->step_ns), "slowest",
                        rank_number(numbers(e), pace->slowest), "share",
                        json_value_real(pace->share), "ranks", list));
}

void events_restart(struct events *e, const struct supervisor *s,
                    const struct roster_restart *restart)
{
    const int rank = supervisor_get_verdict(s)->rank; /* < 0: it failed elsewhere, or none did */
    const bool is_of_rank = restart->why == MESSAGE_WHY_FAILURE && rank >= 0;
    if (is_on(e))
        put_event(e, "restart", supervisor_generation(s),
                  json_pack("{s:o,s:I,s:b}", "rank",
                            json_value_number(is_of_rank, rank_number(numbers(e), rank)), "wait_ms",
                            (json_int_t)restart->wait_ms, "counted", !restart->is_free));
}

void events_replace(struct events *e, const struct supervisor *s,
                    const struct roster_restart *restart)
{
    const struct supervisor_replacement *r = supervisor_get_replacement(s);
    if (is_on(e))
        put_rank(e, r->is_dropped ? "shrink" : "replace", supervisor_generation(s), r->rank,
                 json_pack("{s:b}", "counted", !restart->is_free));
}

void events_place(struct events *e, uint32_t generation, const struct message_place *place,
                  uint64_t waited_ms)
{
    e->node = (int)place->node_index;
    e->first_rank = (int)place->first_rank;
    if (is_on(e))
        put_event(e, "rdzv", generation,
                  json_pack("{s:i,s:i,s:i,s:i,s:i,s:I}", "world", (int)place->world_size, "nodes",
                            (int)place->n_nodes, "rank", e->first_rank, "ranks",
                            (int)place->n_local, "pid", (int)getpid(), "wait_ms",
                            (json_int_t)waited_ms));
}

void events_wait(struct events *e, uint32_t generation, const struct message_progress *p)
{
    if (!is_on(e))
        return;
    json_t *missing = json_array();
    for (uint32_t i = 0; i < p->n_names; i++)
        json_array_append_new(missing, text_of(p->names[i]));
    put_event(e, "node_wait", generation,
              json_pack("{s:i,s:i,s:o}", "want", (int)p->n_wanted, "have", (int)p->n_here,
                        "missing", missing));
}

void events_order(struct events *e, uint32_t generation, const char *why, const char *text)
{
    if (is_on(e))
        put_event(e, "stop", generation, json_pack("{s:s,s:o}", "why", why, "text", text_of(text)));
}

void events_save(struct events *e, uint32_t generation, const char *state)
{
    if (is_on(e))
        put_event(e, "save", generation, json_pack("{s:s}", "state", state));
}

void events_coordinator(struct events *e, uint32_t generation, const char *state)
{
    if (is_on(e))
        put_event(e, "coordinator", generation, json_pack("{s:s}", "state", state));
}

void events_suspended(struct events *e, uint32_t generation, bool is_suspended, uint64_t for_ms)
{
    if (!is_on(e))
        return;
    put_event(e, "suspend", generation,
              is_suspended
                  ? json_pack("{s:s,s:n}", "state", "suspended", "for_ms")
                  : json_pack("{s:s,s:I}", "state", "resumed", "for_ms", (json_int_t)for_ms));
}

void events_leaving(struct events *e, uint32_t generation, const char *state, int sig,
                    uint64_t grace_ms)
{
    if (!is_on(e))
        return;
    json_t *more = json_pack("{s:s,s:o}", "state", state, "signal", signal_name(sig));
    if (grace_ms > 0)
        json_object_set_new(more, "grace_ms", json_integer((json_int_t)grace_ms));
    put_event(e, "leaving", generation, more);
}

void events_health(struct events *e, uint32_t generation, const char *about, const char *state,
                   const char *reason)
{
    if (is_on(e))
        put_event(e, "health", generation,
                  json_pack("{s:o,s:s,s:o}", "about", text_of(about), "state", state, "reason",
                            reason != NULL ? text_of(reason) : json_null()));
}

void events_leave(struct events *e, uint32_t generation, const char *text)
{
    if (is_on(e))
        put_event(e, "leave", generation, json_pack("{s:o}", "text", text_of(text)));
}

void events_goodput(struct events *e, uint32_t generation, const struct goodput_sums *sums)
{
    if (is_on(e))
        put_event(e, "goodput", generation, goodput_json_make(sums));
}

void events_job_end(struct events *e, const struct supervisor *s, int64_t n_restarts,
                    uint32_t n_generations)
{
    if (is_on(e))
        put_event(e, "job_end", supervisor_generation(s),
                  json_pack("{s:i,s:o,s:I,s:o}", "code", supervisor_exit_code(s), "restarts",
                            json_value_number(n_restarts >= 0, n_restarts), "generations",
                            (json_int_t)n_generations, "wall_s",
                            json_value_real((double)(co_now_ms() - e->begun_ms) / 1000)));
}
