#include "perf_crossover.h"

#include <stdbool.h>
#include <stdio.h>

static bool is_faster(double us, double other_us)
{
    return us < other_us * 0.95;
}

size_t perf_crossover_up_to(const double *small_us, const double *large_us, size_t n)
{
    size_t i = 0;
    while (i < n && !is_faster(large_us[i], small_us[i]))
        i++;
    return i;
}

size_t perf_crossover_from(const double *small_us, const double *large_us, size_t n)
{
    size_t i = n;
    while (i > 0 && is_faster(large_us[i - 1], small_us[i - 1]))
        i--;
    return i;
}

static double best_of(const double *us, size_t n_ways, size_t n, size_t size)
{
    double best = us[size];
    for (size_t w = 1; w < n_ways; w++)
        best = us[w * n + size] < best ? us[w * n + size] : best;
    return best;
}

size_t perf_crossover_best(const double *us, size_t n_ways, size_t n)
{
    size_t best = 0;
    double best_sum = 0;
    for (size_t w = 0; w < n_ways; w++) {
        double sum = 0;
        for (size_t s = 0; s < n; s++)
            sum += us[w * n + s] / best_of(us, n_ways, n, s);
        if (w > 0 && sum >= best_sum)
            continue;
        best = w;
        best_sum = sum;
    }
    return best;
}

size_t perf_crossover_least(const double *us, size_t n)
{
    const double best = best_of(us, n, 1, 0);
    size_t i = 0;
    while (is_faster(best, us[i]))
        i++;
    return i;
}

const char *perf_crossover_size(size_t bytes, char text[PERF_CROSSOVER_SIZE_BYTES])
{
    static const char *const units[] = {"", "K", "M", "G", "T"};
    size_t unit = 0;
    while (unit + 1 < sizeof units / sizeof *units && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, PERF_CROSSOVER_SIZE_BYTES, "%zu%s", bytes, units[unit]);
    return text;
}
