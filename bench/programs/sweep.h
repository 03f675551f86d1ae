/* sweep.h - time an all-reduce over sizes from 4 bytes to 256 MiB, or of one size for a while, the
 * same way for every library. */
#ifndef DDP_BENCH_PROGRAMS_SWEEP_H
#define DDP_BENCH_PROGRAMS_SWEEP_H

#include <stddef.h>

#define SWEEP_MAX_BYTES ((size_t)256 << 20)

struct sweep {
    int rank, world_size;
    float *data;      /* max_bytes of the kind of memory to be measured */
    size_t max_bytes; /* SWEEP_MAX_BYTES at most: larger sizes are left out */
    int repeats;      /* timings of each size; of the largest ones fewer */
    int steady_ms;    /* not 0: instead, calls of max_bytes for so long */
    int (*all_reduce)(struct sweep *s, size_t count); /* sum `data` in place; 0 or failed */
    int (*barrier)(struct sweep *s);
    void *library; /* for the two above */
};

/* Fill in what the words after the program's name say: REPEATS MAX_BYTES, or steady MS BYTES.
 *
 * returns   0, -1 if they make no sense */
int sweep_read_words(struct sweep *s, int n, char **words);

/* Every rank prints a line a size: its rank, bytes, then the fastest and the median time of a call
 * in microseconds.
 *
 * Before each call the rank writes its data, as a program does. That and a barrier stay outside of
 * the time, but for the smallest sizes: of those many calls in a row are timed, with the writing.
 *
 * Steady calls follow each other at once. The line is rank, bytes, the number of calls, and the
 * mean time of one in microseconds.
 *
 * returns   0, -1 if a call failed or added up wrongly; then stderr says so */
int sweep_run(struct sweep *s);

#endif
