/* net_stage.c - what a stage of a collective between nodes ends with: a collective inside of this
 * node, or an exchange with other nodes. It is begun here; the engine (backend_net.c) waits for
 * it. */
#include "net.h"

#include <string.h>

enum { AHEAD = 4, LAG = 2 }; /* of segments: see struct net_reduce */

/* --- inside ----------------------------------------------------------------------------------- */

int net_local(struct net *n, struct collective what, struct co_error *err)
{
    struct net_job *j = &n->job;
    if (n->local == NULL) { /* there is no other rank on the node */
        const size_t count = what.counts != NULL ? what.counts[0] : what.count;
        if (what.kind != CALL_BARRIER && what.in != what.out && count > 0)
            memmove(what.out, what.in, count * j->layout.size);
        return NET_GO;
    }
    what.dtype = j->dtype;
    what.op = net_is_average_of_integers(j) ? DDP_SUM : j->op;
    what.whole = &j->call;
    what.goes_on = j->n_local_parts++ > 0;
    what.timeout_ms = j->timeout_ms;
    int code = n->local->ops->begin(n->local, &what, err);
    return code != 0 ? code : NET_LOCAL;
}

int net_local_meeting(struct net *n, struct co_error *err)
{
    return net_local(n, (struct collective){.kind = CALL_BARRIER}, err);
}

int net_hand_down(struct net *n, uint8_t *at, size_t count, struct co_error *err)
{
    if (net_n_local(n) == n->map.n_slots)
        return NET_GO;
    const struct collective what = {.kind = CALL_BROADCAST, .in = at, .out = at, .count = count};
    return net_local(n, what, err);
}

/* --- slices: what each slot of a node exchanges with other nodes ------------------------------ */

struct slice net_slot_slice(const struct net *n, size_t count, unsigned local)
{
    if (local >= n->map.n_slots)
        return (struct slice){count, 0};
    return slice_of(count, n->job.layout.size, local, n->map.n_slots);
}

struct slice net_deal_slices(struct net *n, size_t count)
{
    for (unsigned i = 0; i < net_n_local(n); i++)
        n->local_counts[i] = net_slot_slice(n, count, i).count;
    return net_slot_slice(n, count, n->map.local);
}

int net_reduce_slices(struct net *n, uint8_t *out, size_t count, struct co_error *err)
{
    struct net_job *j = &n->job;
    j->mine = net_deal_slices(n, count);
    const struct collective what = {.kind = CALL_REDUCE_SCATTER,
                                    .in = j->in,
                                    .out = out + j->mine.first * j->layout.size,
                                    .counts = n->local_counts};
    return net_local(n, what, err);
}

int net_gather_slices(struct net *n, uint8_t *at, size_t count, struct co_error *err)
{
    const struct slice mine = net_deal_slices(n, count);
    const struct collective what = {.kind = CALL_ALL_GATHER,
                                    .in = at + mine.first * n->job.layout.size,
                                    .out = at,
                                    .counts = n->local_counts};
    return net_local(n, what, err);
}

/* --- between: copies -------------------------------------------------------------------------- */

static enum tcp_next copy_piece(void *arg, bool is_out, unsigned p, size_t i, struct tcp_piece *ret)
{
    const struct net *n = arg;
    *ret = is_out ? n->to[p] : n->from[p];
    return i > 0 ? TCP_END : TCP_READY;
}

static size_t copy_bytes(void *arg, bool is_out, unsigned p)
{
    const struct net *n = arg;
    return is_out ? n->to[p].bytes : n->from[p].bytes;
}

static int exchange(struct net *n)
{
    transport_tcp_open(n->tcp, &n->job.call, n->number, n->job.timeout_ms, &n->plan);
    return NET_TCP;
}

int net_exchange_copies(struct net *n, const unsigned *peer, unsigned n_peers)
{
    n->plan = (struct tcp_plan){
        .peer = peer, .n_peers = n_peers, .arg = n, .piece = copy_piece, .bytes = copy_bytes};
    return exchange(n);
}

/* --- between: sums ---------------------------------------------------------------------------- */

void net_weigh(const struct net *n, uint8_t *at, size_t count)
{
    if (n->job.op == DDP_AVG && !net_is_average_of_integers(&n->job) &&
        n->map.n_slots != n->map.n_most)
        convert_scale(n->opts.kernels, at, n->job.dtype, count,
                      (double)net_n_local(n) * n->map.n_nodes / (double)n->map.n);
}

static struct net_reduce reduction_of(const struct net *n)
{
    const struct net_job *j = &n->job;
    const bool integers = net_is_average_of_integers(j);
    return (struct net_reduce){.n = n->map.n_nodes,
                               .me = n->map.node,
                               .dtype = j->dtype,
                               .op = integers ? DDP_SUM : j->op,
                               .divisor = integers ? n->map.n : 0,
                               .kernels = n->opts.kernels,
                               .in = n->fold_in};
}

int net_exchange_fold(struct net *n, uint8_t *data, uint8_t *out, bool gather, struct co_error *err)
{
    struct net_reduce *f = &n->fold;
    *f = reduction_of(n);
    f->peer = n->slot_peer;
    f->data = data;
    f->part = n->part;
    f->out = out;
    f->gather = gather;
    f->segment_bytes = n->tuning.segment_bytes;
    f->n_ahead = AHEAD + 4 * n->n_lanes; /* under way on each lane, and in its buffers */
    f->lag = LAG + 4 * n->n_lanes;
    f->n_come = n->n_come;
    int code = net_grow(&n->scratch, &n->scratch_bytes, net_reduce_scratch_bytes(f) + 1, err);
    if (code != 0)
        return code;
    f->scratch = n->scratch;
    n->plan = net_reduce_plan(f);
    return exchange(n);
}

int net_exchange_whole(struct net *n, uint8_t *at, size_t count, struct co_error *err)
{
    const size_t bytes = count * n->job.layout.size;
    const unsigned n_peers = n->map.n_nodes - 1;
    int code = net_grow(&n->scratch, &n->scratch_bytes, n_peers * bytes + 1, err);
    if (code != 0)
        return code;
    for (unsigned p = 0; p < n_peers; p++) {
        n->to[p] = (struct tcp_piece){at, bytes};
        n->from[p] = (struct tcp_piece){n->scratch + p * bytes, bytes};
    }
    n->fold = reduction_of(n);
    n->fold.data = n->fold.out = at;
    n->fold.scratch = n->scratch;
    n->job.adds_up = true;
    return net_exchange_copies(n, n->slot_peer, n_peers);
}

void net_reduce_gathered(struct net *n, uint8_t *data, uint8_t *out, size_t count)
{
    n->fold = reduction_of(n);
    n->fold.data = data;
    n->fold.out = out;
    n->fold.scratch = n->scratch;
    net_reduce_rotated(&n->fold, count);
}
