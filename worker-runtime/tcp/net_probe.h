/* net_probe.h - DDP_SOCKET_LANES=auto: ranks measure, when they join, whether large exchanges gain
 * from lanes.
 *
 * Nodes 0 and 1, 2 and 3 ... exchange at once, as they do in a large collective: the ranks with the
 * same place on both send each other some megabytes, over the first connection and over lanes in
 * turns. All ranks then agree on the slowest times, so that all choose alike. The answer belongs to
 * the process: it joins later generations with it, and they measure nothing.
 *
 * docs/design/lanes.md has the cost. */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_PROBE_H
#define DDP_WORKER_RUNTIME_TCP_NET_PROBE_H

#include <stdbool.h>
#include <stdint.h>

struct net;

/* The lanes with which this process joins: what it has found, or the number that it would try.
 * ret_is_open   whether it has not found any yet */
uint16_t net_probe_wish(bool *ret_is_open);

/* Whether lanes pay.
 * one_us, lanes_us   an exchange over the first connection, and over lanes */
bool net_probe_prefers_lanes(double one_us, double lanes_us);

/* Measure, if no rank of the group has an answer or a number that a user has set; otherwise do
 * nothing. All ranks of the world's group call it before they use the group. If it fails, the job
 * is broken, and the next collective returns why. */
void net_probe(struct net *n);

#endif
