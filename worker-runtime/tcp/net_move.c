/* net_move.c - a connection is replaced by one over another interface; net_move.h has the states,
 * replay.c the bytes. Read net_move_go_on() first, for the side that begins, then net_move_take().
 */
#include "net_move.h"

#include "common/clock.h"
#include "worker-runtime/core/process.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    ATTEMPT_MS =
        3000, /* a path that works needs milliseconds; a lost SYN is sent again after 1 s */
    LOOK_EVERY_MS = 200,
    PAUSE_MS = 50, /* after a peer has refused: it replaces the connection itself */
    FLUSH_MS = 3000,
    EARLY_BYTES = 64 << 10,
    EARLY_MOST = 64 << 20, /* more than a socket's buffer ever has */
    KEEP_BYTES = 64 << 10, /* less than so much is kept without asking what has arrived */
};

static struct net_move *move_of(struct net_links *l, unsigned peer)
{
    return l->link[peer].move;
}

static const struct net_ends *ends_of(const struct net_links *l, unsigned member)
{
    return &l->opts.member[member].ends;
}

/* The same on both sides. */
static bool is_possible(const struct net_links *l, unsigned peer)
{
    const struct net_ends *own = ends_of(l, l->opts.rank), *other = ends_of(l, peer);
    struct net_pair pair[NET_ENDS_MOST];
    return peer != l->opts.rank &&
           (net_ends_pairs(own, other, pair) > 1 || net_ends_pairs(other, own, pair) > 1);
}

int net_moves_create(struct net_links *l)
{
    for (unsigned i = 0; i < l->opts.n; i++) {
        if (!is_possible(l, i))
            continue;
        l->link[i].move = calloc(1, sizeof *l->link[i].move);
        if (l->link[i].move == NULL)
            return -ENOMEM;
        l->link[i].move->fd = -1;
    }
    return 0;
}

static void attempt_close(struct net_move *m)
{
    net_links_close_socket(m->fd);
    m->fd = -1;
}

void net_moves_fini(struct net_links *l, unsigned peer)
{
    struct net_move *m = move_of(l, peer);
    if (m == NULL)
        return;
    attempt_close(m);
    replay_fini(&m->replay);
    free(m);
    l->link[peer].move = NULL;
}

/* --- sockets ---------------------------------------------------------------------------------- */

/* The one that this rank sends on; -1: none yet. */
static int socket_of(const struct link *k)
{
    return k->out >= 0 && !k->is_connecting ? k->out : k->in;
}

static int connect_pair(struct net_links *l, unsigned peer, struct net_pair pair, int *ret_fd)
{
    const struct net_address here = net_ends_address(&ends_of(l, l->opts.rank)->end[pair.own]),
                             there = net_ends_address(&ends_of(l, peer)->end[pair.peer]);
    const uint16_t port = l->opts.member[peer].port[l->opts.channel];
    return net_address_connect_over(l->device[pair.own], &here, &there, port, ret_fd);
}

int net_move_connect_first(struct net_links *l, unsigned peer, int *ret_fd)
{
    const struct net_member *own = &l->opts.member[l->opts.rank], *to = &l->opts.member[peer];
    struct net_move *m = move_of(l, peer);
    struct net_pair pair[NET_ENDS_MOST];
    const unsigned n = m != NULL ? net_ends_pairs(&own->ends, &to->ends, pair) : 0;
    if (m != NULL)
        m->begun_ms = co_now_ms();
    if (n == 0 || m->attempt % (n + 1) == 0)
        return net_address_connect(&own->address, &to->address, to->port[l->opts.channel], ret_fd);
    return connect_pair(l, peer, pair[m->attempt % n], ret_fd);
}

bool net_move_is_late(const struct net_links *l, unsigned peer)
{
    const struct net_move *m = l->link[peer].move;
    return m != NULL && co_now_ms() - m->begun_ms >= ATTEMPT_MS;
}

/* returns whether each address was tried */
static bool count_failure(const struct net_links *l, unsigned peer)
{
    struct net_move *m = l->link[peer].move;
    struct net_pair pair[NET_ENDS_MOST];
    return m->n_failed++ >= net_ends_pairs(ends_of(l, l->opts.rank), ends_of(l, peer), pair);
}

int net_move_fail_first(struct net_links *l, unsigned peer, int code)
{
    struct net_move *m = move_of(l, peer);
    if (m == NULL || !net_links_is_unreachable(code))
        return code;
    m->attempt++;
    if (!count_failure(l, peer))
        return -EAGAIN;
    m->n_failed = 0;
    return code;
}

/* Over a pair in which this rank has another end than that of the failed connection, if any. */
static int begin_attempt(struct net_links *l, unsigned peer)
{
    struct net_move *m = move_of(l, peer);
    struct net_pair pair[NET_ENDS_MOST];
    const unsigned n = net_ends_pairs(ends_of(l, l->opts.rank), ends_of(l, peer), pair);
    const int failed = net_lanes_end_of(l, socket_of(&l->link[peer]));
    m->attempt++;
    if (n > 1 && (int)pair[m->attempt % n].own == failed)
        m->attempt++;
    m->begun_ms = co_now_ms();
    const int code = n > 0 ? connect_pair(l, peer, pair[m->attempt % n], &m->fd) : -EHOSTUNREACH;
    if (code == 0)
        process_own_socket(m->fd);
    return code;
}

static const char *device_of(const struct net_links *l, int fd)
{
    const int end = net_lanes_end_of(l, fd);
    return end >= 0 && l->device[end][0] != '\0' ? l->device[end] : "its network interface";
}

/* People learn of it once, by the channel that carries most. */
static void tell(struct net_links *l, unsigned peer, int old, int fd)
{
    struct net_links_trouble text;
    if (l->opts.channel != NET_DATA)
        return;
    snprintf(text.text, sizeof text.text,
             "moved its connection to %s from %s to %s: the path does not answer",
             net_member_name(&l->opts.member[peer]).text, device_of(l, old), device_of(l, fd));
    process_tell_wait(text.text);
    process_tell_wait(""); /* it does not wait for the peer any more */
}

/* From now on the link is this socket. */
static void link_replace(struct net_links *l, unsigned peer, int fd)
{
    struct link *k = &l->link[peer];
    struct net_move *m = k->move;
    const int end = net_lanes_end_of(l, fd);
    tell(l, peer, socket_of(k), fd);
    if (end >= 0)
        net_address_keep_to(fd, l->device[end]);
    net_links_close_socket(k->in);
    if (k->out != k->in)
        net_links_close_socket(k->out);
    k->in = k->out = fd;
    k->is_connecting = false;
    k->says_in = true;
    k->says_out = false;
    m->state = NET_MOVE_STAYS;
    m->is_broken = false;
    m->n_failed = 0;
    m->stuck_ms = 0;
    m->look_ms = co_now_ms() + LOOK_EVERY_MS;
}

/* --- bytes ------------------------------------------------------------------------------------ */

static int settle_socket(struct replay *r, int fd)
{
    uint8_t bytes[EARLY_BYTES];
    ssize_t n;
    while (fd >= 0 && (n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        if (r->n_early > EARLY_MOST || replay_store(r, bytes, (size_t)n) != 0)
            return -ENOMEM;
    return 0;
}

/* Read what has arrived on the old connection. returns 0, -ENOMEM */
static int settle(struct net_links *l, unsigned peer)
{
    const struct link *k = &l->link[peer];
    struct replay *r = &k->move->replay;
    const int code = settle_socket(r, k->in);
    return code != 0 || k->out == k->in || k->is_connecting ? code : settle_socket(r, k->out);
}

static bool say_count(const struct net_move *m, int fd)
{
    const struct net_move_count count = {.magic = NET_MOVE_MAGIC, .received = m->replay.received};
    return send(fd, &count, sizeof count, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof count;
}

static void forget(struct net_move *m, int fd)
{
    int unacknowledged = 0;
    if (ioctl(fd, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged >= 0)
        replay_forget(&m->replay, (size_t)unacknowledged);
}

static ssize_t send_on(int fd, const struct iovec *v, unsigned n_v)
{
    const struct msghdr h = {.msg_iov = (struct iovec *)v, .msg_iovlen = n_v};
    const ssize_t n = sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n >= 0 ? n : errno == EINTR ? -EAGAIN : -errno;
}

static void begin(struct net_move *m, bool is_broken)
{
    m->state = NET_MOVE_CONNECTS;
    m->is_broken |= is_broken;
    m->n_failed = 0;
    m->begun_ms = 0;
}

ssize_t net_move_received(struct net_links *l, unsigned peer, ssize_t n)
{
    struct net_move *m = move_of(l, peer);
    if (n > 0)
        m->replay.received += (uint64_t)n;
    if (n >= 0 || !net_links_is_unreachable((int)n))
        return n;
    begin(m, true);
    return -EAGAIN;
}

static bool has_rest(const struct net_move *m)
{
    return m->replay.resent < m->replay.sent;
}

/* Send what the old connection may have lost, as far as there is space now. */
static void resend(struct net_links *l, unsigned peer)
{
    struct net_move *m = move_of(l, peer);
    struct iovec v[2];
    while (has_rest(m)) {
        const ssize_t n = send_on(l->link[peer].out, v, replay_rest(&m->replay, v));
        if (n < 0) {
            net_move_received(l, peer, n); /* other errors are found by the next one that sends */
            return;
        }
        replay_resend(&m->replay, (size_t)n);
    }
}

/* As many of the bytes as there is space for. returns the number of pieces; -errno */
static int cut(struct net_move *m, int fd, const struct iovec *v, unsigned n_v, struct iovec ret[2])
{
    size_t bytes = 0;
    unsigned n = 0;
    if (m->replay.sent - m->replay.kept >= KEEP_BYTES)
        forget(m, fd);
    for (unsigned i = 0; i < n_v; i++)
        bytes += v[i].iov_len;
    const ssize_t space = replay_reserve(&m->replay, bytes);
    if (space <= 0)
        return space < 0 ? (int)space : -EAGAIN;
    for (size_t left = (size_t)space; n < n_v && left > 0; left -= ret[n++].iov_len)
        ret[n] = (struct iovec){v[n].iov_base, v[n].iov_len < left ? v[n].iov_len : left};
    return (int)n;
}

/* n_v   2 at most: a frame and what follows it */
ssize_t net_move_send(struct net_links *l, unsigned peer, const struct iovec *v, unsigned n_v)
{
    struct net_move *m = move_of(l, peer);
    struct iovec part[2];
    const int code = net_move_go_on(l, peer);
    if (code != 0 || has_rest(m))
        return code != 0 ? code : -EAGAIN;
    const int fd = l->link[peer].out, n_part = cut(m, fd, v, n_v, part);
    if (n_part < 0)
        return n_part;
    const ssize_t n = send_on(fd, part, (unsigned)n_part);
    if (n < 0)
        return net_move_received(l, peer, n);
    replay_keep(&m->replay, part, (unsigned)n_part, (size_t)n);
    return n;
}

/* --- the side that begins --------------------------------------------------------------------- */

static int fail_gone(struct net_move *m, int code)
{
    attempt_close(m);
    m->state = NET_MOVE_GONE;
    m->code = code;
    return code;
}

/* Pause before the next attempt. If all pairs were tried and the old connection has ended, give
 * up. */
static int try_again(const struct net_links *l, unsigned peer)
{
    struct net_move *m = l->link[peer].move;
    const bool is_last = count_failure(l, peer);
    if (is_last && m->is_broken)
        return fail_gone(m, -ETIMEDOUT);
    attempt_close(m);
    m->state = NET_MOVE_CONNECTS;
    m->begun_ms = co_now_ms() + PAUSE_MS;
    return -EAGAIN;
}

/* A connection that was idle has old acknowledgments: it has to be found so for a while. */
static int stay(struct net_links *l, unsigned peer)
{
    struct net_move *m = move_of(l, peer);
    const uint64_t now_ms = co_now_ms();
    resend(l, peer);
    if (m->state != NET_MOVE_STAYS)
        return -EAGAIN;
    if (now_ms < m->look_ms)
        return 0;
    m->look_ms = now_ms + LOOK_EVERY_MS;
    if (!net_lanes_is_stuck(socket_of(&l->link[peer])))
        m->stuck_ms = 0;
    else if (m->stuck_ms == 0)
        m->stuck_ms = now_ms;
    if (m->stuck_ms == 0 || now_ms - m->stuck_ms < NET_LANES_SILENT_MS)
        return 0;
    begin(m, false);
    return -EAGAIN;
}

static void await(struct net_move *m, bool has_taken)
{
    m->state = NET_MOVE_AWAITS;
    m->is_broken = true;
    m->has_taken = has_taken;
    m->n_here = 0;
}

static int connect_other(struct net_links *l, unsigned peer)
{
    struct net_move *m = move_of(l, peer);
    if (!m->is_broken && !net_lanes_is_stuck(socket_of(&l->link[peer]))) {
        attempt_close(m);
        m->state = NET_MOVE_STAYS;
        m->stuck_ms = 0;
        return 0;
    }
    if (m->fd < 0 && co_now_ms() < m->begun_ms)
        return -EAGAIN;
    int code = m->fd < 0 ? begin_attempt(l, peer) : 0;
    if (code == 0)
        code = l->finish_connecting(l, peer, HELLO_MOVES, m->fd, NULL);
    if (code == 0) {
        await(m, false);
        return -EAGAIN;
    }
    if (code == -ECONNREFUSED)
        return fail_gone(m, -ECONNRESET);
    if (code != -EAGAIN || co_now_ms() - m->begun_ms >= ATTEMPT_MS)
        return try_again(l, peer);
    return -EAGAIN;
}

/* The peer's count: the connection replaces the old one. */
static int on_count(struct net_links *l, unsigned peer)
{
    struct net_move *m = move_of(l, peer);
    const int fd = m->fd;
    if (m->count.magic != NET_MOVE_MAGIC || (!m->has_taken && settle(l, peer) != 0) ||
        replay_rewind(&m->replay, m->count.received) != 0)
        return fail_gone(m, -EIO);
    if (!m->has_taken && !say_count(m, fd))
        return try_again(l, peer);
    m->fd = -1;
    link_replace(l, peer, fd);
    return 0;
}

static int await_count(struct net_links *l, unsigned peer)
{
    struct net_move *m = move_of(l, peer);
    const ssize_t n =
        recv(m->fd, (uint8_t *)&m->count + m->n_here, sizeof m->count - m->n_here, MSG_DONTWAIT);
    const bool is_open = n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
    if (!is_open || (n < 0 && net_lanes_is_stuck(m->fd)))
        return try_again(l, peer);
    m->n_here += n > 0 ? (size_t)n : 0;
    return m->n_here < sizeof m->count ? -EAGAIN : on_count(l, peer);
}

int net_move_go_on(struct net_links *l, unsigned peer)
{
    const uint64_t now_ms = co_now_ms();
    const struct link *k = &l->link[peer];
    if (socket_of(k) < 0)
        return 0;
    /* The peer may have begun. And what it sends on a connection of its own must be found before
       that is replaced. */
    if (now_ms != l->served_ms || (k->in < 0 && k->move->state == NET_MOVE_AWAITS)) {
        l->served_ms = now_ms;
        l->serve_newcomers(l);
    }
    switch (move_of(l, peer)->state) {
    case NET_MOVE_STAYS:
        return stay(l, peer);
    case NET_MOVE_CONNECTS:
        return connect_other(l, peer);
    case NET_MOVE_AWAITS:
        return await_count(l, peer);
    default:
        return move_of(l, peer)->code;
    }
}

/* --- the other side --------------------------------------------------------------------------- */

int net_move_check(struct net_links *l, const struct hello *h, struct co_error *why)
{
    const struct net_move *m = move_of(l, h->from);
    if (m == NULL || socket_of(&l->link[h->from]) < 0)
        return co_fail(why, -EPROTO, "refused a connection: it replaces none of this rank's");
    if (l->opts.rank < h->from && m->state == NET_MOVE_AWAITS && !m->has_taken)
        return co_fail(why, -EEXIST, "refused a connection: this rank replaces it itself");
    return 0;
}

/* The peer may have used a connection of which its count is not read here, and begin once more. */
void net_move_take(struct net_links *l, const struct hello *h, int fd)
{
    struct net_move *m = move_of(l, h->from);
    if (m->state == NET_MOVE_AWAITS && m->has_taken)
        await_count(l, h->from);
    attempt_close(m);
    m->fd = fd;
    await(m, true);
    if (settle(l, h->from) != 0)
        fail_gone(m, -ENOMEM);
    else if (!say_count(m, fd))
        try_again(l, h->from);
}

/* --- leaving ---------------------------------------------------------------------------------- */

/* returns whether everything that was sent has arrived, or nothing more can be done */
static bool is_flushed(struct net_links *l, unsigned peer)
{
    struct net_move *m = move_of(l, peer);
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    int unacknowledged = 0;
    if (m == NULL || socket_of(&l->link[peer]) < 0 || m->replay.sent == 0)
        return true;
    const int code = net_move_go_on(l, peer);
    if (code != 0)
        return code != -EAGAIN;
    const int fd = l->link[peer].out;
    const bool is_open = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
                         info.tcpi_state == TCP_ESTABLISHED;
    if (!is_open || ioctl(fd, SIOCOUTQ, &unacknowledged) != 0)
        return true;
    return unacknowledged <= 0 && !has_rest(m);
}

void net_moves_flush(struct net_links *l)
{
    const uint64_t deadline_ms = co_deadline_ms(FLUSH_MS);
    for (bool all = false; !all && co_left_ms(deadline_ms) != 0;) {
        all = true;
        for (unsigned i = 0; i < l->opts.n; i++)
            all &= is_flushed(l, i);
        if (!all)
            poll(NULL, 0, 1);
    }
}
