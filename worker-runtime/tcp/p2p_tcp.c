/* p2p_tcp.c - messages between two ranks of a group on different nodes.
 *
 * A short message travels at once, and waits at the receiver's for its receive; of a long one only
 * the announcement does, and the bytes come when the receiver asks for them. At most NET_SLOTS
 * messages to a rank are under way without having been received: so what a rank keeps is bounded.
 * p2p_tcp_io.c has the words.
 *
 * Read messages_advance() first: it serves the connections, then the open messages, and fails all
 * of them once the job is broken. */
#include "common/clock.h"
#include "common/scope.h"
#include "net_watch.h"
#include "p2p_tcp_priv.h"
#include "straggler.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 50, NAP_MS = 1, FLUSH_MS = 10000 };

static struct peer *peer_of(struct p2p_tcp *ms, const struct message *m)
{
    return &ms->peer[p2p_tcp_position(ms, m)];
}

/* --- making and ending ------------------------------------------------------------------------ */

static int create(struct net *n, struct p2p_tcp **ret, struct co_error *err)
{
    co_autofree struct p2p_tcp *ms = calloc(1, sizeof *ms + n->map.n * sizeof ms->peer[0]);
    const size_t most = 1 + n->map.n * NET_LINKS_POLL_MOST + net_watch_poll_most(n->watch);
    co_autofree struct pollfd *poll = calloc(most, sizeof *poll);
    if (ms == NULL || poll == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    ms->net = n;
    ms->links = n->message_links;
    ms->poll = co_take(&poll);
    ms->last = &ms->first;
    for (unsigned p = 0; p < n->map.n; p++) {
        ms->peer[p].last_out = &ms->peer[p].first_out;
        ms->peer[p].last_in = &ms->peer[p].first_in;
    }
    pthread_mutex_init(&ms->mutex, NULL);
    *ret = co_take(&ms);
    return 0;
}

/* --- messages --------------------------------------------------------------------------------- */

/* returns   1 it is done, and its owner's again; 0 not yet; -errno */
static int start_send(struct p2p_tcp *ms, struct message *m)
{
    struct peer *to = peer_of(ms, m);
    const bool is_short = p2p_tcp_bytes(m) <= SHORT_BYTES;
    const size_t copied = is_short ? p2p_tcp_bytes(m) : 0;
    if (to->n_under_way == NET_SLOTS)
        return 0;
    struct outgoing *o =
        p2p_tcp_io_put(to, is_short ? KIND_SHORT : KIND_LONG, m, to->next_seq, copied);
    if (o == NULL)
        return -ENOMEM;
    m->seq = to->next_seq++;
    m->stage = STAGE_ANNOUNCED;
    to->n_under_way++;
    o->head.bytes = copied;
    o->data = o->bytes;
    if (copied > 0)
        memcpy(o->bytes, m->data, copied);
    if (is_short)
        p2p_tcp_io_finish(ms, m, 0);
    return is_short;
}

/* as above */
static int message_take(struct p2p_tcp *ms, struct message *m, struct arrived *a)
{
    const struct net *n = ms->net;
    struct peer *from = peer_of(ms, m);
    if (a->head.dtype != (uint32_t)m->dtype || a->head.count != m->count)
        return co_fail(m->err, -EPROTO, "%s sent %llu x %s with tag %d, but %s expects %zu x %s",
                       net_member_name(&n->member[p2p_tcp_position(ms, m)]).text,
                       (unsigned long long)a->head.count, call_dtype_name(a->head.dtype), m->tag,
                       net_member_name(&n->member[n->map.position]).text, m->count,
                       call_dtype_name(m->dtype));
    const bool is_short = a->head.kind == KIND_SHORT;
    if (p2p_tcp_io_put(from, is_short ? KIND_TAKEN : KIND_PLEASE, NULL, a->head.seq, 0) == NULL)
        return -ENOMEM;
    m->seq = a->head.seq;
    m->stage = STAGE_ANNOUNCED;
    if (is_short && a->head.bytes > 0)
        memcpy(m->data, a->bytes, a->head.bytes);
    if (is_short)
        p2p_tcp_io_finish(ms, m, 0);
    return is_short;
}

static int start_receive(struct p2p_tcp *ms, struct message *m)
{
    struct peer *from = peer_of(ms, m);
    for (struct arrived **at = &from->first_in; *at != NULL; at = &(*at)->next) {
        struct arrived *a = *at;
        if (a->head.tag != m->tag)
            continue;
        int code = message_take(ms, m, a);
        *at = a->next;
        if (*at == NULL)
            from->last_in = at;
        from->n_in--;
        free(a);
        return code;
    }
    return 0;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* The last message: that this rank leaves, or why the job broke, to those that were not notified
 * yet. To all that have connected, since a rank that sent nothing waits for this one. Not in the
 * middle of a message: then the watch sends it.
 *
 * ms        NULL: there were no messages
 * returns   whether the job is broken */
static bool say_end(const struct net *n, struct p2p_tcp *ms)
{
    struct net_links *links = n->message_links;
    struct net_abort why;
    const bool is_broken = net_watch_cause(n->watch, &why);
    struct head head = {.magic = MESSAGE_MAGIC,
                        .kind = is_broken ? KIND_BROKEN : KIND_LEFT,
                        .bytes = is_broken ? sizeof why : 0};
    const struct iovec v[2] = {{&head, sizeof head}, {&why, sizeof why}};
    for (unsigned p; net_links_take_new(links, &p);) {
    }
    for (unsigned p = 0; p < n->map.n; p++) {
        struct peer *x = ms != NULL ? &ms->peer[p] : NULL;
        const bool is_amid = x != NULL && x->first_out != NULL && x->first_out->n_gone > 0;
        if (!net_links_is_open(links, p) || (x != NULL && x->was_informed))
            continue;
        if ((is_amid || !net_links_say(links, p, v, is_broken ? 2 : 1)) && is_broken)
            net_watch_warn(n->watch, n->member[p].rank);
        if (x != NULL)
            x->was_informed = is_broken;
    }
    return is_broken;
}

/* --- all together ----------------------------------------------------------------------------- */

static void fail_all(struct p2p_tcp *ms)
{
    const struct net *n = ms->net;
    say_end(n, ms); /* first: a program that knows may end without leaving */
    for (struct message *m; (m = ms->first) != NULL;) {
        int code = net_watch_why(n->watch, m->err);
        co_fail_in(m->err, "%s of %zu x %s %s %s, tag %d", m->is_send ? "ddp_send" : "ddp_recv",
                   m->count, call_dtype_name(m->dtype), m->is_send ? "to" : "from",
                   net_member_name(&n->member[p2p_tcp_position(ms, m)]).text, m->tag);
        p2p_tcp_io_finish(ms, m, code);
    }
}

static void break_job(struct p2p_tcp *ms, unsigned p, int code, const char *what)
{
    char text[sizeof(struct net_member_name) + 160];
    snprintf(text, sizeof text, "%s %s", net_member_name(&ms->net->member[p]).text, what);
    net_watch_tell(ms->net->watch, code, text);
}

/* A peer takes no connection, or went without a word: it left before, or died. Others may see that,
 * and may know the cause of it. */
static void on_gone(struct p2p_tcp *ms, unsigned p, bool was_refused)
{
    struct peer *x = &ms->peer[p];
    const uint64_t now_ms = co_now_ms();
    struct net_abort why;
    if (x->gone_ms == 0) {
        x->gone_ms = now_ms;
        net_watch_ask_about(ms->net->watch, ms->net->member[p].rank);
    }
    if (net_watch_of(ms->net->watch, ms->net->member[p].rank).has_left)
        break_job(ms, p, -ECONNRESET, "left the job while others needed it");
    else if (now_ms - x->gone_ms >= NET_WATCH_WAIT_MS && !net_watch_cause(ms->net->watch, &why))
        break_job(ms, p, -ECONNRESET,
                  was_refused ? "left the job while others needed it, or died" : "died");
}

static void on_trouble(struct p2p_tcp *ms, unsigned p, int code)
{
    if (code == -EBADMSG)
        break_job(ms, p, -EIO, NET_LINKS_FORGED);
    else if (code == -EIO)
        break_job(ms, p, code, "sent an invalid message");
    else if (code == -ENOMEM)
        break_job(ms, p, code, "sent a message that this rank is out of memory for");
    else
        on_gone(ms, p, code == -ECONNREFUSED);
}

/* A message to it or from it is open. */
static bool is_needed(const struct p2p_tcp *ms, unsigned p)
{
    for (const struct message *m = ms->first; m != NULL; m = m->next)
        if (p2p_tcp_position(ms, m) == p)
            return true;
    return false;
}

/* A peer that has left accepts no connection. Its machine usually refuses it at once; a machine
 * that is gone does not answer. */
static int reach_peer(const struct p2p_tcp *ms, unsigned p)
{
    const int code = net_links_reach(ms->links, p);
    if (code == -EAGAIN && net_watch_of(ms->net->watch, ms->net->member[p].rank).has_left)
        return -ECONNREFUSED;
    return code;
}

/* Read, then write, on the connection to each peer. A peer from which a message is awaited is
 * connected to, even if nothing is to be sent: only then this rank sees its end. */
static void serve_peers(struct p2p_tcp *ms)
{
    for (unsigned p = 0; p < ms->net->map.n; p++) {
        struct peer *x = &ms->peer[p];
        if (p >= ms->net->map.first[ms->net->map.node] &&
            p < ms->net->map.first[ms->net->map.node + 1])
            continue;
        int code = p2p_tcp_io_read(ms, p); /* before what is lost with a connection that broke */
        if (code == 0 && !x->has_left && !x->was_informed)
            code = p2p_tcp_io_write(ms, p);
        if (code == 0 && !x->has_left && is_needed(ms, p))
            code = reach_peer(ms, p);
        if (code == 0)
            x->gone_ms = 0;
        if (code == -EAGAIN)
            code = 0;
        if (code != 0)
            on_trouble(ms, p, code);
    }
}

/* Start what can be started. The bytes of a message that has been announced are the business of
 * p2p_tcp_io.c, which ends it. */
static void serve_messages(struct p2p_tcp *ms)
{
    for (struct message *m = ms->first, *next; m != NULL; m = next) {
        next = m->next;
        int code = 0;
        if (m->stage == STAGE_NEW)
            code = m->is_send ? start_send(ms, m) : start_receive(ms, m);
        if (code == -EPROTO) {
            net_watch_tell(ms->net->watch, code, m->err->text);
            p2p_tcp_io_finish(ms, m, code);
        } else if (code < 0) {
            on_trouble(ms, p2p_tcp_position(ms, m), code);
        } else if (code == 0 && peer_of(ms, m)->is_missed) {
            break_job(ms, p2p_tcp_position(ms, m), -ECONNRESET,
                      "left the job while others needed it");
        }
    }
}

static bool messages_advance(struct p2p_tcp *ms)
{
    serve_peers(ms);
    serve_messages(ms);
    serve_peers(ms); /* what the messages contained */
    if (ms->first != NULL && net_watch_look(ms->net->watch))
        fail_all(ms);
    return ms->first != NULL;
}

bool p2p_tcp_go_on(struct p2p_tcp *ms)
{
    pthread_mutex_lock(&ms->mutex);
    bool more = messages_advance(ms);
    pthread_mutex_unlock(&ms->mutex);
    return more;
}

/* Until something may have changed. */
static void nap(struct p2p_tcp *ms)
{
    size_t n = 1;
    pthread_mutex_lock(&ms->mutex);
    ms->poll[0] = net_links_watch_new(ms->links);
    for (unsigned p = 0; p < ms->net->map.n; p++)
        n += net_links_watch(ms->links, p, !ms->peer[p].has_left, ms->peer[p].first_out != NULL,
                             ms->poll + n);
    n += net_watch_poll(ms->net->watch, ms->poll + n);
    pthread_mutex_unlock(&ms->mutex);
    poll(ms->poll, n, NAP_MS);
}

/* What was sent and has found no space yet: connections take their time to be made. */
static void peers_flush(struct p2p_tcp *ms)
{
    const uint64_t deadline_ms = co_deadline_ms(FLUSH_MS);
    bool more = true;
    while (more && !net_watch_look(ms->net->watch) && co_left_ms(deadline_ms) != 0) {
        more = false;
        pthread_mutex_lock(&ms->mutex);
        serve_peers(ms);
        for (unsigned p = 0; p < ms->net->map.n; p++)
            more |= ms->peer[p].first_out != NULL && !ms->peer[p].has_left;
        pthread_mutex_unlock(&ms->mutex);
        if (more)
            nap(ms);
    }
}

void p2p_tcp_close(struct net *n)
{
    struct p2p_tcp *ms = atomic_load(&n->messages);
    if (ms != NULL)
        peers_flush(ms);
    if (say_end(n, ms))
        net_watch_settle(n->watch);
    net_links_destroy(n->message_links);
    n->message_links = NULL;
    if (ms == NULL)
        return;
    for (unsigned p = 0; p < n->map.n; p++)
        p2p_tcp_io_free(&ms->peer[p]);
    pthread_mutex_destroy(&ms->mutex);
    free(ms->poll);
    free(ms);
}

/* --- for the back end ------------------------------------------------------------------------- */

int p2p_tcp_begin(struct backend *b, struct message *m, struct co_error *err)
{
    struct net *n = (struct net *)b;
    struct p2p_tcp *ms = atomic_load(&n->messages);
    int code = ms == NULL ? create(n, &ms, err) : 0;
    if (code != 0)
        return code;
    atomic_store(&n->messages, ms);
    const unsigned position = n->map.position_of[m->peer];
    if (net_map_node_of(&n->map, position) == n->map.node) {
        m->peer = (int)(position - n->map.first[n->map.node]);
        m->is_inside = true;
        return n->local->ops->message_begin(n->local, m, err);
    }
    m->next = NULL;
    m->stage = STAGE_NEW;
    m->code = 0;
    atomic_store(&m->done, false);
    pthread_mutex_lock(&ms->mutex);
    *ms->last = m;
    ms->last = &m->next;
    messages_advance(ms);
    pthread_mutex_unlock(&ms->mutex);
    return 0;
}

/* The path may be cut, and the other side not late at all. */
static void look_for_cut(struct p2p_tcp *ms, const struct message *m, uint64_t timeout_ms,
                         struct co_error *why)
{
    const unsigned position = p2p_tcp_position(ms, m);
    pthread_mutex_lock(&ms->mutex);
    if (net_links_is_unacknowledged(ms->links, position))
        net_links_fail_cut(ms->links, position, timeout_ms, why);
    pthread_mutex_unlock(&ms->mutex);
}

static void wait_outside(struct p2p_tcp *ms, const struct message *until)
{
    struct net *n = ms->net;
    const struct net_member *who = &n->member[p2p_tcp_position(ms, until)];
    struct straggler late; /* the other side may wait itself, for another rank */
    struct co_error why;
    straggler_reset(&late, until->timeout_ms != 0 ? until->timeout_ms : n->opts.timeout_ms);
    for (int i = 0; !atomic_load(&until->done); i++) {
        p2p_tcp_go_on(ms);
        net_go_on_inside(n);
        if (atomic_load(&until->done))
            return;
        if (net_watch_look(n->watch))
            continue; /* the next round ends them all */
        int code = straggler_is_due(&late) ? straggler_judge(&late, n->watch, &who, 1, &why) : 0;
        if (code != 0)
            look_for_cut(ms, until, late.timeout_ms, &why);
        if (code != 0)
            net_watch_tell(n->watch, code, why.text);
        if (i >= TRIES || !n->opts.spin)
            nap(ms);
    }
}

/* While others on this node are waited for, other nodes may wait for this rank. */
static void wait_inside(struct p2p_tcp *ms, const struct message *until)
{
    struct backend *local = ms->net->local;
    while (p2p_tcp_go_on(ms) && !atomic_load(&until->done)) {
        local->ops->p2p_shm_advance(local, NULL);
        if (!atomic_load(&until->done))
            sched_yield();
    }
    local->ops->p2p_shm_advance(local, until);
}

void p2p_tcp_advance(struct backend *b, const struct message *until)
{
    struct net *n = (struct net *)b;
    struct p2p_tcp *ms = atomic_load(&n->messages);
    if (until != NULL && until->is_inside) {
        wait_inside(ms, until);
    } else if (until != NULL) {
        wait_outside(ms, until);
    } else {
        net_go_on_inside(n);
        if (ms != NULL)
            p2p_tcp_go_on(ms);
    }
}
