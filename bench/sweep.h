/* sweep.h - time an all-reduce over sizes from 4 bytes to 64 MiB, the same way for every
 * library. */
#ifndef DDP_BENCH_SWEEP_H
#define DDP_BENCH_SWEEP_H

#include <stddef.h>

#define SWEEP_MAX_BYTES ((size_t)64 << 20)

struct sweep {
    int rank, world_size;
    float *data; /* SWEEP_MAX_BYTES of the kind of memory to be measured */
    int repeats; /* of each size; each is one timing of many calls if they are short */
    int (*all_reduce)(struct sweep *s, size_t count); /* sum `data` in place; 0 or failed */
    int (*barrier)(struct sweep *s);
    void *library; /* for the two above */
};

/* Rank 0 prints a line a size: bytes, then the fastest and the median time of a call in
 * microseconds.
 *
 * returns   0, -1 if a call failed or added up wrongly; then stderr says so */
int sweep_run(struct sweep *s);

#endif
