/* net_member.c - what is known of a member: its name, where it listens, and its lanes: which there
 * can be, and those that a peer has connected. net_lanes.c makes and uses lanes, net_links.c takes
 * the hello of each. */
#include "common/clock.h"
#include "net_links_priv.h"
#include "net_secure.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/interfaces/net_interface.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct net_member_name net_member_name(const struct net_member *m)
{
    struct net_member_name name;
    snprintf(name.text, sizeof name.text, "rank %u on node %u (%.31s)", m->rank, m->node, m->host);
    return name;
}

void net_members_add(struct net_members_text *names, const struct net_member *m)
{
    if (names->n++ > NET_MEMBERS_NAMED)
        return;
    names->length +=
        (size_t)snprintf(names->text + names->length, sizeof names->text - names->length, "%s%s",
                         names->n > NET_MEMBERS_NAMED ? " and more"
                         : names->n > 1               ? ", "
                                                      : "",
                         names->n > NET_MEMBERS_NAMED ? "" : net_member_name(m).text);
}

int net_member_listen(const struct net_member *m, uint16_t *ret_port, int *ret_fd,
                      struct co_error *err)
{
    const struct net_address all = {
        .family = m->address.family,
        .bytes = {
            [0] = m->address.family == AF_INET ? 127 : 0, [15] = m->address.family == AF_INET6}};
    *ret_port = 0;
    return net_address_listen(m->ends.n > 0 ? &all : &m->address, ret_port, ret_fd, err);
}

/* --- lanes ------------------------------------------------------------------------------------ */

void net_links_close_socket(int fd)
{
    if (fd < 0)
        return;
    process_disown_socket(fd);
    close(fd);
}

unsigned net_lanes_count(const struct net_links *l, unsigned peer)
{
    const struct net_member *own = &l->opts.member[l->opts.rank], *other = &l->opts.member[peer];
    const unsigned n = own->lanes < other->lanes ? own->lanes : other->lanes;
    if (n == 0 || !net_ends_allow_lanes(&own->ends, &other->ends))
        return 0;
    return n > NET_LANES_MOST ? NET_LANES_MOST : n;
}

void net_lanes_find_devices(struct net_links *l)
{
    const struct net_ends *ends = &l->opts.member[l->opts.rank].ends;
    for (unsigned i = 0; i < ends->n; i++) {
        const struct net_address a = net_ends_address(&ends->end[i]);
        net_interface_find_name(&a, l->device[i]);
    }
}

int net_lanes_end_of(const struct net_links *l, int fd)
{
    const struct net_ends *ends = &l->opts.member[l->opts.rank].ends;
    struct sockaddr_storage socket = {0};
    socklen_t size = sizeof socket;
    if (getsockname(fd, (struct sockaddr *)&socket, &size) != 0)
        return -1;
    const struct net_address at = net_address_of(&socket);
    for (unsigned i = 0; i < ends->n; i++) {
        const struct net_address a = net_ends_address(&ends->end[i]);
        if (net_address_is_same(&a, &at))
            return (int)i;
    }
    return -1;
}

struct lane *net_lane_of(const struct net_links *l, unsigned peer, unsigned lane)
{
    return &l->link[peer].lane[lane - 1];
}

int net_lanes_make(struct net_links *l, unsigned peer)
{
    struct link *k = &l->link[peer];
    const unsigned n = net_lanes_count(l, peer);
    if (k->lane != NULL || n == 0)
        return 0;
    k->lane = calloc(n, sizeof *k->lane);
    if (k->lane == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i < n; i++)
        k->lane[i].fd = k->lane[i].end = -1;
    return 0;
}

void net_lane_close(struct lane *x)
{
    net_links_close_socket(x->fd);
    net_secure_destroy(x->secure);
    x->secure = NULL;
    x->fd = -1;
    x->state = NET_LANE_CLOSED;
}

void net_lanes_fini(struct net_links *l, unsigned peer)
{
    struct link *k = &l->link[peer];
    for (unsigned i = 0; k->lane != NULL && i < net_lanes_count(l, peer); i++)
        net_lane_close(&k->lane[i]);
    free(k->lane);
    k->lane = NULL;
}

int net_lanes_check(struct net_links *l, const struct hello *h, struct co_error *why)
{
    if (h->channel != NET_DATA || h->from > l->opts.rank || h->lane > net_lanes_count(l, h->from))
        return co_fail(why, -EPROTO, "refused a connection: not a lane of this rank");
    if (net_lanes_make(l, h->from) != 0)
        return co_fail(why, -ENOMEM, "refused a connection: out of memory");
    if (net_lane_of(l, h->from, h->lane)->state != NET_LANE_NONE)
        return co_fail(why, -EEXIST, "rank %u connected a lane twice",
                       l->opts.member[h->from].rank);
    return 0;
}

void net_lanes_take(struct net_links *l, const struct hello *h, int fd)
{
    const int end = net_lanes_end_of(l, fd);
    struct lane *x = net_lane_of(l, h->from, h->lane);
    *x = (struct lane){.state = NET_LANE_OPEN, .fd = fd, .end = end, .sent_ms = co_now_ms()};
    if (end >= 0) /* what is sent would leave by the interface of the route to the peer */
        net_address_keep_to(fd, l->device[end]);
    if (net_secure_take(l, h, fd, &x->secure) != 0)
        net_lane_close(x);
}

bool net_lanes_is_stuck(int fd)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return false;
    return info.tcpi_last_ack_recv >= NET_LANES_SILENT_MS &&
           (info.tcpi_unacked > 0 || (info.tcpi_notsent_bytes > 0 && info.tcpi_snd_wnd > 0));
}
