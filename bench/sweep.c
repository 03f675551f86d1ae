#include "sweep.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_CALLS  1000              /* of one timing */
#define CALL_BYTES ((size_t)4 << 20) /* short calls: as many as move this together */

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One call with known answers, which also touches the memory. Leaves zeros: sums of sums would
 * overflow. */
static int check(struct sweep *s, size_t count)
{
    const int n = s->world_size;

    for (size_t i = 0; i < count; i++)
        s->data[i] = (float)(s->rank + 1) + (float)(i % 64);
    if (s->all_reduce(s, count) != 0) {
        fprintf(stderr, "sweep: all_reduce of %zu elements failed\n", count);
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        float expected = (float)(n * (n + 1)) / 2 + (float)n * (float)(i % 64);
        if (s->data[i] != expected) {
            fprintf(stderr, "sweep: element %zu of %zu is %g, not %g\n", i, count,
                    (double)s->data[i], (double)expected);
            return -1;
        }
    }
    memset(s->data, 0, count * sizeof *s->data);
    return 0;
}

static int time_size(struct sweep *s, size_t bytes, double *times)
{
    const size_t count = bytes / sizeof *s->data;
    size_t calls = CALL_BYTES / bytes;

    calls = calls < 1 ? 1 : calls > MAX_CALLS ? MAX_CALLS : calls;
    if (check(s, count) < 0)
        return -1;
    for (int r = 0; r < s->repeats; r++) {
        if (s->barrier(s) != 0)
            return -1;
        double begun = now_us();
        for (size_t i = 0; i < calls; i++)
            if (s->all_reduce(s, count) != 0)
                return -1;
        times[r] = (now_us() - begun) / (double)calls;
    }
    qsort(times, (size_t)s->repeats, sizeof *times, compare);
    if (s->rank == 0)
        printf("%zu %.3f %.3f\n", bytes, times[0], times[s->repeats / 2]);
    return 0;
}

int sweep_run(struct sweep *s)
{
    double *times = calloc((size_t)s->repeats, sizeof *times);
    int rc = times != NULL ? 0 : -1;

    for (size_t bytes = 4; rc == 0 && bytes <= SWEEP_MAX_BYTES; bytes *= 8)
        rc = time_size(s, bytes, times);
    free(times);
    return rc;
}
