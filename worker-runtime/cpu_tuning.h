/* cpu_tuning.h - from which size on which way is the fastest, inside of a node. The same on all
 * ranks. */
#ifndef DDP_WORKER_RUNTIME_CPU_TUNING_H
#define DDP_WORKER_RUNTIME_CPU_TUNING_H

#include <stddef.h>

struct cpu_tuning {
    size_t
        one_shot_bytes;   /* up to this, of all that a rank reads, everybody works out everything */
    size_t cma_bytes;     /* from this on, of an `in`, plain memory is read across processes rather
                              than staged */
    size_t cma_sum_bytes; /* the same for all_reduce, which staging serves better */
};

/* Measured with 2 to 4 ranks on processors with 32 MiB of shared cache; docs/collectives.md. */
#define CPU_TUNING_DEFAULT                                                                         \
    ((struct cpu_tuning){                                                                          \
        .one_shot_bytes = 16 << 10, .cma_bytes = 256 << 10, .cma_sum_bytes = 8 << 20})

#endif
