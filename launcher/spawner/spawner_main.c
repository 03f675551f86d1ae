/* The spawner's life. spawner_main() polls five things in turn: the ends of children (reap()),
 * messages of preforked processes (prefork.h), requests of ddprun (serve_payload()), the ends of
 * threads, the first sign that a rank dies (report_dying()), and the connection for heartbeats
 * (beat()); flush_reports() then sends the reports. Read serve_payload(), spawn() and reap() first.
 *
 * State: pid_of[] has a rank's process from its start until its end is reported, which happens
 * once: when it is reaped, or earlier if the kernel reports the status of a process whose memory it
 * still frees. Every process below the spawner that is not a rank is a descendant, which only a
 * sweep kills.
 *
 * Invariant: nothing that ddprun does or fails to do holds up the lease. Reports that do not fit
 * the socket are kept, requests never block, and lapse() kills all by the spawner's own clock. */
#include "spawner_wire.h"

#include "exit_watch.h"
#include "heartbeat.h"
#include "image.h"
#include "launcher/platform/title.h"
#include "prefork.h"
#include "runtime_dir.h"
#include "spawn.h"
#include "spawner.h"
#include "step_signals.h"
#include "sweep.h"

#include "common/clock.h"
#include "common/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Its descriptors: /dev/null at 0 to 2, so that what comes by SCM_RIGHTS lies above the numbers it
 * is moved to in a worker, and: */
enum { SOCK_FD = 3, SIGNAL_FD = 4 };

enum {
    MAX_SIGNALED = 1024,
    MAX_REAPED = 64, /* at a time */
    /* ddprun asks for a rank again only when it knows of the one before that it ended: two of each
     * rank, and the reports about all together */
    MAX_REPORTS = 2 * SPAWNER_MAX_RANKS + 16,
    PREFORK_WAIT_MS = 3000 /* for what takes a few milliseconds; the job waits that long at most */
};

struct state {
    int n_ranks;                              /* highest rank asked for, plus 1 */
    pid_t pid_of[SPAWNER_MAX_RANKS];          /* 0: does not run */
    bool is_rank_signaled[SPAWNER_MAX_RANKS]; /* had a signal that may end it, while it lived */
    int sweep_sig;                            /* 0: not sweeping */
    /* Descendants that had sweep_sig already: it is not sent twice, a second SIGTERM means "at
     * once" to many programs. */
    pid_t signaled[MAX_SIGNALED];
    int n_signaled;
    struct spawner_report reports[MAX_REPORTS]; /* not sent yet */
    int n_reports;
    uint64_t lease_end_ms;
    bool lapsed;                   /* it is over, and all was killed */
    struct early_exit_watch watch; /* for ranks that end, and cannot be reaped yet */
    struct exit_watch threads;
    bool watches; /* asked for: `threads` has those of the ranks */
    struct prefork prefork;
    bool has_reported_prefork; /* ddprun knows that there are some */
    bool child_ended;          /* SIGCHLD was read, and reap() not called yet */
    struct step_signals step_signals;
    struct heartbeat heartbeat;
    int heartbeat_fd; /* -1: not connected */
};

/* ddprun is gone, or done with us. */
static _Noreturn void leave(const struct runtime_dir_names *names)
{
    sweep_kill_all(CO_NEVER_MS);
    runtime_dir_remove_any(names); /* NULL when ddprun is alive and does that itself */
    _exit(0);
}

/* Send what there is to report. Reports wait until the requests at hand are done: ddprun, woken
 * for each of them, would take a CPU from the ranks that are just starting. What does not fit while
 * ddprun is stopped is kept: the lease must not wait for it. */
static void flush_reports(struct state *s)
{
    int n = 0;
    while (n < s->n_reports) {
        ssize_t sent =
            send(SOCK_FD, &s->reports[n], sizeof s->reports[n], MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0 && errno == EINTR)
            continue;
        n++; /* if ddprun is gone, the next request is its end */
    }
    s->n_reports -= n;
    memmove(s->reports, s->reports + n, (size_t)s->n_reports * sizeof s->reports[0]);
}

static void queue_report(struct state *s, const struct spawner_report *what)
{
    if (s->n_reports == MAX_REPORTS)
        _exit(70); /* ddprun breaks its word: the kernel kills the ranks, ddprun the others */
    s->reports[s->n_reports++] = *what;
}

static void report_event(struct state *s, enum spawner_event event)
{
    queue_report(s, &(struct spawner_report){
                        .event = event, .local_rank = -1, .empty = event == SPAWNER_EMPTY});
}

static void forget_signaled(struct state *s, pid_t pid)
{
    for (int i = 0; i < s->n_signaled; i++) {
        if (s->signaled[i] == pid) {
            s->signaled[i] = s->signaled[--s->n_signaled];
            return;
        }
    }
}

static void note_signaled(void *arg, pid_t pid)
{
    struct state *s = arg;
    early_exit_step_back(pid);
    for (int i = 0; i < s->n_signaled; i++) {
        if (s->signaled[i] == pid)
            return;
    }
    if (prefork_know(&s->prefork, pid))
        return;
    if (s->sweep_sig != SIGKILL && s->n_signaled < MAX_SIGNALED)
        s->signaled[s->n_signaled++] = pid;
    kill(pid, s->sweep_sig);
}

static int rank_of(const struct state *s, pid_t pid)
{
    for (int i = 0; i < s->n_ranks; i++) {
        if (s->pid_of[i] == pid)
            return i;
    }
    return -1;
}

struct others {
    struct prefork *prefork;
    int n;
};

static void count_other(void *arg, pid_t pid)
{
    struct others *o = arg;
    o->n += !prefork_know(o->prefork, pid);
}

/* Is nothing left below us but what waits to become ranks? A list of children is whole if none of
 * them dies while it is read; one that does is reaped next, and then this is asked again. */
static bool is_empty(struct state *s)
{
    struct others others = {.prefork = &s->prefork};
    siginfo_t info = {0};
    if (s->prefork.parent == 0)
        return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0;
    return sweep_children(count_other, &others) == 0 && others.n == 0 &&
           waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

struct ended {
    pid_t pid;
    int status;
};

/* Collect what has ended, n_max at most. returns how many; *ret_empty: nothing is left */
static int collect(struct state *s, struct ended *ret, int n_max, bool *ret_empty)
{
    int n = 0;
    pid_t pid = 1;
    while (n < n_max && (pid = waitpid(-1, &ret[n].status, WNOHANG)) > 0) {
        ret[n].pid = pid;
        enum prefork_gone gone = prefork_forget(&s->prefork, pid);
        if (gone == PREFORK_PARENT_GONE)
            queue_report(s, &(struct spawner_report){.event = SPAWNER_PARENT_GONE,
                                                     .local_rank = -1,
                                                     .pid = pid,
                                                     .status = ret[n].status});
        n += gone == PREFORK_NOT_OURS; /* the others need no report */
    }
    *ret_empty = pid < 0 || (pid == 0 && is_empty(s));
    return n;
}

/* returns whether it was a rank */
static bool report_end(struct state *s, const struct ended *ended, bool empty)
{
    struct spawner_report r = {.event = SPAWNER_EXITED,
                               .local_rank = rank_of(s, ended->pid),
                               .pid = ended->pid,
                               .status = ended->status,
                               .empty = empty};
    if (r.local_rank < 0) {
        forget_signaled(s, ended->pid);
        return false;
    }
    r.signaled = s->is_rank_signaled[r.local_rank];
    s->pid_of[r.local_rank] = 0;
    exit_watch_forget(&s->threads, ended->pid);
    queue_report(s, &r);
    return true;
}

/* Ends that are found together have no order, so deaths by a signal are reported first: a crash
 * makes others exit, hardly ever the other way round.
 *
 * empty     no process is left after them
 * returns   how many were ranks; *ret_last: whether the last one was */
static int report_ends(struct state *s, const struct ended *ended, int n, bool empty,
                       bool *ret_last)
{
    int n_left = n, n_ranks = 0;
    for (int by_signal = 1; by_signal >= 0; by_signal--) {
        for (int i = 0; i < n; i++) {
            if (WIFSIGNALED(ended[i].status) != by_signal)
                continue;
            n_left--;
            *ret_last = report_end(s, &ended[i], n_left == 0 && empty);
            n_ranks += *ret_last;
        }
    }
    return n_ranks;
}

/* Reap all that ended. */
static void reap(struct state *s)
{
    struct ended ended[MAX_REAPED];
    bool descendant = false;
    bool last_was_rank = true; /* of all that was reaped */
    bool empty;
    int n;
    do {
        n = collect(s, ended, MAX_REAPED, &empty);
        descendant |= report_ends(s, ended, n, empty, &last_was_rank) < n;
    } while (n == MAX_REAPED);
    if (empty && !last_was_rank)
        report_event(s, SPAWNER_EMPTY);
    else if ((descendant || s->lapsed) && s->sweep_sig != 0)
        sweep_children(note_signaled, s); /* what the dead ones left is ours now */
}

/* Report ranks that are dying as ended; they are descendants until they are reaped. If other
 * threads of a rank still run, it must not continue next to its replacement. */
static void report_dying(struct state *s)
{
    struct ended ended[MAX_REAPED];
    bool last_was_rank;
    int n = 0;
    for (int i = 0; i < s->n_ranks && n < MAX_REAPED; i++) {
        if (s->pid_of[i] == 0 || !early_exit_has_failed(s->pid_of[i], &ended[n].status))
            continue;
        early_exit_step_aside(s->pid_of[i]);
        ended[n++].pid = s->pid_of[i];
        kill(s->pid_of[i], SIGKILL);
    }
    report_ends(s, ended, n, false, &last_was_rank);
}

/* What came in one packet. */
struct payload {
    struct spawner_request q;
    int fds[SPAWNER_MAX_FDS];
    size_t n_fds;
};

/* Map the image of a packet and make orders of it: image_unmap() in any case.
 *
 * returns   0; -ECANCELED: the lease is over; -EMFILE: the kernel drops descriptors when this
 *           process may have no more of them; -EPROTO; -errno */
static int make_orders(const struct state *s, const struct payload *p, struct image *image,
                       struct spawn_order orders[SPAWN_AT_ONCE])
{
    *image = (struct image){0};
    int rc = s->lapsed ? -ECANCELED : p->n_fds > 0 ? image_map(p->fds[0], image) : -EMFILE;
    if (rc < 0 || image->n_workers != (size_t)p->q.n_ranks)
        return rc < 0 ? rc : -EPROTO;
    for (int i = 0; i < p->q.n_ranks; i++) {
        orders[i] = (struct spawn_order){.path = image->worker[i].path,
                                         .argv = image->worker[i].argv,
                                         .env = image->worker[i].env,
                                         .cpus = image->worker[i].cpus};
        for (int j = 0; j < SPAWN_N_FDS; j++) {
            uint8_t at = p->q.fd_of[i][j];
            if (at != SPAWNER_NO_FD && at >= p->n_fds)
                return -EMFILE;
            orders[i].fds[j] = at != SPAWNER_NO_FD ? p->fds[at] : -1;
        }
    }
    return 0;
}

static void report_start(struct state *s, int local_rank, const struct spawn_order *o,
                         enum spawner_way way)
{
    struct spawner_report r = {
        .event = SPAWNER_STARTED, .local_rank = local_rank, .pid = o->pid, .way = way};
    if (o->pid == 0) {
        r.event = SPAWNER_START_FAILED;
        r.status = o->error;
        r.stage = (int32_t)o->stage;
        r.empty = is_empty(s);
    }
    queue_report(s, &r);
}

/* By preforked processes, if there are any, else, and if they fail, as any program.
 *
 * returns how it was done */
static enum spawner_way start_ranks(struct state *s, const struct payload *p,
                                    struct spawn_order *orders)
{
    uint64_t until_ms = co_deadline_ms(PREFORK_WAIT_MS);
    if (until_ms > s->lease_end_ms)
        until_ms = s->lease_end_ms;
    switch (prefork_take(&s->prefork, p->q.local_rank, orders, p->q.n_ranks, p->fds[0], until_ms)) {
    case PREFORK_TOOK:
        return SPAWNER_FORKED;
    case PREFORK_NO_ANSWER:
        for (int i = 0; i < p->q.n_ranks; i++)
            if (orders[i].pid == 0) /* it is not a rank yet */
                spawn_workers(&orders[i], 1);
        return SPAWNER_NO_ANSWER;
    case PREFORK_TOO_FEW:
        spawn_workers(orders, p->q.n_ranks);
        return SPAWNER_NO_SEEDS;
    default:
        spawn_workers(orders, p->q.n_ranks);
        return SPAWNER_EXECUTED;
    }
}

static void spawn(struct state *s, const struct payload *p)
{
    struct spawn_order orders[SPAWN_AT_ONCE];
    struct image image;
    enum spawner_way way = SPAWNER_EXECUTED;
    int first = p->q.local_rank;
    int rc = make_orders(s, p, &image, orders);
    if (!s->lapsed)
        s->sweep_sig = 0; /* what the ranks before have left is gone: a generation begins */
    if (rc == 0)
        way = start_ranks(s, p, orders);
    image_unmap(&image);
    for (int i = 0; i < p->q.n_ranks; i++) {
        if (rc < 0)
            orders[i] = (struct spawn_order){.error = -rc, .stage = SPAWN_SETUP};
        s->pid_of[first + i] = orders[i].pid;
        s->is_rank_signaled[first + i] = false;
        if (orders[i].pid != 0 && s->heartbeat.is_suspended)
            kill(-orders[i].pid, SIGSTOP);
        report_start(s, first + i, &orders[i], way);
    }
    if (s->n_ranks < first + p->q.n_ranks)
        s->n_ranks = first + p->q.n_ranks;
    if (s->watches)
        exit_watch_begin(&s->threads, co_now_ms());
}

/* A failure to start the parent is reported like its end. */
static void start_parent(struct state *s, const struct payload *p)
{
    struct spawn_order orders[SPAWN_AT_ONCE];
    struct image image = {0};
    int rc = p->q.n_ranks == 1 ? make_orders(s, p, &image, orders) : -EPROTO;
    for (int i = 0; i <= STDERR_FILENO && rc == 0; i++)
        orders[0].fds[i] = i; /* ours: /dev/null */
    if (rc == 0)
        rc = prefork_start(&s->prefork, &orders[0]);
    image_unmap(&image);
    if (rc < 0)
        report_event(s, SPAWNER_PARENT_GONE);
}

/* Those that a process may leave alone end nothing. */
static bool may_end(int sig)
{
    return sig != SIGCHLD && sig != SIGCONT && sig != SIGURG && sig != SIGWINCH;
}

static void read_signals(struct state *s)
{
    struct signalfd_siginfo come[4];
    ssize_t n;
    while ((n = read(SIGNAL_FD, come, sizeof come)) > 0)
        for (size_t i = 0; i < (size_t)n / sizeof come[0]; i++)
            if (come[i].ssi_signo == SIGCHLD)
                s->child_ended = true;
            else
                step_signals_hear(&s->step_signals, (int)come[i].ssi_signo, co_now_ms());
}

static void share_signals(struct state *s, const struct spawner_request *q)
{
    sigset_t heard;
    step_signals_begin(&s->step_signals, q->ignored, q->once, &heard);
    sigaddset(&heard, SIGCHLD);
    signalfd(SIGNAL_FD, &heard, 0);
}

/* A rank that was dying before the first one did not die of the signal. */
static void signal_ranks(struct state *s, const struct spawner_request *q)
{
    read_signals(s); /* what came before this request counts */
    for (int i = 0; i < s->n_ranks; i++) {
        if (s->pid_of[i] == 0 || i == q->local_rank)
            continue;
        const int sig = step_signals_choose(&s->step_signals, q->sig, s->pid_of[i], co_now_ms());
        s->is_rank_signaled[i] =
            s->is_rank_signaled[i] || (may_end(q->sig) && !early_exit_is_ending(s->pid_of[i]));
        if (sig != 0)
            kill(q->target == SPAWNER_GROUP ? -s->pid_of[i] : s->pid_of[i], sig);
    }
}

static void signal_one(const struct state *s, const struct spawner_request *q)
{
    if (q->local_rank < 0 || q->local_rank >= s->n_ranks || s->pid_of[q->local_rank] == 0)
        return;
    const pid_t pid = s->pid_of[q->local_rank];
    kill(q->target == SPAWNER_GROUP ? -pid : pid, q->sig);
}

static void renumber(struct state *s, const struct spawner_request *q)
{
    const int from = q->local_rank, to = q->n_ranks;
    if (from < 0 || from >= s->n_ranks || to < 0 || to >= s->n_ranks || s->pid_of[to] != 0)
        return;
    struct spawn_order o = {.pid = s->pid_of[from], .error = ESRCH, .stage = SPAWN_GONE};
    s->pid_of[to] = s->pid_of[from];
    s->is_rank_signaled[to] = s->is_rank_signaled[from];
    s->pid_of[from] = 0;
    report_start(s, to, &o, SPAWNER_EXECUTED);
}

static void sweep(struct state *s, int sig)
{
    s->sweep_sig = s->lapsed ? SIGKILL : sig;
    s->n_signaled = 0;
    if (!is_empty(s))
        sweep_children(note_signaled, s);
    else /* the last one has gone since it was asked for */
        report_event(s, SPAWNER_EMPTY);
}

/* Whether ddprun lives and what it has asked for does not matter any more. What the dead ranks
 * leave is killed when their ends are seen. */
static void lapse(struct state *s)
{
    const struct spawner_request everybody = {
        .local_rank = -1, .target = SPAWNER_GROUP, .sig = SIGKILL};
    s->lapsed = true;
    prefork_close(&s->prefork);
    report_event(s, SPAWNER_LAPSED);
    s->sweep_sig = SIGKILL;
    signal_ranks(s, &everybody);
    sweep_children(note_signaled, s);
}

/* --- heartbeats --- */

static void continue_child(void *arg, pid_t pid)
{
    (void)arg;
    kill(pid, SIGCONT);
}

static void suspend_child(void *arg, pid_t pid)
{
    if (!prefork_know(&((struct state *)arg)->prefork, pid))
        kill(pid, SIGSTOP);
}

/* The ranks with their process groups, and what dead ranks have left; what a rank has moved to
 * another process group runs on, as with a rank that is killed. */
static void suspend_ranks(struct state *s)
{
    for (int i = 0; i < s->n_ranks; i++)
        if (s->pid_of[i] != 0)
            kill(-s->pid_of[i], SIGSTOP);
    sweep_children(suspend_child, s);
}

static void resume_ranks(struct state *s)
{
    for (int i = 0; i < s->n_ranks; i++)
        if (s->pid_of[i] != 0)
            kill(-s->pid_of[i], SIGCONT);
    sweep_children(continue_child, s);
}

/* Again, if something has changed that may let them run: the coordinator is to be asked. */
static void report_suspended(struct state *s, bool is_silent)
{
    queue_report(s, &(struct spawner_report){
                        .event = SPAWNER_SUSPENDED, .local_rank = -1, .status = is_silent});
}

static void suspend_if_due(struct state *s)
{
    if (!heartbeat_lapse(&s->heartbeat, co_now_ms()))
        return;
    suspend_ranks(s);
    report_suspended(s, s->heartbeat.has_link);
}

static void close_heartbeats(struct state *s)
{
    if (s->heartbeat_fd >= 0)
        close(s->heartbeat_fd);
    s->heartbeat_fd = -1;
    heartbeat_lose_link(&s->heartbeat);
}

/* A busy machine must not keep the spawner from sending. Where that is not permitted it has an
 * ordinary priority, and ranks may be suspended for a moment. Its children have the usual one. */
static void raise_priority(void)
{
    const struct sched_param lowest = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &lowest);
}

static void begin_heartbeats(struct state *s, const struct spawner_request *q, int *fd)
{
    suspend_if_due(s); /* an end that has passed counts, whatever comes after it */
    close_heartbeats(s);
    if (fd == NULL) {
        heartbeat_state(&s->heartbeat, q->end_ms);
    } else {
        if (!s->heartbeat.is_on)
            raise_priority();
        s->heartbeat_fd = *fd;
        *fd = -1;
        heartbeat_begin(&s->heartbeat, q->from_ms, q->limit_ms);
    }
    if (s->heartbeat.is_suspended)
        report_suspended(s, false);
}

static void resume(struct state *s, uint64_t from_ms)
{
    if (heartbeat_resume(&s->heartbeat, from_ms, co_now_ms())) {
        resume_ranks(s);
        report_event(s, SPAWNER_RESUMED);
    } else if (s->heartbeat.is_suspended && s->heartbeat.has_link) {
        report_suspended(s, false); /* the answer came too late */
    }
}

/* What comes only shows that the other kernel is asked whether this one answers. */
static void beat(struct state *s)
{
    struct heartbeat *h = &s->heartbeat;
    int n_unacked = 0;
    if (s->heartbeat_fd >= 0 && ioctl(s->heartbeat_fd, SIOCOUTQ, &n_unacked) == 0)
        heartbeat_acked(h, (uint64_t)n_unacked);
    bool is_open = s->heartbeat_fd < 0 || co_drain_socket(s->heartbeat_fd);
    const uint64_t now_ms = co_now_ms();
    if (is_open && heartbeat_is_due(h, now_ms)) {
        const bool was_taken = send(s->heartbeat_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
        is_open = was_taken || errno == EAGAIN || errno == EINTR;
        heartbeat_sent(h, now_ms, was_taken);
    }
    if (!is_open) {
        close_heartbeats(s);
        report_event(s, SPAWNER_HEARTBEAT_GONE);
    }
    suspend_if_due(s);
}

enum served { SERVED, NOTHING_ASKED, DDPRUN_GONE };

static enum served receive_payload(struct payload *ret)
{
    union {
        char bytes[CMSG_SPACE(SPAWNER_MAX_FDS * sizeof(int))];
        struct cmsghdr head;
    } control;
    struct iovec data = {.iov_base = &ret->q, .iov_len = sizeof ret->q};
    struct msghdr m = {.msg_iov = &data,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control};
    ssize_t n = recvmsg(SOCK_FD, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return NOTHING_ASKED;
    if (n != (ssize_t)sizeof ret->q)
        return DDPRUN_GONE;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    ret->n_fds = 0;
    if (c != NULL && c->cmsg_type == SCM_RIGHTS) {
        ret->n_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(ret->fds, CMSG_DATA(c), ret->n_fds * sizeof(int));
    }
    return SERVED;
}

/* Receive one request and carry it out. */
static enum served serve_payload(struct state *s)
{
    struct payload p;
    enum served served = receive_payload(&p);
    if (served != SERVED)
        return served;
    switch (p.q.type) {
    case SPAWNER_SPAWN:
        spawn(s, &p);
        break;
    case SPAWNER_PARENT:
        start_parent(s, &p);
        break;
    case SPAWNER_SIGNAL:
        signal_ranks(s, &p.q);
        break;
    case SPAWNER_SIGNAL_ONE:
        signal_one(s, &p.q);
        break;
    case SPAWNER_RENUMBER:
        renumber(s, &p.q);
        break;
    case SPAWNER_LOOK:
        early_exit_watch_begin(&s->watch, co_now_ms());
        break;
    case SPAWNER_WATCH:
        s->watches = true;
        exit_watch_begin(&s->threads, co_now_ms()); /* of the ranks that run already */
        break;
    case SPAWNER_SWEEP:
        sweep(s, p.q.sig);
        break;
    case SPAWNER_LEASE:
        s->lease_end_ms = p.q.end_ms;
        s->lapsed = s->lapsed && p.q.end_ms <= co_now_ms();
        break;
    case SPAWNER_SHARE:
        share_signals(s, &p.q);
        break;
    case SPAWNER_HEARTBEAT:
        begin_heartbeats(s, &p.q, p.n_fds > 0 ? &p.fds[0] : NULL);
        break;
    case SPAWNER_RESUME:
        resume(s, p.q.from_ms);
        break;
    case SPAWNER_DISMISS:
        leave(NULL);
    }
    for (size_t i = 0; i < p.n_fds; i++)
        if (p.fds[i] >= 0)
            close(p.fds[i]);
    return SERVED;
}

/* Default dispositions for the workers to inherit, every signal blocked, only our descriptors. */
static int settle(int sock)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);

    setsid();
    title_set("ddp-spawner");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return -errno;

    /* sock and null may be in the way of each other's places: move them up first */
    int up = fcntl(sock, F_DUPFD, 16);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int null_up = fcntl(null, F_DUPFD, 16);
    if (up < 0 || null_up < 0)
        return -errno;
    for (int i = 0; i < SOCK_FD; i++)
        dup2(null_up, i);
    if (dup3(up, SOCK_FD, O_CLOEXEC) < 0)
        return -errno;
    closefrom(SOCK_FD + 1);

    sigset_t child_ended;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    int fd = signalfd(-1, &child_ended, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd == SIGNAL_FD ? 0 : -EBADF;
}

/* When to wake though nothing has come. */
static uint64_t deadline_ms(const struct state *s)
{
    const uint64_t look_ms = early_exit_watch_next_ms(&s->watch);
    const uint64_t threads_ms = s->threads.next_ms;
    const uint64_t end_ms = s->lapsed ? CO_NEVER_MS : s->lease_end_ms;
    const uint64_t beat_ms = heartbeat_deadline_ms(&s->heartbeat);
    uint64_t first_ms = look_ms < end_ms ? look_ms : end_ms;
    first_ms = threads_ms < first_ms ? threads_ms : first_ms;
    return beat_ms < first_ms ? beat_ms : first_ms;
}

_Noreturn void spawner_main(int sock, const struct runtime_dir_names *names)
{
    static struct state s; /* zeroed pages that are not touched cost nothing */
    s.lease_end_ms = CO_NEVER_MS;
    s.heartbeat_fd = -1;
    prefork_init(&s.prefork);
    exit_watch_init(&s.threads);
    if (settle(sock) < 0)
        _exit(70); /* ddprun sees the socket's end and reports it */
    for (;;) {
        struct pollfd p[] = {{.fd = SOCK_FD, .events = s.n_reports > 0 ? POLLIN | POLLOUT : POLLIN},
                             {.fd = SIGNAL_FD, .events = POLLIN},
                             {.fd = s.prefork.sock, .events = POLLIN},
                             {.fd = s.threads.fd, .events = POLLIN},
                             {.fd = s.heartbeat_fd, .events = POLLIN}};
        if (poll(p, 5, s.child_ended ? 0 : co_left_ms(deadline_ms(&s))) < 0 && errno != EINTR)
            leave(names);
        if (p[1].revents != 0)
            read_signals(&s);
        if (s.child_ended) {
            s.child_ended = false;
            reap(&s);
        }
        if (p[2].revents != 0)
            prefork_hear(&s.prefork);
        if (s.prefork.complete && !s.has_reported_prefork) {
            s.has_reported_prefork = true;
            report_event(&s, SPAWNER_PREFORK_READY);
        }
        enum served served = (p[0].revents & ~POLLOUT) != 0 ? SERVED : NOTHING_ASKED;
        while (served == SERVED)
            served = serve_payload(&s);
        if (served == DDPRUN_GONE)
            leave(names);
        if (p[3].revents != 0 && exit_watch_hear(&s.threads, co_now_ms()))
            early_exit_watch_begin(&s.watch, co_now_ms());
        exit_watch_look(&s.threads, s.pid_of, s.n_ranks, co_now_ms());
        if (early_exit_watch_take(&s.watch, co_now_ms()))
            report_dying(&s);
        beat(&s);
        if (!s.lapsed && co_now_ms() >= s.lease_end_ms) /* and no newer one was among these */
            lapse(&s);
        flush_reports(&s);
    }
}
