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
    uint32_t domain;         /* the same for nodes that are close to each other */
    bool keeps_rank_0;
    bool returns; /* these are roster_order_make()'s ... */
    bool survives;
    bool is_added;        /* ... it got a hole of another domain, or none ... */
    int32_t block;        /* ... where its domain begins ... */
    uint32_t n_before_it; /* ... in its domain, with a better claim ... */
    uint64_t claim;       /* ... and that of its segment */
    uint64_t whole_since;
};

/* The key that identifies a node when it returns with another session: its node rank, or without
 * one its name. */
uint64_t roster_order_key(int32_t node_rank, const char *name);

/* Order as people read numbers: node7 before node66. returns <0, 0, >0; 0 only for equal texts */
int roster_order_compare(const char *a, const char *b);

/* A place in the last generation. */
struct roster_order_seat {
    uint64_t key;    /* of the node that had it */
    uint32_t domain; /* its domain then; another one may have the number now */
    int32_t index;
    uint32_t n_taken; /* 0; for roster_order_make() */
};

/* Choose and order.
 *
 * entries   n of them; the first ones take part, and are in the order of their ranks afterwards.
 *           `seat` is overwritten
 * seats     the places of the last generation in order; none: no generation so far. Overwritten
 * max       no more take part; a multiple of `segment`
 * segment   only whole groups of so many nodes of one domain take part; 0: domains do not matter
 * returns   how many do
 *
 * cost      O(n log n + n_seats log n_seats) comparisons */
size_t roster_order_make(struct roster_order_entry *entries, size_t n,
                         struct roster_order_seat *seats, size_t n_seats, size_t max,
                         size_t segment);

#endif
