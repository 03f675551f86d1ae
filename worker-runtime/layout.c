#include "layout.h"

static size_t sum_of(const size_t *counts, unsigned n)
{
    size_t sum = 0;
    for (unsigned r = 0; r < n; r++)
        sum += counts[r];
    return sum;
}

struct call layout_call(const struct collective *what, unsigned n)
{
    struct call call = {.kind = (uint8_t)what->kind,
                        .dtype = (uint8_t)what->dtype,
                        .op = (uint8_t)what->op,
                        .root = what->root,
                        .count = what->count};
    if (what->in_counts != NULL) {
        call.form = CALL_PAIRS;
        call.count = 0;
    } else if (what->counts != NULL) {
        call.form = CALL_COUNTS;
        call.count = sum_of(what->counts, n);
        call.digest = call_digest(what->counts, n);
    }
    return call;
}

bool layout_has_pairs(const struct layout *l)
{
    return l->in_counts != l->counts;
}

static void sum_up(const size_t *counts, unsigned n, size_t *ret_first)
{
    size_t sum = 0;
    for (unsigned r = 0; r < n; r++) {
        ret_first[r] = sum;
        sum += counts[r];
    }
}

static size_t longest(const size_t *counts, unsigned n)
{
    size_t most = 0;
    for (unsigned r = 0; r < n; r++)
        most = counts[r] > most ? counts[r] : most;
    return most;
}

void layout_init(struct layout *l, const struct collective *what, unsigned rank, unsigned n,
                 size_t *in_first, size_t *out_first)
{
    *l = (struct layout){.kind = what->kind,
                         .rank = rank,
                         .n = n,
                         .root = what->root,
                         .size = ddp_dtype_size(what->dtype),
                         .count = what->count,
                         .counts = what->counts,
                         .in_counts = what->in_counts != NULL ? what->in_counts : what->counts,
                         .in_first = in_first,
                         .out_first = out_first,
                         .most = what->count};
    if (l->counts == NULL)
        return;
    sum_up(l->in_counts, n, in_first);
    sum_up(l->counts, n, out_first);
    l->most = longest(l->in_counts, n);
}

bool layout_gives(const struct layout *l, unsigned rank)
{
    bool from_root = l->kind == CALL_BROADCAST || l->kind == CALL_SCATTER;
    return !from_root || l->root == (int)rank;
}

bool layout_gets(const struct layout *l, unsigned rank)
{
    bool to_root = l->kind == CALL_REDUCE || l->kind == CALL_GATHER;
    return !to_root || l->root == (int)rank;
}

bool layout_deals(const struct layout *l)
{
    return l->kind == CALL_SCATTER || l->kind == CALL_REDUCE_SCATTER || l->kind == CALL_ALL_TO_ALL;
}

bool layout_collects(const struct layout *l)
{
    return l->kind == CALL_ALL_GATHER || l->kind == CALL_GATHER || l->kind == CALL_ALL_TO_ALL ||
           l->kind == CALL_GROUP_SPLIT;
}

size_t layout_n_blocks(const struct layout *l)
{
    return layout_deals(l) ? l->n : 1;
}

struct slice layout_in(const struct layout *l, unsigned for_rank)
{
    if (!layout_deals(l))
        return (struct slice){0, l->counts != NULL ? l->counts[l->rank] : l->count};
    if (l->counts == NULL)
        return (struct slice){for_rank * l->count, l->count};
    return (struct slice){l->in_first[for_rank], l->in_counts[for_rank]};
}

struct slice layout_out(const struct layout *l, unsigned from_rank)
{
    if (!layout_collects(l))
        return (struct slice){0, l->counts != NULL ? l->counts[l->rank] : l->count};
    if (l->counts == NULL)
        return (struct slice){from_rank * l->count, l->count};
    return (struct slice){l->out_first[from_rank], l->counts[from_rank]};
}

struct slice layout_in_of(const struct layout *l, unsigned rank)
{
    if (layout_deals(l))
        return layout_in(l, l->rank);
    return (struct slice){0, l->counts != NULL ? l->counts[rank] : l->count};
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
