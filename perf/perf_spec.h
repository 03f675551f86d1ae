/* perf_spec.h - what ddp-perf was asked to measure. */
#ifndef DDP_PERF_PERF_SPEC_H
#define DDP_PERF_PERF_SPEC_H

#include <ddp/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum perf_collective {
    PERF_ALL_REDUCE,
    PERF_REDUCE,
    PERF_REDUCE_SCATTER,
    PERF_BROADCAST,
    PERF_ALL_GATHER,
    PERF_GATHER,
    PERF_SCATTER,
    PERF_ALL_TO_ALL,
    PERF_SEND_RECV, /* each rank to the next, around the ring */
    PERF_BARRIER,
    PERF_N_COLLECTIVES,
};

enum perf_buffer {
    PERF_SEGMENT, /* ddp_alloc() */
    PERF_PLAIN,   /* any other memory */
};

#define PERF_MAX_BYTES      ((uint64_t)1 << 40)
#define PERF_MAX_ITERATIONS 1000000
#define PERF_MAX_RANKS      1024

struct perf_spec {
    enum perf_collective collective;
    enum ddp_dtype dtype;
    enum ddp_op op;
    int root;
    uint64_t min_bytes, max_bytes; /* min_bytes <= max_bytes */
    uint64_t step_bytes;           /* 0: sizes grow by the factor */
    unsigned factor;               /* 2 or more */
    unsigned n_iterations;         /* 0: by size */
    unsigned n_warmups;
    bool check;
    bool rewrite; /* buffers are written before each timed call */
    bool json;
    bool tune;
    enum perf_buffer buffer;
    unsigned n_ranks; /* to start; 0: a launcher has started them */
};

#endif
