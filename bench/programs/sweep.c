#include "sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROW_CALLS   1000               /* in a row, if one alone is too short to be timed */
#define ROW_BYTES   ((size_t)1 << 10)  /* ... which is so below this size */
#define LARGE_BYTES ((size_t)16 << 20) /* from this size on a quarter of the timings is enough */
#define CLOCK_READS 1000
#define CLOCK_CALLS 16 /* steady calls for each clock reading */

static const size_t sizes[] = {4,         64,      1 << 10, 4 << 10,  16 << 10, 64 << 10,
                               256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20};

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* The least time between two clock readings. */
static double clock_cost_us(void)
{
    double least = 1e3;

    for (int i = 0; i < CLOCK_READS; i++) {
        double begun = now_us(), took = now_us() - begun;
        least = took < least ? took : least;
    }
    return least;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void write_data(struct sweep *s, size_t count)
{
    const float value = (float)(s->rank + 1);

    for (size_t i = 0; i < count; i++)
        s->data[i] = value;
}

static int is_right(const struct sweep *s, size_t count)
{
    const float expected = (float)(s->world_size * (s->world_size + 1)) / 2;

    for (size_t i = 0; i < count; i++) {
        if (s->data[i] == expected)
            continue;
        fprintf(stderr, "sweep: element %zu of %zu is %g, not %g\n", i, count, (double)s->data[i],
                (double)expected);
        return 0;
    }
    return 1;
}

/* Times many calls and the write before each. Returns microseconds for a call, or -1. */
static double time_row(struct sweep *s, size_t count)
{
    if (s->barrier(s) != 0)
        return -1;
    double begun = now_us();
    for (int i = 0; i < ROW_CALLS; i++) {
        write_data(s, count);
        if (s->all_reduce(s, count) != 0)
            return -1;
    }
    return (now_us() - begun) / ROW_CALLS;
}

/* Times one call. Returns microseconds, or -1. */
static double time_one(struct sweep *s, size_t count, double clock_us)
{
    write_data(s, count);
    if (s->barrier(s) != 0)
        return -1;
    double begun = now_us();
    if (s->all_reduce(s, count) != 0)
        return -1;
    double took = now_us() - begun - clock_us;
    return took > 0 ? took : 0;
}

static int time_size(struct sweep *s, size_t bytes, double clock_us, double *times)
{
    const size_t count = bytes / sizeof *s->data;
    const int n = bytes >= LARGE_BYTES ? (s->repeats + 3) / 4 : s->repeats;

    for (int r = -1; r < n; r++) { /* the first is for warm-up */
        double took = bytes < ROW_BYTES ? time_row(s, count) : time_one(s, count, clock_us);
        if (took < 0) {
            fprintf(stderr, "sweep: a call on %zu elements failed\n", count);
            return -1;
        }
        if (!is_right(s, count))
            return -1;
        if (r >= 0)
            times[r] = took;
    }
    qsort(times, (size_t)n, sizeof *times, compare);
    printf("%d %zu %.3f %.3f\n", s->rank, bytes, times[0], times[n / 2]);
    return 0;
}

/* Calls with one size until rank 0's time is up, which it signals in the first element. */
static int run_steadily(struct sweep *s)
{
    const size_t count = s->max_bytes / sizeof *s->data;
    double begun, now;
    long calls = 0;

    memset(s->data, 0, s->max_bytes);
    if (s->all_reduce(s, count) != 0 || s->barrier(s) != 0)
        return -1;
    begun = now = now_us();
    do {
        if (calls % CLOCK_CALLS == 0)
            now = now_us();
        s->data[0] = s->rank == 0 && now - begun > s->steady_ms * 1e3;
        if (s->all_reduce(s, count) != 0)
            return -1;
        calls++;
    } while (s->data[0] == 0);
    printf("%d %zu %ld %.3f\n", s->rank, s->max_bytes, calls, (now_us() - begun) / (double)calls);
    return 0;
}

static long number_in(const char *word, long most)
{
    char *end;
    long n = strtol(word, &end, 10);

    return *end == '\0' && n <= most ? n : -1;
}

int sweep_read_words(struct sweep *s, int n, char **words)
{
    const int is_steady = n == 3 && strcmp(words[0], "steady") == 0;

    if (n != 2 && !is_steady)
        return -1;
    long times = number_in(words[n - 2], 1000000), most = number_in(words[n - 1], SWEEP_MAX_BYTES);
    if (times < 1 || most < (long)sizeof *s->data)
        return -1;
    *(is_steady ? &s->steady_ms : &s->repeats) = (int)times;
    s->max_bytes = (size_t)most;
    return 0;
}

static int run_sizes(struct sweep *s)
{
    const double clock_us = clock_cost_us();
    double *times = calloc((size_t)s->repeats, sizeof *times);
    int rc = times != NULL ? 0 : -1;

    for (size_t i = 0; rc == 0 && i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] <= s->max_bytes)
            rc = time_size(s, sizes[i], clock_us, times);
    free(times);
    return rc;
}

int sweep_run(struct sweep *s)
{
    return s->steady_ms > 0 ? run_steadily(s) : run_sizes(s);
}
