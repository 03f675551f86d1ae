/* net_schedules.c - the reductions between nodes, stage by stage, and which schedule is whose.
 * docs/collectives.md has the table.
 *
 * What all schedules have in common: the first stage is among the ranks of a node, so that they
 * agree on the call before anything leaves it; then the slots (the first ranks of each node, as
 * many as the smallest node has) exchange with the slots of the same number on other nodes, each a
 * slice.
 */
#include "net_schedules.h"
#include "net.h"
#include "net_math.h"

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

struct slice net_node_range(const struct net *n, unsigned node)
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
const size_t *net_node_counts(struct net *n, unsigned node)
{
    const unsigned first = n->map.first[node], n_local = net_map_n_local(&n->map, node);
    for (unsigned i = 0; i < n_local; i++)
        n->local_counts[i] = block_count(&n->job, first + i);
    return n->local_counts;
}

static bool is_average_of_integers(const struct net_job *j)
{
    return j->op == DDP_AVG && !net_math_is_float(j->dtype);
}

/* An average of integers is their sum, divided once at the end; one of floats is the average of the
 * nodes' averages. */
static enum ddp_op part_op(const struct net_job *j)
{
    return is_average_of_integers(j) ? DDP_SUM : j->op;
}

static bool needs_weights(const struct net *n)
{
    return n->job.op == DDP_AVG && net_math_is_float(n->job.dtype) &&
           n->map.n_slots != n->map.n_most;
}

/* Where nodes have different numbers of ranks their averages count accordingly. */
static void weigh(const struct net *n, uint8_t *at, size_t count)
{
    if (needs_weights(n))
        net_math_scale(n->job.dtype, at, count,
                       (double)net_n_local(n) * n->map.n_nodes / (double)n->map.n);
}

static struct collective local_reduction(const struct net *n, enum call_kind kind, const void *in,
                                         void *out)
{
    return (struct collective){
        .kind = kind, .dtype = n->job.dtype, .op = part_op(&n->job), .in = in, .out = out};
}

struct collective net_local_copy(const struct net *n, enum call_kind kind, const void *in,
                                 void *out)
{
    return (struct collective){.kind = kind, .dtype = n->job.dtype, .in = in, .out = out};
}

/* Everybody on this node gets the slices of `count` elements at `at`. */
int net_gather_slices(struct net *n, uint8_t *at, size_t count, struct co_error *err)
{
    const struct slice mine = net_deal(n, count);
    struct collective what =
        net_local_copy(n, CALL_ALL_GATHER, at + mine.first * n->job.layout.size, at);
    what.counts = n->local_counts;
    return net_local(n, what, err);
}

/* The ranks that are no slots get what local rank 0 has. */
int net_hand_down(struct net *n, uint8_t *at, size_t count, struct co_error *err)
{
    if (net_n_local(n) == n->map.n_slots)
        return NET_GO;
    struct collective what = net_local_copy(n, CALL_BROADCAST, at, at);
    what.count = count;
    return net_local(n, what, err);
}

/* --- all_reduce ------------------------------------------------------------------------------- */

static int all_reduce_whole(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    struct collective what = local_reduction(n, CALL_ALL_REDUCE, j->in, j->out);
    switch (stage) {
    case 0:
        what.count = j->count;
        return net_local(n, what, err);
    case 1:
        if (!net_is_slot(n))
            return NET_GO;
        weigh(n, j->out, j->count);
        return net_exchange_fold(n, j->out, j->out, true, true, j->count, err);
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
    struct collective what;
    switch (stage) {
    case 0:
        j->mine = net_deal(n, count);
        what = local_reduction(n, CALL_REDUCE_SCATTER, j->in, out + j->mine.first * size);
        what.counts = n->local_counts;
        return net_local(n, what, err);
    case 1:
        if (!net_is_slot(n))
            return NET_GO;
        at = out + j->mine.first * size;
        weigh(n, at, j->mine.count);
        for (unsigned k = 0; k < n->map.n_nodes; k++)
            n->part[k] = slice_of(j->mine.count, size, k, n->map.n_nodes);
        return net_exchange_fold(n, at, at + n->part[n->map.node].first * size, true, false, 0,
                                 err);
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
    j->mine = net_deal(n, j->count);
    int code = net_get_temp(n, j->mine.count * j->layout.size, err);
    if (code != 0)
        return code;
    struct collective what = local_reduction(n, CALL_REDUCE_SCATTER, j->in, n->temp);
    what.counts = n->local_counts;
    return net_local(n, what, err);
}

static int reduce(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    struct collective what;
    switch (stage) {
    case 0:
        return reduce_inside(n, err);
    case 1:
        if (!net_is_slot(n))
            return NET_GO;
        weigh(n, n->temp, j->mine.count);
        for (unsigned k = 0; k < n->map.n_nodes; k++)
            n->part[k] = (struct slice){0, k == j->root_node ? j->mine.count : 0};
        return net_exchange_fold(n, n->temp, n->temp, false, false, 0, err);
    case 2:
        if (n->map.node != j->root_node)
            return NET_GO;
        net_deal(n, j->count);
        what = net_local_copy(n, CALL_GATHER, n->temp, j->out);
        what.counts = n->local_counts;
        what.root = (int)(j->root - n->map.first[j->root_node]);
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
    if (stage == 0 && net_get_temp(n, first * size, err) != 0)
        return -ENOMEM;
    if (stage < n->map.n_nodes) {
        const struct slice range = net_node_range(n, stage);
        struct collective what = local_reduction(n, CALL_REDUCE_SCATTER, j->in + range.first * size,
                                                 n->temp + n->part[stage].first * size);
        what.counts = net_node_counts(n, stage);
        return net_local(n, what, err);
    }
    if (stage == n->map.n_nodes)
        return net_exchange_fold(n, n->temp, j->out, false, false, 0, err);
    return NET_DONE;
}

/* One rank on each node: from where the input lies. */
static int reduce_scatter_alone(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    if (stage > 0)
        return NET_DONE;
    for (unsigned k = 0; k < n->map.n_nodes; k++)
        n->part[k] = net_node_range(n, k);
    return net_exchange_fold(n, (uint8_t *)j->in, j->out, false, false, 0, err);
}

/* Nodes of different sizes: everybody gets everything, and takes its block. */
static int reduce_scatter_uneven(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    const size_t size = j->layout.size;
    const struct slice all = range_of(j, j->counts, j->layout.out_first, 0, n->map.n);
    int next = stage == 0 ? net_get_temp(n, all.count * size, err) : 0;
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

/* ---------------------------------------------------------------------------------------------- */

net_schedules *net_schedule_of(const struct net *n, const struct collective *what)
{
    const size_t bytes = what->count * ddp_dtype_size(what->dtype);
    switch (what->kind) {
    case CALL_ALL_REDUCE:
        return bytes <= net_tuning_whole(&n->tuning, n->map.n_nodes) ? all_reduce_whole
                                                                     : all_reduce_parts;
    case CALL_REDUCE:
        return reduce;
    case CALL_REDUCE_SCATTER:
        if (n->map.n_most == 1)
            return reduce_scatter_alone;
        return n->map.n_slots == n->map.n_most ? reduce_scatter : reduce_scatter_uneven;
    case CALL_BROADCAST:
        return net_broadcast;
    case CALL_ALL_GATHER:
    case CALL_GROUP_SPLIT:
        return net_all_gather;
    case CALL_GATHER:
        return net_gather;
    case CALL_SCATTER:
        return net_scatter;
    case CALL_ALL_TO_ALL:
        return net_all_to_all;
    default:
        return net_barrier;
    }
}
