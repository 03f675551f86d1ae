/* What the ranks of each node have put by PMI, taken to all nodes. pmi_exchange_open() resolves the
 * store's name, try_next() connects to its addresses one after the other, and then the requests of
 * a round follow: ask_for_all() sets this node's part and waits until every node has set its own,
 * ask_for_parts() gets them all; take_part() hands each to the owner, on_round() is called after
 * the last. Read take_next() first: it has the states.
 *
 * State: `awaited` is what the store answers next; nothing is sent while an answer is awaited.
 * Invariant: after fail_exchange() and after pmi_exchange_close() no callback is called; the struct
 * lives until the loop has closed the connection.
 */
#include "pmi_exchange.h"

#include "common/buf.h"
#include "common/error.h"
#include "rendezvous/net/resolve.h"
#include "rendezvous/pmi/pmi1_server.h"
#include "rendezvous/store/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 64, N_CANCELS = 4 };

enum awaited { /* from the store */
               AWAIT_NOTHING,
               AWAIT_HANDS, /* its greeting */
               AWAIT_ALL,   /* that each node has brought its part */
               AWAIT_PARTS,
};

struct pmi_exchange {
    struct pmi_exchange_opts opts;
    struct resolve *resolve; /* NULL: not under way */
    struct sockaddr_storage addresses[RESOLVE_MAX_ADDRESSES];
    size_t n_addresses, at;
    uv_tcp_t tcp;
    uv_connect_t connect;
    bool is_open;      /* tcp is known to the loop */
    bool is_connected; /* requests may be sent */
    bool is_closing, has_failed;
    struct co_buf in;   /* owned */
    struct co_buf part; /* owned; to be brought once the store is reached */
    bool is_brought;    /* this node's part of this round */
    enum awaited awaited;
    uint32_t round;
    uint32_t n_parts; /* how many of its parts have arrived */
    char where[128];
};

static void fail_exchange(struct pmi_exchange *x, const char *why)
{
    char text[256];
    if (x->has_failed || x->is_closing)
        return;
    x->has_failed = true;
    if (x->is_open)
        uv_read_stop((uv_stream_t *)&x->tcp);
    snprintf(text, sizeof text, "the job's store at %s: %s", x->where, why);
    x->opts.on_failed(x->opts.arg, text);
}

/* --- requests --------------------------------------------------------------------------------- */

struct sending { /* one write, followed by its bytes */
    uv_write_t write;
    uint8_t bytes[];
};

static void on_sent(uv_write_t *write, int status)
{
    struct pmi_exchange *x = write->data;
    free(write);
    if (status < 0 && status != UV_ECANCELED)
        fail_exchange(x, uv_strerror(status));
}

static void send_all(struct pmi_exchange *x, const struct co_buf *out)
{
    const size_t n = co_buf_len(out);
    struct sending *s = malloc(sizeof *s + n);
    if (s == NULL) {
        fail_exchange(x, "out of memory");
        return;
    }
    memcpy(s->bytes, co_buf_bytes(out), n);
    s->write.data = x;
    uv_buf_t buf = uv_buf_init((char *)s->bytes, (unsigned)n);
    int rc = uv_write(&s->write, (uv_stream_t *)&x->tcp, &buf, 1, on_sent);
    if (rc < 0) {
        free(s);
        fail_exchange(x, uv_strerror(rc));
    }
}

static int add_u8(struct co_buf *out, uint8_t value)
{
    return co_buf_append(out, &value, 1);
}

static int add_u64(struct co_buf *out, uint64_t value)
{
    uint8_t bytes[8];
    wire_put_u64(bytes, value);
    return co_buf_append(out, bytes, sizeof bytes);
}

static int add_string(struct co_buf *out, const void *bytes, size_t n)
{
    return add_u64(out, n) ?: co_buf_append(out, bytes, n);
}

static int add_key(const struct pmi_exchange *x, struct co_buf *out, uint32_t node)
{
    char key[KEY_BYTES];
    const int n = snprintf(key, sizeof key, "ddp/pmi/%" PRIu32 "/%" PRIu32 "/%" PRIu32,
                           x->opts.generation, x->round, node);
    return add_string(out, key, (size_t)n);
}

static int ask_for_all(const struct pmi_exchange *x, struct co_buf *out)
{
    int rc = add_u8(out, WIRE_SET)
        ?: add_key(x, out, x->opts.node)
        ?: add_string(out, co_buf_bytes(&x->part), co_buf_len(&x->part))
        ?: add_u8(out, WIRE_WAIT)
        ?: add_u64(out, x->opts.n_nodes);
    for (uint32_t i = 0; rc == 0 && i < x->opts.n_nodes; i++)
        rc = add_key(x, out, i);
    return rc;
}

static int ask_for_parts(const struct pmi_exchange *x, struct co_buf *out)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < x->opts.n_nodes; i++)
        rc = add_u8(out, WIRE_GET) ?: add_key(x, out, i);
    return rc;
}

/* A request sent after a wait is answered at once, when the parts may not exist yet: they are
 * requested when the wait is over. */
static void ask_store(struct pmi_exchange *x,
                      int (*what)(const struct pmi_exchange *, struct co_buf *),
                      enum awaited awaited)
{
    struct co_buf out = {0};
    x->awaited = awaited;
    if (what(x, &out) == 0)
        send_all(x, &out);
    else
        fail_exchange(x, "out of memory");
    co_buf_fini(&out);
}

static void begin_round(struct pmi_exchange *x)
{
    if (!x->is_connected || !x->is_brought || x->awaited != AWAIT_NOTHING)
        return;
    ask_store(x, ask_for_all, AWAIT_ALL);
    co_buf_consume(&x->part, co_buf_len(&x->part));
}

int pmi_exchange_bring(struct pmi_exchange *x, const uint8_t *bytes, size_t len)
{
    int rc = co_buf_append(&x->part, bytes, len);
    if (rc < 0)
        return rc;
    x->is_brought = true;
    begin_round(x);
    return 0;
}

/* --- answers ---------------------------------------------------------------------------------- */

/* returns   whether there was a whole part */
static bool take_part(struct pmi_exchange *x)
{
    const uint8_t *bytes = co_buf_bytes(&x->in);
    const size_t n_here = co_buf_len(&x->in);
    if (n_here < 8)
        return false;
    const uint64_t n = wire_get_u64(bytes);
    if (n > PMI1_MAX_PUTS_BYTES) {
        fail_exchange(x, "the PMI data of a node is too long");
        return false;
    }
    if (n_here - 8 < n)
        return false;
    x->opts.on_part(x->opts.arg, x->n_parts, bytes + 8, (size_t)n);
    if (x->is_closing || x->has_failed)
        return false;
    co_buf_consume(&x->in, 8 + (size_t)n);
    if (++x->n_parts < x->opts.n_nodes)
        return true;
    x->n_parts = 0;
    x->is_brought = false;
    x->awaited = AWAIT_NOTHING;
    x->opts.on_round(x->opts.arg, x->round++);
    return true;
}

/* returns   whether it was there; it may have been a wrong one, which fails */
static bool take_store_answer(struct pmi_exchange *x, uint8_t wanted, size_t n)
{
    const uint8_t *bytes = co_buf_bytes(&x->in);
    if (co_buf_len(&x->in) < n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != wanted) {
            fail_exchange(x, "unexpected reply: not a store of this version");
            return false;
        }
    co_buf_consume(&x->in, n);
    return true;
}

static bool take_next(struct pmi_exchange *x)
{
    switch (x->awaited) {
    case AWAIT_HANDS:
        if (!take_store_answer(x, WIRE_WAIT_CANCELED, N_CANCELS))
            return false;
        x->is_connected = true;
        x->awaited = AWAIT_NOTHING;
        begin_round(x);
        return true;
    case AWAIT_ALL:
        if (!take_store_answer(x, WIRE_STOP_WAITING, 1))
            return false;
        ask_store(x, ask_for_parts, AWAIT_PARTS);
        return true;
    case AWAIT_PARTS:
        return take_part(x);
    default:
        if (co_buf_len(&x->in) > 0)
            fail_exchange(x, "unexpected reply without a request");
        return false;
    }
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    struct pmi_exchange *x = handle->data;
    uint8_t *room = co_buf_room(&x->in, suggested);
    *ret = uv_buf_init((char *)room, room != NULL ? (unsigned)suggested : 0);
}

static void on_exchange_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct pmi_exchange *x = stream->data;
    (void)buf;
    if (n < 0) {
        fail_exchange(x, n == UV_EOF ? "the connection was closed" : uv_strerror((int)n));
        return;
    }
    co_buf_added(&x->in, (size_t)n);
    while (!x->is_closing && !x->has_failed && take_next(x))
        ;
}

/* --- connecting ------------------------------------------------------------------------------- */

static void try_next(struct pmi_exchange *x);

/* As rendezvous/client/client.c: no store sends anything before it is asked. */
static int add_greeting(const struct pmi_exchange *x, struct co_buf *out)
{
    uint8_t hello[1 + 4 + N_CANCELS] = {WIRE_VALIDATE};
    (void)x;
    wire_put_u32(hello + 1, WIRE_MAGIC);
    memset(hello + 5, WIRE_CANCEL_WAIT, N_CANCELS);
    return co_buf_append(out, hello, sizeof hello);
}

static void on_attempt_closed(uv_handle_t *handle)
{
    struct pmi_exchange *x = handle->data;
    x->is_open = false;
    if (x->is_closing)
        pmi_exchange_close(x);
    else
        try_next(x);
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct pmi_exchange *x = connect->data;
    if (x->is_closing)
        return;
    if (status < 0 && ++x->at < x->n_addresses) {
        uv_close((uv_handle_t *)&x->tcp, on_attempt_closed);
        return;
    }
    if (status == 0)
        status = uv_read_start((uv_stream_t *)&x->tcp, on_room, on_exchange_read);
    if (status < 0) {
        fail_exchange(x, uv_strerror(status));
        return;
    }
    uv_tcp_nodelay(&x->tcp, 1);
    ask_store(x, add_greeting, AWAIT_HANDS);
}

static void try_next(struct pmi_exchange *x)
{
    int rc = uv_tcp_init(x->tcp.loop, &x->tcp);
    x->tcp.data = x->connect.data = x;
    x->is_open = rc == 0;
    if (rc == 0)
        rc = uv_tcp_connect(&x->connect, &x->tcp, (const struct sockaddr *)&x->addresses[x->at],
                            on_connected);
    if (rc < 0)
        fail_exchange(x, uv_strerror(rc));
}

static void on_resolved(void *arg, int code, const char *text,
                        const struct sockaddr_storage *addresses, size_t n)
{
    struct pmi_exchange *x = arg;
    x->resolve = NULL;
    if (code < 0) {
        fail_exchange(x, text);
        return;
    }
    memcpy(x->addresses, addresses, n * sizeof *addresses);
    x->n_addresses = n;
    try_next(x);
}

int pmi_exchange_open(uv_loop_t *loop, const struct pmi_exchange_opts *opts,
                      struct pmi_exchange **ret, struct co_error *err)
{
    struct pmi_exchange *x = calloc(1, sizeof *x);
    if (x == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    x->opts = *opts;
    x->opts.host = NULL; /* was lent */
    x->tcp.loop = loop;
    snprintf(x->where, sizeof x->where, "%.100s:%u", opts->host, opts->port);
    int rc = resolve_start(loop, opts->host, opts->port, on_resolved, x, &x->resolve, err);
    if (rc < 0) {
        free(x);
        return rc;
    }
    *ret = x;
    return 0;
}

static void on_stream_closed(uv_handle_t *handle)
{
    struct pmi_exchange *x = handle->data;
    co_buf_fini(&x->in);
    co_buf_fini(&x->part);
    free(x);
}

/* Between two attempts the handle is closing already: the rest happens when it is closed. */
void pmi_exchange_close(struct pmi_exchange *x)
{
    if (x == NULL)
        return;
    x->is_closing = true;
    if (x->resolve != NULL)
        resolve_cancel(x->resolve);
    x->resolve = NULL;
    if (x->is_open && uv_is_closing((uv_handle_t *)&x->tcp))
        return;
    if (!x->is_open)
        uv_tcp_init(x->tcp.loop, &x->tcp); /* makes no socket: it cannot fail */
    x->is_open = true;
    x->tcp.data = x;
    uv_close((uv_handle_t *)&x->tcp, on_stream_closed);
}
