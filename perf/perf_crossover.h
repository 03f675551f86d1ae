/* perf_crossover.h - from timings to thresholds. Pure. */
#ifndef DDP_PERF_PERF_CROSSOVER_H
#define DDP_PERF_PERF_CROSSOVER_H

#include <stddef.h>

/* Two ways were timed at n sizes, which increase. Timings within a twentieth of each other count as
 * equal, so that noise does not produce a threshold.
 *
 * returns   how many of the smallest sizes the `small` way is for: 0 none .. n all. The first
 *           size at which `large` is faster ends them */
size_t perf_crossover_up_to(const double *small_us, const double *large_us, size_t n);

/* returns   from which size on the `large` way is for: 0 all .. n none. At it and at all larger
 *           sizes `large` is faster */
size_t perf_crossover_from(const double *small_us, const double *large_us, size_t n);

/* Of n_ways ways, timed at n sizes each (us[way * n + size]), the one with the smallest sum of
 * times relative to the best of each size; the first of equal ones. */
size_t perf_crossover_best(const double *us, size_t n_ways, size_t n);

/* The first of n ways, each of which needs more than the one before, that takes at most a twentieth
 * longer than the fastest. n is at least 1. */
size_t perf_crossover_least(const double *us, size_t n);

/* "16K", "1M", "100": as a table of DDP_TUNING has it. */
#define PERF_CROSSOVER_SIZE_BYTES 24
const char *perf_crossover_size(size_t bytes, char text[PERF_CROSSOVER_SIZE_BYTES]);

#endif
