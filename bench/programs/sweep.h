/* sweep.h - time an all-reduce over sizes from 4 bytes to 256 MiB, or of one size for a while, the
 * same way for every library. */
#ifndef DDP_BENCH_PROGRAMS_SWEEP_H
#define DDP_BENCH_PROGRAMS_SWEEP_H

#include <stddef.h>

#define SWEEP_MAX_BYTES ((size_t)256 << 20)

struct sweep {
    int rank, world_size;
    float *data;      /* max_bytes of the measured kind of memory */
    size_t max_bytes; /* SWEEP_MAX_BYTES at most: larger sizes are left out */
    int repeats;      /* timings of each size; fewer for the largest sizes */
    int steady_ms;    /* if not 0: calls with max_bytes for so long instead */
    int (*all_reduce)(struct sweep *s, size_t count); /* sum `data` in place; 0 if it succeeds */
    int (*barrier)(struct sweep *s);
    void *library; /* for the two functions above */
};

/* Parse the program's arguments into `s`: REPEATS MAX_BYTES, or steady MS BYTES.
 *
 * returns   0, -1 if they are invalid */
int sweep_read_words(struct sweep *s, int n, char **words);

/* Every rank prints a line for each size: its rank, bytes, then the fastest and the median time of
 * a call in microseconds.
 *
 * Before each call the rank writes its data, as a real program does. The write and a barrier are
 * not part of the time, except for the smallest sizes: there many calls in a row are timed, with
 * the writes.
 *
 * Steady calls follow each other at once. The line is rank, bytes, the number of calls, and the
 * mean time of a call in microseconds.
 *
 * returns   0, -1 after a message on stderr if a call failed or its sum is wrong */
int sweep_run(struct sweep *s);

#endif
