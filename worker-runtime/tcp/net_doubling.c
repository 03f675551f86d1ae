/* net_doubling.c - the all_reduce of many nodes, in which a node passes on what it has received
 * (worker-runtime/cost/cost.h): whole vectors if they are short, otherwise parts. In both each node
 * adds the vectors, or parts, of all nodes in the order of the nodes: the bits are those of the
 * other algorithms. */
#include "net.h"
#include "worker-runtime/cost/cost.h"

#include <string.h>

static unsigned slot_of(const struct net *n, unsigned node)
{
    return n->map.first[node] + n->map.local;
}

/* Step k: `to` goes to one node, `from` comes from another one, or from the same. */
static int exchange_step(struct net *n, unsigned k, struct tcp_piece to, struct tcp_piece from)
{
    const struct cost_step s = cost_doubling_step(n->map.n_nodes, n->map.node, k);
    const struct tcp_piece none = {0};
    const bool is_one_peer = s.to == s.from;
    n->peer[0] = slot_of(n, s.to);
    n->peer[1] = slot_of(n, s.from);
    n->to[0] = to;
    n->from[0] = is_one_peer ? from : none;
    n->to[1] = none;
    n->from[1] = from;
    return net_exchange_copies(n, n->peer, is_one_peer ? 1 : 2);
}

/* Step k of collecting `one` bytes of each node. `at` has this node's, then those of the next node,
 * and so on. */
static int collect_step(struct net *n, unsigned k, uint8_t *at, size_t one)
{
    const struct cost_step s = cost_doubling_step(n->map.n_nodes, n->map.node, k);
    return exchange_step(n, k, (struct tcp_piece){at, s.n_more * one},
                         (struct tcp_piece){at + s.n_have * one, s.n_more * one});
}

/* --- whole vectors ---------------------------------------------------------------------------- */

static int begin_whole(struct net *n, struct co_error *err)
{
    const struct net_job *j = &n->job;
    const size_t one = j->count * j->layout.size;
    const int code = net_grow(&n->scratch, &n->scratch_bytes, n->map.n_nodes * one + 1, err);
    if (code != 0)
        return code;
    net_weigh(n, j->out, j->count);
    if (one > 0)
        memcpy(n->scratch, j->out, one);
    return 0;
}

int net_all_reduce_doubling(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    const unsigned last = 1 + cost_doubling_steps(n->map.n_nodes);
    const struct collective what = {
        .kind = CALL_ALL_REDUCE, .in = j->in, .out = j->out, .count = j->count};
    if (stage == 0)
        return net_local(n, what, err);
    if (stage > last)
        return NET_DONE;
    if (stage == last && net_is_slot(n))
        net_reduce_gathered(n, j->out, j->out, j->count);
    if (stage == last)
        return net_hand_down(n, j->out, j->count, err);
    if (!net_is_slot(n))
        return NET_GO;
    const int code = stage == 1 ? begin_whole(n, err) : 0;
    return code != 0 ? code : collect_step(n, stage - 1, n->scratch, j->count * j->layout.size);
}

/* --- parts ------------------------------------------------------------------------------------
 *
 * n->scratch has two areas of a block for each node; a block holds the longest part:
 *
 *     blocks   block b: this node's part of node b places before it. After the steps of passing,
 *              this node's part of node b places after it
 *     area     while parts are passed, what a step sends, and after it what it receives; then the
 *              sums: block b of node b places after this one */

/* Elements of a block. The last parts are shorter, or empty; their blocks end with zeros. */
static size_t block_count(const struct net *n)
{
    return (n->job.mine.count + n->map.n_nodes - 1) / n->map.n_nodes;
}

static size_t block_bytes(const struct net *n)
{
    return block_count(n) * n->job.layout.size;
}

static uint8_t *area_of(const struct net *n)
{
    return n->scratch + n->map.n_nodes * block_bytes(n);
}

static uint8_t *mine_of(const struct net *n)
{
    return n->job.out + n->job.mine.first * n->job.layout.size;
}

/* Bytes of the slice from those of node `node`'s part on; at most a block of them are the part. */
static size_t part_bytes(const struct net *n, unsigned node)
{
    const size_t all = n->job.mine.count * n->job.layout.size, one = block_bytes(n);
    const size_t left = all > node * one ? all - node * one : 0;
    return left < one ? left : one;
}

static int begin_parts(struct net *n, struct co_error *err)
{
    const unsigned n_nodes = n->map.n_nodes;
    const size_t one = block_bytes(n);
    const int code = net_grow(&n->scratch, &n->scratch_bytes, 2 * n_nodes * one + 1, err);
    if (code != 0)
        return code;
    net_weigh(n, mine_of(n), n->job.mine.count);
    for (unsigned b = 0; one > 0 && b < n_nodes; b++) {
        const unsigned node = (n->map.node + n_nodes - b) % n_nodes;
        const size_t bytes = part_bytes(n, node);
        if (bytes > 0)
            memcpy(n->scratch + b * one, mine_of(n) + node * one, bytes);
        memset(n->scratch + b * one + bytes, 0, one - bytes);
    }
    return 0;
}

/* Copy the blocks that step k passes on. returns how many */
static unsigned copy_passed(const struct net *n, unsigned k, uint8_t *area, bool is_out)
{
    const unsigned n_nodes = n->map.n_nodes;
    const size_t one = block_bytes(n);
    unsigned count = 0;
    for (unsigned b = 1u << k; one > 0 && b < n_nodes; b += 2u << k) {
        const unsigned run = n_nodes - b < 1u << k ? n_nodes - b : 1u << k;
        uint8_t *packed = area + count * one, *block = n->scratch + b * one;
        memcpy(is_out ? packed : block, is_out ? block : packed, run * one);
        count += run;
    }
    return count;
}

static int pass_step(struct net *n, unsigned k)
{
    uint8_t *area = area_of(n);
    const size_t bytes = copy_passed(n, k, area, true) * block_bytes(n);
    return exchange_step(n, k, (struct tcp_piece){area, bytes},
                         (struct tcp_piece){area + bytes, bytes});
}

/* After step k: take what it has received. */
static void take_passed(const struct net *n, unsigned k)
{
    copy_passed(n, k, area_of(n) + cost_passed_blocks(n->map.n_nodes, k) * block_bytes(n), false);
}

static void put_parts(const struct net *n)
{
    const unsigned n_nodes = n->map.n_nodes;
    for (unsigned b = 0; b < n_nodes; b++) {
        const unsigned node = (n->map.node + b) % n_nodes;
        const size_t bytes = part_bytes(n, node);
        if (bytes > 0)
            memcpy(mine_of(n) + node * block_bytes(n), area_of(n) + b * block_bytes(n), bytes);
    }
}

int net_all_reduce_passing(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    const unsigned n_steps = cost_doubling_steps(n->map.n_nodes), last = 2 * n_steps + 1;
    if (stage == 0)
        return net_reduce_slices(n, j->out, j->count, err);
    if (stage > last)
        return NET_DONE;
    if (stage == last && net_is_slot(n))
        put_parts(n);
    if (stage == last)
        return net_gather_slices(n, j->out, j->count, err);
    if (!net_is_slot(n))
        return NET_GO;
    const int code = stage == 1 ? begin_parts(n, err) : 0;
    if (code != 0)
        return code;
    if (stage > 1 && stage <= n_steps + 1)
        take_passed(n, stage - 2);
    if (stage <= n_steps)
        return pass_step(n, stage - 1);
    if (stage == n_steps + 1)
        net_reduce_gathered(n, n->scratch, area_of(n), block_count(n));
    return collect_step(n, stage - n_steps - 1, area_of(n), block_bytes(n));
}
