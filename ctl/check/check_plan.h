/* check_plan.h - which node tries to reach which other one, and when, in `ddpctl check`. Pure. */
#ifndef DDP_CTL_CHECK_CHECK_PLAN_H
#define DDP_CTL_CHECK_CHECK_PLAN_H

#include <stdbool.h>
#include <stddef.h>

enum {
    CHECK_PEERS_MAX = 48,  /* of a node; as many addresses fit a request */
    CHECK_ROUNDS_MAX = 31, /* of pairs */
};

/* The nodes to whose ports a node connects: all others, or, where there are more than
 * CHECK_PEERS_MAX, those that are 1, 2, 4, ... places after it, so that each port is tried from as
 * many others.
 *
 * ret       CHECK_PEERS_MAX
 * returns   how many */
size_t check_plan_peers(size_t n_nodes, size_t node, size_t *ret);

/* Pairs are measured in rounds, as in a tournament: in each a node is in one pair at most, so that
 * no two measurements share a node's network. In all rounds together each pair is measured once;
 * where there would be more than CHECK_ROUNDS_MAX rounds, that many of them are. */
size_t check_plan_rounds(size_t n_nodes);

/* The pairs of a round.
 *
 * k         from 0 on
 * returns   false: there are no more. *ret_a < *ret_b; equal: the place is free in this round */
bool check_plan_pair(size_t n_nodes, size_t round, size_t k, size_t *ret_a, size_t *ret_b);

#endif
