/* transport_tcp_lanes.c - an exchange with a peer in stripes: what goes over its lanes, and comes.
 *
 * tcp_lanes_advance() does a round over all lanes of a peer. stripes.c decides what is sent next,
 * and where what arrives belongs; here are the frames and bytes that are under way, flow_push() and
 * flow_pull(), the lanes that fail, lane_lose(), and the frame that opens the exchange. */
#include "common/clock.h"
#include "common/error.h"
#include "net_lanes.h"
#include "stripes.h"
#include "transport_tcp_priv.h"
#include "worker-runtime/core/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_EVERY_MS = 200 };

struct flow { /* what is under way on a lane */
    struct frame out, in;
    struct tcp_piece out_bytes, in_bytes; /* after the frames */
    size_t n_out, n_in;                   /* that went, and came, of both */
    bool has_out, is_blocked;             /* blocked: its socket takes no more now */
    bool has_in, is_early;                /* the frame was understood; it has to wait */
};

struct tcp_lanes {
    struct stripes *stripes;
    unsigned n;
    bool is_agreed; /* the peer's opening frame is checked */
    uint64_t look_ms;
    struct flow flow[]; /* 1 + n */
};

void tcp_lanes_destroy(struct tcp_lanes *lanes)
{
    if (lanes != NULL)
        stripes_destroy(lanes->stripes);
    free(lanes);
}

static int create(unsigned n, struct tcp_lanes **ret)
{
    struct tcp_lanes *lanes = calloc(1, sizeof *lanes + (1 + n) * sizeof lanes->flow[0]);
    if (lanes == NULL)
        return -ENOMEM;
    lanes->n = n;
    lanes->stripes = stripes_create(n);
    if (lanes->stripes == NULL) {
        free(lanes);
        return -ENOMEM;
    }
    *ret = lanes;
    return 0;
}

bool tcp_lanes_pay(const struct transport_tcp *t, unsigned peer, uint64_t out, uint64_t in)
{
    return (out > in ? out : in) >= t->opts.striped_bytes &&
           net_lanes_count(t->opts.links, peer) > 0;
}

int tcp_lanes_begin(struct transport_tcp *t, unsigned p)
{
    const unsigned peer = t->plan->peer[p];
    struct stream *s = &t->stream[peer];
    int code = net_lanes_open(t->opts.links, peer);
    if (code == 0 && s->lanes == NULL)
        code = create(net_lanes_count(t->opts.links, peer), &s->lanes);
    if (code != 0)
        return code;
    struct flow *first = &s->lanes->flow[0];
    stripes_open(s->lanes->stripes, t->plan, p, s->n_exchanges, t->opts.stripe_bytes,
                 s->out.frame.expects);
    *first = (struct flow){.out = s->out.frame, .has_out = true};
    s->lanes->is_agreed = false;
    return 0;
}

bool tcp_lanes_hear_lost(const struct stream *s, const struct frame *f)
{
    return s->lanes != NULL && f->magic == FRAME_MAGIC &&
           stripes_hear_lost(s->lanes->stripes, f) == TCP_READY;
}

bool tcp_lanes_is_between(const struct stream *s)
{
    const struct flow *first = &s->lanes->flow[0];
    return !first->has_out || first->n_out == 0;
}

/* --- lanes that fail -------------------------------------------------------------------------- */

static void lane_drop(struct transport_tcp *t, unsigned peer, unsigned lane)
{
    net_lanes_close(t->opts.links, peer, lane);
    t->stream[peer].lanes->flow[lane] = (struct flow){0};
}

/* The others carry its part. People learn why a network is slower than before. */
static void lane_lose(struct transport_tcp *t, unsigned peer, unsigned lane, const char *why)
{
    struct tcp_lanes *lanes = t->stream[peer].lanes;
    const char *device = net_lanes_device(t->opts.links, peer, lane);
    struct net_links_trouble text;
    lane_drop(t, peer, lane);
    stripes_lose(lanes->stripes, lane);
    snprintf(text.text, sizeof text.text,
             "lost connection %u of %u for large messages to %s%s%s: %s", lane, lanes->n,
             net_member_name(net_links_member(t->opts.links, peer)).text,
             device[0] != '\0' ? " over " : "", device, why);
    t->has_warned = true;
    process_tell_wait(text.text);
}

/* returns whether the lane can be used */
static bool lane_is_open(struct transport_tcp *t, unsigned peer, unsigned lane)
{
    const struct tcp_lanes *lanes = t->stream[peer].lanes;
    const enum net_lane_state state = net_lanes_state(t->opts.links, peer, lane);
    if (stripes_is_lost(lanes->stripes, lane)) {
        if (state != NET_LANE_CLOSED)
            lane_drop(t, peer, lane);
        return false;
    }
    if (state == NET_LANE_CLOSED)
        lane_lose(t, peer, lane, "it could not be made");
    return state == NET_LANE_OPEN;
}

/* --- bytes ------------------------------------------------------------------------------------ */

static ssize_t send_on(struct transport_tcp *t, unsigned peer, unsigned lane, const struct iovec *v,
                       unsigned n_v)
{
    return lane == 0 ? net_links_send(t->opts.links, peer, v, n_v)
                     : net_lanes_send(t->opts.links, peer, lane, v, n_v);
}

static ssize_t receive_on(struct transport_tcp *t, unsigned peer, unsigned lane,
                          const struct iovec *v, unsigned n_v)
{
    return lane == 0 ? net_links_receive(t->opts.links, peer, v, n_v)
                     : net_lanes_receive(t->opts.links, peer, lane, v, n_v);
}

/* What is left of a frame and the bytes after it. */
static unsigned rest_gather(struct frame *frame, struct tcp_piece bytes, size_t n, struct iovec *v)
{
    unsigned n_v = 0;
    if (n < sizeof *frame)
        v[n_v++] = (struct iovec){(uint8_t *)frame + n, sizeof *frame - n};
    const size_t of_bytes = n > sizeof *frame ? n - sizeof *frame : 0;
    if (bytes.bytes > of_bytes)
        v[n_v++] = (struct iovec){(uint8_t *)bytes.at + of_bytes, bytes.bytes - of_bytes};
    return n_v;
}

static int flow_pull(struct transport_tcp *t, unsigned p, unsigned lane, struct co_error *err);

/* The other side may have sent something before it went: that it leaves, for instance. */
static int fail_sending(struct transport_tcp *t, unsigned p, int reason, struct co_error *err)
{
    int code;
    while ((code = flow_pull(t, p, 0, err)) > 0) {
    }
    return code < 0 ? code : tcp_fail_gone(t, t->plan->peer[p], reason, err);
}

/* returns   1 something went; 0 nothing can now; -errno */
static int flow_push(struct transport_tcp *t, unsigned p, unsigned lane, struct co_error *err)
{
    const unsigned peer = t->plan->peer[p];
    struct stream *s = &t->stream[peer];
    struct flow *f = &s->lanes->flow[lane];
    struct iovec v[2];
    f->is_blocked = false;
    if (!f->has_out) {
        const int code = stripes_say(s->lanes->stripes, lane, &f->out, &f->out_bytes);
        if (code < 0)
            return co_fail(err, code, "out of memory for the stripes of a collective");
        if (code == TCP_LATER)
            return 0;
        f->has_out = true;
        f->n_out = 0;
    }
    const ssize_t n = send_on(t, peer, lane, v, rest_gather(&f->out, f->out_bytes, f->n_out, v));
    f->is_blocked = n == -EAGAIN;
    if (n == -EAGAIN)
        return 0;
    if (n < 0 && lane == 0)
        return fail_sending(t, p, (int)n, err);
    if (n < 0) {
        lane_lose(t, peer, lane, strerror((int)-n));
        return 1;
    }
    f->n_out += (size_t)n;
    s->out.total += (size_t)n;
    f->has_out = f->n_out < sizeof f->out + f->out_bytes.bytes;
    return 1;
}

/* The first frame on the first connection, unless the peer gave up a lane before. */
static int agree(struct transport_tcp *t, unsigned p, struct flow *f, struct co_error *err)
{
    struct stream *s = &t->stream[t->plan->peer[p]];
    f->n_in = 0;
    if (f->in.kind == FRAME_LOST)
        return tcp_lanes_hear_lost(s, &f->in) ? 0 : tcp_fail_invalid(t, t->plan->peer[p], err);
    s->in.frame = f->in;
    s->in.n_frame = sizeof s->in.frame;
    const int code = tcp_check_frame(t, p, NULL, err);
    s->lanes->is_agreed = code == 0;
    return code;
}

/* A frame is complete. returns 0; -errno */
static int hear_frame(struct transport_tcp *t, unsigned p, unsigned lane, struct co_error *err)
{
    const unsigned peer = t->plan->peer[p];
    struct tcp_lanes *lanes = t->stream[peer].lanes;
    struct flow *f = &lanes->flow[lane];
    if (!lanes->is_agreed)
        return agree(t, p, f, err);
    if (lane == 0 && f->in.magic == FRAME_MAGIC && f->in.kind == FRAME_LEFT)
        return tcp_fail_left(t, peer, err);
    if (lane == 0 && f->in.magic == FRAME_MAGIC && f->in.kind == FRAME_BROKEN)
        return tcp_fail_broken(t, peer, NULL, 0, err);
    const int code = stripes_hear(lanes->stripes, lane, &f->in, &f->in_bytes);
    if (code == -EPROTO)
        return tcp_fail_invalid(t, peer, err);
    if (code < 0)
        return co_fail(err, code, "out of memory for the stripes of a collective");
    f->is_early = code == TCP_LATER;
    f->has_in = code == TCP_READY && f->in_bytes.bytes > 0;
    if (code == TCP_READY && !f->has_in)
        f->n_in = 0;
    return 0;
}

/* The bytes after a frame are complete, and n_next bytes of the next frame are there. */
static int end_bytes(struct transport_tcp *t, unsigned p, unsigned lane, size_t n_next,
                     struct co_error *err)
{
    struct tcp_lanes *lanes = t->stream[t->plan->peer[p]].lanes;
    struct flow *f = &lanes->flow[lane];
    f->n_in = n_next;
    f->has_in = false;
    f->in_bytes = (struct tcp_piece){0};
    const int code = stripes_heard(lanes->stripes, lane);
    if (code == -EPROTO)
        return tcp_fail_invalid(t, t->plan->peer[p], err);
    if (code != 0)
        return co_fail(err, code, "out of memory for the stripes of a collective");
    return n_next == sizeof f->in ? hear_frame(t, p, lane, err) : 0;
}

/* What is missing of a frame; or of the bytes after it, and the next frame. */
static unsigned want_gather(struct flow *f, struct iovec v[2])
{
    const unsigned n_v = rest_gather(&f->in, f->in_bytes, f->n_in, v);
    if (f->has_in) /* the frame was understood, so its memory is free */
        v[1] = (struct iovec){&f->in, sizeof f->in};
    return f->has_in ? 2 : n_v;
}

/* So much has come of that. returns 0; -errno */
static int take_bytes(struct transport_tcp *t, unsigned p, unsigned lane, size_t n,
                      struct co_error *err)
{
    struct flow *f = &t->stream[t->plan->peer[p]].lanes->flow[lane];
    const size_t left = sizeof f->in + f->in_bytes.bytes - f->n_in;
    if (n < left) {
        f->n_in += n;
        return 0;
    }
    if (f->has_in)
        return end_bytes(t, p, lane, n - left, err);
    f->n_in += n;
    return hear_frame(t, p, lane, err);
}

/* No byte of stripes is used before the two sides agree on the call. */
static bool may_read(const struct tcp_lanes *lanes, unsigned lane)
{
    return (lane == 0 || lanes->is_agreed) && stripes_expects(lanes->stripes, lane);
}

/* returns   1 something came; 0 nothing now; -errno */
static int flow_pull(struct transport_tcp *t, unsigned p, unsigned lane, struct co_error *err)
{
    const unsigned peer = t->plan->peer[p];
    struct stream *s = &t->stream[peer];
    struct flow *f = &s->lanes->flow[lane];
    struct iovec v[2];
    if (!may_read(s->lanes, lane))
        return 0;
    if (f->is_early) {
        const int code = hear_frame(t, p, lane, err);
        if (code != 0 || f->is_early)
            return code;
    }
    const ssize_t n = receive_on(t, peer, lane, v, want_gather(f, v));
    if (n == -EAGAIN)
        return 0;
    if (n < 0 && lane == 0)
        return tcp_fail_gone(t, peer, (int)n, err);
    if (n == -EBADMSG)
        return tcp_fail_forged(t, peer, lane, err);
    if (n < 0) {
        lane_lose(t, peer, lane, n == -EPIPE ? "it was closed" : strerror((int)-n));
        return 1;
    }
    s->in.total += (size_t)n;
    const int code = take_bytes(t, p, lane, (size_t)n, err);
    return code != 0 ? code : 1;
}

/* --- all lanes of a peer ---------------------------------------------------------------------- */

int tcp_lanes_advance(struct transport_tcp *t, unsigned p, bool *ret_moved, struct co_error *err)
{
    const unsigned peer = t->plan->peer[p];
    struct stream *s = &t->stream[peer];
    struct tcp_lanes *lanes = s->lanes;
    if (tcp_is_idle(&s->out))
        return 0;
    for (unsigned lane = 0; lane <= lanes->n; lane++) {
        if (lane > 0 && !lane_is_open(t, peer, lane))
            continue;
        const int out = flow_push(t, p, lane, err);
        const bool may_pull = out >= 0 && (lane == 0 || lane_is_open(t, peer, lane));
        const int in = may_pull ? flow_pull(t, p, lane, err) : out;
        if (in < 0)
            return in;
        *ret_moved |= out > 0 || in > 0;
    }
    if (!stripes_is_over(lanes->stripes) || lanes->flow[0].has_out)
        return 0;
    s->out.is_done = s->in.is_done = true;
    s->out.n_frame = s->in.n_frame = sizeof(struct frame);
    return 0;
}

int tcp_lanes_look(struct transport_tcp *t, unsigned p, struct co_error *err)
{
    const unsigned peer = t->plan->peer[p];
    const struct stream *s = &t->stream[peer];
    const uint64_t now_ms = co_now_ms();
    if (!s->is_striped || tcp_is_idle(&s->out))
        return 0;
    if (net_lanes_open(t->opts.links, peer) != 0)
        return co_fail(err, -ENOMEM, "out of memory for the lanes to a peer");
    if (now_ms < s->lanes->look_ms)
        return 0;
    s->lanes->look_ms = now_ms + LOOK_EVERY_MS;
    for (unsigned lane = 1; lane <= s->lanes->n; lane++)
        if (net_lanes_is_silent(t->opts.links, peer, lane))
            lane_lose(t, peer, lane, "the path does not answer");
    return 0;
}

size_t tcp_lanes_watch(const struct transport_tcp *t, unsigned p, struct pollfd *ret)
{
    const unsigned peer = t->plan->peer[p];
    const struct stream *s = &t->stream[peer];
    const struct tcp_lanes *lanes = s->lanes;
    if (tcp_is_idle(&s->out))
        return 0;
    size_t n =
        net_links_watch(t->opts.links, peer, may_read(lanes, 0), lanes->flow[0].is_blocked, ret);
    for (unsigned lane = 1; lane <= lanes->n; lane++) {
        const struct flow *f = &lanes->flow[lane];
        n += net_lanes_watch(t->opts.links, peer, lane, may_read(lanes, lane) && !f->is_early,
                             f->is_blocked, ret + n);
    }
    return n;
}
