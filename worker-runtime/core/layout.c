/* layout.c - which elements of `in` and `out` a collective has, and its signature. */
#include "layout.h"

#include "common/hash.h"
#include "worker-runtime/arithmetic/reduce.h"

struct call layout_call(const struct collective *what, unsigned n)
{
    struct call call = {.kind = (uint8_t)what->kind,
                        .dtype = (uint8_t)what->dtype,
                        .op = (uint8_t)what->op,
                        .root = what->root,
                        .count = what->count};
    if (what->found_inf != NULL)
        call.form = CALL_CHECKED;
    if (what->in_counts != NULL) {
        call.form = CALL_PAIRS;
        call.count = 0;
    } else if (what->counts != NULL) {
        call.form = CALL_COUNTS;
        call.count = 0;
        call.digest = CO_HASH_START;
        for (unsigned r = 0; r < n; r++) {
            call.count += what->counts[r];
            call.digest = co_hash_number(call.digest, what->counts[r]);
        }
    }
    return call;
}

static void sum_up(const size_t *counts, unsigned n, size_t *ret_first)
{
    size_t sum = 0;
    for (unsigned r = 0; r < n; r++) {
        ret_first[r] = sum;
        sum += counts[r];
    }
}

void layout_init(struct layout *l, const struct collective *what, unsigned rank, unsigned n,
                 size_t *in_first, size_t *out_first)
{
    *l = (struct layout){.kind = what->kind,
                         .rank = rank,
                         .n = n,
                         .root = what->root,
                         .size = reduce_size(what->dtype),
                         .count = what->count,
                         .counts = what->counts,
                         .in_counts = what->in_counts != NULL ? what->in_counts : what->counts,
                         .in_first = in_first,
                         .out_first = out_first,
                         .most = what->counts == NULL ? what->count : 0};
    if (l->counts == NULL)
        return;
    sum_up(l->in_counts, n, in_first);
    sum_up(l->counts, n, out_first);
    for (unsigned r = 0; r < n; r++)
        l->most = l->in_counts[r] > l->most ? l->in_counts[r] : l->most;
}

static size_t bytes_of(const struct layout *l, bool blocks, const size_t *first,
                       const size_t *counts)
{
    if (l->counts == NULL)
        return (blocks ? l->n : 1) * l->count * l->size;
    return (blocks ? first[l->n - 1] + counts[l->n - 1] : counts[l->rank]) * l->size;
}

size_t layout_in_bytes(const struct layout *l)
{
    return bytes_of(l, layout_deals(l), l->in_first, l->in_counts);
}

size_t layout_out_bytes(const struct layout *l)
{
    return bytes_of(l, layout_collects(l), l->out_first, l->counts);
}
