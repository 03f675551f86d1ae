/* net_doubling.c - the all_reduce of short vectors of many nodes, in which a node passes on what it
 * has received (worker-runtime/cost/cost.h). At the end each node has the vectors of all, and adds
 * them in the order of the nodes: the bits are those of the other algorithms. */
#include "net.h"
#include "worker-runtime/cost/cost.h"

#include <string.h>

static unsigned slot_of(const struct net *n, unsigned node)
{
    return n->map.first[node] + n->map.local;
}

/* n->scratch has this node's vector, then that of the next node, and so on. */
static int exchange_step(struct net *n, unsigned k)
{
    const struct net_job *j = &n->job;
    const struct cost_step s = cost_doubling_step(n->map.n_nodes, n->map.node, k);
    const size_t one = j->count * j->layout.size;
    const struct tcp_piece none = {0}, to = {n->scratch, s.n_more * one},
                           from = {n->scratch + s.n_have * one, s.n_more * one};
    const bool is_one_peer = s.to == s.from;
    n->peer[0] = slot_of(n, s.to);
    n->peer[1] = slot_of(n, s.from);
    n->to[0] = to;
    n->from[0] = is_one_peer ? from : none;
    n->to[1] = none;
    n->from[1] = from;
    return net_exchange_copies(n, n->peer, is_one_peer ? 1 : 2);
}

static int begin(struct net *n, struct co_error *err)
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
        net_reduce_gathered(n, j->out, j->count);
    if (stage == last)
        return net_hand_down(n, j->out, j->count, err);
    if (!net_is_slot(n))
        return NET_GO;
    const int code = stage == 1 ? begin(n, err) : 0;
    return code != 0 ? code : exchange_step(n, stage - 1);
}
