#include "node_timers.h"

#include "launcher/job/job_spec.h"
#include "launcher/supervisor/hang.h"
#include "launcher/torch/file_timers.h"
#include "node_hang.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    REST_MS = 20,   /* between two reads: the pipe holds 600 lines, and a client does not wait */
    LEAST_MS = 20,  /* between two looks at the timers */
    MOST_MS = 1000, /* the clock may be set */
    RETRY_MS = 100,
    READ_BYTES = 65536,
};

struct node_timers {
    const struct node_view *n;
    int fd;
    uv_poll_t poll;   /* until a line arrives */
    uv_timer_t timer; /* while lines arrive, or timers are set */
    int n_handles;
    bool rests; /* the timer reads, not the poll */
    bool has_noted;
    struct file_timers timers;
    char path[PATH_MAX];
};

static double real_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* --- lines --- */

static uint64_t find_process(void *arg, pid_t pid)
{
    struct co_process process;
    (void)arg;
    return co_process_look(pid, &process, NULL) == 0 ? process.start_ticks + 1 : 0;
}

static void note(struct node_timers *p)
{
    if (p->has_noted || (p->timers.n_bad == 0 && p->timers.n_refused == 0))
        return;
    p->has_noted = true;
    if (p->timers.n_refused > 0)
        node_say(p->n, CO_WARNING, "a timer of a rank is ignored: %d are set already",
                 FILE_TIMERS_MAX);
    else
        node_say(p->n, CO_WARNING,
                 "a line in the pipe of TORCHELASTIC_TIMER_FILE is ignored: expected one of "
                 "torch's FileTimerClient");
}

/* returns whether anything was there */
static bool read_lines(struct node_timers *p)
{
    char bytes[READ_BYTES];
    const struct file_timers_opts opts = {.now_ms = co_now_ms(), .find_process = find_process};
    const ssize_t n = read(p->fd, bytes, sizeof bytes);
    if (n <= 0)
        return false;
    file_timers_feed(&p->timers, bytes, (size_t)n, &opts);
    note(p);
    return true;
}

/* --- timers --- */

/* The name is for people. Without one, torch's client takes a line of Python's contextlib. */
static void fill_name(const char *scope, char ret[HANG_TIMER_BYTES])
{
    if (strstr(scope, "contextlib.py#") != NULL)
        scope = "";
    snprintf(ret, HANG_TIMER_BYTES, "%s", scope);
    for (char *c = ret; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

static struct hang_finding find(const struct file_timer *t, int rank, double now_s)
{
    const uint64_t now_ms = co_now_ms();
    struct hang_finding f = {.kind = HANG_TIMER,
                             .rank = rank,
                             .still_ms = now_ms > t->set_ms ? now_ms - t->set_ms : 0,
                             .late_ms = (uint64_t)((now_s - t->expires_s) * 1000)};
    fill_name(t->scope, f.timer);
    return f;
}

/* A process that is not the rank itself: what its end means, its parent decides. */
static void end_process(struct node_timers *p, const struct file_timer *t, int rank)
{
    char name[HANG_TIMER_BYTES];
    fill_name(t->scope, name);
    node_say(p->n, CO_WARNING, "a timer of process %d of rank %d%s%s%s expired%s", (int)t->pid,
             rank_number(node_numbers(p->n), rank), name[0] != '\0' ? " ('" : "", name,
             name[0] != '\0' ? "')" : "", t->signal > 0 ? ": ddprun ends the process" : "");
    if (t->signal > 0)
        kill(t->pid, t->signal);
}

/* Whether a rank runs perhaps, and its process is not known yet. */
static bool is_starting(const struct node_view *n)
{
    for (int i = 0; i < n->spec->n_local; i++)
        if (supervisor_get_rank(n->supervisor, i)->phase == RANK_ASKED)
            return true;
    return false;
}

/* returns whether it is done with; else again in a moment */
static bool expire(struct node_timers *p, const struct file_timer *t, double now_s)
{
    const int rank = node_rank_above(p->n, t->pid);
    if (find_process(NULL, t->pid) != t->process)
        return true; /* it has ended */
    if (rank < 0)
        return !is_starting(p->n); /* it does not descend from a rank */
    if (t->signal == 0 || supervisor_get_rank(p->n->supervisor, rank)->pid != t->pid) {
        end_process(p, t, rank);
        return true;
    }
    const struct hang_finding f = find(t, rank, now_s);
    return node_hang_end(p->n, &f, t->signal);
}

/* returns when to look next */
static uint64_t look_at_timers(struct node_timers *p)
{
    const double now_s = real_s();
    const struct file_timer *t;
    while ((t = file_timers_first(&p->timers)) != NULL && t->expires_s <= now_s) {
        if (!expire(p, t, now_s))
            return RETRY_MS;
        if (t->signal > 0)
            file_timers_drop_process(&p->timers, t->pid);
        else
            file_timers_drop(&p->timers, t);
    }
    if (t == NULL)
        return MOST_MS;
    const double left_ms = (t->expires_s - now_s) * 1000;
    return left_ms < LEAST_MS ? LEAST_MS : left_ms > MOST_MS ? MOST_MS : (uint64_t)left_ms + 1;
}

/* --- the loop --- */

static void on_time(uv_timer_t *timer);
static void on_line(uv_poll_t *poll, int status, int events);

static void look(struct node_timers *p)
{
    const bool any = read_lines(p);
    const uint64_t next_ms = look_at_timers(p);
    if (any && !p->rests)
        uv_poll_stop(&p->poll);
    else if (!any && p->rests)
        uv_poll_start(&p->poll, UV_READABLE, on_line);
    p->rests = any;
    if (any || p->timers.n > 0)
        uv_timer_start(&p->timer, on_time, any && next_ms > REST_MS ? REST_MS : next_ms, 0);
    else
        uv_timer_stop(&p->timer);
}

static void on_time(uv_timer_t *timer)
{
    look(timer->data);
}

static void on_line(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    look(poll->data);
}

/* --- beginning and end --- */

/* What is left of an earlier job is replaced; a file is not. */
static int make_pipe(const char *path)
{
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISFIFO(st.st_mode) && st.st_uid == geteuid())
        unlink(path);
    return mkfifo(path, 0600) < 0 ? -errno : 0;
}

/* Read and write: without a writer of ours, the end of each client would be the end of the pipe. */
static int open_pipe(struct node_timers *p, struct co_error *err)
{
    const char *given = p->n->spec->timer_file;
    const int n =
        snprintf(p->path, sizeof p->path, "%s%s", given[0] != '\0' ? given : p->n->runtime_dir,
                 given[0] != '\0' ? "" : "/timers");
    int rc = n < (int)sizeof p->path ? make_pipe(p->path) : -ENAMETOOLONG;
    if (rc == 0 && (p->fd = open(p->path, O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0)
        rc = -errno;
    return rc < 0 ? co_fail(err, rc, "cannot make the pipe '%.200s' of TORCHELASTIC_TIMER_FILE: %s",
                            p->path, strerror(-rc))
                  : 0;
}

static void destroy(struct node_timers *p)
{
    if (p->fd >= 0) {
        close(p->fd);
        unlink(p->path);
    }
    file_timers_fini(&p->timers);
    free(p);
}

static int timers_open(const struct node_view *n, struct co_error *err)
{
    if (n->spec->timer_file == NULL)
        return 0;
    struct node_timers *p = calloc(1, sizeof *p);
    if (p == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    p->n = n;
    p->fd = -1;
    int rc = open_pipe(p, err);
    if (rc == 0 && (rc = uv_poll_init(n->loop, &p->poll, p->fd)) < 0)
        co_fail(err, rc, "cannot watch the pipe of TORCHELASTIC_TIMER_FILE: %s", uv_strerror(rc));
    if (rc < 0) {
        destroy(p);
        return rc;
    }
    uv_timer_init(n->loop, &p->timer);
    p->n_handles = 2;
    p->poll.data = p->timer.data = p;
    uv_poll_start(&p->poll, UV_READABLE, on_line);
    n->parts->timers = p;
    n->parts->timer_file = p->path;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct node_timers *p = handle->data;
    if (--p->n_handles == 0)
        destroy(p);
}

static void timers_close(const struct node_view *n)
{
    struct node_timers *p = n->parts->timers;
    n->parts->timers = NULL;
    n->parts->timer_file = NULL;
    if (p == NULL)
        return;
    uv_close((uv_handle_t *)&p->poll, on_closed);
    uv_close((uv_handle_t *)&p->timer, on_closed);
}

const struct node_feature node_timers_feature = {.open = timers_open, .close = timers_close};
