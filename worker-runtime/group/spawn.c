/* spawn.c - ddp_spawn(): ranks as forked processes.
 *
 * A child records how it ended in memory that is shared with its parent, with a number that shows
 * the order, before it leaves its group: failures that follow from it come later. The parent
 * watches a descriptor of each process, so that it is notified of each at once. */
#include "common/clock.h"
#include "common/error.h"
#include "first_failure.h"
#include "group_join.h"
#include "worker-runtime/core/group.h"
#include "worker-runtime/join/env.h"

#include <ddp/env.h>
#include <ddp/spawn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 1024, GRACE_MS = 5000 };

struct report { /* by a child */
    uint32_t order;
    int status;
    char text[CO_ERROR_TEXT_BYTES];
};

struct board { /* shared */
    _Atomic uint32_t n_reports;
    struct report of[MOST_RANKS];
};

struct child {
    pid_t pid;                  /* 0: it is reaped */
    int fd;                     /* readable when it has ended; -1: none */
    int status;                 /* of waitpid() */
    bool is_stopped, is_killed; /* by us: SIGTERM, SIGKILL was sent */
};

struct spawn {
    int (*fn)(struct ddp_group *world, void *arg);
    void *arg;
    int n;
    struct board *board; /* mapped */
    struct child *child; /* owned; n */
    struct pollfd *poll; /* owned; n */
    char job[64];
    int n_running;   /* not reaped yet */
    bool has_failed; /* one that was reaped */
    bool is_stopping;
};

/* --- in the child ----------------------------------------------------------------------------- */

/* A job of its own, whatever the parent's environment has. */
static void set_environment(const struct spawn *s, int rank)
{
    static const char *const of_the_parent[] = {
        DDP_ENV_NODE_FD,    DDP_ENV_CHECKPOINT_FD, DDP_ENV_CHECKPOINT_SIGNAL,
        DDP_ENV_NODE_RANK,  DDP_ENV_MASTER_ADDR,   DDP_ENV_MASTER_PORT,
        DDP_ENV_ERROR_FILE, DDP_ENV_PROGRESS_FD,   DDP_ENV_ENCRYPT_FD};
    for (size_t i = 0; i < sizeof of_the_parent / sizeof *of_the_parent; i++)
        unsetenv(of_the_parent[i]);
    env_set_number(DDP_ENV_RANK, rank);
    env_set_number(DDP_ENV_LOCAL_RANK, rank);
    env_set_number(DDP_ENV_WORLD_SIZE, s->n);
    env_set_number(DDP_ENV_LOCAL_WORLD_SIZE, s->n);
    env_set_number(DDP_ENV_GROUP_RANK, 0);
    env_set_number(DDP_ENV_GROUP_WORLD_SIZE, 1);
    setenv(DDP_ENV_JOB_ID, s->job, 1);
}

static int run_rank(const struct spawn *s, int rank)
{
    struct ddp_group *world = NULL;
    struct report *report = &s->board->of[rank];
    rt_forget();
    set_environment(s, rank);
    int rc = ddp_init(NULL, &world);
    if (rc == 0) {
        group_lend(world);
        rc = group_check_result("ddp_spawn", world, s->fn(world, s->arg));
    }
    report->status = rc;
    snprintf(report->text, sizeof report->text, "%s", rc != 0 ? ddp_last_error() : "");
    report->order = atomic_fetch_add(&s->board->n_reports, 1) + 1;
    group_finalize(world);
    return rc != 0;
}

static void be_child(const struct spawn *s, int rank, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    int status = run_rank(s, rank);
    if (fflush(NULL) != 0)
        status = 1;
    _exit(status);
}

/* --- starting, stopping, reaping -------------------------------------------------------------- */

static int start_one(struct spawn *s, int rank)
{
    struct child *c = &s->child[rank];
    const pid_t parent = getpid();
    fflush(NULL);
    c->pid = fork();
    if (c->pid == 0)
        be_child(s, rank, parent);
    if (c->pid < 0) {
        c->pid = 0;
        return rt_fail(DDP_ESYSTEM, "ddp_spawn: rank %d of %d: fork: %s", rank, s->n,
                       strerror(errno));
    }
    s->n_running++;
    c->fd = (int)syscall(SYS_pidfd_open, c->pid, 0);
    if (c->fd < 0)
        return rt_fail(DDP_ESYSTEM, "ddp_spawn: rank %d of %d: pidfd_open: %s", rank, s->n,
                       strerror(errno));
    return 0;
}

static void stop_all(struct spawn *s, int signal_number)
{
    s->is_stopping = true;
    for (int r = 0; r < s->n; r++)
        if (s->child[r].pid > 0) {
            s->child[r].is_stopped |= signal_number == SIGTERM;
            s->child[r].is_killed |= signal_number == SIGKILL;
            kill(s->child[r].pid, signal_number);
        }
}

static void reap_child(struct spawn *s, int rank)
{
    struct child *c = &s->child[rank];
    const struct report *report = &s->board->of[rank];
    pid_t got;
    while ((got = waitpid(c->pid, &c->status, 0)) < 0 && errno == EINTR)
        ;
    if (got < 0) /* the program ignores SIGCHLD, so that the exit status is lost: the child's own
                    record counts */
        c->status = 0;
    c->pid = 0;
    s->n_running--;
    s->has_failed |= c->status != 0 || report->order == 0 || report->status != 0;
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

/* Wait for one or more to end, and reap them. returns whether the time is over before */
static bool is_late(struct spawn *s, uint64_t deadline_ms)
{
    for (int r = 0; r < s->n; r++)
        s->poll[r] = (struct pollfd){.fd = s->child[r].fd, .events = POLLIN};
    const int left_ms = s->is_stopping ? (int)co_left_ms(deadline_ms) : -1;
    const int n_ready = poll(s->poll, (nfds_t)s->n, left_ms);
    for (int r = 0; n_ready > 0 && r < s->n; r++)
        if (s->poll[r].revents != 0)
            reap_child(s, r);
    return n_ready == 0;
}

static void wait_for_all(struct spawn *s)
{
    uint64_t deadline_ms = co_deadline_ms(GRACE_MS);
    bool is_killed = false;
    while (s->n_running > 0) {
        if (is_late(s, deadline_ms) && !is_killed) {
            stop_all(s, SIGKILL);
            is_killed = true;
            deadline_ms = co_deadline_ms(UINT32_MAX / 2);
        }
        if (!s->is_stopping && s->has_failed) {
            deadline_ms = co_deadline_ms(GRACE_MS);
            stop_all(s, SIGTERM);
        }
    }
}

/* --- why -------------------------------------------------------------------------------------- */

static struct rank_end end_of(const struct spawn *s, int rank)
{
    const struct child *c = &s->child[rank];
    const struct report *report = &s->board->of[rank];
    struct rank_end e = {.order = report->order, .status = report->status};
    const int number = WIFSIGNALED(c->status) ? WTERMSIG(c->status) : 0;
    const bool is_ours =
        (number == SIGTERM && c->is_stopped) || (number == SIGKILL && c->is_killed);
    if (number != 0 && !is_ours)
        e.signal = number;
    if (e.order == 0 && number == 0) /* exit(0) does not count as a report; stopped or not, since it
                                        may have been about to end when its peers noticed */
        e.exit_status = WEXITSTATUS(c->status) != 0 ? WEXITSTATUS(c->status) : 256;
    return e;
}

static int tell_failure(const struct spawn *s, int rank, const struct rank_end *e)
{
    if (e->signal != 0)
        return rt_fail(DDP_EPEER, "ddp_spawn: rank %d of %d was killed by signal %d (%s)", rank,
                       s->n, e->signal, strsignal(e->signal));
    if (e->order != 0)
        return rt_fail(e->status, "rank %d of %d: %s", rank, s->n, s->board->of[rank].text);
    return rt_fail(DDP_EPEER,
                   "ddp_spawn: rank %d of %d called exit(%d) before its function returned", rank,
                   s->n, e->exit_status == 256 ? 0 : e->exit_status);
}

static int judge_ends(const struct spawn *s)
{
    struct rank_end ends[MOST_RANKS];
    for (int r = 0; r < s->n; r++)
        ends[r] = end_of(s, r);
    const int first = first_failure_find(ends, s->n);
    return first >= 0 ? tell_failure(s, first, &ends[first]) : 0;
}

/* ---------------------------------------------------------------------------------------------- */

static int prepare_spawn(struct spawn *s)
{
    static atomic_uint count;
    snprintf(s->job, sizeof s->job, "spawn %d %u", (int)getpid(), atomic_fetch_add(&count, 1));
    s->child = calloc((size_t)s->n, sizeof *s->child);
    s->poll = calloc((size_t)s->n, sizeof *s->poll);
    s->board = mmap(NULL, sizeof *s->board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                    0); /* pages of ranks that do not exist are never written */
    if (s->child == NULL || s->poll == NULL || s->board == MAP_FAILED)
        return rt_fail(DDP_ENOMEM, "ddp_spawn: out of memory");
    for (int r = 0; r < s->n; r++)
        s->child[r].fd = -1;
    return 0;
}

static int run_all(struct spawn *s)
{
    int rc = 0;
    for (int r = 0; rc == 0 && r < s->n; r++)
        rc = start_one(s, r);
    if (rc == 0) {
        wait_for_all(s);
        return judge_ends(s);
    }
    char text[CO_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", ddp_last_error());
    stop_all(s, SIGKILL);
    for (int r = 0; r < s->n; r++)
        if (s->child[r].pid > 0)
            reap_child(s, r);
    return rt_fail(rc, "%s", text);
}

int ddp_spawn(int (*fn)(struct ddp_group *world, void *arg), int n, void *arg)
{
    if (fn == NULL)
        return rt_fail_null("ddp_spawn", "function");
    if (n < 1 || n > MOST_RANKS)
        return rt_fail(DDP_EINVAL, "ddp_spawn: invalid value %d for n: expected 1 to %d", n,
                       MOST_RANKS);
    struct spawn s = {.fn = fn, .arg = arg, .n = n, .board = MAP_FAILED};
    int rc = prepare_spawn(&s);
    if (rc == 0)
        rc = run_all(&s);
    free(s.child);
    free(s.poll);
    if (s.board != MAP_FAILED)
        munmap(s.board, sizeof *s.board);
    return rc;
}
