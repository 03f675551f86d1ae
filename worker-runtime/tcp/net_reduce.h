/* net_reduce.h - the reduction between nodes: one rank of each node has the node's result, and
 * these ranks combine them, always in the order of the nodes.
 *
 * parts   the vector is dealt out. Each rank sends every other one its part, and combines its own
 *         part of all; with `gather` it sends the result back to all. Per rank (n - 1)/n of the
 *         vector goes out, and as much again with `gather`: what a ring sends, too, but a ring adds
 *         each element up in another order. In segments: while one is combined others travel
 * whole   each sends everything to all others, and combines everything: one exchange less */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_REDUCE_H
#define DDP_WORKER_RUNTIME_TCP_NET_REDUCE_H

#include "transport_tcp.h"
#include "worker-runtime/arithmetic/reduce.h"
#include "worker-runtime/arithmetic/slices.h"

#include <stdint.h>

struct net_reduce {       /* the caller fills the first part */
    unsigned n, me;       /* nodes */
    const unsigned *peer; /* n - 1: positions, in the order of their nodes; the caller's memory */
    uint8_t *data;        /* this node's */
    const struct slice *part; /* n, of `data`; the caller's memory */
    uint8_t *out; /* result: of part `me`, or of everything; may be where that lies in `data` */
    bool gather;  /* the other parts' results come to their places in `data` */
    enum ddp_dtype dtype;
    enum ddp_op op;
    unsigned divisor; /* results are divided by it; 0: not */
    const struct reduce_kernels *kernels;
    size_t segment_bytes;

    uint8_t *scratch; /* net_reduce_scratch_bytes(); the caller's memory, as are the next two */
    const void **in;  /* n */
    size_t *n_come;   /* n: segments of the own part that came from each peer */

    size_t size, segment, n_folded; /* its own */
};

size_t net_reduce_scratch_bytes(const struct net_reduce *f);

/* The plan of `parts`, valid for as long as the fold is. */
struct tcp_plan net_reduce_plan(struct net_reduce *f);

/* `whole`, once the exchange is done: the `count` elements of each peer lie in `scratch`, one
 * vector behind the other, and this node's at `data`. Reads n, me, the operation, kernels and
 * `in`. */
void net_reduce_whole(struct net_reduce *f, size_t count);

#endif
