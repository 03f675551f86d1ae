/* transport_tcp.c - an exchange of bytes with some peers.
 *
 * transport_tcp_open() prepares a frame for each peer; transport_tcp_advance() is the loop: a round
 * of peer_push() and peer_pull() over all peers, and, if nothing moved, a look at everything that
 * can end the wait (look_around()), then a nap. Both directions of a peer work the same way: the
 * frame first, then the pieces that the plan gives (get_piece(), end_piece()). A frame that came is
 * checked once it is complete (tcp_check_frame()), before a byte after it reaches the caller's
 * memory (peer_pull()). Large exchanges go in stripes over several connections:
 * transport_tcp_lanes.c. */
#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "net_lanes.h"
#include "net_watch.h"
#include "transport_tcp_priv.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    SPIN_LEAST_NS = 1000,
    SPIN_MOST_NS = 50 * 1000, /* about what a small message takes from machine to machine */
    GREEDY_NS = 1000,         /* from then on others may run between two looks */
    NAP_MS = 1,               /* how late the node's abort word is seen */
    WITH_FRAME_BYTES = 4096,  /* to copy them costs less than another system call */
};
_Static_assert(WITH_FRAME_BYTES >= sizeof(struct net_abort), "what a frame brings comes with it");

int transport_tcp_create(const struct transport_tcp_opts *opts, struct transport_tcp **ret,
                         struct co_error *err)
{
    co_autofree struct transport_tcp *t = calloc(1, sizeof *t + opts->n * sizeof t->stream[0]);
    const size_t n_sockets = NET_LINKS_POLL_MOST + net_links_member(opts->links, opts->rank)->lanes;
    co_autofree struct pollfd *poll =
        calloc(1 + opts->n * n_sockets + net_watch_poll_most(opts->watch), sizeof *poll);
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

void transport_tcp_stripe_from(struct transport_tcp *t, size_t bytes)
{
    t->opts.striped_bytes = bytes;
}

static void stream_open(struct transport_tcp *t, unsigned p)
{
    const struct tcp_plan *plan = t->plan;
    const unsigned peer = plan->peer[p];
    struct stream *s = &t->stream[peer];
    const uint64_t out = plan->bytes(plan->arg, true, p), in = plan->bytes(plan->arg, false, p);
    s->n_exchanges++;
    s->is_blocked = false;
    s->is_striped = tcp_lanes_pay(t, peer, out, in);
    s->out = (struct direction){.frame = {.magic = FRAME_MAGIC,
                                          .kind = s->is_striped ? FRAME_STRIPED : FRAME_CALL,
                                          .number = t->number,
                                          .exchange = s->n_exchanges,
                                          .call = t->call,
                                          .bytes = out,
                                          .expects = in}};
    s->in = (struct direction){0};
    if (s->is_striped && tcp_lanes_begin(t, p) != 0)
        t->is_out_of_memory = true;
}

void transport_tcp_open(struct transport_tcp *t, const struct call *call, uint32_t number,
                        uint64_t timeout_ms, const struct tcp_plan *plan)
{
    t->plan = plan;
    t->call = *call;
    t->number = number;
    straggler_reset(&t->late, timeout_ms != 0 ? timeout_ms : t->opts.timeout_ms);
    for (unsigned p = 0; p < plan->n_peers; p++)
        stream_open(t, p);
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
    if (tcp_is_idle(&t->stream[peer].in) && tcp_receive_all(t, peer, &last, sizeof last, 0) &&
        last.magic == FRAME_MAGIC && last.kind == FRAME_LEFT)
        return tcp_fail_left(t, peer, err);
    if (last.magic == FRAME_MAGIC && last.kind == FRAME_BROKEN)
        return tcp_fail_broken(t, peer, NULL, 0, err);
    return tcp_fail_gone(t, peer, reason, err);
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

/* The peer gave up a lane after the striped exchange was over here. What follows are the first
 * bytes of the frame that is expected. */
static void skip_frame(struct direction *d, uint8_t *after)
{
    const size_t n = d->n_piece < sizeof d->frame ? d->n_piece : sizeof d->frame;
    memcpy(&d->frame, after, n);
    memmove(after, after + n, d->n_piece - n);
    d->n_frame = n;
    d->n_piece -= n;
    d->total -= sizeof d->frame;
}

/* after   what came after the frame: n_piece bytes */
static int look_at_frame(struct transport_tcp *t, unsigned p, uint8_t *after, struct co_error *err)
{
    struct stream *s = &t->stream[t->plan->peer[p]];
    while (s->in.n_frame == sizeof s->in.frame && s->in.frame.kind == FRAME_LOST) {
        if (!tcp_lanes_hear_lost(s, &s->in.frame))
            return tcp_fail_invalid(t, t->plan->peer[p], err);
        skip_frame(&s->in, after);
    }
    const int code = s->in.n_frame == sizeof s->in.frame ? tcp_check_frame(t, p, after, err) : 0;
    if (code == 0 && s->in.n_piece > 0)
        memcpy(s->in.piece.at, after, s->in.n_piece);
    return code;
}

/* What comes with a frame may be the reason why the peer left, in place of the piece: the caller's
 * memory stays as it is until the frame is checked, since a rank whose job recovers continues with
 * what is in it. */
static int peer_pull(struct transport_tcp *t, unsigned p, struct co_error *err)
{
    const unsigned peer = t->plan->peer[p];
    struct direction *d = &t->stream[peer].in;
    const bool had_frame = d->n_frame == sizeof d->frame;
    uint8_t after[WITH_FRAME_BYTES];
    struct iovec v[2];
    get_piece(t->plan, d, p, false);
    unsigned n_v = rest_gather(d, v);
    if (n_v == 0)
        return 0;
    if (!had_frame && n_v == 2)
        v[1] = (struct iovec){after, v[1].iov_len < sizeof after ? v[1].iov_len : sizeof after};
    ssize_t n = net_links_receive(t->opts.links, peer, v, n_v);
    if (n == -EAGAIN)
        return 0;
    if (n < 0)
        return tcp_fail_gone(t, peer, (int)n, err);
    count_bytes(d, (size_t)n);
    const int code = had_frame ? 0 : look_at_frame(t, p, after, err);
    if (code != 0)
        return code;
    end_piece(t->plan, d, p, false);
    return 1;
}

/* --- all together ----------------------------------------------------------------------------- */

static int peer_go_on(struct transport_tcp *t, unsigned p, bool *ret_moved, struct co_error *err)
{
    const struct stream *s = &t->stream[t->plan->peer[p]];
    const int out = tcp_is_idle(&s->out) ? 0 : peer_push(t, p, err);
    const int in = out < 0 || tcp_is_idle(&s->in) ? out : peer_pull(t, p, err);
    *ret_moved |= out > 0 || in > 0;
    return in;
}

/* One round over all peers. returns   1 all is done; 0; -errno */
static int go_round(struct transport_tcp *t, bool *ret_moved, struct co_error *err)
{
    bool all_done = true;
    for (unsigned p = 0; p < t->plan->n_peers; p++) {
        const struct stream *s = &t->stream[t->plan->peer[p]];
        int code = s->is_striped ? tcp_lanes_advance(t, p, ret_moved, err)
                                 : peer_go_on(t, p, ret_moved, err);
        if (code < 0)
            return code;
        all_done &= tcp_is_idle(&s->out) && tcp_is_idle(&s->in);
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
    for (unsigned p = 0; p < t->plan->n_peers; p++) {
        const int code = tcp_lanes_look(t, p, err);
        if (code != 0)
            return code;
    }
    const bool is_due = straggler_is_due(&t->late);
    tcp_tell_cut(t);
    return is_due ? tcp_late_judge(t, err) : 0;
}

static void nap(struct transport_tcp *t)
{
    size_t n = 1;
    t->poll[0] = net_links_watch_new(t->opts.links);
    for (unsigned p = 0; p < t->plan->n_peers; p++) {
        const struct stream *s = &t->stream[t->plan->peer[p]];
        if (s->is_striped) {
            n += tcp_lanes_watch(t, p, t->poll + n);
            continue;
        }
        const bool in =
            !tcp_is_idle(&s->in) && (s->in.has_piece || s->in.n_frame < sizeof(struct frame));
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
    if (t->is_out_of_memory)
        return co_fail(err, -ENOMEM, "out of memory for the stripes of a collective");
    for (;;) {
        bool moved = false;
        int code = go_round(t, &moved, err);
        if (code == 0 && !moved && may_wait && t->opts.spin)
            code = peers_spin(t, &moved, err);
        if (code != 0)
            return code;
        if (moved) {
            tcp_end_wait(t);
            continue;
        }
        code = look_around(t, err);
        if (code != 0 || !may_wait)
            return code;
        nap(t);
    }
}

/* --- leaving ---------------------------------------------------------------------------------- */

/* Whether the peer would understand another frame. */
static bool is_between(const struct stream *s)
{
    if (s->n_exchanges == 0 || tcp_is_idle(&s->out))
        return true;
    return s->is_striped ? tcp_lanes_is_between(s) : s->out.total == 0;
}

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
        if (!net_links_is_open(t->opts.links, r) ||
            (is_between(s) && net_links_say(t->opts.links, r, v, why != NULL ? 2 : 1)))
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
    for (unsigned r = 0; r < t->opts.n; r++)
        tcp_lanes_destroy(t->stream[r].lanes);
    free(t->poll);
    free(t->who);
    free(t);
}
