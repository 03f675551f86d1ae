/* perf_values.h - what goes into the buffers, and whether the right thing came out. Pure.
 *
 * Elements are small whole numbers, which every type holds exactly; they depend on the rank that
 * has them and on the element's index, and repeat after PERF_PERIOD elements. */
#ifndef DDP_PERF_PERF_VALUES_H
#define DDP_PERF_PERF_VALUES_H

#include "perf_spec.h"

#define PERF_PERIOD 64

struct perf_values {
    enum perf_collective collective;
    enum ddp_dtype dtype;
    enum ddp_op op;
    unsigned n; /* ranks */
    int root;
};

/* Write `count` elements of rank's `in`. */
void perf_values_fill(const struct perf_values *v, unsigned rank, void *in, size_t count);

/* Write `count` elements that no call may leave in place. */
void perf_values_spoil(const struct perf_values *v, void *out, size_t count);

/* How many elements of rank's `out` are not what they should be.
 *
 * count   the call's argument; out has n times as many where the call collects. Floats may differ
 *         by the roundings that the type and the number of ranks allow
 * rank    one that has an `out` */
uint64_t perf_values_count_wrong(const struct perf_values *v, unsigned rank, const void *out,
                                 size_t count);

#endif
