/* schedules.h - the runs of a simulation, one for each seed. */
#ifndef DDP_TESTS_SIM_SCHEDULES_H
#define DDP_TESTS_SIM_SCHEDULES_H

#include "tests/support/sanitized.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Whether it is a replayed one (SIM_SEED), whose events are printed. */
static inline bool schedules_are_told(void)
{
    return getenv("SIM_SEED") != NULL;
}

/* If so, print a line of it after the virtual time. */
__attribute__((format(printf, 2, 3))) static inline void schedules_tell(uint64_t now_ms,
                                                                        const char *format, ...)
{
    static int is_told = -1;
    if (is_told < 0)
        is_told = schedules_are_told();
    if (!is_told)
        return;
    va_list args;
    va_start(args, format);
    printf("%7" PRIu64 " ", now_ms);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

/* A sanitizer looks at how a state is come to, and has no need of all of them. */
enum { SCHEDULES_PART = SANITIZED ? 4 : 1 };

/* Run the seeds 1 to `usual`, or to SIM_RUNS; or SIM_SEED alone.
 *
 * returns   how many; 0: one was replayed */
static inline uint64_t schedules_run(uint64_t usual, void (*run)(uint64_t seed))
{
    const char *one = getenv("SIM_SEED");
    const char *runs = getenv("SIM_RUNS");
    const uint64_t n = runs != NULL ? strtoull(runs, NULL, 10) : usual / SCHEDULES_PART;
    if (one != NULL) {
        run(strtoull(one, NULL, 10));
        return 0;
    }
    for (uint64_t seed = 1; seed <= n; seed++)
        run(seed);
    return n;
}

#endif
