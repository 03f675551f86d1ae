/* ballot_links.c - connections to and from a few processes.
 *
 * Read ballot_links_send() and on_in_frame() first. An outgoing connection (`struct out`) is found
 * by its address, or made: resolved, connected, opened. It holds one encoded question until it is
 * open. An incoming one (`struct in`) is answered on the spot. A timer closes what is idle. */
#include "ballot_links.h"

#include "common/buf.h"
#include "common/error.h"
#include "common/hash.h"
#include "rendezvous/channel/channel_conn.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/newcomers.h"
#include "rendezvous/net/resolve.h"
#include "rendezvous/quorum/ballot_wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SWEEP_MS = 1000 };

struct out {
    struct ballot_links *links; /* NULL: a free place */
    struct elector_address at;
    struct resolve *resolve;   /* NULL: it has answered */
    struct channel_conn *conn; /* NULL: none */
    bool is_open;
    struct sockaddr_storage addresses[RESOLVE_MAX_ADDRESSES];
    size_t n_addresses, next;
    struct co_buf waiting; /* a question, until is_open */
    uint64_t used_ms;      /* something was sent */
    uint64_t again_ms;     /* no sooner than this */
    uint64_t asked_ms;     /* the first question after the last answer; 0: none */
};

struct in {
    struct ballot_links *links; /* NULL: a free place */
    struct channel_conn *conn;
    struct newcomer unproven;
    uint64_t used_ms;
};

struct ballot_links {
    uv_loop_t *loop;
    const struct seal_key *key;
    const char *run_id;
    struct ballot_links_callbacks callbacks;
    struct channel_conn_host conns;
    uv_timer_t sweep;
    struct newcomers unproven;
    struct out out[BALLOT_LINKS_MAX_OUT];
    struct in in[BALLOT_LINKS_MAX_IN];
    struct co_buf frame; /* to encode into */
    struct ballot question, answer;
    bool closing, timer_closed;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static void clear(struct co_buf *b)
{
    co_buf_consume(b, co_buf_len(b));
}

/* --- the end of a connection --- */

static void free_out(struct out *o)
{
    if (o->resolve != NULL)
        resolve_cancel(o->resolve);
    if (o->conn != NULL)
        channel_conn_end(o->conn);
    co_buf_fini(&o->waiting);
    *o = (struct out){0};
}

static void free_in(struct in *i)
{
    newcomers_remove(&i->links->unproven, &i->unproven);
    if (i->conn != NULL)
        channel_conn_end(i->conn);
    *i = (struct in){0};
}

static void on_sweep(uv_timer_t *timer)
{
    struct ballot_links *l = timer->data;
    const uint64_t now_ms = uv_now(l->loop);
    bool some = false;
    for (struct out *o = l->out; o < l->out + BALLOT_LINKS_MAX_OUT; o++) {
        if (o->links != NULL && now_ms >= o->used_ms + BALLOT_LINKS_IDLE_MS)
            free_out(o);
        some |= o->links != NULL;
    }
    for (struct in *i = l->in; i < l->in + BALLOT_LINKS_MAX_IN; i++) {
        if (i->links != NULL && now_ms >= i->used_ms + BALLOT_LINKS_IDLE_MS)
            free_in(i);
        some |= i->links != NULL;
    }
    if (!some)
        uv_timer_stop(&l->sweep);
}

static void begin_to_sweep(struct ballot_links *l)
{
    if (!uv_is_active((uv_handle_t *)&l->sweep))
        uv_timer_start(&l->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
}

/* --- questions of others --- */

static void answer(struct in *i)
{
    struct ballot_links *l = i->links;
    struct channel_conn *conn = i->conn;
    struct co_error err;
    l->callbacks.on_question(l->callbacks.arg, &l->question, &l->answer);
    if (i->conn != conn) /* it was closed meanwhile */
        return;
    clear(&l->frame);
    if (ballot_wire_encode(&l->answer, l->run_id, &l->frame, &err) == 0)
        channel_conn_send_frame(conn, co_buf_bytes(&l->frame), co_buf_len(&l->frame));
    else
        free_in(i);
}

static void on_in_frame(void *arg, const uint8_t *frame, size_t len)
{
    struct in *i = arg;
    struct ballot_links *l = i->links;
    char run_id[BALLOT_WIRE_RUN_ID_BYTES];
    struct co_error err;
    i->used_ms = uv_now(l->loop);
    if (ballot_wire_decode(frame, len, &l->question, run_id, &err) < 0 ||
        strcmp(run_id, l->run_id) != 0 || l->question.type == BALLOT_VOTE)
        free_in(i);
    else
        answer(i);
}

static void on_in_open(void *arg)
{
    struct in *i = arg;
    newcomers_remove(&i->links->unproven, &i->unproven);
}

static void on_in_end(void *arg, int code, const char *text)
{
    struct in *i = arg;
    (void)code;
    (void)text;
    i->conn = NULL;
    free_in(i);
}

/* The one to replace: one that has not authenticated, else the one that is idle for longest. */
static struct in *find_place(struct ballot_links *l)
{
    struct in *oldest = &l->in[0];
    for (struct in *i = l->in; i < l->in + BALLOT_LINKS_MAX_IN; i++) {
        if (i->links == NULL)
            return i;
        if (i->used_ms < oldest->used_ms)
            oldest = i;
    }
    struct newcomer *chosen = newcomers_choose(&l->unproven);
    if (chosen != NULL)
        oldest = (struct in *)((char *)chosen - offsetof(struct in, unproven));
    free_in(oldest);
    return oldest;
}

bool ballot_links_claims(const uint8_t *bytes, size_t len)
{
    return seal_greeting_version(bytes, len) == BALLOT_LINKS_VERSION;
}

void ballot_links_adopt(struct ballot_links *l, int fd, const uint8_t *bytes, size_t len)
{
    struct sockaddr_storage from = {0};
    socklen_t from_len = sizeof from;
    struct co_error err;
    struct seal *seal;
    if (l->closing || seal_create_roster(l->key, l->key != NULL ? 1 : 0, BALLOT_LINKS_VERSION,
                                         BALLOT_LINKS_VERSION, &seal, &err) < 0) {
        close(fd);
        return;
    }
    struct in *i = find_place(l);
    const struct channel_conn_callbacks callbacks = {
        .on_open = on_in_open, .on_frame = on_in_frame, .on_end = on_in_end, .arg = i};
    getpeername(fd, (struct sockaddr *)&from, &from_len); /* gone: of no network */
    *i = (struct in){.links = l, .used_ms = uv_now(l->loop)};
    if (channel_conn_adopt(&l->conns, seal, fd, bytes, len, &callbacks, &i->conn, &err) < 0) {
        *i = (struct in){0};
        return;
    }
    newcomers_add(&l->unproven, &i->unproven, &from);
    begin_to_sweep(l);
}

/* --- own questions --- */

static void try_next(struct out *o);

/* Another question makes another attempt, after a pause. */
static void lose(struct out *o, int code, const char *text, uint64_t pause_ms)
{
    const struct ballot_links *l = o->links;
    const struct elector_address at = o->at;
    o->is_open = false;
    o->n_addresses = o->next = 0;
    o->again_ms = uv_now(l->loop) + pause_ms;
    clear(&o->waiting);
    if (l->callbacks.on_lost != NULL && !l->closing)
        l->callbacks.on_lost(l->callbacks.arg, &at, code, text);
}

static void ask(struct out *o, const struct co_buf *frame)
{
    if (o->asked_ms == 0)
        o->asked_ms = uv_now(o->links->loop);
    channel_conn_send_frame(o->conn, co_buf_bytes(frame), co_buf_len(frame));
}

static void on_out_open(void *arg)
{
    struct out *o = arg;
    o->is_open = true;
    if (co_buf_len(&o->waiting) > 0)
        ask(o, &o->waiting);
    clear(&o->waiting);
}

static void on_out_frame(void *arg, const uint8_t *frame, size_t len)
{
    struct out *o = arg;
    struct ballot_links *l = o->links;
    char run_id[BALLOT_WIRE_RUN_ID_BYTES];
    struct co_error err;
    if (ballot_wire_decode(frame, len, &l->answer, run_id, &err) < 0 ||
        strcmp(run_id, l->run_id) != 0 || l->answer.type != BALLOT_VOTE) {
        free_out(o);
        return;
    }
    o->asked_ms = 0;
    l->callbacks.on_answer(l->callbacks.arg, &o->at, &l->answer);
}

static void on_out_end(void *arg, int code, const char *text)
{
    struct out *o = arg;
    const bool was_open = o->is_open;
    o->conn = NULL;
    o->is_open = false;
    if (!was_open && code != -EACCES && code != -EPROTO && o->next < o->n_addresses)
        try_next(o);
    else
        lose(o, code, text, BALLOT_LINKS_AGAIN_MS);
}

static void try_next(struct out *o)
{
    struct ballot_links *l = o->links;
    const struct channel_conn_callbacks callbacks = {
        .on_open = on_out_open, .on_frame = on_out_frame, .on_end = on_out_end, .arg = o};
    const struct sockaddr *to = (const struct sockaddr *)&o->addresses[o->next++];
    struct co_error err = {0};
    struct seal *seal;
    int rc = seal_create_node(l->key, BALLOT_LINKS_VERSION, BALLOT_LINKS_VERSION, &seal, &err);
    if (rc == 0)
        rc = channel_conn_connect(&l->conns, seal, to, BALLOT_LINKS_CONNECT_MS, &callbacks,
                                  &o->conn, &err);
    if (rc < 0) {
        o->conn = NULL;
        lose(o, rc, err.text, BALLOT_LINKS_AGAIN_MS);
    }
}

static void on_resolved(void *arg, int code, const char *text,
                        const struct sockaddr_storage *addresses, size_t n)
{
    struct out *o = arg;
    o->resolve = NULL;
    if (code < 0) {
        lose(o, code, text, BALLOT_LINKS_NAME_MS);
        return;
    }
    memcpy(o->addresses, addresses, n * sizeof *addresses);
    o->n_addresses = n;
    o->next = 0;
    try_next(o);
}

static struct out *find_out(struct ballot_links *l, const struct elector_address *at)
{
    for (struct out *o = l->out; o < l->out + BALLOT_LINKS_MAX_OUT; o++)
        if (o->links != NULL && elector_same_address(&o->at, at))
            return o;
    return NULL;
}

/* It replaces the one that is idle for longest, if all places are taken. */
static struct out *make_out(struct ballot_links *l, const struct elector_address *at)
{
    struct out *chosen = &l->out[0];
    for (struct out *o = l->out; o < l->out + BALLOT_LINKS_MAX_OUT && chosen->links != NULL; o++)
        if (o->links == NULL || o->used_ms < chosen->used_ms)
            chosen = o;
    if (chosen->links != NULL)
        free_out(chosen);
    *chosen = (struct out){.links = l, .at = *at};
    begin_to_sweep(l);
    return chosen;
}

static void keep_waiting(struct out *o)
{
    struct ballot_links *l = o->links;
    struct co_error err;
    clear(&o->waiting);
    if (co_buf_append(&o->waiting, co_buf_bytes(&l->frame), co_buf_len(&l->frame)) < 0)
        return; /* asked again */
    if (o->conn != NULL || o->resolve != NULL || uv_now(l->loop) < o->again_ms)
        return;
    if (resolve_start(l->loop, o->at.host, o->at.port, on_resolved, o, &o->resolve, &err) < 0)
        o->resolve = NULL;
}

/* A process whose machine is gone closes nothing, and its name may lead elsewhere by now. */
static void drop_silent(struct out *o)
{
    if (!o->is_open || o->asked_ms == 0 ||
        uv_now(o->links->loop) < o->asked_ms + BALLOT_LINKS_SILENT_MS)
        return;
    channel_conn_end(o->conn);
    o->conn = NULL;
    o->is_open = false;
    o->asked_ms = 0;
}

void ballot_links_send(struct ballot_links *l, const struct elector_address *to,
                       const struct ballot *question)
{
    struct co_error err;
    struct out *o = find_out(l, to);
    clear(&l->frame);
    if (l->closing || ballot_wire_encode(question, l->run_id, &l->frame, &err) < 0)
        return;
    if (o == NULL)
        o = make_out(l, to);
    o->used_ms = uv_now(l->loop);
    drop_silent(o);
    if (o->is_open)
        ask(o, &l->frame);
    else
        keep_waiting(o);
}

int ballot_links_own_address(const struct ballot_links *l, const struct elector_address *to,
                             struct sockaddr_storage *ret)
{
    for (const struct out *o = l->out; o < l->out + BALLOT_LINKS_MAX_OUT; o++)
        if (o->links != NULL && o->is_open && elector_same_address(&o->at, to))
            return channel_conn_own_address(o->conn, ret) == 0 ? 0 : -ENOTCONN;
    return -ENOTCONN;
}

int ballot_links_find_peer(const struct ballot_links *l, const struct elector_address *to,
                           struct elector_address *ret)
{
    for (const struct out *o = l->out; o < l->out + BALLOT_LINKS_MAX_OUT; o++)
        if (o->links != NULL && o->is_open && elector_same_address(&o->at, to)) {
            ret->port = to->port;
            return address_print_host(&o->addresses[o->next - 1], ret->host, sizeof ret->host);
        }
    return -ENOTCONN;
}

/* --- beginning and end --- */

static void destroy_if_closed(struct ballot_links *l)
{
    if (!l->closing || !l->timer_closed || l->conns.n_conns > 0)
        return;
    void (*on_closed)(void *arg) = l->on_closed;
    void *arg = l->on_closed_arg;
    channel_conn_host_fini(&l->conns);
    co_buf_fini(&l->frame);
    free(l);
    if (on_closed != NULL)
        on_closed(arg);
}

static void on_conn_gone(struct channel_conn_host *h)
{
    destroy_if_closed((struct ballot_links *)((char *)h - offsetof(struct ballot_links, conns)));
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct ballot_links *l = handle->data;
    l->timer_closed = true;
    destroy_if_closed(l);
}

void ballot_links_close(struct ballot_links *l, void (*on_closed)(void *arg), void *arg)
{
    l->closing = true;
    l->on_closed = on_closed;
    l->on_closed_arg = arg;
    for (struct out *o = l->out; o < l->out + BALLOT_LINKS_MAX_OUT; o++)
        if (o->links != NULL)
            free_out(o);
    for (struct in *i = l->in; i < l->in + BALLOT_LINKS_MAX_IN; i++)
        if (i->links != NULL)
            free_in(i);
    uv_close((uv_handle_t *)&l->sweep, on_timer_closed);
}

int ballot_links_create(uv_loop_t *loop, const struct seal_key *key, const char *run_id,
                        const struct ballot_links_callbacks *callbacks, struct ballot_links **ret,
                        struct co_error *err)
{
    struct ballot_links *l = calloc(1, sizeof *l);
    if (l == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int rc = channel_conn_host_init(&l->conns, loop, err);
    if (rc < 0) {
        free(l);
        return rc;
    }
    l->loop = loop;
    l->key = key;
    l->run_id = run_id;
    l->callbacks = *callbacks;
    l->conns.on_gone = on_conn_gone;
    l->conns.mid_frame_ms = BALLOT_LINKS_OPEN_MS;
    l->unproven.seed = co_hash_seed();
    l->sweep.data = l;
    uv_timer_init(loop, &l->sweep);
    *ret = l;
    return 0;
}
