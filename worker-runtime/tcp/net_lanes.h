/* net_lanes.h - more connections between two ranks of a group, for the stripes of large exchanges
 * (stripes.h). They are made at the first such exchange. The lower of two ranks connects; nothing
 * waits for them, and a lane that cannot be made, or fails, does not break the job.
 *
 *     NONE     to be made; at the higher rank: the lower one has not connected it yet
 *     OPENING  being made: SYN sent, or hello not sent yet
 *     OPEN     stripes go both ways
 *     CLOSED   it could not be made in time, ended, or was closed: for good
 *
 * Lanes are numbered from 1; lane 0 is the connection that net_links.h makes. */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_LANES_H
#define DDP_WORKER_RUNTIME_TCP_NET_LANES_H

#include "net_links.h"

enum net_lane_state { NET_LANE_NONE, NET_LANE_OPENING, NET_LANE_OPEN, NET_LANE_CLOSED };

/* How many lanes two ranks use: what both want; 0: only the first connection. */
unsigned net_lanes_count(const struct net_links *l, unsigned peer);

/* Begin to make the lanes to a peer, and continue. Does not wait. returns 0, -ENOMEM */
int net_lanes_open(struct net_links *l, unsigned peer);

/* lane      1 .. net_lanes_count(), after net_lanes_open() has returned 0 */
enum net_lane_state net_lanes_state(const struct net_links *l, unsigned peer, unsigned lane);
void net_lanes_close(struct net_links *l, unsigned peer, unsigned lane);

/* The network interface that a lane is kept to; "": it has none of its own. */
const char *net_lanes_device(const struct net_links *l, unsigned peer, unsigned lane);

/* Of an open lane. returns as net_links_send() */
ssize_t net_lanes_send(struct net_links *l, unsigned peer, unsigned lane, const struct iovec *v,
                       unsigned n_v);
ssize_t net_lanes_receive(struct net_links *l, unsigned peer, unsigned lane, const struct iovec *v,
                          unsigned n_v);

/* Whether nothing that an open lane has taken was acknowledged for NET_LANES_SILENT_MS, while the
 * first connection is not in that state: then the path of this lane is broken. A rank that
 * does not read keeps its lane: its machine acknowledges, or reports that it has no space. */
#define NET_LANES_SILENT_MS 1000
bool net_lanes_is_silent(const struct net_links *l, unsigned peer, unsigned lane);

/* What to poll() for: adds up to one. */
size_t net_lanes_watch(const struct net_links *l, unsigned peer, unsigned lane, bool in, bool out,
                       struct pollfd *ret);

#endif
