/* The parent that ranks are forked from, and its waiting processes (seeds), as the spawner sees
 * them. The parent promises a batch (PREFORK_PROMISE), each of its processes reports that it is
 * ready (PREFORK_SEED), and prefork_take() gives each an order and waits for the answers
 * (PREFORK_TAKEN). kill_older() ends the processes of earlier batches, which have imported less.
 * Read prefork_take() first, then take_in().
 *
 * Invariant: a process that may have read an order has answered, or is killed before
 * prefork_take() returns, so that no rank runs twice. */
#include "prefork.h"

#include "spawner_wire.h"

#include "common/clock.h"
#include "common/scope.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    DYING = -1, /* a batch: killed, and not reaped yet */
    WORDS = 64  /* in one turn: user code may send without end */
};

void prefork_init(struct prefork *s)
{
    *s = (struct prefork){.sock = -1, .wish_fd = -1};
}

void prefork_hear_senders(int sock)
{
    setsockopt(sock, SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int)); /* else none is known */
}

int prefork_start(struct prefork *s, struct spawn_order *order)
{
    int pair[2];
    if (s->parent != 0)
        return -EBUSY;
    co_autoclose_fd int wish_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wish_fd < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    prefork_hear_senders(pair[0]);
    order->fds[SPAWN_NODE_FD] = pair[1];
    order->fds[SPAWN_PMI_FD] = wish_fd;
    spawn_workers(order, 1);
    close(pair[1]);
    if (order->pid == 0) {
        close(pair[0]);
        return -order->error;
    }
    *s = (struct prefork){.parent = order->pid,
                          .session = getsid(order->pid),
                          .sock = pair[0],
                          .wish_fd = co_take_fd(&wish_fd)};
    return 0;
}

/* Only we reap our children: such a pid cannot be that of another process. */
static bool is_child(pid_t pid)
{
    siginfo_t info;
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* A pid in a message may be one of another PID namespace, or wrong. A preforked process that has
 * not become our child yet ends by itself when it finds the socket closed. */
static void kill_seed(pid_t pid)
{
    if (is_child(pid))
        kill(pid, SIGKILL);
}

void prefork_close(struct prefork *s)
{
    if (s->parent > 0)
        kill(s->parent, SIGKILL);
    for (int i = 0; i < s->n; i++)
        kill_seed(s->of[i].pid);
    if (s->sock >= 0)
        close(s->sock);
    if (s->wish_fd >= 0)
        close(s->wish_fd);
    prefork_init(s);
}

static void forget_at(struct prefork *s, int i)
{
    s->of[i] = s->of[--s->n];
}

static int find_child(const struct prefork *s, pid_t pid)
{
    for (int i = 0; i < s->n; i++)
        if (s->of[i].pid == pid)
            return i;
    return -1;
}

static int count_usable(const struct prefork *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        n += s->of[i].batch != DYING;
    return n;
}

/* A newer batch has imported more. Only we give them orders: without orders, none of the older ones
 * is about to become a rank. */
static void kill_older(struct prefork *s)
{
    if (s->n_awaited > 0 || s->has_orders)
        return;
    for (int i = 0; i < s->n; i++) {
        if (s->of[i].batch == s->batch || s->of[i].batch == DYING)
            continue;
        kill_seed(s->of[i].pid);
        s->of[i].batch = DYING;
    }
}

/* Ranks and what they start have other sessions than the parent and what it forks. One that is not
 * believed counts as arrived: it is not waited for. */
static void note_seed(struct prefork *s, const struct prefork_word *w)
{
    const int32_t batch = w->value & INT32_MAX;
    const bool is_seed = getsid(w->pid) == s->session;
    if (is_seed && s->n == 2 * PREFORK_MAX) {
        kill_seed(w->pid);
        return;
    }
    if (is_seed)
        s->of[s->n++] = (struct seed){.pid = w->pid, .batch = batch};
    if (batch != s->batch || s->n_awaited == 0 || --s->n_awaited > 0)
        return;
    s->complete = true;
    kill_older(s);
}

/* The process that sent a message, as the kernel knows it; 0: unknown. */
static pid_t sender_of(struct msghdr *m)
{
    struct ucred sender = {0};
    const struct cmsghdr *c = CMSG_FIRSTHDR(m);
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
        memcpy(&sender, CMSG_DATA(c), sizeof sender);
    return sender.pid;
}

/* A message of another form becomes a word without a type. The socket closes when all its senders
 * have ended.
 *
 * returns   the length of the message; 0: none */
static size_t receive_word(struct prefork *s, struct prefork_word *ret, pid_t *ret_sender)
{
    if (s->sock < 0)
        return 0;
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))]; /* no descriptor fits in */
        struct cmsghdr head;
    } control;
    struct iovec data = {.iov_base = ret, .iov_len = sizeof *ret};
    struct msghdr m = {.msg_iov = &data,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control};
    ssize_t n;
    do {
        n = recvmsg(s->sock, &m, MSG_DONTWAIT | MSG_TRUNC);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        *ret_sender = sender_of(&m);
        if (n != (ssize_t)sizeof *ret || ret->pid <= 0)
            *ret = (struct prefork_word){0};
        return (size_t)n;
    }
    if (n == 0 || errno != EAGAIN) {
        close(s->sock);
        s->sock = -1;
    }
    return 0;
}

/* All but TAKEN, which prefork_take() waits for. */
static void take_in(struct prefork *s, const struct prefork_word *w)
{
    if (w->type == PREFORK_PROMISE) {
        s->batch = w->value & INT32_MAX;
        s->n_awaited = w->pid < PREFORK_MAX ? w->pid : PREFORK_MAX;
    } else if (w->type == PREFORK_SEED) {
        note_seed(s, w);
    }
}

void prefork_hear(struct prefork *s)
{
    struct prefork_word w;
    pid_t sender;
    for (int i = 0; i < WORDS && receive_word(s, &w, &sender) > 0; i++)
        take_in(s, &w);
}

/* A process that becomes our child has been announced before: its word is among those that wait.
 * Later ones do not matter, and may come without end. */
static void hear_waiting(struct prefork *s)
{
    struct prefork_word w;
    pid_t sender;
    int n_waiting;
    if (s->sock < 0 || ioctl(s->sock, FIONREAD, &n_waiting) < 0) /* bytes of all messages */
        return;
    while (n_waiting > 0) {
        const size_t n = receive_word(s, &w, &sender);
        if (n == 0)
            return;
        take_in(s, &w);
        n_waiting -= (int)n;
    }
}

bool prefork_know(struct prefork *s, pid_t pid)
{
    if (s->parent == 0)
        return false;
    if (pid == s->parent || find_child(s, pid) >= 0)
        return true;
    hear_waiting(s);
    return find_child(s, pid) >= 0;
}

enum prefork_gone prefork_forget(struct prefork *s, pid_t pid)
{
    if (s->parent != 0 && pid == s->parent) {
        s->parent = -1; /* reaped: not ours to kill any more */
        prefork_close(s);
        return PREFORK_PARENT_GONE;
    }
    if (!prefork_know(s, pid))
        return PREFORK_NOT_OURS;
    forget_at(s, find_child(s, pid));
    return PREFORK_ONE_GONE;
}

static bool await_readable(int fd, uint64_t until_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (;;) {
        int left_ms = co_left_ms(until_ms);
        int n = fd < 0 ? 0 : poll(&p, 1, left_ms);
        if (n > 0 || (n == 0 && left_ms >= 0) || (n < 0 && errno != EINTR))
            return n > 0;
    }
}

/* Words that come without end do not extend the deadline. */
static bool await_word(const struct prefork *s, uint64_t until_ms)
{
    return co_left_ms(until_ms) != 0 && await_readable(s->sock, until_ms);
}

/* One that is killed may still read an order, which is then not answered. It is reaped elsewhere.
 *
 * returns   whether all of them are dead */
static bool await_dying(const struct prefork *s, uint64_t until_ms)
{
    for (int i = 0; i < s->n; i++) {
        if (s->of[i].batch != DYING)
            continue;
        co_autoclose_fd int fd = (int)syscall(SYS_pidfd_open, s->of[i].pid, 0);
        if (fd >= 0 && !await_readable(fd, until_ms)) /* without one there is no such process */
            return false;
    }
    return true;
}

/* Before it has forked any it imports, and would not hear it.
 *
 * returns   whether it has promised some */
static bool ask_for_prefork(struct prefork *s, uint64_t until_ms)
{
    const uint64_t wish = 1, promise_ms = co_deadline_ms(PREFORK_PROMISE_MS);
    const int32_t before = s->batch;
    if (!s->complete || write(s->wish_fd, &wish, sizeof wish) < 0)
        return false;
    if (until_ms > promise_ms)
        until_ms = promise_ms;
    while (s->batch == before && await_word(s, until_ms))
        prefork_hear(s);
    return s->batch != before;
}

/* Seeds that are promised come within the time of a few forks. */
static bool await_prefork(struct prefork *s, int n, uint64_t until_ms)
{
    prefork_hear(s);
    if (count_usable(s) < n && s->n_awaited == 0 && !ask_for_prefork(s, until_ms))
        return false;
    while (count_usable(s) < n && s->n_awaited > 0 && await_word(s, until_ms))
        prefork_hear(s);
    return count_usable(s) >= n && await_dying(s, until_ms);
}

static int give_order(const struct prefork *s, int local_rank, int index,
                      const struct spawn_order *rank, int image_fd)
{
    struct prefork_order order = {.local_rank = local_rank, .index = (uint32_t)index};
    int fds[1 + SPAWN_N_FDS] = {image_fd};
    size_t n_fds = 1;
    memset(order.fd_of, SPAWNER_NO_FD, sizeof order.fd_of);
    for (int i = 0; i < SPAWN_N_FDS; i++) {
        if (rank->fds[i] < 0)
            continue;
        order.fd_of[i] = (uint8_t)n_fds;
        fds[n_fds++] = rank->fds[i];
    }
    return spawner_wire_send(s->sock, &order, sizeof order, fds, n_fds);
}

/* Any process that waits on the socket may have read an order, also one of a batch whose
 * announcement is still on its way: by the time that is read, the process has a session of its own,
 * and is not believed to be a seed. So an answer counts by its sender: ranks cannot send any.
 *
 * returns how many have answered */
static int await_answers(struct prefork *s, int first_rank, struct spawn_order *orders, int n,
                         uint64_t until_ms)
{
    struct prefork_word w;
    pid_t sender;
    int n_taken = 0;
    while (n_taken < n && await_word(s, until_ms)) {
        if (receive_word(s, &w, &sender) == 0)
            continue;
        take_in(s, &w);
        const int i = w.value - first_rank, at = find_child(s, sender);
        if (w.type != PREFORK_TAKEN || sender == s->parent || !is_child(sender) || i < 0 ||
            i >= n || orders[i].pid != 0)
            continue;
        if (at >= 0)
            forget_at(s, at);
        orders[i].pid = sender;
        n_taken++;
    }
    return n_taken;
}

enum prefork_taken prefork_take(struct prefork *s, int first_rank, struct spawn_order *orders,
                                int n, int image_fd, uint64_t until_ms)
{
    if (s->parent == 0)
        return PREFORK_NO_PARENT;
    for (int i = 0; i < n; i++)
        orders[i].pid = 0;
    if (!await_prefork(s, n, until_ms))
        return PREFORK_TOO_FEW;
    int rc = 0;
    s->has_orders = true;
    for (int i = 0; i < n && rc == 0; i++)
        rc = give_order(s, first_rank + i, i, &orders[i], image_fd);
    if (rc == 0 && await_answers(s, first_rank, orders, n, until_ms) == n) {
        s->has_orders = false;
        kill_older(s); /* a newer batch may have come meanwhile */
        return PREFORK_TOOK;
    }
    prefork_close(s); /* a process that has an order and is silent must not begin later */
    return PREFORK_NO_ANSWER;
}
