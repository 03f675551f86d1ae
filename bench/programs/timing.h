/* timing.h - what the programs of this folder that run under ddprun begin with: a clock, and their
 * end after a failure of libddp. */
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
