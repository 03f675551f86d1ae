/* net_tuning.h - from which size on which way is the fastest between nodes. The same on all ranks.
 * docs/collectives.md says what was measured. */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_TUNING_H
#define DDP_WORKER_RUNTIME_TCP_NET_TUNING_H

#include <stddef.h>

struct net_tuning {
    size_t whole_bytes;   /* of an all_reduce of very many nodes: up to this everybody works out
                             everything, in one exchange; of fewer nodes net_tuning_whole() */
    size_t segment_bytes; /* longer ones go in pieces of this */
    size_t small_bytes;   /* broadcast: up to this it goes whole by each socket */
};

/* Up to which size of an all_reduce every node (n of them, 2 or more) sends everything to all
 * others.
 *
 * To deal the vector out instead saves bytes, of S bytes (n - 1) (1 - 2/n) S, and costs each
 * rank n - 1 messages more. So it pays from S = B n / (n - 2) on, if a message costs as much as
 * B bytes. Between two nodes it saves no bytes, only work and time in which nothing travels. */
static inline size_t net_tuning_whole(const struct net_tuning *t, unsigned n)
{
    return n <= 2 ? 2 * t->whole_bytes : t->whole_bytes / (n - 2) * n;
}

#define NET_TUNING_DEFAULT                                                                         \
    ((struct net_tuning){                                                                          \
        .whole_bytes = 32 << 10, .segment_bytes = 128 << 10, .small_bytes = 32 << 10})

#endif
