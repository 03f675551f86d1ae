/* net_schedules.h - inside of the back end between nodes: the schedules, and what they share. net.h
 * says what a schedule is. */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_SCHEDULES_H
#define DDP_WORKER_RUNTIME_TCP_NET_SCHEDULES_H

#include "net.h"

/* --- net_copies.c ----------------------------------------------------------------------------- */

net_schedules net_all_gather, net_broadcast, net_barrier, net_gather, net_scatter, net_all_to_all;

/* --- net_schedules.c: small things
 * -------------------------------------------------------------- */

/* Elements of the blocks of a node's ranks, in a buffer that has a block for each rank. */
struct slice net_node_range(const struct net *n, unsigned node);
/* Counts of those blocks, for a local part. returns n->local_counts */
const size_t *net_node_counts(struct net *n, unsigned node);

/* A local part that copies, its buffers and its type filled in. */
struct collective net_local_copy(const struct net *n, enum call_kind kind, const void *in,
                                 void *out);

/* Everybody on this node gets the slices of `count` elements at `at`.
 * returns enum net_next, -errno */
int net_gather_slices(struct net *n, uint8_t *at, size_t count, struct co_error *err);
/* The ranks that are no slots get what local rank 0 has. returns likewise */
int net_hand_down(struct net *n, uint8_t *at, size_t count, struct co_error *err);

#endif
