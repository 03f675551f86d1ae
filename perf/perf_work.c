#include "perf_work.h"

static const struct {
    const char *name;
    bool reduces, has_root, by_blocks; /* a block for or from each rank */
} kinds[PERF_N_COLLECTIVES] = {
    [PERF_ALL_REDUCE] = {"all_reduce", .reduces = true},
    [PERF_REDUCE] = {"reduce", .reduces = true, .has_root = true},
    [PERF_REDUCE_SCATTER] = {"reduce_scatter", .reduces = true, .by_blocks = true},
    [PERF_BROADCAST] = {"broadcast", .has_root = true},
    [PERF_ALL_GATHER] = {"all_gather", .by_blocks = true},
    [PERF_GATHER] = {"gather", .has_root = true, .by_blocks = true},
    [PERF_SCATTER] = {"scatter", .has_root = true, .by_blocks = true},
    [PERF_ALL_TO_ALL] = {"all_to_all", .by_blocks = true},
    [PERF_SEND_RECV] = {"send_recv"},
    [PERF_BARRIER] = {"barrier"},
};

const char *perf_work_name(enum perf_collective c)
{
    return kinds[c].name;
}

bool perf_work_is_reduction(enum perf_collective c)
{
    return kinds[c].reduces;
}

bool perf_work_has_root(enum perf_collective c)
{
    return kinds[c].has_root;
}

/* Elements of `in` and `out`, and where one lies in the other. */
static void lay_out(const struct perf_spec *spec, struct perf_work *w, unsigned rank, unsigned n)
{
    const size_t count = w->count, all = count * n;
    const bool is_root = spec->root == (int)rank;
    w->n_in = count;
    w->n_out = count;
    w->is_in_place = true;
    switch (spec->collective) {
    case PERF_ALL_REDUCE:
    case PERF_N_COLLECTIVES:
        return;
    case PERF_REDUCE:
        w->n_out = is_root ? count : 0;
        return;
    case PERF_BROADCAST:
        w->n_in = is_root ? count : 0;
        return;
    case PERF_REDUCE_SCATTER:
        w->n_in = all;
        w->in_place = rank * count;
        return;
    case PERF_SCATTER:
        w->n_in = is_root ? all : 0;
        w->in_place = is_root ? rank * count : 0;
        return;
    case PERF_ALL_GATHER:
        w->n_out = all;
        w->in_place = rank * count;
        return;
    case PERF_GATHER:
        w->n_out = is_root ? all : 0;
        w->in_place = is_root ? rank * count : 0;
        return;
    case PERF_ALL_TO_ALL:
        w->n_in = all;
        w->n_out = all;
        return;
    case PERF_SEND_RECV:
        w->is_in_place = false;
        return;
    case PERF_BARRIER:
        *w = (struct perf_work){0};
        return;
    }
}

struct perf_work perf_work_of(const struct perf_spec *spec, uint64_t bytes, unsigned rank,
                              unsigned n)
{
    const size_t size = ddp_dtype_size(spec->dtype);
    const size_t blocks = kinds[spec->collective].by_blocks ? n : 1;
    struct perf_work w = {.count = bytes / size / blocks};
    if (w.count == 0)
        w.count = 1;
    w.bytes = (uint64_t)w.count * blocks * size;
    lay_out(spec, &w, rank, n);
    return w;
}

unsigned perf_work_iterations(const struct perf_spec *spec, uint64_t bytes)
{
    enum { LEAST = 20, MOST = 1000 };
    const uint64_t moved = (uint64_t)64 << 20;
    if (spec->n_iterations > 0)
        return spec->n_iterations;
    const uint64_t n = bytes > 0 ? moved / bytes : MOST;
    return n < LEAST ? LEAST : n > MOST ? MOST : (unsigned)n;
}

uint64_t perf_work_next(const struct perf_spec *spec, uint64_t bytes)
{
    if (spec->collective == PERF_BARRIER)
        return 0;
    const uint64_t next = spec->step_bytes > 0 ? bytes + spec->step_bytes : bytes * spec->factor;
    return next <= spec->max_bytes ? next : 0; /* neither can overflow: PERF_MAX_BYTES */
}

double perf_work_bus_factor(enum perf_collective c, unsigned n)
{
    switch (c) {
    case PERF_ALL_REDUCE:
        return 2.0 * (n - 1) / n;
    case PERF_REDUCE_SCATTER:
    case PERF_ALL_GATHER:
    case PERF_GATHER:
    case PERF_SCATTER:
    case PERF_ALL_TO_ALL:
        return (double)(n - 1) / n;
    case PERF_REDUCE:
    case PERF_BROADCAST:
    case PERF_SEND_RECV:
        return 1;
    case PERF_BARRIER:
    case PERF_N_COLLECTIVES:
        break;
    }
    return 0;
}
