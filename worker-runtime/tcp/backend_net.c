/* backend_net.c - the engine: a schedule's stages one after the other, what breaks them, and the
 * whole. */
#include "backend_net.h"

#include "net.h"
#include "net_watch.h"
#include "segments/control.h"
#include "worker-runtime/core/user_segment.h"
#include "worker-runtime/shm/backend_cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct net *net_of(struct backend *b)
{
    return (struct net *)b;
}

/* --- breaking --------------------------------------------------------------------------------- */

int net_fail(struct net *n, int code, bool is_local, struct co_error *err)
{
    char call[CALL_TEXT_BYTES];
    if (!n->is_broken) {
        n->is_broken = true;
        n->why = *err;
        n->why.code = code;
        if (!is_local) { /* else the node's abort word says it, and the text names the call */
            net_watch_tell(n->watch, code, err->text);
            if (code != -EPROTO)
                co_fail_in(&n->why, "%s, call #%u", call_format(&n->job.call, call), n->number);
        }
        transport_tcp_give_up(n->tcp);
    }
    n->job.is_open = false;
    return co_fail(err, n->why.code, "%s", n->why.text);
}

/* --- parts ------------------------------------------------------------------------------------ */

int net_grow(uint8_t **at, size_t *bytes, size_t wanted, struct co_error *err)
{
    if (wanted <= *bytes)
        return 0;
    free(*at);
    *bytes = 0;
    *at = aligned_alloc(64, (wanted + 63) / 64 * 64);
    if (*at == NULL)
        return co_fail(err, -ENOMEM, "no memory for %zu bytes of a collective", wanted);
    *bytes = wanted;
    return 0;
}

int net_get_temp(struct net *n, size_t bytes, struct co_error *err)
{
    return net_grow(&n->temp, &n->temp_bytes, bytes + 1, err);
}

struct slice net_slice(const struct net *n, size_t count, unsigned local)
{
    if (local >= n->map.n_slots)
        return (struct slice){count, 0};
    return slice_of(count, n->job.layout.size, local, n->map.n_slots);
}

struct slice net_deal(struct net *n, size_t count)
{
    for (unsigned i = 0; i < net_n_local(n); i++)
        n->local_counts[i] = net_slice(n, count, i).count;
    return net_slice(n, count, n->map.local);
}

/* With nobody else on the node. */
static int run_alone(const struct net *n, const struct collective *what)
{
    size_t count = what->counts != NULL ? what->counts[0] : what->count;
    if (what->kind != CALL_BARRIER && what->in != what->out && count > 0)
        memmove(what->out, what->in, count * n->job.layout.size);
    return NET_GO;
}

int net_local(struct net *n, struct collective what, struct co_error *err)
{
    struct net_job *j = &n->job;
    if (n->local == NULL)
        return run_alone(n, &what);
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

static enum tcp_next one_piece(const struct tcp_piece *piece, size_t i, struct tcp_piece *ret)
{
    *ret = *piece;
    return i > 0 ? TCP_END : TCP_READY;
}

static enum tcp_next copy_to(void *arg, unsigned p, size_t i, struct tcp_piece *ret)
{
    return one_piece(&((const struct net_copies *)arg)->to[p], i, ret);
}

static enum tcp_next copy_from(void *arg, unsigned p, size_t i, struct tcp_piece *ret)
{
    return one_piece(&((const struct net_copies *)arg)->from[p], i, ret);
}

static void on_copy(void *arg, unsigned p, size_t i)
{
    (void)arg;
    (void)p;
    (void)i;
}

static size_t copy_bytes_to(void *arg, unsigned p)
{
    return ((const struct net_copies *)arg)->to[p].bytes;
}

static size_t copy_bytes_from(void *arg, unsigned p)
{
    return ((const struct net_copies *)arg)->from[p].bytes;
}

int net_exchange_copies(struct net *n)
{
    struct net_copies *c = &n->copies;
    c->to = n->to;
    c->from = n->from;
    n->plan = (struct tcp_plan){.peer = c->peer,
                                .n_peers = c->n,
                                .arg = c,
                                .to = copy_to,
                                .from = copy_from,
                                .on_piece = on_copy,
                                .bytes_to = copy_bytes_to,
                                .bytes_from = copy_bytes_from};
    transport_tcp_open(n->tcp, &n->job.call, n->number, n->job.timeout_ms, &n->plan);
    return NET_TCP;
}

int net_exchange_fold(struct net *n, uint8_t *data, uint8_t *out, bool gather, bool whole,
                      size_t count, struct co_error *err)
{
    const struct net_job *j = &n->job;
    const bool integers = j->op == DDP_AVG && !net_math_is_float(j->dtype);
    n->fold = (struct net_reduce){.n = n->map.n_nodes,
                                  .me = n->map.node,
                                  .peer = n->slot_peer,
                                  .data = data,
                                  .part = n->part,
                                  .count = count,
                                  .out = out,
                                  .whole = whole,
                                  .gather = gather,
                                  .dtype = j->dtype,
                                  .op = integers ? DDP_SUM : j->op,
                                  .divisor = integers ? n->map.n : 0,
                                  .kernels = n->kernels,
                                  .segment_bytes = n->tuning.segment_bytes,
                                  .in = n->fold_in,
                                  .n_come = n->n_come};
    int code =
        net_grow(&n->scratch, &n->scratch_bytes, net_reduce_scratch_bytes(&n->fold) + 1, err);
    if (code != 0)
        return code;
    n->fold.scratch = n->scratch;
    n->plan = net_reduce_plan(&n->fold);
    n->job.folds = true;
    transport_tcp_open(n->tcp, &j->call, n->number, j->timeout_ms, &n->plan);
    return NET_TCP;
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
            net_put_back(n);
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
    int code = net_put_in_order(n, &what, err);
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
    atomic_store(&n->line->outside, 1);
    int code = transport_tcp_advance(n->tcp, may_wait, err);
    if (code != 0)
        atomic_store(&n->line->outside, 0);
    if (code < 0)
        return net_fail(n, code, false, err);
    if (code > 0 && j->folds)
        net_reduce_finish(&n->fold);
    j->folds = j->folds && code == 0;
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

bool net_on_idle(void *arg)
{
    struct net *n = arg;
    struct p2p_tcp *ms = atomic_load(&n->messages);
    net_watch_look(n->watch);
    return ms != NULL && p2p_tcp_go_on(ms);
}

/* While this rank waits for another node. */
static bool on_tcp_idle(void *arg)
{
    struct net *n = arg;
    if (n->local != NULL)
        n->local->ops->p2p_shm_advance(n->local, NULL);
    struct p2p_tcp *ms = atomic_load(&n->messages);
    return ms != NULL && p2p_tcp_go_on(ms);
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

static void free_net(struct net *n)
{
    void *const owned[] = {n->member,
                           n->slot_peer,
                           n->peer,
                           n->to,
                           n->from,
                           n->part,
                           n->n_come,
                           n->fold_in,
                           n->local_counts,
                           n->first[0],
                           n->first[1],
                           n->given_first[0],
                           n->given_first[1],
                           n->position_counts[0],
                           n->position_counts[1],
                           n->scratch,
                           n->temp,
                           n->ordered};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    net_map_fini(&n->map);
    free(n);
}

static void net_destroy(struct backend *b)
{
    struct net *n = net_of(b);
    void (*on_destroy)(void *arg) = n->opts.on_destroy;
    void *arg = n->opts.arg;
    p2p_tcp_close(n);
    transport_tcp_destroy(n->tcp);
    if (n->opts.owns_watch)
        net_watch_destroy(n->watch);
    if (n->local != NULL) /* which has the words for the node's abort word */
        n->local->ops->destroy(n->local);
    free_net(n);
    if (on_destroy != NULL)
        on_destroy(arg);
}

static bool alloc_arrays(struct net *n, const struct net_map *m)
{
    bool ok = true;
    n->slot_peer = calloc(m->n_nodes, sizeof *n->slot_peer);
    n->peer = calloc(m->n, sizeof *n->peer);
    n->to = calloc(m->n, sizeof *n->to);
    n->from = calloc(m->n, sizeof *n->from);
    n->part = calloc(m->n_nodes, sizeof *n->part);
    n->n_come = calloc(m->n_nodes, sizeof *n->n_come);
    n->fold_in = calloc(m->n_nodes, sizeof *n->fold_in);
    n->local_counts = calloc(m->n_most, sizeof *n->local_counts);
    ok = n->slot_peer != NULL && n->peer != NULL && n->to != NULL && n->from != NULL &&
         n->part != NULL && n->n_come != NULL && n->fold_in != NULL && n->local_counts != NULL;
    for (int i = 0; i < 2; i++) {
        n->first[i] = calloc(m->n, sizeof(size_t));
        n->given_first[i] = calloc(m->n, sizeof(size_t));
        n->position_counts[i] = calloc(m->n, sizeof(size_t));
        ok =
            ok && n->first[i] != NULL && n->given_first[i] != NULL && n->position_counts[i] != NULL;
    }
    return ok;
}

/* The ranks of the same place on other nodes; of two the lower one connects. */
static int meet_slots(struct net *n, struct net_links *links, uint64_t deadline_ms,
                      struct co_error *err)
{
    const struct net_map *m = &n->map;
    unsigned n_first = 0, p = 0;
    if (m->local >= m->n_slots)
        return 0;
    for (unsigned k = 0; k < m->n_nodes; k++)
        if (k != m->node)
            n->slot_peer[p++] = m->first[k] + m->local;
    while (n_first < p && n->slot_peer[n_first] < m->position)
        n_first++;
    return net_links_meet(links, n->slot_peer + n_first, p - n_first, n->slot_peer, n_first,
                          deadline_ms, err);
}

static int make_links(const struct net *n, enum net_channel channel, struct net_links **ret,
                      struct co_error *err)
{
    const struct backend_net_opts *o = &n->opts;
    struct net_links_opts links = {.rank = n->map.position,
                                   .n = n->map.n,
                                   .member = n->member,
                                   .channel = channel,
                                   .group = o->group,
                                   .cookie = o->cookie,
                                   .listener = o->listener[channel],
                                   .timeout_ms = o->timeout_ms,
                                   .control = o->control};
    int code = net_links_create(&links, ret, err);
    if (code != 0)
        close(o->listener[channel]);
    return code;
}

static int connect_group(struct net *n, uint64_t deadline_ms, struct net_links **ret_messages,
                         struct co_error *err)
{
    struct net_links *data = NULL, *messages = NULL;
    int code = make_links(n, NET_DATA, &data, err);
    int code2 = make_links(n, NET_MESSAGES, &messages, err);
    code = code != 0 ? code : code2;
    if (code == 0)
        code = meet_slots(n, data, deadline_ms, err);
    struct transport_tcp_opts tcp = {.links = data,
                                     .watch = n->watch,
                                     .rank = n->map.position,
                                     .n = n->map.n,
                                     .spin = n->opts.spin,
                                     .timeout_ms = n->opts.timeout_ms,
                                     .on_idle = on_tcp_idle,
                                     .idle_arg = n};
    if (code == 0)
        code = transport_tcp_create(&tcp, &n->tcp, err);
    if (code != 0) {
        net_links_destroy(data);
        net_links_destroy(messages);
        return code;
    }
    *ret_messages = messages;
    return 0;
}

int backend_net_create(const struct backend_net_opts *opts, struct backend **ret,
                       struct co_error *err)
{
    static const struct backend_ops ops = {
        .name = "net",
        .begin = net_begin,
        .advance = net_advance,
        .message_begin = net_message_begin,
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
    struct net *n = calloc(1, sizeof *n);
    if (n == NULL || !alloc_arrays(n, opts->map)) {
        close(opts->listener[NET_DATA]);
        close(opts->listener[NET_MESSAGES]);
        if (n != NULL)
            free_net(n);
        return co_fail(err, -ENOMEM, "no memory for a back end of %u ranks", opts->map->n);
    }
    n->backend.ops = &ops;
    n->opts = *opts;
    n->local = opts->local;
    n->map = *opts->map;
    n->member = opts->member;
    n->watch = opts->watch;
    n->line = opts->line;
    n->world = opts->world != NULL ? (struct net *)opts->world : n;
    n->kernels = opts->kernels;
    n->tuning = opts->tuning != NULL ? *opts->tuning : NET_TUNING_DEFAULT;
    int code = connect_group(n, opts->deadline_ms, &n->message_links, err);
    if (code != 0) {
        n->member = NULL; /* these are still the caller's */
        n->map = (struct net_map){0};
        free_net(n);
        return code;
    }
    *opts->map = (struct net_map){0};
    if (n->local != NULL)
        backend_cpu_on_idle(n->local, net_on_idle, n);
    *ret = &n->backend;
    return 0;
}
