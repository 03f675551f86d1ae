/* roster_order.h - which nodes take part in the next generation, and in which order of ranks. Pure.
 *
 * The rules are in docs/design/membership.md, "Order of ranks". */
#ifndef DDP_RENDEZVOUS_MEMBERSHIP_ROSTER_ORDER_H
#define DDP_RENDEZVOUS_MEMBERSHIP_ROSTER_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROSTER_ORDER_NONE (-1)

/* A node that could take part. */
struct roster_order_entry {
    uint32_t slot;           /* the caller's, not looked at */
    const char *name;        /* borrowed */
    const uint8_t *instance; /* borrowed; MESSAGE_INSTANCE_BYTES */
    uint64_t arrival;        /* smaller: earlier */
    uint64_t key;            /* roster_order_key() */
    int32_t node_rank;       /* --node-rank, or ROSTER_ORDER_NONE */
    int32_t expected;        /* its place in the host file, or ROSTER_ORDER_NONE */
    int32_t seat;            /* its place in the last generation, or ROSTER_ORDER_NONE ... */
    int32_t before;          /* ... and then that in the generation before, or ROSTER_ORDER_NONE */
    bool keeps_rank_0;
    bool returns; /* roster_order_make()'s */
};

/* The key that identifies a node when it returns with another session: its node rank, or without
 * one its name. */
uint64_t roster_order_key(int32_t node_rank, const char *name);

/* Order as people read numbers: node7 before node66. returns <0, 0, >0; 0 only for equal texts */
int roster_order_compare(const char *a, const char *b);

/* A place in the last generation. */
struct roster_order_seat {
    uint64_t key; /* of the node that had it */
    int32_t index;
    uint32_t n_taken; /* 0; for roster_order_make() */
};

/* Choose and order.
 *
 * entries   n of them; the first ones take part, and are in the order of their ranks afterwards.
 *           `seat` is overwritten
 * seats     the places of the last generation in order; none: no generation so far. Overwritten
 * max       no more take part
 * returns   how many do: n or max
 *
 * cost      O(n log n + n_seats log n_seats) comparisons */
size_t roster_order_make(struct roster_order_entry *entries, size_t n,
                         struct roster_order_seat *seats, size_t n_seats, size_t max);

#endif
