/* pace.h - how fast a job's steps are, and which rank the others wait for in them.
 *
 * Ranks that train together take the same time for a step, whichever rank is slow: the others wait
 * for it. So the measure is a rank's own time: that of a step without what it spent in the call
 * that ends the step. The slowest rank's share is how much of a step the others would save if it
 * were as fast as the median rank. Pure. */
#ifndef DDP_LAUNCHER_SUPERVISOR_PACE_H
#define DDP_LAUNCHER_SUPERVISOR_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct progress;

struct pace_rank {
    bool is_known; /* it has a page, and has completed two steps */
    uint64_t steps, step_ns, own_ns;
};

struct pace {
    int n_known;
    int slowest;      /* local; -1: none is known */
    double share;     /* 0 to 1 */
    uint64_t steps;   /* the most that any of them has completed, what came before included */
    uint64_t step_ns; /* of the slowest */
};

/* NULL: the rank has no page. */
struct pace_rank pace_of(const struct progress *p);

/* Find that rank. ranks: n of them. */
void pace_judge(const struct pace_rank *ranks, int n, struct pace *ret);

/* Whether it is time to report it: soon after the start of a generation, then less and less often,
 * once a minute at last.
 *
 * *next_ms   when; moved on if it has come. begun_ms: the generation's start */
bool pace_is_due(uint64_t *next_ms, uint64_t begun_ms, uint64_t now_ms);

#endif
