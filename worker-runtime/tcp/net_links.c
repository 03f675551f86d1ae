/* net_links.c - the connections of a channel.
 *
 * A connection comes about in one of two ways. This rank connects: net_links_reach() begins that,
 * and finishes it with a hello in a later call. Or a peer connects: net_links_serve_newcomers()
 * accepts it, keeps it as a newcomer until its hello is complete (newcomer_hear()), and checks it.
 * Each link so has up to two sockets, `out` and `in`; net_links_receive() finds out on which one
 * the peer sends. Lanes are net_lanes.c's. */
#include "net_links.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/secret.h"
#include "net_links_priv.h"
#include "net_move.h"
#include "net_secure.h"
#include "segments/control.h"
#include "worker-runtime/core/process.h"

#include <ddp/env.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ACCEPTS = 64, /* in one turn: a flood of connections must not keep this rank from its work */
    HELLO_MS = 10000,
    TURN_MS = 20,
    TELL_EVERY_MS = 1000
};

int net_links_create(const struct net_links_opts *opts, struct net_links **ret,
                     struct co_error *err)
{
    struct net_links *l = calloc(1, sizeof *l + opts->n * sizeof l->link[0]);
    if (l == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    l->opts = *opts;
    l->listener.fd = opts->listener;
    memcpy(l->cookie, opts->cookie, sizeof l->cookie);
    l->has_key = opts->key != NULL;
    if (l->has_key)
        memcpy(l->key, opts->key, sizeof l->key);
    process_own_socket(opts->listener);
    for (unsigned i = 0; i < opts->n; i++)
        l->link[i] = (struct link){.out = -1, .in = -1};
    net_lanes_find_devices(l);
    l->serve_newcomers = net_links_serve_newcomers;
    l->finish_connecting = net_links_finish_connecting;
    if (net_moves_create(l) != 0) {
        for (unsigned i = 0; i < opts->n; i++)
            net_moves_fini(l, i);
        process_disown_socket(opts->listener);
        free(l);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    *ret = l;
    return 0;
}

/* What comes unread when a socket is closed makes the system throw away what it has not yet
 * delivered. */
static void socket_drain(int fd)
{
    char ignored[4096];
    while (fd >= 0 && recv(fd, ignored, sizeof ignored, MSG_DONTWAIT) > 0) {
    }
}

static void close_link(struct link *k)
{
    socket_drain(k->in);
    if (k->out != k->in)
        socket_drain(k->out);
    net_links_close_socket(k->in);
    if (k->out != k->in)
        net_links_close_socket(k->out);
    k->in = k->out = -1;
}

void net_links_destroy(struct net_links *l)
{
    if (l == NULL)
        return;
    net_moves_flush(l);
    for (unsigned i = 0; i < l->opts.n; i++) {
        net_moves_fini(l, i);
        net_lanes_fini(l, i);
        close_link(&l->link[i]);
        net_secure_destroy(l->link[i].secure);
    }
    for (unsigned i = 0; i < l->n_newcomers; i++)
        net_links_close_socket(l->newcomer[i].fd);
    net_links_close_socket(l->listener.fd);
    cipher_wipe(l->key, sizeof l->key);
    free(l);
}

const struct net_member *net_links_member(const struct net_links *l, unsigned peer)
{
    return &l->opts.member[peer];
}

/* --- ranks that connect to this one ----------------------------------------------------------- */

static int check_hello(struct net_links *l, const struct hello *h, struct co_error *why)
{
    if (h->magic != HELLO_MAGIC || h->version != HELLO_VERSION)
        return co_fail(why, -EPROTO, "refused a connection: not a rank of this version of libddp");
    if (!co_is_same_secret(l->cookie, h->cookie, sizeof l->cookie))
        return co_fail(why, -EACCES, "refused a connection: a process of another job");
    if (h->group != l->opts.group || h->channel != (uint32_t)l->opts.channel ||
        h->to != l->opts.rank || h->from >= l->opts.n || h->from == l->opts.rank)
        return co_fail(why, -EPROTO, "refused a connection: the rank expects another peer");
    const int code = net_secure_check(l, h, why);
    if (code != 0)
        return code;
    if (h->lane == HELLO_MOVES)
        return net_move_check(l, h, why);
    if (h->lane != 0)
        return net_lanes_check(l, h, why);
    const struct link *k = &l->link[h->from];
    if (k->in >= 0 && (k->says_in || !net_secure_is_unused(k->secure)))
        return co_fail(why, -EEXIST, "rank %u connected twice", l->opts.member[h->from].rank);
    return 0;
}

/* The answer to an encrypted connection may have been lost: then the peer connects again. */
static void link_take(struct net_links *l, const struct hello *h, int fd)
{
    struct link *k = &l->link[h->from];
    const int old = k->in;
    k->in = fd;
    if (old >= 0 && k->out == old)
        k->out = fd;
    net_links_close_socket(old);
    if (net_secure_take(l, h, fd, &k->secure) != 0) { /* its end is seen by the one that uses it */
        shutdown(fd, SHUT_RDWR);
        return;
    }
    l->n_new += !k->is_new;
    k->is_new = true;
}

/* returns whether the newcomer stays one */
static bool newcomer_hear(struct net_links *l, struct newcomer *c)
{
    ssize_t n = recv(c->fd, (uint8_t *)&c->hello + c->n_here, sizeof c->hello - c->n_here, 0);
    const bool is_gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (n > 0)
        c->n_here += (size_t)n;
    if (c->n_here < sizeof c->hello && !is_gone && co_left_ms(c->deadline_ms) > 0)
        return true;
    if (c->n_here < sizeof c->hello ||
        check_hello(l, &c->hello, &l->refusal) != 0) { /* sent away without a word */
        net_links_close_socket(c->fd);
        return false;
    }
    if (c->hello.lane == HELLO_MOVES) {
        net_move_take(l, &c->hello, c->fd);
        return false;
    }
    if (c->hello.lane != 0) {
        net_lanes_take(l, &c->hello, c->fd);
        return false;
    }
    link_take(l, &c->hello, c->fd);
    return false;
}

static void hear_all(struct net_links *l)
{
    unsigned n = 0;
    for (unsigned i = 0; i < l->n_newcomers; i++)
        if (newcomer_hear(l, &l->newcomer[i]))
            l->newcomer[n++] = l->newcomer[i];
    l->n_newcomers = n;
}

static bool member_has(const struct net_member *m, const struct net_address *a)
{
    bool any = net_address_is_same(&m->address, a);
    for (unsigned i = 0; i < m->ends.n && !any; i++) {
        const struct net_address end = net_ends_address(&m->ends.end[i]);
        any = net_address_is_same(&end, a);
    }
    return any;
}

/* Whether a connection leads to an address at which this rank does not listen; one that listens at
 * the loopback interface is known by others under another address. */
static bool is_astray(const struct net_links *l, int fd)
{
    const struct net_member *own = &l->opts.member[l->opts.rank];
    struct sockaddr_storage socket = {0};
    socklen_t size = sizeof socket;
    if (own->ends.n == 0)
        return false;
    if (getsockname(fd, (struct sockaddr *)&socket, &size) != 0)
        return true;
    const struct net_address at = net_address_of(&socket);
    return !member_has(own, &at);
}

/* A rank may connect from another address than it listens at: a foreign one is only the first to
 * be dropped. */
static bool is_foreign(const struct net_links *l, int fd)
{
    struct sockaddr_storage socket = {0};
    socklen_t size = sizeof socket;
    if (getpeername(fd, (struct sockaddr *)&socket, &size) != 0)
        return true;
    const struct net_address from = net_address_of(&socket);
    for (unsigned i = 0; i < l->opts.n; i++)
        if (member_has(&l->opts.member[i], &from))
            return false;
    return true;
}

/* The oldest foreign one goes, else the oldest. */
static void keep_newcomer(struct net_links *l, const struct newcomer *c)
{
    unsigned at = 0;
    if (l->n_newcomers == UNPROVEN_PEERS)
        hear_all(l); /* a hello may have arrived since */
    if (l->n_newcomers == UNPROVEN_PEERS) {
        while (at < UNPROVEN_PEERS && !l->newcomer[at].is_foreign)
            at++;
        if (at == UNPROVEN_PEERS && c->is_foreign) {
            net_links_close_socket(c->fd);
            return;
        }
        at = at < UNPROVEN_PEERS ? at : 0;
        net_links_close_socket(l->newcomer[at].fd);
        memmove(l->newcomer + at, l->newcomer + at + 1,
                (--l->n_newcomers - at) * sizeof l->newcomer[0]);
    }
    l->newcomer[l->n_newcomers++] = *c;
}

/* As a rule a rank's hello is there when its connection is accepted. returns whether one was */
static bool accept_one(struct net_links *l)
{
    struct newcomer c = {.fd = co_listener_accept(&l->listener, SOCK_CLOEXEC | SOCK_NONBLOCK),
                         .deadline_ms = co_deadline_ms(HELLO_MS)};
    if (c.fd < 0)
        return false;
    process_own_socket(c.fd);
    if (is_astray(l, c.fd)) {
        net_links_close_socket(c.fd);
        return true;
    }
    net_address_tune(c.fd, l->opts.timeout_ms);
    if (!newcomer_hear(l, &c))
        return true;
    c.is_foreign = is_foreign(l, c.fd);
    keep_newcomer(l, &c);
    return true;
}

/* What is not accepted in this turn keeps the listener readable. */
void net_links_serve_newcomers(struct net_links *l)
{
    for (int i = 0; i < ACCEPTS && accept_one(l); i++) {
    }
    hear_all(l);
}

/* --- ranks to which this one connects --------------------------------------------------------- */

static int begin_connecting(struct net_links *l, unsigned peer)
{
    struct link *k = &l->link[peer];
    int code = net_move_connect_first(l, peer, &k->out);
    if (code != 0)
        return code;
    process_own_socket(k->out);
    k->is_connecting = true;
    return 0;
}

static int say_hello(struct net_links *l, unsigned peer, unsigned lane, int fd,
                     struct net_secure **secure)
{
    struct hello h = {.magic = HELLO_MAGIC,
                      .version = HELLO_VERSION,
                      .group = l->opts.group,
                      .channel = (uint16_t)l->opts.channel,
                      .lane = (uint16_t)lane,
                      .from = l->opts.rank,
                      .to = peer};
    memcpy(h.cookie, l->cookie, sizeof h.cookie);
    const int code = net_secure_offer(l, &h, secure);
    if (code != 0)
        return code;
    ssize_t n = send(fd, &h, sizeof h, MSG_NOSIGNAL);
    if (n < 0)
        return -errno;
    if (n != sizeof h)
        return -EIO; /* the first bytes always fit an empty buffer */
    return secure != NULL && *secure != NULL ? -EAGAIN : 0;
}

int net_links_finish_connecting(struct net_links *l, unsigned peer, unsigned lane, int fd,
                                struct net_secure **secure)
{
    if (secure != NULL && *secure != NULL && (*secure)->awaits)
        return net_secure_hear(l, *secure, fd);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    if (poll(&p, 1, 0) <= 0)
        return -EAGAIN;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (error != 0)
        return -error;
    net_address_tune(fd, l->opts.timeout_ms);
    return say_hello(l, peer, lane, fd, secure);
}

/* Whether it may send before the answer has come (net_secure.h). A rank in net_links_meet() waits
 * for the answer, which shows that both have the same key. */
static bool is_early(const struct net_links *l, const struct link *k)
{
    return l->opts.channel == NET_WATCH && !l->is_meeting && k->secure != NULL && k->secure->awaits;
}

/* returns 0 it is connected; -EAGAIN; -errno */
static int go_on_connecting(struct net_links *l, unsigned peer)
{
    struct link *k = &l->link[peer];
    int code = net_links_finish_connecting(l, peer, 0, k->out, &k->secure);
    if (code == -EAGAIN && is_early(l, k))
        code = 0;
    k->is_connecting = code != 0; /* nothing may be sent before the hello */
    return code;
}

bool net_links_take_new(struct net_links *l, unsigned *ret_peer)
{
    net_links_serve_newcomers(l);
    for (unsigned i = 0; l->n_new > 0 && i < l->opts.n; i++) {
        if (!l->link[i].is_new)
            continue;
        l->link[i].is_new = false;
        l->n_new--;
        *ret_peer = i;
        return true;
    }
    return false;
}

/* Gets a socket to send on. */
int net_links_reach(struct net_links *l, unsigned peer)
{
    struct link *k = &l->link[peer];
    int code = 0;
    if (k->out >= 0 && !k->is_connecting)
        return 0;
    if (k->out < 0) {
        net_links_serve_newcomers(l); /* perhaps it has connected meanwhile */
        k->out = k->in;
        if (k->out >= 0)
            return 0;
        code = begin_connecting(l, peer);
    }
    if (code == 0)
        code = go_on_connecting(l, peer);
    if (code == -EAGAIN && net_move_is_late(l, peer))
        code = -ETIMEDOUT;
    const bool has_failed = code != 0 && code != -EAGAIN;
    if (has_failed)
        code = net_move_fail_first(l, peer, code);
    if (has_failed && k->out >= 0) { /* the next one begins again */
        net_links_close_socket(k->out);
        net_secure_drop_own(k->secure);
        k->out = -1;
        k->is_connecting = false;
    }
    return code == -ECONNRESET || code == -EPIPE ? -ECONNREFUSED : code;
}

/* --- rendezvous ------------------------------------------------------------------------------- */

struct meeting {
    struct net_links *l;
    const unsigned *peer;
    unsigned n;
    uint64_t begun_ms, tell_ms; /* when this rank next reports which ranks it cannot reach */
    bool has_warned;
};

/* Whether this rank is the lower one of two: it connects. */
static bool is_lower(const struct net_links *l, unsigned peer)
{
    return l->opts.rank < peer;
}

static bool is_met(const struct net_links *l, unsigned peer)
{
    const struct link *k = &l->link[peer];
    return is_lower(l, peer) ? k->out >= 0 && !k->is_connecting : k->in >= 0;
}

struct net_links_path net_links_path(const struct net_links *l, unsigned peer)
{
    const struct net_member *to = &l->opts.member[peer];
    char there[NET_ADDRESS_TEXT_BYTES], here[NET_ADDRESS_TEXT_BYTES];
    struct net_links_path path;
    snprintf(path.text, sizeof path.text, "%s at %s, from %s", net_member_name(to).text,
             net_address_format(&to->address, to->port[l->opts.channel], there),
             net_address_format_host(&l->opts.member[l->opts.rank].address, here));
    return path;
}

static bool has_unacknowledged(int fd)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    return fd >= 0 && getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           size >= offsetof(struct tcp_info, tcpi_unacked) + sizeof info.tcpi_unacked &&
           info.tcpi_unacked > 0;
}

bool net_links_is_moving(const struct net_links *l, unsigned peer)
{
    const struct net_move *m = l->link[peer].move;
    return m != NULL && m->state != NET_MOVE_STAYS && m->state != NET_MOVE_GONE;
}

bool net_links_is_unacknowledged(const struct net_links *l, unsigned peer)
{
    const struct link *k = &l->link[peer];
    if (net_links_is_moving(l, peer))
        return true;
    return has_unacknowledged(k->out) || (k->in != k->out && has_unacknowledged(k->in));
}

int net_links_fail_cut(const struct net_links *l, unsigned peer, uint64_t timeout_ms,
                       struct co_error *err)
{
    return co_fail(
        err, -ETIMEDOUT,
        "%s timed out after %.3g s waiting for an acknowledgment from %s: " NET_LINKS_PATH_HINT,
        net_member_name(&l->opts.member[l->opts.rank]).text, (double)timeout_ms / 1e3,
        net_links_path(l, peer).text);
}

static int fail_connecting(const struct net_links *l, unsigned peer, int code, struct co_error *err)
{
    if (l->has_key && (code == -EACCES || code == -ECONNREFUSED))
        return co_fail(err, code,
                       "%s did not accept the encrypted connection: it has another key, or has "
                       "ended; set the same token or " DDP_ENV_ENCRYPT_KEY_FILE " on all nodes",
                       net_links_path(l, peer).text);
    return co_fail(err, code,
                   "cannot connect to %s: %s (" NET_LINKS_PATH_HINT
                   ", or set " DDP_ENV_SOCKET_IFNAME " to the network interface to use)",
                   net_links_path(l, peer).text, strerror(-code));
}

/* Names the ranks that should have connected to this one. */
static int fail_waiting(const struct meeting *m, struct co_error *err)
{
    const struct net_links *l = m->l;
    const struct net_member *own = &l->opts.member[l->opts.rank];
    char here[NET_ADDRESS_TEXT_BYTES];
    struct net_members_text names = {0};
    for (unsigned i = 0; i < m->n; i++)
        if (!is_met(l, m->peer[i]))
            net_members_add(&names, &l->opts.member[m->peer[i]]);
    return co_fail(err, -ETIMEDOUT, "timed out waiting for %s to connect to this rank at %s%s%s",
                   names.text, net_address_format(&own->address, own->port[l->opts.channel], here),
                   l->refusal.text[0] != '\0' ? ": " : "", l->refusal.text);
}

/* The time is up. */
static int fail_meeting(const struct meeting *m, struct co_error *err)
{
    const struct net_links *l = m->l;
    for (unsigned i = 0; i < m->n; i++)
        if (is_lower(l, m->peer[i]) && !is_met(l, m->peer[i]))
            return fail_connecting(
                l, m->peer[i],
                l->link[m->peer[i]].trouble != 0 ? l->link[m->peer[i]].trouble : -ETIMEDOUT, err);
    return fail_waiting(m, err);
}

static bool is_over(const struct net_links *l, struct co_error *err)
{
    if (l->opts.control == NULL || control_abort_get(l->opts.control).cause == CONTROL_OK)
        return false;
    co_fail(err, -ECONNRESET, "the generation ended before all ranks were connected");
    return true;
}

/* A connection takes a negligible time if the path works: report to users which one does not. The
 * rank that connects does: the other one only knows that a rank is late. */
static void tell_unreachable(struct meeting *m)
{
    const struct net_links *l = m->l;
    const uint64_t now_ms = co_now_ms();
    unsigned first = UINT_MAX, n = 0;
    char more[32] = "";
    if (now_ms < m->tell_ms)
        return;
    m->tell_ms = now_ms + TELL_EVERY_MS;
    for (unsigned i = 0; i < m->n; i++)
        if (is_lower(l, m->peer[i]) && !is_met(l, m->peer[i]) && n++ == 0)
            first = m->peer[i];
    if (n == 0 && !m->has_warned)
        return;
    if (n > 1)
        snprintf(more, sizeof more, ", nor to %u more", n - 1);
    struct net_links_trouble text = {""};
    if (n > 0)
        snprintf(text.text, sizeof text.text,
                 "cannot connect to %s%s: %s for %d s; " NET_LINKS_PATH_HINT,
                 net_links_path(l, first).text, more,
                 l->link[first].trouble != 0 ? strerror(-l->link[first].trouble) : "no answer",
                 NET_LINKS_TELL_MS / 1000);
    m->has_warned = n > 0;
    process_tell_wait(text.text);
}

/* Continue all connections at once: one that cannot be made hides none that can.
 *
 * returns   0 all are there; -EAGAIN; -errno */
static int meet_once(struct meeting *m, struct co_error *err)
{
    struct net_links *l = m->l;
    bool all = true;
    net_links_serve_newcomers(l);
    for (unsigned i = 0; i < m->n; i++) {
        const unsigned peer = m->peer[i];
        if (is_met(l, peer))
            continue;
        const int code = is_lower(l, peer) ? net_links_reach(l, peer) : -EAGAIN;
        if (net_links_is_unreachable(code))
            l->link[peer].trouble = code;
        const bool may_be_soon =
            code == -EAGAIN || code == -ETIMEDOUT ||
            (net_links_is_unreachable(code) && co_now_ms() - m->begun_ms < NET_LINKS_TELL_MS);
        if (code != 0 && !may_be_soon)
            return fail_connecting(l, peer, code, err);
        all &= code == 0;
    }
    return all ? 0 : -EAGAIN;
}

/* Until something may have come: if very many connect, the first are enough to wake up. */
static void nap(const struct meeting *m)
{
    enum { CONNECTING = 64 };
    const struct net_links *l = m->l;
    struct pollfd p[1 + UNPROVEN_PEERS + CONNECTING] = {co_listener_poll(&l->listener)};
    nfds_t n = 1;
    for (unsigned k = 0; k < l->n_newcomers; k++)
        p[n++] = (struct pollfd){.fd = l->newcomer[k].fd, .events = POLLIN};
    for (unsigned i = 0; i < m->n && n < sizeof p / sizeof *p; i++) {
        const struct link *k = &l->link[m->peer[i]];
        if (k->out >= 0 && k->is_connecting)
            p[n++] = (struct pollfd){.fd = k->out, .events = net_secure_event(k->secure)};
    }
    poll(p, n, TURN_MS);
}

int net_links_meet(struct net_links *l, const unsigned *peer, unsigned n, uint64_t deadline_ms,
                   struct co_error *err)
{
    const uint64_t now_ms = co_now_ms();
    struct meeting m = {
        .l = l, .peer = peer, .n = n, .begun_ms = now_ms, .tell_ms = now_ms + NET_LINKS_TELL_MS};
    int code;
    l->is_meeting = true;
    while ((code = meet_once(&m, err)) == -EAGAIN) {
        tell_unreachable(&m);
        if (is_over(l, err))
            code = -ECONNRESET;
        else if (co_left_ms(deadline_ms) == 0)
            code = fail_meeting(&m, err);
        if (code != -EAGAIN)
            break;
        nap(&m);
    }
    l->is_meeting = false;
    if (m.has_warned)
        process_tell_wait("");
    return code;
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* A connection that ended before the other side took it, as far as is known here. It may end more
 * than once: by a reset, and when asked again, as if it had been closed. */
static int what_broke(const struct link *k, int code)
{
    const bool was_taken = k->in >= 0 || k->says_out;
    return !was_taken && (code == -ECONNRESET || code == -EPIPE) ? -ECONNREFUSED : code;
}

/* On a connection that is there. */
static ssize_t send_raw(struct net_links *l, unsigned peer, const struct iovec *v, unsigned n_v)
{
    if (l->link[peer].move != NULL) {
        const ssize_t n = net_move_send(l, peer, v, n_v);
        return n >= 0 ? n : what_broke(&l->link[peer], (int)n);
    }
    const struct msghdr m = {.msg_iov = (struct iovec *)v, .msg_iovlen = n_v};
    ssize_t n = sendmsg(l->link[peer].out, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n >= 0 ? n : errno == EINTR ? -EAGAIN : what_broke(&l->link[peer], -errno);
}

static ssize_t send_sealed(struct net_links *l, unsigned peer)
{
    struct net_secure *s = l->link[peer].secure;
    const struct iovec rest = records_rest(&s->out);
    return net_secure_sent(s, send_raw(l, peer, &rest, 1));
}

/* A watch does not send what it could not send before, but what is new: it may send something
 * twice. */
static ssize_t send_secure(struct net_links *l, unsigned peer, const struct iovec *v, unsigned n_v)
{
    const struct link *k = &l->link[peer];
    const enum net_secure_by by = k->out == k->in ? NET_SECURE_PEERS : NET_SECURE_OWN;
    if (k->secure == NULL)
        return -ENOTCONN;
    if (l->opts.channel == NET_WATCH && records_is_pending(&k->secure->out)) {
        const ssize_t n = send_sealed(l, peer);
        if (n <= 0)
            return n;
    }
    const int code = net_secure_seal(k->secure, by, v, n_v);
    return code == 0 ? send_sealed(l, peer) : code;
}

ssize_t net_links_send(struct net_links *l, unsigned peer, const struct iovec *v, unsigned n_v)
{
    const int code = net_links_reach(l, peer);
    if (code != 0)
        return code;
    return l->has_key ? send_secure(l, peer, v, n_v) : send_raw(l, peer, v, n_v);
}

bool net_links_say(struct net_links *l, unsigned peer, const struct iovec *v, unsigned n_v)
{
    const struct net_secure *s = l->link[peer].secure;
    size_t bytes = 0;
    if (s != NULL && records_is_pending(&s->out))
        return false; /* in the middle of something else */
    for (unsigned i = 0; i < n_v; i++)
        bytes += v[i].iov_len;
    return net_links_send(l, peer, v, n_v) == (ssize_t)bytes;
}

static ssize_t receive_on(int fd, const struct iovec *v, unsigned n_v, bool *ret_says)
{
    struct msghdr m = {.msg_iov = (struct iovec *)v, .msg_iovlen = n_v};
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);
    if (n > 0)
        *ret_says = true;
    if (n == 0)
        return -EPIPE;
    return n > 0 ? n : errno == EINTR ? -EAGAIN : -errno;
}

/* What comes on its own connection is not a record yet. */
static bool is_unanswered(const struct link *k)
{
    return k->is_connecting || (k->secure != NULL && k->secure->awaits);
}

/* A peer sends all messages on one connection: which one is known with the first byte. */
static ssize_t receive_raw(struct net_links *l, unsigned peer, const struct iovec *v, unsigned n_v)
{
    struct link *k = &l->link[peer];
    ssize_t n = k->move != NULL ? net_move_go_on(l, peer) : 0;
    const size_t early = k->move != NULL ? replay_read(&k->move->replay, v, n_v) : 0;
    if (early > 0 || n != 0)
        return early > 0 ? (ssize_t)early : n;
    n = -EAGAIN;
    if (k->in < 0 && !k->says_out)
        net_links_serve_newcomers(l);
    if (k->in >= 0 && !k->says_out)
        n = receive_on(k->in, v, n_v, &k->says_in);
    if (n == -EAGAIN && !k->says_in && k->out >= 0 && k->out != k->in && !is_unanswered(k))
        n = receive_on(k->out, v, n_v, &k->says_out);
    if (k->move != NULL)
        n = net_move_received(l, peer, n);
    return n == -ECONNRESET || n == -EPIPE ? what_broke(k, (int)n) : n;
}

/* The other side learns of it by the end of the connection. */
static ssize_t fail_forged(const struct link *k)
{
    if (k->in >= 0)
        shutdown(k->in, SHUT_RDWR);
    if (k->out >= 0 && k->out != k->in)
        shutdown(k->out, SHUT_RDWR);
    return -EBADMSG;
}

static ssize_t receive_secure(struct net_links *l, unsigned peer, const struct iovec *v,
                              unsigned n_v)
{
    struct link *k = &l->link[peer];
    struct iovec space;
    if (k->secure == NULL) /* it may have connected */
        net_links_serve_newcomers(l);
    const bool is_due = k->secure != NULL && k->secure->awaits && !k->is_connecting;
    const int heard = is_due ? net_secure_hear(l, k->secure, k->out) : 0;
    if (heard != 0 && heard != -EAGAIN)
        return what_broke(k, heard);
    while (k->secure != NULL) {
        const ssize_t n = net_secure_open(k->secure, v, n_v, &space);
        if (n != -EAGAIN)
            return n == -EBADMSG ? fail_forged(k) : n;
        const ssize_t came = receive_raw(l, peer, &space, 1);
        if (came < 0)
            return came;
        records_came(&k->secure->in, (size_t)came);
    }
    return -EAGAIN;
}

ssize_t net_links_receive(struct net_links *l, unsigned peer, const struct iovec *v, unsigned n_v)
{
    return l->has_key ? receive_secure(l, peer, v, n_v) : receive_raw(l, peer, v, n_v);
}

bool net_links_is_open(const struct net_links *l, unsigned peer)
{
    const struct link *k = &l->link[peer];
    return k->in >= 0 || (k->out >= 0 && !k->is_connecting);
}

size_t net_links_watch(const struct net_links *l, unsigned peer, bool in, bool out,
                       struct pollfd *ret)
{
    const struct link *k = &l->link[peer];
    if (net_links_is_moving(l, peer))
        return 0; /* a rank that waits looks at it often enough */
    const bool out_speaks = in && !k->says_in && !k->is_connecting && k->out != k->in;
    size_t n = 0;
    if (k->out >= 0 && (out || out_speaks)) {
        const int when_out = k->is_connecting ? net_secure_event(k->secure) : POLLOUT;
        const int events = (out ? when_out : 0) | (out_speaks ? POLLIN : 0);
        ret[n++] = (struct pollfd){.fd = k->out, .events = (short)events};
    }
    if (k->in >= 0 && in)
        ret[n++] = (struct pollfd){.fd = k->in, .events = POLLIN};
    return n;
}

struct pollfd net_links_watch_new(const struct net_links *l)
{
    return co_listener_poll(&l->listener);
}
