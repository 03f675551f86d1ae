/* backend_net.c - the engine of the back end between nodes.
 *
 * A collective goes its way in net_begin(), net_advance() and go_on(): its blocks are put in the
 * order of positions, if that is not the order of ranks; a schedule is chosen (net_schedules.c) and
 * does its stages one after the other; wait_for_part() waits for what a stage has begun, inside of
 * the node (backend_cpu.c) or between nodes (transport_tcp.c). A stage never waits itself, so a
 * collective can be left and taken up again between any two looks.
 *
 * Any failure ends in net_fail(), which keeps the first reason, makes it the job's, and reports it
 * to the peers: from then on each call returns it. */
#include "backend_net.h"

#include "net.h"
#include "net_probe.h"
#include "net_watch.h"
#include "segments/control.h"
#include "worker-runtime/core/user_segment.h"

#include <string.h>

static struct net *net_of(struct backend *b)
{
    return (struct net *)b;
}

/* --- groups whose positions are not ranks ----------------------------------------------------- */

static void copy_block(uint8_t *to, struct slice to_at, const uint8_t *from, struct slice from_at,
                       size_t size)
{
    if (from_at.count > 0)
        memcpy(to + to_at.first * size, from + from_at.first * size, from_at.count * size);
}

/* Have the call's blocks in the order of positions: `what` then names other buffers and counts.
 * returns   0, -ENOMEM */
static int put_in_order(struct net *n, struct collective *what, struct co_error *err)
{
    struct layout *given = &n->given_layout, ordered;
    const unsigned rank = n->map.rank_at[n->map.position];
    layout_init(given, what, rank, n->map.n, n->given_first[0], n->given_first[1]);
    n->is_ordered = !n->map.is_identity &&
                    (layout_deals(given) || layout_collects(given) || given->counts != NULL);
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

/* And what came of it in the order of ranks, where the caller wants it. */
static void put_back(struct net *n)
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

/* --- the engine ------------------------------------------------------------------------------- */

/* Do stages until one has to be waited for. returns 1 the call is done; 0; -errno */
static int go_on(struct net *n, struct co_error *err)
{
    struct net_job *j = &n->job;
    for (;;) {
        int next = j->schedule(n, j->stage, err);
        if (next < 0)
            return net_fail(n, next, net_watch_look(n->watch), err);
        if (next == NET_DONE) {
            put_back(n);
            j->is_open = false;
            return 1;
        }
        j->waits_for = next;
        if (next != NET_GO)
            return 0;
        j->stage++;
    }
}

static int net_begin(struct backend *b, const struct collective *given, struct co_error *err)
{
    struct net *n = net_of(b);
    struct net_job *j = &n->job;
    struct collective what = *given;
    if (n->is_broken)
        return co_fail(err, n->why.code, "%s", n->why.text);
    *j = (struct net_job){.call = layout_call(given, n->map.n), .is_open = true};
    n->number++;
    int code = put_in_order(n, &what, err);
    if (code != 0)
        return net_fail(n, code, false, err);
    layout_init(&j->layout, &what, n->map.position, n->map.n, n->first[0], n->first[1]);
    j->layout.root = (int)n->map.position_of[what.root];
    j->in = what.in;
    j->out = what.out;
    j->count = what.count;
    j->counts = what.counts;
    j->in_counts = what.in_counts;
    j->dtype = what.dtype;
    j->op = what.op;
    j->root = n->map.position_of[what.root];
    j->root_node = net_map_node_of(&n->map, j->root);
    j->timeout_ms = what.timeout_ms;
    j->schedule = net_schedule_of(n, &what);
    code = go_on(n, err);
    return code < 0 ? code : 0;
}

static int wait_for_part(struct net *n, bool may_wait, struct co_error *err)
{
    struct net_job *j = &n->job;
    if (j->waits_for == NET_LOCAL) {
        int code = n->local->ops->advance(n->local, may_wait, err);
        return code < 0 ? net_fail(n, code, true, err) : code;
    }
    atomic_store(&n->opts.line->outside, 1);
    int code = transport_tcp_advance(n->tcp, may_wait, err);
    if (code != 0)
        atomic_store(&n->opts.line->outside, 0);
    if (code < 0)
        return net_fail(n, code, false, err);
    if (code > 0 && j->adds_up)
        net_reduce_whole(&n->fold, j->count);
    j->adds_up = j->adds_up && code == 0;
    return code;
}

static int net_advance(struct backend *b, bool may_wait, struct co_error *err)
{
    struct net *n = net_of(b);
    while (n->job.is_open) {
        int code = wait_for_part(n, may_wait, err);
        if (code <= 0)
            return code;
        n->job.stage++;
        code = go_on(n, err);
        if (code != 0)
            return code;
    }
    return 1;
}

/* --- the job ---------------------------------------------------------------------------------- */

static int net_look(struct backend *b, struct co_error *err)
{
    struct net *n = net_of(b);
    const int code = n->local != NULL ? n->local->ops->look(n->local, err) : 0;
    const bool is_broken = net_watch_look(n->watch); /* passes on what broke on this node */
    return code != 0 ? code : is_broken ? net_watch_why(n->watch, err) : 0;
}

static bool net_tell(struct backend *b, int code, const char *text)
{
    struct net *n = net_of(b);
    return !net_watch_look(n->watch) && net_watch_tell(n->watch, code, text);
}

/* --- memory, and the whole -------------------------------------------------------------------- */

static void net_place(const struct backend *b, struct backend_place *ret)
{
    const struct net *n = (const struct net *)b;
    *ret = (struct backend_place){.local_rank = (int)n->map.local,
                                  .local_world_size = (int)net_n_local(n),
                                  .node_rank = (int)n->map.node,
                                  .n_nodes = (int)n->map.n_nodes};
}

static _Atomic uint64_t *net_commit_word(struct backend *b)
{
    struct backend *local = net_of(b)->local;
    return local != NULL ? local->ops->commit_word(local) : NULL;
}

static int net_alloc(struct backend *b, size_t bytes, void **ret, struct co_error *err)
{
    return user_segment_alloc(net_of(b)->opts.own, bytes, ret, err);
}

static void net_free(struct backend *b, void *ptr)
{
    user_segment_free(net_of(b)->opts.own, ptr);
}

int backend_net_create(const struct backend_net_opts *opts, struct backend **ret,
                       struct co_error *err)
{
    static const struct backend_ops ops = {
        .name = "net",
        .begin = net_begin,
        .advance = net_advance,
        .message_begin = p2p_tcp_begin,
        .p2p_shm_advance = p2p_tcp_advance,
        .split = net_split,
        .place = net_place,
        .commit_word = net_commit_word,
        .look = net_look,
        .tell = net_tell,
        .alloc = net_alloc,
        .free = net_free,
        .destroy = net_destroy,
    };
    const int code = net_create(opts, &ops, ret, err);
    if (code == 0 && opts->world == NULL)
        net_probe(net_of(*ret));
    return code;
}
