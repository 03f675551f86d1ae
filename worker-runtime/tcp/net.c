/* net.c - a back end between nodes from its making to its end, how it breaks, and what continues
 * while its rank waits. */
#include "net.h"

#include "net_watch.h"
#include "worker-runtime/shm/backend_cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int net_fail(struct net *n, int code, bool is_local, struct co_error *err)
{
    char call[CALL_TEXT_BYTES];
    if (!n->is_broken) {
        n->is_broken = true;
        n->why = *err;
        n->why.code = code;
        if (!is_local) { /* else the node's abort word has it, and the text names the call */
            net_watch_tell(n->watch, code, err->text);
            if (code != -EPROTO)
                co_fail_in(&n->why, "%s, call #%u", call_format(&n->job.call, call), n->number);
        }
        transport_tcp_give_up(n->tcp);
    }
    n->job.is_open = false;
    return co_fail(err, n->why.code, "%s", n->why.text);
}

int net_grow(uint8_t **at, size_t *bytes, size_t wanted, struct co_error *err)
{
    if (wanted <= *bytes)
        return 0;
    free(*at);
    *bytes = 0;
    *at = aligned_alloc(64, (wanted + 63) / 64 * 64);
    if (*at == NULL)
        return co_fail(err, -ENOMEM, "out of memory for %zu bytes of a collective", wanted);
    *bytes = wanted;
    return 0;
}

/* --- while this rank waits -------------------------------------------------------------------- */

bool net_on_idle(void *arg)
{
    struct net *n = arg;
    struct p2p_tcp *ms = atomic_load(&n->messages);
    net_watch_look(n->watch);
    return ms != NULL && p2p_tcp_go_on(ms);
}

/* For another node: its transport looks at the watch itself. */
static bool on_tcp_idle(void *arg)
{
    struct net *n = arg;
    net_go_on_inside(n);
    struct p2p_tcp *ms = atomic_load(&n->messages);
    return ms != NULL && p2p_tcp_go_on(ms);
}

/* --- making and ending ------------------------------------------------------------------------ */

void net_destroy(struct backend *b)
{
    struct net *n = (struct net *)b;
    void (*on_destroy)(void *arg) = n->opts.on_destroy;
    void *arg = n->opts.arg;
    p2p_tcp_close(n);
    transport_tcp_destroy(n->tcp);
    if (n->opts.owns_watch)
        net_watch_destroy(n->watch);
    if (n->local != NULL) /* which has the words for the node's abort word */
        n->local->ops->destroy(n->local);
    free(n->member);
    free(n->scratch);
    free(n->temp);
    free(n->ordered);
    net_map_fini(&n->map);
    free(n);
    if (on_destroy != NULL)
        on_destroy(arg);
}

/* A back end, and its arrays after it in one block: first those of pointers and sizes. */
static struct net *new_net(const struct net_map *m)
{
    const size_t n_sizes = m->n_nodes + m->n_most + 6 * (size_t)m->n;
    struct net *n =
        calloc(1, sizeof *n + 2 * m->n * sizeof *n->to +
                      m->n_nodes * (sizeof *n->part + sizeof *n->fold_in) +
                      n_sizes * sizeof *n->n_come + (m->n + m->n_nodes) * sizeof *n->peer);
    if (n == NULL)
        return NULL;
    n->to = (struct tcp_piece *)(n + 1);
    n->from = n->to + m->n;
    n->part = (struct slice *)(n->from + m->n);
    n->fold_in = (const void **)(n->part + m->n_nodes);
    n->n_come = (size_t *)(n->fold_in + m->n_nodes);
    n->local_counts = n->n_come + m->n_nodes;
    size_t *next = n->local_counts + m->n_most;
    for (int i = 0; i < 2; i++, next += 3 * m->n) {
        n->first[i] = next;
        n->given_first[i] = next + m->n;
        n->position_counts[i] = next + 2 * m->n;
    }
    n->peer = (unsigned *)next;
    n->slot_peer = n->peer + m->n;
    return n;
}

/* The ranks of the same place on other nodes. */
static int meet_slots(struct net *n, struct net_links *links, uint64_t deadline_ms,
                      struct co_error *err)
{
    const struct net_map *m = &n->map;
    unsigned p = 0;
    if (m->local >= m->n_slots)
        return 0;
    for (unsigned k = 0; k < m->n_nodes; k++)
        if (k != m->node)
            n->slot_peer[p++] = m->first[k] + m->local;
    return net_links_meet(links, n->slot_peer, p, deadline_ms, err);
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
                                   .key = o->key,
                                   .listener = o->listener[channel],
                                   .timeout_ms = o->timeout_ms,
                                   .control = o->control};
    int code = net_links_create(&links, ret, err);
    if (code != 0)
        close(o->listener[channel]);
    return code;
}

static int connect_group(struct net *n, uint64_t deadline_ms, struct co_error *err)
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
                                     .striped_bytes = n->tuning.striped_bytes,
                                     .stripe_bytes = n->tuning.stripe_bytes,
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
    n->message_links = messages;
    return 0;
}

static unsigned least_lanes(const struct net_member *member, unsigned n)
{
    unsigned least = NET_LANES_MOST;
    for (unsigned p = 0; p < n; p++)
        least = member[p].lanes < least ? member[p].lanes : least;
    return least;
}

int net_create(const struct backend_net_opts *opts, const struct backend_ops *ops,
               struct backend **ret, struct co_error *err)
{
    struct net *n = new_net(opts->map);
    if (n == NULL) {
        close(opts->listener[NET_DATA]);
        close(opts->listener[NET_MESSAGES]);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    n->backend.ops = ops;
    n->opts = *opts;
    n->local = opts->local;
    n->map = *opts->map;
    n->member = opts->member;
    n->n_lanes = least_lanes(n->member, n->map.n);
    n->watch = opts->watch;
    n->world = opts->world != NULL ? (struct net *)opts->world : n;
    n->tuning = opts->tuning != NULL ? *opts->tuning : NET_TUNING_DEFAULT;
    int code = connect_group(n, opts->deadline_ms, err);
    if (code != 0) {
        free(n); /* members and map are still the caller's */
        return code;
    }
    *opts->map = (struct net_map){0};
    if (n->local != NULL)
        backend_cpu_on_idle(n->local, net_on_idle, n);
    *ret = &n->backend;
    return 0;
}
