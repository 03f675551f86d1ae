/* perf_work.h - the collectives by name: how many bytes go in and come out, and what counts as
 * their bandwidth. Pure.
 *
 * "bytes" of a collective is the larger of `in` and `out` on the rank that has most, as in
 * nccl-tests: what all ranks put together for all_gather and gather, what is dealt out for
 * reduce_scatter and scatter.
 *
 * Bandwidths, in 10^9 bytes a second: "algbw" is bytes over time; "busbw" is algbw times what the
 * algorithm must move for each byte, so that it can be compared with the hardware's whatever the
 * number of ranks. */
#ifndef DDP_PERF_PERF_WORK_H
#define DDP_PERF_PERF_WORK_H

#include "perf_spec.h"

struct perf_work {
    size_t count;     /* the call's argument */
    size_t n_in;      /* elements of this rank's `in`; 0: it has none */
    size_t n_out;     /* elements of this rank's `out`; 0: it has none */
    size_t in_place;  /* where the smaller of the two lies in the larger, in elements */
    uint64_t bytes;   /* that are reported: those asked for, without what is left over */
    bool is_in_place; /* the call has an in-place form */
};

const char *perf_work_name(enum perf_collective c); /* "all_reduce" */
bool perf_work_is_reduction(enum perf_collective c);
bool perf_work_has_root(enum perf_collective c);

/* The call for `bytes` in all, on one rank of n; at least one element for each block. */
struct perf_work perf_work_of(const struct perf_spec *spec, uint64_t bytes, unsigned rank,
                              unsigned n);

/* Timed calls of this size: those asked for, or as many as move some 64 MiB, 20 to 1000. */
unsigned perf_work_iterations(const struct perf_spec *spec, uint64_t bytes);

/* The size after `bytes`, 0 after the last one. */
uint64_t perf_work_next(const struct perf_spec *spec, uint64_t bytes);

double perf_work_bus_factor(enum perf_collective c, unsigned n);

#endif
