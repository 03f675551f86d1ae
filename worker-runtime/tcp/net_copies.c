/* net_copies.c - the collectives between nodes that add nothing up, stage by stage. */
#include "net_schedules.h"

#include <string.h>

static void list_slots(struct net *n)
{
    n->copies.n = n->map.n_nodes - 1;
    n->copies.peer = n->slot_peer;
    for (unsigned p = 0; p < n->copies.n; p++)
        n->to[p] = n->from[p] = (struct tcp_piece){0};
}

static unsigned node_of_peer(const struct net *n, unsigned p)
{
    return p < n->map.node ? p : p + 1;
}

/* --- copies by slices ------------------------------------------------------------------------- */

static struct tcp_piece piece_of(const struct net *n, uint8_t *at, struct slice s)
{
    const size_t size = n->job.layout.size;
    if (s.count == 0)
        return (struct tcp_piece){0};
    return (struct tcp_piece){at + s.first * size, s.count * size};
}

/* This rank's slice of what a node's ranks have put in. */
static struct slice slice_of_node(const struct net *n, unsigned node)
{
    const struct slice range = net_node_range(n, node);
    const struct slice mine = net_slice(n, range.count, n->map.local);
    return (struct slice){range.first + mine.first, mine.count};
}

static int all_gather_exchange(struct net *n)
{
    if (!net_is_slot(n))
        return NET_GO;
    list_slots(n);
    for (unsigned p = 0; p < n->copies.n; p++) {
        n->to[p] = piece_of(n, n->job.out, slice_of_node(n, n->map.node));
        n->from[p] = piece_of(n, n->job.out, slice_of_node(n, node_of_peer(n, p)));
    }
    return net_exchange_copies(n);
}

int net_all_gather(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    const struct slice own = net_node_range(n, n->map.node);
    const unsigned p = stage - 2;
    if (stage == 0) {
        struct collective what = net_local_copy(
            n, CALL_ALL_GATHER, j->in, j->out != NULL ? j->out + own.first * j->layout.size : NULL);
        what.counts = net_node_counts(n, n->map.node);
        return net_local(n, what, err);
    }
    if (stage == 1)
        return all_gather_exchange(n);
    if (p + 1 >= n->map.n_nodes)
        return NET_DONE;
    const struct slice range = net_node_range(n, node_of_peer(n, p));
    return range.count == 0
               ? NET_GO
               : net_gather_slices(n, j->out + range.first * j->layout.size, range.count, err);
}

static int broadcast_exchange(struct net *n, struct slice s)
{
    const struct net_job *j = &n->job;
    if (!net_is_slot(n))
        return NET_GO;
    list_slots(n);
    for (unsigned p = 0; p < n->copies.n; p++) {
        if (n->map.node == j->root_node)
            n->to[p] = piece_of(n, j->out, s);
        else if (node_of_peer(n, p) == j->root_node)
            n->from[p] = piece_of(n, j->out, s);
    }
    return net_exchange_copies(n);
}

static int broadcast_inside(struct net *n, struct co_error *err)
{
    const struct net_job *j = &n->job;
    if (n->map.node != j->root_node)
        return net_local_meeting(n, err);
    struct collective what = net_local_copy(n, CALL_BROADCAST, j->in, j->out);
    what.count = j->count;
    what.root = (int)(j->root - n->map.first[j->root_node]);
    return net_local(n, what, err);
}

int net_broadcast(struct net *n, unsigned stage, struct co_error *err)
{
    const struct net_job *j = &n->job;
    const bool whole = j->count * j->layout.size <= n->tuning.small_bytes;
    switch (stage) {
    case 0:
        return broadcast_inside(n, err);
    case 1:
        return broadcast_exchange(n, whole ? (struct slice){0, j->count}
                                           : net_slice(n, j->count, n->map.local));
    case 2:
        if (n->map.node == j->root_node)
            return NET_GO;
        return whole ? net_hand_down(n, j->out, j->count, err)
                     : net_gather_slices(n, j->out, j->count, err);
    default:
        return NET_DONE;
    }
}

int net_barrier(struct net *n, unsigned stage, struct co_error *err)
{
    switch (stage) {
    case 0:
        return net_local_meeting(n, err);
    case 1:
        if (!net_is_slot(n))
            return NET_GO;
        list_slots(n);
        return net_exchange_copies(n);
    case 2:
        return net_n_local(n) == n->map.n_slots ? NET_GO : net_local_meeting(n, err);
    default:
        return NET_DONE;
    }
}

/* --- copies from rank to rank ----------------------------------------------------------------- */

static bool is_remote(const struct net *n, unsigned position)
{
    return position < n->map.first[n->map.node] || position >= n->map.first[n->map.node + 1];
}

static uint8_t *node_out(const struct net *n, unsigned position)
{
    return n->job.out + layout_out(&n->job.layout, position).first * n->job.layout.size;
}

/* Root and every rank of another node exchange; a block from each, or for each. */
static int exchange_with_root(struct net *n, bool to_root)
{
    struct net_job *j = &n->job;
    n->copies.peer = n->peer;
    n->copies.n = 0;
    for (unsigned q = 0; q < n->map.n; q++) {
        const bool with_me = n->map.position == j->root || q == j->root;
        if (!with_me || !is_remote(n, q))
            continue;
        const unsigned p = n->copies.n++;
        const bool sends = (q == j->root) == to_root;
        struct tcp_piece *piece = sends ? &n->to[p] : &n->from[p];
        n->peer[p] = q;
        n->to[p] = n->from[p] = (struct tcp_piece){0};
        *piece = sends ? piece_of(n, (uint8_t *)j->in, layout_in(&j->layout, q))
                       : piece_of(n, j->out, layout_out(&j->layout, q));
    }
    return net_exchange_copies(n);
}

int net_gather(struct net *n, unsigned stage, struct co_error *err)
{
    const struct net_job *j = &n->job;
    const bool is_root = n->map.position == j->root;
    if (stage == 1)
        return exchange_with_root(n, true);
    if (stage > 1)
        return NET_DONE;
    if (n->map.node != j->root_node)
        return net_local_meeting(n, err);
    struct collective what = net_local_copy(
        n, CALL_GATHER, j->in,
        is_root && j->out != NULL ? node_out(n, n->map.first[j->root_node]) : j->out);
    what.counts = net_node_counts(n, n->map.node);
    what.root = (int)(j->root - n->map.first[j->root_node]);
    return net_local(n, what, err);
}

int net_scatter(struct net *n, unsigned stage, struct co_error *err)
{
    const struct net_job *j = &n->job;
    if (stage == 1)
        return exchange_with_root(n, false);
    if (stage > 1)
        return NET_DONE;
    if (n->map.node != j->root_node)
        return net_local_meeting(n, err);
    const bool is_root = n->map.position == j->root;
    const size_t first = layout_in(&j->layout, n->map.first[j->root_node]).first;
    struct collective what = net_local_copy(
        n, CALL_SCATTER, is_root && j->in != NULL ? j->in + first * j->layout.size : j->in, j->out);
    what.counts = net_node_counts(n, n->map.node);
    what.root = (int)(j->root - n->map.first[j->root_node]);
    return net_local(n, what, err);
}

static int exchange_with_all(struct net *n)
{
    struct net_job *j = &n->job;
    n->copies.peer = n->peer;
    n->copies.n = 0;
    for (unsigned k = 1; k < n->map.n; k++) { /* not all of them first with the same one */
        const unsigned q = (n->map.position + k) % n->map.n;
        if (!is_remote(n, q))
            continue;
        const unsigned p = n->copies.n++;
        n->peer[p] = q;
        n->to[p] = piece_of(n, (uint8_t *)j->in, layout_in(&j->layout, q));
        n->from[p] = piece_of(n, j->out, layout_out(&j->layout, q));
    }
    return net_exchange_copies(n);
}

/* In place: blocks would be overwritten that have not gone yet. */
static int keep_in(struct net *n, struct co_error *err)
{
    struct net_job *j = &n->job;
    const size_t bytes = layout_in_bytes(&j->layout);
    if (j->in != j->out || bytes == 0)
        return 0;
    int code = net_get_temp(n, bytes, err);
    if (code == 0) {
        memcpy(n->temp, j->in, bytes);
        j->in = n->temp;
    }
    return code;
}

int net_all_to_all(struct net *n, unsigned stage, struct co_error *err)
{
    struct net_job *j = &n->job;
    const unsigned first = n->map.first[n->map.node];
    const size_t size = j->layout.size;
    if (stage == 1)
        return exchange_with_all(n);
    if (stage > 1)
        return NET_DONE;
    int code = keep_in(n, err);
    if (code != 0)
        return code;
    const size_t in_at = layout_in(&j->layout, first).first * size;
    const size_t out_at = layout_out(&j->layout, first).first * size;
    struct collective what =
        net_local_copy(n, CALL_ALL_TO_ALL, j->in != NULL ? j->in + in_at : NULL,
                       j->out != NULL ? j->out + out_at : NULL);
    what.count = j->count;
    what.counts = j->counts != NULL ? j->counts + first : NULL;
    what.in_counts = j->in_counts != NULL ? j->in_counts + first : NULL;
    return net_local(n, what, err);
}
