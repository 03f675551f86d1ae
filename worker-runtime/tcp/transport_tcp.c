/* transport_tcp.c - an exchange of bytes with some peers.
 *
 * transport_tcp_open() prepares a frame for each peer; transport_tcp_advance() is the loop: a round
 * of peer_push() and peer_pull() over all peers, and, if nothing moved, a look at everything that
 * can end the wait (look_around()), then a nap. Both directions of a peer work the same way: the
 * frame first, then the pieces that the plan gives (get_piece(), end_piece()). A frame that came is
 * checked once it is complete (check_frame()), before any piece is used. */
#include "net.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "net_watch.h"
#include "straggler.h"
#include "worker-runtime/core/process.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SPIN_LEAST_NS = 1000,
    SPIN_MOST_NS = 50 * 1000, /* about what a small message takes from machine to machine */
    GREEDY_NS = 1000,         /* from then on others may run between two looks */
    TELL_EVERY_MS = 1000,
    NAP_MS = 1, /* how late the node's abort word is seen */
};

enum frame_kind { FRAME_CALL = 1, FRAME_LEFT, FRAME_BROKEN /* struct net_abort follows */ };
#define FRAME_MAGIC 0x46504444u /* "DDPF" */

struct frame { /* what a rank sends about itself before the bytes, 56 of them */
    uint32_t magic, kind;
    uint32_t number, exchange; /* calls; exchanges with this peer */
    struct call call;
    uint64_t bytes;   /* that follow */
    uint64_t expects; /* bytes from the other side */
};

struct direction {
    size_t i; /* the piece that goes, or is waited for */
    struct tcp_piece piece;
    bool has_piece, is_done;
    size_t n_frame; /* bytes of the frame that went */
    size_t n_piece; /* and of the piece */
    struct frame frame;
    uint64_t total; /* bytes of the exchange */
};

struct stream { /* to and from a peer */
    uint32_t n_exchanges;
    bool is_blocked; /* its socket takes no more now */
    struct direction out, in;
};

struct transport_tcp {
    struct transport_tcp_opts opts;
    const struct tcp_plan *plan;
    struct call call;
    uint32_t number;
    struct straggler late; /* since the last byte from anybody */
    uint64_t spin_ns;      /* how long it seems worth to spin */
    bool has_given_up;     /* and sent the reason */
    bool has_told;         /* people, which path does not work */
    uint64_t tell_ms;      /* when it is looked for one next */
    struct pollfd *poll;
    const struct net_member **who; /* n: to list those who are late */
    struct stream stream[];        /* of each rank of the group */
};

int transport_tcp_create(const struct transport_tcp_opts *opts, struct transport_tcp **ret,
                         struct co_error *err)
{
    co_autofree struct transport_tcp *t = calloc(1, sizeof *t + opts->n * sizeof t->stream[0]);
    co_autofree struct pollfd *poll =
        calloc(1 + opts->n * NET_LINKS_POLL_MOST + net_watch_poll_most(opts->watch), sizeof *poll);
    co_autofree const struct net_member **who = calloc(opts->n, sizeof *who);
    if (t == NULL || poll == NULL || who == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    t->opts = *opts;
    t->poll = co_take(&poll);
    t->who = co_take(&who);
    t->spin_ns = SPIN_MOST_NS;
    *ret = co_take(&t);
    return 0;
}

/* All of it has gone, or come. */
static bool is_idle(const struct direction *d)
{
    return d->is_done && d->n_frame == sizeof d->frame;
}

static bool is_missing(const struct stream *s)
{
    return !is_idle(&s->in) || !is_idle(&s->out);
}

/* --- leaving ---------------------------------------------------------------------------------- */

/* The last message to each peer: that this rank leaves, or why the job broke. Not in the middle of
 * an exchange, where it would be taken for the rest of that: then the watch sends it.
 *
 * why   NULL: this rank leaves in good order */
static void say_end(const struct transport_tcp *t, struct net_abort *why)
{
    struct frame frame = {.magic = FRAME_MAGIC, .kind = why != NULL ? FRAME_BROKEN : FRAME_LEFT};
    const struct iovec v[2] = {{&frame, sizeof frame}, {why, sizeof *why}};
    for (unsigned r = 0; r < t->opts.n; r++) {
        const struct stream *s = &t->stream[r];
        const bool is_between = s->n_exchanges == 0 || is_idle(&s->out) || s->out.total == 0;
        if (!net_links_is_open(t->opts.links, r) ||
            (is_between && net_links_say(t->opts.links, r, v, why != NULL ? 2 : 1)))
            continue;
        if (why != NULL)
            net_watch_warn(t->opts.watch, net_links_member(t->opts.links, r)->rank);
    }
}

void transport_tcp_give_up(struct transport_tcp *t)
{
    struct net_abort why;
    if (t->has_given_up || !net_watch_cause(t->opts.watch, &why))
        return;
    t->has_given_up = true;
    say_end(t, &why);
}

void transport_tcp_destroy(struct transport_tcp *t)
{
    if (t == NULL)
        return;
    transport_tcp_give_up(t);
    if (t->has_given_up)
        net_watch_settle(t->opts.watch);
    else
        say_end(t, NULL);
    net_links_destroy(t->opts.links);
    free(t->poll);
    free(t->who);
    free(t);
}

void transport_tcp_open(struct transport_tcp *t, const struct call *call, uint32_t number,
                        uint64_t timeout_ms, const struct tcp_plan *plan)
{
    t->plan = plan;
    t->call = *call;
    t->number = number;
    straggler_reset(&t->late, timeout_ms != 0 ? timeout_ms : t->opts.timeout_ms);
    for (unsigned p = 0; p < plan->n_peers; p++) {
        struct stream *s = &t->stream[plan->peer[p]];
        s->n_exchanges++;
        s->is_blocked = false;
        s->out = (struct direction){.frame = {.magic = FRAME_MAGIC,
                                              .kind = FRAME_CALL,
                                              .number = number,
                                              .exchange = s->n_exchanges,
                                              .call = *call,
                                              .bytes = plan->bytes(plan->arg, true, p),
                                              .expects = plan->bytes(plan->arg, false, p)}};
        s->in = (struct direction){0};
    }
}

/* --- failing ---------------------------------------------------------------------------------- */

static struct net_member_name name_of(const struct transport_tcp *t, unsigned rank)
{
    return net_member_name(net_links_member(t->opts.links, rank));
}

static int fail_left(const struct transport_tcp *t, unsigned peer, struct co_error *err)
{
    return co_fail(err, -ECONNRESET, "%s left the job while others needed it",
                   name_of(t, peer).text);
}

/* It went without a message. Other ranks may know the cause of it, and are about to report it. */
static int fail_gone(const struct transport_tcp *t, unsigned peer, int code, struct co_error *err)
{
    const struct net_member_name name = name_of(t, peer);
    if (net_watch_wait(t->opts.watch))
        return net_watch_why(t->opts.watch, err);
    if (net_watch_of(t->opts.watch, net_links_member(t->opts.links, peer)->rank).has_left)
        return fail_left(t, peer, err);
    if (code == -EPIPE || code == -ECONNRESET)
        return co_fail(err, -ECONNRESET, "%s died", name.text);
    if (code == -ECONNREFUSED)
        return co_fail(err, -ECONNRESET, "%s left the job while others needed it, or died",
                       name.text);
    return co_fail(err, -ECONNRESET, "the connection to %s broke: %s", name.text, strerror(-code));
}

static int fail_mismatch(const struct transport_tcp *t, unsigned peer, const struct frame *theirs,
                         struct co_error *err)
{
    const struct net_member_name me = name_of(t, t->opts.rank), other = name_of(t, peer);
    char my_call[CALL_TEXT_BYTES];
    if (call_same(&t->call, &theirs->call) && t->number == theirs->number &&
        t->call.form == CALL_PAIRS)
        return co_fail(err, -EPROTO, "%s, call #%u: the counts that %s and %s pass do not match",
                       call_format(&t->call, my_call), t->number, me.text, other.text);
    return call_fail_mismatch(&(struct call_side){other.text, &theirs->call, theirs->number},
                              &(struct call_side){me.text, &t->call, t->number}, err);
}

/* Something short that was sent in one go, of which n_here bytes have arrived.
 * returns whether all came in time */
static bool receive_all(const struct transport_tcp *t, unsigned peer, void *at, size_t bytes,
                        size_t n_here)
{
    const uint64_t deadline_ms = co_deadline_ms(NET_WATCH_WAIT_MS);
    while (n_here < bytes) {
        const struct iovec v = {(uint8_t *)at + n_here, bytes - n_here};
        ssize_t n = net_links_receive(t->opts.links, peer, &v, 1);
        if (n < 0 && (n != -EAGAIN || co_left_ms(deadline_ms) == 0))
            return false;
        if (n > 0)
            n_here += (size_t)n;
        else
            poll(NULL, 0, NAP_MS); /* whatever ends it */
    }
    return true;
}

/* The other side left since the job is broken, and sends the reason.
 *
 * here   NULL; what came together with the frame: its first bytes lie where a piece was expected */
static int fail_broken(const struct transport_tcp *t, unsigned peer, const struct direction *here,
                       struct co_error *err)
{
    struct net_abort why;
    size_t n_here = here != NULL && here->has_piece ? here->n_piece : 0;
    if (n_here > sizeof why)
        n_here = sizeof why;
    if (n_here > 0)
        memcpy(&why, here->piece.at, n_here);
    if (receive_all(t, peer, &why, sizeof why, n_here)) {
        net_abort_check(&why);
        net_watch_tell(t->opts.watch, why.code, why.text);
    }
    if (!net_watch_wait(t->opts.watch))
        return co_fail(err, -ECONNRESET, "%s left a broken job", name_of(t, peer).text);
    return net_watch_why(t->opts.watch, err);
}

static int check_frame(const struct transport_tcp *t, unsigned p, struct co_error *err)
{
    const struct tcp_plan *plan = t->plan;
    const unsigned peer = plan->peer[p];
    const struct stream *s = &t->stream[peer];
    const struct frame *f = &s->in.frame;
    if (f->magic == FRAME_MAGIC && f->kind == FRAME_BROKEN)
        return fail_broken(t, peer, &s->in, err);
    if (f->magic != FRAME_MAGIC || (f->kind != FRAME_CALL && f->kind != FRAME_LEFT))
        return co_fail(err, -EIO, "%s sent an invalid call", name_of(t, peer).text);
    if (f->kind == FRAME_LEFT)
        return fail_left(t, peer, err);
    if (!call_same(&t->call, &f->call) || f->number != t->number || f->exchange != s->n_exchanges ||
        f->bytes != s->out.frame.expects || f->expects != s->out.frame.bytes)
        return fail_mismatch(t, peer, f, err);
    return 0;
}

/* A missing peer whose machine acknowledges nothing; NULL: none. If a peer is only late, or
 * stopped, its machine acknowledges what was sent. */
static const unsigned *find_cut(const struct transport_tcp *t)
{
    for (unsigned p = 0; p < t->plan->n_peers; p++)
        if (is_missing(&t->stream[t->plan->peer[p]]) &&
            net_links_is_unacknowledged(t->opts.links, t->plan->peer[p]))
            return &t->plan->peer[p];
    return NULL;
}

/* After NET_LINKS_TELL_MS without a byte in either direction, and then once a second. */
static void tell_cut(struct transport_tcp *t)
{
    const uint64_t now_ms = co_now_ms();
    if (now_ms - t->late.begun_ms < NET_LINKS_TELL_MS || now_ms < t->tell_ms)
        return;
    t->tell_ms = now_ms + TELL_EVERY_MS;
    const unsigned *peer = find_cut(t);
    if (peer == NULL)
        return;
    struct net_links_trouble text;
    snprintf(text.text, sizeof text.text,
             "got no acknowledgment from %s for %d s; " NET_LINKS_PATH_HINT,
             net_links_path(t->opts.links, *peer).text, NET_LINKS_TELL_MS / 1000);
    t->has_told = true;
    process_tell_wait(text.text);
}

static void end_wait(struct transport_tcp *t)
{
    straggler_reset(&t->late, t->late.timeout_ms);
    if (t->has_told)
        process_tell_wait("");
    t->has_told = false;
}

/* The time is up, or it is time to ask. It is about those that sent least of what this rank waits
 * for: the others may also wait for them. */
static int late_judge(struct transport_tcp *t, struct co_error *err)
{
    uint64_t least = UINT64_MAX;
    unsigned n = 0;
    for (unsigned p = 0; p < t->plan->n_peers; p++) {
        const struct stream *s = &t->stream[t->plan->peer[p]];
        if (is_missing(s) && s->in.total < least)
            least = s->in.total;
    }
    for (unsigned p = 0; p < t->plan->n_peers; p++) {
        const unsigned peer = t->plan->peer[p];
        if (is_missing(&t->stream[peer]) && t->stream[peer].in.total == least)
            t->who[n++] = net_links_member(t->opts.links, peer);
    }
    const int code = straggler_judge(&t->late, t->opts.watch, t->who, n, err);
    const unsigned *cut = code == -ETIMEDOUT ? find_cut(t) : NULL;
    return cut != NULL ? net_links_fail_cut(t->opts.links, *cut, t->late.timeout_ms, err) : code;
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* What is left of frame and piece. */
static unsigned rest_gather(struct direction *d, struct iovec v[2])
{
    unsigned n = 0;
    if (d->n_frame < sizeof d->frame)
        v[n++] = (struct iovec){(uint8_t *)&d->frame + d->n_frame, sizeof d->frame - d->n_frame};
    if (d->has_piece)
        v[n++] = (struct iovec){(uint8_t *)d->piece.at + d->n_piece, d->piece.bytes - d->n_piece};
    return n;
}

/* Have a piece to continue with, if there is one. */
static void get_piece(const struct tcp_plan *plan, struct direction *d, unsigned p, bool is_out)
{
    while (!d->has_piece && !d->is_done) {
        enum tcp_next next = plan->piece(plan->arg, is_out, p, d->i, &d->piece);
        if (next == TCP_LATER)
            return;
        if (next == TCP_END)
            d->is_done = true;
        else if (d->piece.bytes == 0)
            d->i++;
        else
            d->has_piece = true;
        d->n_piece = 0;
    }
}

static void count_bytes(struct direction *d, size_t n)
{
    const size_t frame_left = sizeof d->frame - d->n_frame;
    const size_t of_frame = n < frame_left ? n : frame_left;
    d->n_frame += of_frame;
    d->n_piece += n - of_frame;
    d->total += n;
}

/* Continue with the next piece, if this one is complete. */
static void end_piece(const struct tcp_plan *plan, struct direction *d, unsigned p, bool is_out)
{
    if (!d->has_piece || d->n_piece < d->piece.bytes)
        return;
    d->has_piece = false;
    if (!is_out && plan->on_piece != NULL)
        plan->on_piece(plan->arg, p, d->i);
    d->i++;
    get_piece(plan, d, p, is_out);
}

static int peer_pull(struct transport_tcp *t, unsigned p, struct co_error *err);

/* The other side may have sent something before it went: that it leaves, for instance, after all
 * that it had to send. */
static int fail_sending(struct transport_tcp *t, unsigned p, int reason, struct co_error *err)
{
    const unsigned peer = t->plan->peer[p];
    struct frame last = {0};
    int code;
    while ((code = peer_pull(t, p, err)) > 0) {
    }
    if (code < 0)
        return code;
    if (is_idle(&t->stream[peer].in) && receive_all(t, peer, &last, sizeof last, 0) &&
        last.magic == FRAME_MAGIC && last.kind == FRAME_LEFT)
        return fail_left(t, peer, err);
    if (last.magic == FRAME_MAGIC && last.kind == FRAME_BROKEN)
        return fail_broken(t, peer, NULL, err);
    return fail_gone(t, peer, reason, err);
}

/* returns   1 something went; 0 nothing can now; -errno */
static int peer_push(struct transport_tcp *t, unsigned p, struct co_error *err)
{
    const unsigned peer = t->plan->peer[p];
    struct stream *s = &t->stream[peer];
    struct direction *d = &s->out;
    struct iovec v[2];
    get_piece(t->plan, d, p, true);
    unsigned n_v = rest_gather(d, v);
    if (n_v == 0)
        return 0;
    ssize_t n = net_links_send(t->opts.links, peer, v, n_v);
    s->is_blocked = n == -EAGAIN;
    if (n == -EAGAIN)
        return 0;
    if (n < 0)
        return fail_sending(t, p, (int)n, err);
    count_bytes(d, (size_t)n);
    end_piece(t->plan, d, p, true);
    return 1;
}

static int peer_pull(struct transport_tcp *t, unsigned p, struct co_error *err)
{
    const unsigned peer = t->plan->peer[p];
    struct direction *d = &t->stream[peer].in;
    struct iovec v[2];
    get_piece(t->plan, d, p, false);
    unsigned n_v = rest_gather(d, v);
    if (n_v == 0)
        return 0;
    const bool had_frame = d->n_frame == sizeof d->frame;
    ssize_t n = net_links_receive(t->opts.links, peer, v, n_v);
    if (n == -EAGAIN)
        return 0;
    if (n < 0)
        return fail_gone(t, peer, (int)n, err);
    count_bytes(d, (size_t)n);
    if (!had_frame && d->n_frame == sizeof d->frame) {
        int code = check_frame(t, p, err);
        if (code != 0)
            return code;
    }
    end_piece(t->plan, d, p, false);
    return 1;
}

/* --- all together ----------------------------------------------------------------------------- */

/* One round over all peers. returns   1 all is done; 0; -errno */
static int go_round(struct transport_tcp *t, bool *ret_moved, struct co_error *err)
{
    bool all_done = true;
    for (unsigned p = 0; p < t->plan->n_peers; p++) {
        const struct stream *s = &t->stream[t->plan->peer[p]];
        int out = is_idle(&s->out) ? 0 : peer_push(t, p, err);
        int in = out < 0 || is_idle(&s->in) ? out : peer_pull(t, p, err);
        if (in < 0)
            return in;
        *ret_moved |= out > 0 || in > 0;
        all_done &= is_idle(&s->out) && is_idle(&s->in);
    }
    return all_done;
}

/* Look at everything that can end a wait. returns 0; -errno */
static int look_around(struct transport_tcp *t, struct co_error *err)
{
    if (t->opts.on_idle != NULL)
        t->opts.on_idle(t->opts.idle_arg);
    if (net_watch_look(t->opts.watch))
        return net_watch_why(t->opts.watch, err);
    const bool is_due = straggler_is_due(&t->late);
    tell_cut(t);
    return is_due ? late_judge(t, err) : 0;
}

static void nap(struct transport_tcp *t)
{
    size_t n = 1;
    t->poll[0] = net_links_watch_new(t->opts.links);
    for (unsigned p = 0; p < t->plan->n_peers; p++) {
        const struct stream *s = &t->stream[t->plan->peer[p]];
        const bool in =
            !is_idle(&s->in) && (s->in.has_piece || s->in.n_frame < sizeof(struct frame));
        n += net_links_watch(t->opts.links, t->plan->peer[p], in, s->is_blocked, t->poll + n);
    }
    n += net_watch_poll(t->opts.watch, t->poll + n);
    poll(t->poll, n, NAP_MS);
}

/* Twice as long next time if something came meanwhile, half as long if nothing did. */
static int peers_spin(struct transport_tcp *t, bool *ret_moved, struct co_error *err)
{
    const uint64_t start_ns = co_now_ns();
    int code = 0;
    for (uint64_t now_ns = start_ns; code == 0 && !*ret_moved && now_ns - start_ns < t->spin_ns;
         now_ns = co_now_ns()) {
        code = go_round(t, ret_moved, err);
        if (now_ns - start_ns > GREEDY_NS)
            sched_yield();
    }
    const uint64_t next_ns = *ret_moved || code != 0 ? t->spin_ns * 2 : t->spin_ns / 2;
    t->spin_ns = next_ns < SPIN_LEAST_NS  ? SPIN_LEAST_NS
                 : next_ns > SPIN_MOST_NS ? SPIN_MOST_NS
                                          : next_ns;
    return code;
}

int transport_tcp_advance(struct transport_tcp *t, bool may_wait, struct co_error *err)
{
    for (;;) {
        bool moved = false;
        int code = go_round(t, &moved, err);
        if (code == 0 && !moved && may_wait && t->opts.spin)
            code = peers_spin(t, &moved, err);
        if (code != 0)
            return code;
        if (moved) {
            end_wait(t);
            continue;
        }
        code = look_around(t, err);
        if (code != 0 || !may_wait)
            return code;
        nap(t);
    }
}
