/* sampler_plan.h - which places of the permutation a rank takes: the arithmetic of torch's
 * DistributedSampler.
 *
 * Pure. Sample k of a rank is at place (base + rank + k * world_size) mod n of the permutation.
 * Where n is no multiple of world_size the last places wrap around (or are dropped), so that all
 * ranks have as many samples; this one rule also covers n < world_size. An epoch that is taken up
 * again in the middle, by any number of ranks, is the same from place `base` on. */
#ifndef DDP_WORKER_RUNTIME_DATA_SAMPLER_PLAN_H
#define DDP_WORKER_RUNTIME_DATA_SAMPLER_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define SAMPLER_MAX_N UINT32_MAX /* entries of the permutation have 32 bits */

struct sampler_plan {
    int64_t n;      /* samples in the data set, 0 .. SAMPLER_MAX_N */
    int world_size; /* >= 1 */
    int rank;       /* 0 .. world_size - 1 */
    bool drop_last;
    int64_t base; /* places that were taken before, 0 .. n */
};

/* Samples of each rank from base on: (n - base) / world_size, rounded down with drop_last, else
 * up. */
int64_t sampler_plan_length(const struct sampler_plan *p);

/* Write samples first .. first + count - 1 of this rank; they must be below the length.
 *
 * perm   n entries, or NULL for 0, 1, 2, ... */
void sampler_plan_fill(const struct sampler_plan *p, const uint32_t *perm, int64_t first,
                       int64_t count, int64_t *ret_index);

#endif
