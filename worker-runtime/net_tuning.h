/* net_tuning.h - from which size on which way is the fastest between nodes. The same on all ranks.
 * docs/collectives.md says what was measured. */
#ifndef DDP_WORKER_RUNTIME_NET_TUNING_H
#define DDP_WORKER_RUNTIME_NET_TUNING_H

#include <stddef.h>

struct net_tuning {
    size_t whole_bytes;   /* all_reduce: up to this, of all that a rank sends, everybody works out
                             everything, in one exchange */
    size_t segment_bytes; /* longer ones go in pieces of this */
    size_t small_bytes;   /* broadcast: up to this it goes whole by each socket */
};

#define NET_TUNING_DEFAULT                                                                         \
    ((struct net_tuning){                                                                          \
        .whole_bytes = 64 << 10, .segment_bytes = 128 << 10, .small_bytes = 32 << 10})

#endif
