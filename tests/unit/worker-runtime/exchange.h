/* exchange.h - one collective of any kind for a test: what each rank puts in, what each must get,
 * worked out here one element after the other, and the call itself. */
#ifndef DDP_TESTS_UNIT_WORKER_RUNTIME_EXCHANGE_H
#define DDP_TESTS_UNIT_WORKER_RUNTIME_EXCHANGE_H

#include "values.h"
#include "worker-runtime/core/backend.h"

#include <ddp/ddp.h>

enum { EXCHANGE_MAX_RANKS = 32 };

struct exchange {
    enum call_kind kind; /* CALL_ALL_REDUCE .. CALL_ALL_TO_ALL */
    bool has_counts; /* the form with counts that differ; not of all_reduce, reduce, broadcast */
    enum ddp_dtype dtype;
    enum ddp_op op;
    int n, rank, root;
    uint32_t salt;
    size_t count;
    /* worked out by exchange_init() */
    size_t counts[EXCHANGE_MAX_RANKS], in_counts[EXCHANGE_MAX_RANKS];
};

static inline bool exchange_has_form(enum call_kind kind, bool has_counts)
{
    return !has_counts ||
           (kind != CALL_ALL_REDUCE && kind != CALL_REDUCE && kind != CALL_BROADCAST);
}

static inline bool exchange_deals(const struct exchange *x)
{
    return x->kind == CALL_SCATTER || x->kind == CALL_REDUCE_SCATTER || x->kind == CALL_ALL_TO_ALL;
}

static inline bool exchange_collects(const struct exchange *x)
{
    return x->kind == CALL_ALL_GATHER || x->kind == CALL_GATHER || x->kind == CALL_ALL_TO_ALL;
}

/* Elements that go from rank `from` to rank `to`. */
static inline size_t exchange_between(const struct exchange *x, int from, int to)
{
    int who = x->kind == CALL_ALL_TO_ALL ? from * EXCHANGE_MAX_RANKS + to
              : exchange_deals(x)        ? to
                                         : from;
    if (!x->has_counts)
        return x->count;
    uint32_t dice = value_mix(x->salt * 977u + (uint32_t)who);
    return dice % 5 == 0 ? 0 : dice % (2 * x->count + 1);
}

static inline size_t exchange_in_count(const struct exchange *x, int rank)
{
    size_t sum = 0;
    if (!exchange_deals(x))
        return exchange_between(x, rank, 0);
    for (int to = 0; to < x->n; to++)
        sum += exchange_between(x, rank, to);
    return sum;
}

static inline size_t exchange_out_count(const struct exchange *x)
{
    size_t sum = 0;
    if ((x->kind == CALL_REDUCE || x->kind == CALL_GATHER) && x->rank != x->root)
        return 0;
    if (!exchange_collects(x))
        return exchange_between(x, exchange_deals(x) ? x->root : x->rank, x->rank);
    for (int from = 0; from < x->n; from++)
        sum += exchange_between(x, from, x->rank);
    return sum;
}

static inline void exchange_init(struct exchange *x)
{
    for (int r = 0; r < x->n; r++) {
        x->in_counts[r] = exchange_between(x, x->rank, r);
        x->counts[r] = x->kind == CALL_ALL_TO_ALL ? exchange_between(x, r, x->rank)
                                                  : exchange_between(x, r, r);
    }
}

static inline void exchange_fill(const struct exchange *x, void *in)
{
    values_fill(in, x->dtype, x->salt, x->rank, exchange_in_count(x, x->rank));
}

/* Where the block for `to` begins in the `in` of `from`, in elements. */
static inline size_t exchange_first(const struct exchange *x, int from, int to)
{
    size_t first = 0;
    for (int r = 0; exchange_deals(x) && r < to; r++)
        first += exchange_between(x, from, r);
    return first;
}

static inline uint8_t *exchange_put_block(const struct exchange *x, int from, uint8_t *to)
{
    const size_t size = ddp_dtype_size(x->dtype), first = exchange_first(x, from, x->rank);
    const size_t count = exchange_between(x, from, x->rank);
    values_fill_from(to, x->dtype, x->salt, from, first, count);
    return to + count * size;
}

/* What this rank must get. free() it. */
static inline uint8_t *exchange_expected(const struct exchange *x)
{
    const size_t size = ddp_dtype_size(x->dtype), bytes = exchange_out_count(x) * size;
    if (call_is_reduction(x->kind)) {
        size_t first = exchange_first(x, x->rank, x->rank) * size;
        uint8_t *sums =
            values_reduced(x->dtype, x->op, x->salt, x->n, exchange_in_count(x, x->rank));
        memmove(sums, sums + first, bytes);
        return sums;
    }
    uint8_t *result = malloc(bytes + 1), *end = result;
    if (exchange_collects(x) && bytes > 0)
        for (int from = 0; from < x->n; from++)
            end = exchange_put_block(x, from, end);
    else if (bytes > 0)
        exchange_put_block(x, x->root, result);
    return result;
}

/* Where `in` and `out` may overlap in one buffer: offsets of both from its beginning, in
 * elements. */
static inline void exchange_in_place(const struct exchange *x, size_t *ret_in, size_t *ret_out)
{
    *ret_in = *ret_out = 0;
    if (x->kind == CALL_ALL_GATHER || x->kind == CALL_GATHER)
        for (int r = 0; r < x->rank; r++)
            *ret_in += exchange_between(x, r, r);
    if (x->kind == CALL_SCATTER || x->kind == CALL_REDUCE_SCATTER)
        *ret_out = exchange_first(x, x->root, x->rank);
}

static inline struct collective exchange_collective(const struct exchange *x, const void *in,
                                                    void *out)
{
    struct collective c = {.kind = x->kind,
                           .dtype = x->dtype,
                           .op = call_is_reduction(x->kind) ? x->op : DDP_SUM,
                           .root = call_has_root(x->kind) ? x->root : 0,
                           .count = x->count,
                           .in = in,
                           .out = out};
    if (!x->has_counts)
        return c;
    c.count = 0;
    c.counts = x->counts;
    c.in_counts = x->kind == CALL_ALL_TO_ALL ? x->in_counts : NULL;
    return c;
}

/* The public call. */
static inline int exchange_call(const struct exchange *x, struct ddp_group *g, const void *in,
                                void *out)
{
    const bool v = x->has_counts;
    switch (x->kind) {
    case CALL_ALL_REDUCE:
        return ddp_all_reduce(g, in, out, x->count, x->dtype, x->op, NULL);
    case CALL_REDUCE:
        return ddp_reduce(g, in, out, x->count, x->dtype, x->op, x->root, NULL);
    case CALL_BROADCAST:
        return ddp_broadcast(g, in, out, x->count, x->dtype, x->root, NULL);
    case CALL_ALL_GATHER:
        return v ? ddp_all_gather_v(g, in, out, x->counts, x->dtype, NULL)
                 : ddp_all_gather(g, in, out, x->count, x->dtype, NULL);
    case CALL_REDUCE_SCATTER:
        return v ? ddp_reduce_scatter_v(g, in, out, x->counts, x->dtype, x->op, NULL)
                 : ddp_reduce_scatter(g, in, out, x->count, x->dtype, x->op, NULL);
    case CALL_GATHER:
        return v ? ddp_gather_v(g, in, out, x->counts, x->dtype, x->root, NULL)
                 : ddp_gather(g, in, out, x->count, x->dtype, x->root, NULL);
    case CALL_SCATTER:
        return v ? ddp_scatter_v(g, in, out, x->counts, x->dtype, x->root, NULL)
                 : ddp_scatter(g, in, out, x->count, x->dtype, x->root, NULL);
    case CALL_ALL_TO_ALL:
        return v ? ddp_all_to_all_v(g, in, x->in_counts, out, x->counts, x->dtype, NULL)
                 : ddp_all_to_all(g, in, out, x->count, x->dtype, NULL);
    default:
        return ddp_barrier(g);
    }
}

#endif
