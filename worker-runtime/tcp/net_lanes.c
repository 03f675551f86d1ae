/* net_lanes.c - lanes: made by net_lanes_open() on the lower rank, and by net_lanes_take() on the
 * other one, when the hello of a lane has come. */
#include "net_lanes.h"

#include "common/clock.h"
#include "net_links_priv.h"
#include "net_secure.h"
#include "worker-runtime/core/process.h"

#include <errno.h>
#include <stdlib.h>

enum {
    OPENING_MS = 3000 /* a path that works needs milliseconds; a lost SYN is sent again after 1 s */
};

void net_lanes_close(struct net_links *l, unsigned peer, unsigned lane)
{
    net_lane_close(net_lane_of(l, peer, lane));
}

/* --- making ----------------------------------------------------------------------------------- */

static int connect_lane(struct net_links *l, unsigned peer, unsigned lane, struct lane *x)
{
    const struct net_member *own = &l->opts.member[l->opts.rank], *to = &l->opts.member[peer];
    const uint16_t port = to->port[l->opts.channel];
    struct net_pair pair;
    if (!net_ends_of_lane(&own->ends, &to->ends, lane, &pair))
        return net_address_connect(&own->address, &to->address, port, &x->fd);
    const struct net_address here = net_ends_address(&own->ends.end[pair.own]),
                             there = net_ends_address(&to->ends.end[pair.peer]);
    x->end = (int)pair.own;
    return net_address_connect_over(l->device[pair.own], &here, &there, port, &x->fd);
}

static void begin(struct net_links *l, unsigned peer, unsigned lane, struct lane *x)
{
    x->state = NET_LANE_OPENING;
    x->begun_ms = co_now_ms();
    if (connect_lane(l, peer, lane, x) != 0)
        net_lane_close(x);
    else
        process_own_socket(x->fd);
}

const char *net_lanes_device(const struct net_links *l, unsigned peer, unsigned lane)
{
    const int end = net_lane_of(l, peer, lane)->end;
    return end >= 0 ? l->device[end] : "";
}

static void go_on(struct net_links *l, unsigned peer, unsigned lane)
{
    struct lane *x = net_lane_of(l, peer, lane);
    if (x->state == NET_LANE_NONE)
        begin(l, peer, lane, x);
    if (x->state != NET_LANE_OPENING)
        return;
    const int code = net_links_finish_connecting(l, peer, lane, x->fd, &x->secure);
    if (code == 0) {
        x->state = NET_LANE_OPEN;
        x->sent_ms = co_now_ms();
    } else if (code != -EAGAIN || co_now_ms() - x->begun_ms >= OPENING_MS) {
        net_lane_close(x);
    }
}

int net_lanes_open(struct net_links *l, unsigned peer)
{
    const int code = net_lanes_make(l, peer);
    if (code != 0)
        return code;
    bool is_missed = false;
    for (unsigned lane = 1; lane <= net_lanes_count(l, peer); lane++)
        if (l->opts.rank < peer)
            go_on(l, peer, lane);
        else
            is_missed |= net_lane_of(l, peer, lane)->state == NET_LANE_NONE;
    if (is_missed)
        net_links_serve_newcomers(l);
    return 0;
}

/* --- using ------------------------------------------------------------------------------------ */

enum net_lane_state net_lanes_state(const struct net_links *l, unsigned peer, unsigned lane)
{
    return net_lane_of(l, peer, lane)->state;
}

static ssize_t send_raw(struct lane *x, const struct iovec *v, unsigned n_v)
{
    const struct msghdr m = {.msg_iov = (struct iovec *)v, .msg_iovlen = n_v};
    const ssize_t n = sendmsg(x->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0)
        x->sent_ms = co_now_ms();
    return n >= 0 ? n : errno == EINTR ? -EAGAIN : -errno;
}

ssize_t net_lanes_send(struct net_links *l, unsigned peer, unsigned lane, const struct iovec *v,
                       unsigned n_v)
{
    struct lane *x = net_lane_of(l, peer, lane);
    if (x->secure == NULL)
        return send_raw(x, v, n_v);
    const int code =
        net_secure_seal(x->secure, l->opts.rank < peer ? NET_SECURE_OWN : NET_SECURE_PEERS, v, n_v);
    const struct iovec rest = records_rest(&x->secure->out);
    return code == 0 ? net_secure_sent(x->secure, send_raw(x, &rest, 1)) : code;
}

static ssize_t receive_raw(const struct lane *x, const struct iovec *v, unsigned n_v)
{
    struct msghdr m = {.msg_iov = (struct iovec *)v, .msg_iovlen = n_v};
    const ssize_t n = recvmsg(x->fd, &m, MSG_DONTWAIT);
    if (n == 0)
        return -EPIPE;
    return n > 0 ? n : errno == EINTR ? -EAGAIN : -errno;
}

ssize_t net_lanes_receive(struct net_links *l, unsigned peer, unsigned lane, const struct iovec *v,
                          unsigned n_v)
{
    const struct lane *x = net_lane_of(l, peer, lane);
    struct iovec space;
    if (x->secure == NULL)
        return receive_raw(x, v, n_v);
    for (;;) {
        const ssize_t n = net_secure_open(x->secure, v, n_v, &space);
        if (n != -EAGAIN)
            return n;
        const ssize_t came = receive_raw(x, &space, 1);
        if (came < 0)
            return came;
        records_came(&x->secure->in, (size_t)came);
    }
}

bool net_lanes_is_silent(const struct net_links *l, unsigned peer, unsigned lane)
{
    const struct lane *x = net_lane_of(l, peer, lane);
    return x->state == NET_LANE_OPEN && co_now_ms() - x->sent_ms >= NET_LANES_SILENT_MS &&
           net_lanes_is_stuck(x->fd) && !net_links_is_unacknowledged(l, peer);
}

size_t net_lanes_watch(const struct net_links *l, unsigned peer, unsigned lane, bool in, bool out,
                       struct pollfd *ret)
{
    const struct lane *x = net_lane_of(l, peer, lane);
    const bool is_opening = x->state == NET_LANE_OPENING, is_open = x->state == NET_LANE_OPEN;
    const int events = (is_open && in ? POLLIN : 0) | (is_open && out ? POLLOUT : 0) |
                       (is_opening ? net_secure_event(x->secure) : 0);
    if (events == 0)
        return 0;
    *ret = (struct pollfd){.fd = x->fd, .events = (short)events};
    return 1;
}
