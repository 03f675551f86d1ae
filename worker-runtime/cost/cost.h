/* cost.h - what an all-reduce between nodes costs, and which algorithm is the cheapest. Pure.
 *
 * The times are those of a model with four numbers (struct cost_network), in which a node sends and
 * receives one message after the other. These algorithms add the sums of the nodes in the order of
 * the nodes, so all of them give the same bits:
 *
 *     whole      each node sends its vector to all others, and sums all of them
 *     doubling   the same, but a node passes on what it has received: after step k it has the
 *                vectors of 2^(k+1) nodes. log2 n steps, with two peers in each
 *     passing    as parts, but nodes pass on the parts, and then the sums: 2 log2 n steps
 *     parts      each node sums one part of the vector, and sends that sum to all others
 *
 * For comparison, with another order of the sums: a ring, recursive halving and doubling, and a
 * binomial tree (reduce, then broadcast). docs/design/collectives.md has the curves. */
#ifndef DDP_WORKER_RUNTIME_COST_COST_H
#define DDP_WORKER_RUNTIME_COST_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cost_network {
    uint32_t latency_ns; /* from the end of a send to the start of its receive */
    uint32_t message_ns; /* processor time of a message: sender and receiver together */
    uint32_t byte_ps;    /* to send a byte */
    uint32_t sum_ps;     /* to sum a byte of one node */
};

#define COST_LATENCY_NS_MOST 100000000u
#define COST_MESSAGE_NS_MOST 10000000u
#define COST_BYTE_PS_MOST    1000000u /* 1 MB/s; of both */

/* Whether the numbers are within these bounds: then no sum overflows. */
bool cost_network_is_valid(const struct cost_network *net);

/* Two machines with TCP: 10 us, 6.5 us, 5 GB/s, 50 GB/s. Assumed; ddp-perf --tune measures. */
#define COST_NETWORK_DEFAULT                                                                       \
    {                                                                                              \
        .latency_ns = 10000, .message_ns = 6500, .byte_ps = 200, .sum_ps = 20                      \
    }

/* The first four in the order in which they are chosen as vectors get longer. */
enum cost_algo {
    COST_WHOLE,
    COST_DOUBLING,
    COST_PASSING,
    COST_PARTS,
    COST_RING,
    COST_HALVING,
    COST_TREE
};

#define COST_NODES_MOST  (1u << 20)
#define COST_BYTES_MOST  ((size_t)1 << 30)  /* of a vector; longer ones go in parts */
#define COST_MEMORY_MOST ((size_t)64 << 20) /* of memory for what other nodes send */

/* The time of an all-reduce of `bytes` bytes of each of n nodes, in ps.
 *
 * n         2 .. COST_NODES_MOST
 * bytes     0 .. COST_BYTES_MOST */
uint64_t cost_of(enum cost_algo algo, unsigned n, size_t bytes, const struct cost_network *net);

/* Whether an algorithm keeps to COST_MEMORY_MOST. n is 1 or more. */
bool cost_fits_memory(enum cost_algo algo, unsigned n, size_t bytes);

/* The cheapest of whole, doubling, passing and parts; the first of equal ones. The same on all
 * machines. Any n and bytes: parts, outside the limits. */
enum cost_algo cost_choose(unsigned n, size_t bytes, const struct cost_network *net);

/* --- doubling, and passing ---------------------------------------------------------------------
 *
 * Node i collects the vectors of nodes i, i + 1, ... (modulo n), one after the other. At step k it
 * has 2^k of them. It sends the first ones to node i - 2^k, which lacks those, and receives as many
 * from node i + 2^k: 2^k of them, in the last step as many as are missing. */
struct cost_step {
    unsigned to, from; /* nodes; may be the same */
    unsigned n_have;   /* vectors that the node has before the step */
    unsigned n_more;   /* that it sends, and receives */
};

unsigned cost_doubling_steps(unsigned n); /* of n nodes: log2 n, rounded up */

/* node, k   below n; below cost_doubling_steps(n) */
struct cost_step cost_doubling_step(unsigned n, unsigned node, unsigned k);

/* Passing has the same steps twice. At first node i has a block for each node: block b is for node
 * i - b. In step k it passes on the blocks whose number has bit k: so many. At the end block b is
 * that of node i + b for this node; it sums them. Then the sums are collected by doubling. */
unsigned cost_passed_blocks(unsigned n, unsigned k);

#endif
