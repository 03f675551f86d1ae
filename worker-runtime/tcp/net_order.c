/* net_order.c - groups whose positions are not ranks get the blocks of a call put in the order of
 * positions before, and of ranks after. */
#include "net.h"

#include <string.h>

static bool has_blocks(const struct layout *l)
{
    return layout_deals(l) || layout_collects(l) || l->counts != NULL;
}

static void copy_block(uint8_t *to, struct slice to_at, const uint8_t *from, struct slice from_at,
                       size_t size)
{
    if (from_at.count > 0)
        memcpy(to + to_at.first * size, from + from_at.first * size, from_at.count * size);
}

int net_put_in_order(struct net *n, struct collective *what, struct co_error *err)
{
    struct layout *given = &n->given_layout, ordered;
    const unsigned rank = n->map.rank_at[n->map.position];
    layout_init(given, what, rank, n->map.n, n->given_first[0], n->given_first[1]);
    n->is_ordered = !n->map.is_identity && has_blocks(given);
    if (!n->is_ordered)
        return 0;
    n->given = *what;
    for (unsigned p = 0; p < n->map.n && what->counts != NULL; p++) {
        n->position_counts[0][p] = given->in_counts[n->map.rank_at[p]];
        n->position_counts[1][p] = given->counts[n->map.rank_at[p]];
    }
    if (what->in_counts != NULL)
        what->in_counts = n->position_counts[0];
    if (what->counts != NULL)
        what->counts = n->position_counts[1];
    layout_init(&ordered, what, n->map.position, n->map.n, n->first[0], n->first[1]);
    const size_t in_bytes = (layout_in_bytes(&ordered) + 63) / 64 * 64;
    int code =
        net_grow(&n->ordered, &n->ordered_bytes, in_bytes + layout_out_bytes(&ordered) + 1, err);
    if (code != 0)
        return code;
    if (layout_gives(given, rank)) {
        for (unsigned p = 0; p < layout_n_blocks(given); p++) {
            const unsigned r = layout_deals(given) ? n->map.rank_at[p] : 0;
            copy_block(n->ordered, layout_in(&ordered, p), what->in, layout_in(given, r),
                       given->size);
        }
        what->in = n->ordered;
    }
    what->out = layout_gets(given, rank) ? n->ordered + in_bytes : what->out;
    return 0;
}

void net_put_back(struct net *n)
{
    const struct layout *given = &n->given_layout, *ordered = &n->job.layout;
    const unsigned rank = n->map.rank_at[n->map.position];
    if (!n->is_ordered || !layout_gets(given, rank))
        return;
    for (unsigned p = 0; p < (layout_collects(given) ? n->map.n : 1); p++) {
        const unsigned r = layout_collects(given) ? n->map.rank_at[p] : 0;
        copy_block(n->given.out, layout_out(given, r), n->job.out, layout_out(ordered, p),
                   given->size);
    }
}
