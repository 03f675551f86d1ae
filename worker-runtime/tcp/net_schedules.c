/* net_schedules.c - the collectives between nodes, stage by stage, and which schedule a call
 * follows (net_schedule_of(), at the end). docs/design/collectives.md has the table.
 *
 * What all schedules have in common: the first stage is among the ranks of a node, so that they
 * agree on the call before anything leaves it; then the slots (the first ranks of each node, as
 * many as the smallest node has) exchange with the slots of the same number on other nodes, each a
 * slice; then the ranks of a node share what came. A schedule is called with stage 0, 1, 2, ... and
 * keeps what it needs later in n->job. It must come to the same stages on all ranks of a node, and
 * to the same exchanges on all nodes: so it looks at nothing but the call and the map. */
#include "net.h"

#include <errno.h>
#include <string.h>

/* --- small things ----------------------------------------------------------------------------- */

/* Elements of positions [from, to) in a buffer that has a block for each. */
static struct slice range_of(const struct net_job *j, const size_t *counts, const size_t *first,
                             unsigned from, unsigned to)
{
    if (counts == NULL)
        return (struct slice){from * j->count, (to - from) * j->count};
    return (struct slice){first[from], first[to - 1] + counts[to - 1] - first[from]};
}

static struct slice node_range(const struct net *n, unsigned node)
{
    const struct net_map *m = &n->map;
    return range_of(&n->job, n->job.counts, n->job.layout.out_first, m->first[node],
                    m->first[node + 1]);
}

static size_t block_count(const struct net_job *j, unsigned position)
{
    return j->counts != NULL ? j->counts[position] : j->count;
}

/* Counts of the blocks of a node's ranks, for a local part. */
static const size_t *node_counts(struct net *n, unsigned node)
{
    const unsigned first = n->map.first[node], n_local = net_map_n_local(&n->map, node);
    for (unsigned i = 0; i < n_local; i++)
        n->local_counts[i] = block_count(&n->job, first + i);
    return n->local_counts;
}

static int get_temp(struct net *n, size_t bytes, struct co_error *err)
{
    return net_grow(&n->temp, &n->temp_bytes, bytes + 1, err);
}

/* --- all_reduce ------------------------------------------------------------------------------- */

static int all_reduce_whole(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    const struct collective what = {
        .kind = CALL_ALL_REDUCE, .in = j->in, .out = j->out, .count = j->count};
    switch (stage) {
    case 0:
        return net_local(n, what, err);
    case 1:
        if (!net_is_slot(n))
            return NET_GO;
        net_weigh(n, j->out, j->count);
        return net_exchange_whole(n, j->out, j->count, err);
    case 2:
        return net_hand_down(n, j->out, j->count, err);
    default:
        return NET_DONE;
    }
}

/* Reduce the `count` elements of j->in into `out`. */
static int all_reduce_parts_to(struct net *n, unsigned stage, uint8_t *out, size_t count,
                               struct co_error *err)
{
    struct net_job *j = &n->job;
    const size_t size = j->layout.size;
    uint8_t *at;
    switch (stage) {
    case 0:
        return net_reduce_slices(n, out, count, err);
    case 1:
        if (!net_is_slot(n))
            return NET_GO;
        at = out + j->mine.first * size;
        net_weigh(n, at, j->mine.count);
        for (unsigned k = 0; k < n->map.n_nodes; k++)
            n->part[k] = slice_of(j->mine.count, size, k, n->map.n_nodes);
        return net_exchange_fold(n, at, at + n->part[n->map.node].first * size, true, err);
    case 2:
        return net_gather_slices(n, out, count, err);
    default:
        return NET_DONE;
    }
}

static int all_reduce_parts(struct net *n, unsigned stage, struct co_error *err)
{
    return all_reduce_parts_to(n, stage, n->job.out, n->job.count, err);
}

/* --- reduce ----------------------------------------------------------------------------------- */

/* This node's slices of the sum, in n->temp; alone on a node the input is that already. */
static int reduce_inside(struct net *n, struct co_error *err)
{
    struct net_job *j = &n->job;
    j->mine = net_deal_slices(n, j->count);
    int code = get_temp(n, j->mine.count * j->layout.size, err);
    if (code != 0)
        return code;
    const struct collective what = {
        .kind = CALL_REDUCE_SCATTER, .in = j->in, .out = n->temp, .counts = n->local_counts};
    return net_local(n, what, err);
}

static int reduce_stage(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    struct collective what;
    switch (stage) {
    case 0:
        return reduce_inside(n, err);
    case 1:
        if (!net_is_slot(n))
            return NET_GO;
        net_weigh(n, n->temp, j->mine.count);
        for (unsigned k = 0; k < n->map.n_nodes; k++)
            n->part[k] = (struct slice){0, k == j->root_node ? j->mine.count : 0};
        return net_exchange_fold(n, n->temp, n->temp, false, err);
    case 2:
        if (n->map.node != j->root_node)
            return NET_GO;
        net_deal_slices(n, j->count);
        what = (struct collective){.kind = CALL_GATHER,
                                   .in = n->temp,
                                   .out = j->out,
                                   .counts = n->local_counts,
                                   .root = (int)(j->root - n->map.first[j->root_node])};
        return net_local(n, what, err);
    default:
        return NET_DONE;
    }
}

/* --- reduce_scatter --------------------------------------------------------------------------- */

/* Nodes of one size: local rank i has the node's sum of the blocks of every node's local rank i. */
static int reduce_scatter(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    const size_t size = j->layout.size;
    size_t first = 0;
    for (unsigned k = 0; k < n->map.n_nodes; k++) {
        n->part[k] = (struct slice){first, block_count(j, n->map.first[k] + n->map.local)};
        first += n->part[k].count;
    }
    if (stage == 0 && get_temp(n, first * size, err) != 0)
        return -ENOMEM;
    if (stage < n->map.n_nodes) {
        const struct slice range = node_range(n, stage);
        const struct collective what = {.kind = CALL_REDUCE_SCATTER,
                                        .in = j->in + range.first * size,
                                        .out = n->temp + n->part[stage].first * size,
                                        .counts = node_counts(n, stage)};
        return net_local(n, what, err);
    }
    if (stage == n->map.n_nodes)
        return net_exchange_fold(n, n->temp, j->out, false, err);
    return NET_DONE;
}

/* One rank on each node: from where the input lies. */
static int reduce_scatter_alone(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    if (stage > 0)
        return NET_DONE;
    for (unsigned k = 0; k < n->map.n_nodes; k++)
        n->part[k] = node_range(n, k);
    return net_exchange_fold(n, (uint8_t *)j->in, j->out, false, err);
}

/* Nodes of different sizes: every rank gets everything, and takes its block. */
static int reduce_scatter_uneven(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    const size_t size = j->layout.size;
    const struct slice all = range_of(j, j->counts, j->layout.out_first, 0, n->map.n);
    int next = stage == 0 ? get_temp(n, all.count * size, err) : 0;
    if (next == 0)
        next = all_reduce_parts_to(n, stage, n->temp, all.count, err);
    if (next == NET_DONE) {
        const unsigned me = n->map.position;
        const struct slice block = range_of(j, j->counts, j->layout.out_first, me, me + 1);
        if (block.count > 0)
            memcpy(j->out, n->temp + block.first * size, block.count * size);
    }
    return next;
}

/* --- copies by slices ------------------------------------------------------------------------- */

static unsigned node_of_peer(const struct net *n, unsigned p)
{
    return p < n->map.node ? p : p + 1;
}

static struct tcp_piece piece_of(const struct net *n, const uint8_t *at, struct slice s)
{
    const size_t size = n->job.layout.size;
    if (s.count == 0)
        return (struct tcp_piece){0};
    return (struct tcp_piece){(uint8_t *)at + s.first * size, s.count * size};
}

/* The slot of each node sends n->part[] of its node, elements of `out`, to those of all others. */
static int exchange_parts(struct net *n)
{
    const unsigned n_peers = n->map.n_nodes - 1;
    if (!net_is_slot(n))
        return NET_GO;
    for (unsigned p = 0; p < n_peers; p++) {
        n->to[p] = piece_of(n, n->job.out, n->part[n->map.node]);
        n->from[p] = piece_of(n, n->job.out, n->part[node_of_peer(n, p)]);
    }
    return net_exchange_copies(n, n->slot_peer, n_peers);
}

/* Each node's slots share out what its ranks have put in. */
static int exchange_gathered(struct net *n)
{
    for (unsigned k = 0; k < n->map.n_nodes; k++) {
        const struct slice range = node_range(n, k);
        const struct slice mine = net_slot_slice(n, range.count, n->map.local);
        n->part[k] = (struct slice){range.first + mine.first, mine.count};
    }
    return exchange_parts(n);
}

static int all_gather(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    const struct slice own = node_range(n, n->map.node);
    const unsigned p = stage - 2;
    if (stage == 0) {
        const struct collective what = {.kind = CALL_ALL_GATHER,
                                        .in = j->in,
                                        .out = j->out != NULL ? j->out + own.first * j->layout.size
                                                              : NULL,
                                        .counts = node_counts(n, n->map.node)};
        return net_local(n, what, err);
    }
    if (stage == 1)
        return exchange_gathered(n);
    if (p + 1 >= n->map.n_nodes)
        return NET_DONE;
    const struct slice range = node_range(n, node_of_peer(n, p));
    return range.count == 0
               ? NET_GO
               : net_gather_slices(n, j->out + range.first * j->layout.size, range.count, err);
}

/* Nothing goes out but root's slice. */
static int exchange_from_root(struct net *n, struct slice of_root)
{
    for (unsigned k = 0; k < n->map.n_nodes; k++)
        n->part[k] = k == n->job.root_node ? of_root : (struct slice){0};
    return exchange_parts(n);
}

static int broadcast_inside(struct net *n, struct co_error *err)
{
    const struct net_job *j = &n->job;
    if (n->map.node != j->root_node)
        return net_local_meeting(n, err);
    const struct collective what = {.kind = CALL_BROADCAST,
                                    .in = j->in,
                                    .out = j->out,
                                    .count = j->count,
                                    .root = (int)(j->root - n->map.first[j->root_node])};
    return net_local(n, what, err);
}

static int broadcast_stage(struct net *n, unsigned stage, struct co_error *err)
{
    const struct net_job *j = &n->job;
    const bool whole = j->count * j->layout.size <= n->tuning.small_bytes;
    switch (stage) {
    case 0:
        return broadcast_inside(n, err);
    case 1:
        return exchange_from_root(n, whole ? (struct slice){0, j->count}
                                           : net_slot_slice(n, j->count, n->map.local));
    case 2:
        if (n->map.node == j->root_node)
            return NET_GO;
        return whole ? net_hand_down(n, j->out, j->count, err)
                     : net_gather_slices(n, j->out, j->count, err);
    default:
        return NET_DONE;
    }
}

static int barrier(struct net *n, unsigned stage, struct co_error *err)
{
    switch (stage) {
    case 0:
        return net_local_meeting(n, err);
    case 1:
        return exchange_from_root(n, (struct slice){0});
    case 2:
        return net_n_local(n) == n->map.n_slots ? NET_GO : net_local_meeting(n, err);
    default:
        return NET_DONE;
    }
}

/* --- copies from rank to rank ----------------------------------------------------------------- */

/* This rank and each rank of another node for which it has a block, or that has one for it. */
static int exchange_blocks(struct net *n)
{
    const struct net_job *j = &n->job;
    const struct layout *l = &j->layout;
    const unsigned me = n->map.position, *node = &n->map.first[n->map.node];
    unsigned n_peers = 0;
    for (unsigned k = 1; k < n->map.n; k++) { /* not all of them first with the same one */
        const unsigned q = (me + k) % n->map.n;
        const bool sends = layout_gives(l, me) && layout_gets(l, q);
        const bool receives = layout_gives(l, q) && layout_gets(l, me);
        if ((q >= node[0] && q < node[1]) || (!sends && !receives))
            continue;
        n->peer[n_peers] = q;
        n->to[n_peers] = piece_of(n, j->in, sends ? layout_in(l, q) : (struct slice){0});
        n->from[n_peers++] = piece_of(n, j->out, receives ? layout_out(l, q) : (struct slice){0});
    }
    return net_exchange_copies(n, n->peer, n_peers);
}

/* Inside of root's node root has only the blocks of that node's ranks. */
static int gather_or_scatter(struct net *n, unsigned stage, struct co_error *err)
{
    const struct net_job *j = &n->job;
    const struct layout *l = &j->layout;
    const unsigned first = n->map.first[j->root_node];
    if (stage == 1)
        return exchange_blocks(n);
    if (stage > 1)
        return NET_DONE;
    if (n->map.node != j->root_node)
        return net_local_meeting(n, err);
    struct collective what = {.kind = l->kind,
                              .in = j->in,
                              .out = j->out,
                              .counts = node_counts(n, n->map.node),
                              .root = (int)(j->root - first)};
    if (l->kind == CALL_SCATTER && n->map.position == j->root && j->in != NULL)
        what.in = j->in + layout_in(l, first).first * l->size;
    if (l->kind == CALL_GATHER && n->map.position == j->root && j->out != NULL)
        what.out = j->out + layout_out(l, first).first * l->size;
    return net_local(n, what, err);
}

/* In place: blocks would be overwritten that have not gone yet. */
static int keep_in(struct net *n, struct co_error *err)
{
    struct net_job *j = &n->job;
    const size_t bytes = layout_in_bytes(&j->layout);
    if (j->in != j->out || bytes == 0)
        return 0;
    int code = get_temp(n, bytes, err);
    if (code == 0) {
        memcpy(n->temp, j->in, bytes);
        j->in = n->temp;
    }
    return code;
}

static int all_to_all(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    const unsigned first = n->map.first[n->map.node];
    const size_t size = j->layout.size;
    if (stage == 1)
        return exchange_blocks(n);
    if (stage > 1)
        return NET_DONE;
    int code = keep_in(n, err);
    if (code != 0)
        return code;
    struct collective what = {.kind = CALL_ALL_TO_ALL, .count = j->count};
    if (j->in != NULL)
        what.in = j->in + layout_in(&j->layout, first).first * size;
    if (j->out != NULL)
        what.out = j->out + layout_out(&j->layout, first).first * size;
    what.counts = j->counts != NULL ? j->counts + first : NULL;
    what.in_counts = j->in_counts != NULL ? j->in_counts + first : NULL;
    return net_local(n, what, err);
}

/* --- which schedule --------------------------------------------------------------------------- */

static net_schedule *all_reduce_of(enum cost_algo algo)
{
    switch (algo) {
    case COST_WHOLE:
        return all_reduce_whole;
    case COST_DOUBLING:
        return net_all_reduce_doubling;
    case COST_PASSING:
        return net_all_reduce_passing;
    default:
        return all_reduce_parts;
    }
}

net_schedule *net_schedule_of(const struct net *n, const struct collective *what)
{
    const size_t bytes = what->count * ddp_dtype_size(what->dtype);
    switch (what->kind) {
    case CALL_ALL_REDUCE:
        return all_reduce_of(net_tuning_algo(&n->tuning, n->map.n_nodes, bytes));
    case CALL_REDUCE:
        return reduce_stage;
    case CALL_REDUCE_SCATTER:
        if (n->map.n_most == 1)
            return reduce_scatter_alone;
        return n->map.n_slots == n->map.n_most ? reduce_scatter : reduce_scatter_uneven;
    case CALL_BROADCAST:
        return broadcast_stage;
    case CALL_ALL_GATHER:
    case CALL_GROUP_SPLIT:
        return all_gather;
    case CALL_GATHER:
    case CALL_SCATTER:
        return gather_or_scatter;
    case CALL_ALL_TO_ALL:
        return all_to_all;
    default:
        return barrier;
    }
}
