/* timing.h - common code of the programs in this directory that run under ddprun: a clock, and the
 * exit after a failure of libddp. */
#ifndef DDP_BENCH_PROGRAMS_TIMING_H
#define DDP_BENCH_PROGRAMS_TIMING_H

#include <ddp/ddp.h>
#include <time.h>

static inline double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static inline void check(int rc, const char *what)
{
    if (rc != 0)
        ddp_fatal(what);
}

#endif
