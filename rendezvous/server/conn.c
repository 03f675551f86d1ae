/* conn.c - reads a connection, feeds its session, and sends the replies.
 *
 * Read on_read(), feed_bytes() and replies_flush() first. feed_bytes() passes bytes to
 * session_feed() and follows the state that it returns: follow_state() stops reading from a client
 * that has had its share (late) or does not read its replies (choked), and starts the timer of an
 * incomplete request. Replies stay in the session until conn_flush_all(), so that one write carries
 * those of a whole turn.
 *
 * A connection may be closed by any step that can drop it; c->closing is then set, and the memory
 * remains until libuv's callbacks are done. */
#include "conn.h"

#include "common/error.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    KEEP_BYTES = 4096,             /* an empty buffer larger than this is given back */
    LONG_REQUEST_BYTES = 32 << 10, /* from here on a request is read to where it is kept */
    KEEPALIVE_S = 60,
    LATE_WORK = 16384, /* in a turn, for all late connections together: some milliseconds */
    AMBIGUOUS_MS = 50, /* how long an APPEND may pause after its key, or it is a DELETE_KEY */
};

enum timer_use {
    TIMER_OFF,
    TIMER_AMBIGUOUS,
    TIMER_MID_FRAME,
};

/* What only a slow client needs, one that pauses in a request or leaves its replies unread. Most
 * never do, and thousands of them are silent for days: it is made at first need. */
struct slow {
    uv_timer_t timer;
    uv_write_t write;
};

struct conn {
    uv_tcp_t tcp;
    struct slow *slow;      /* owned; NULL: never was */
    struct conn_host *host; /* borrowed */
    struct session session;
    struct co_buf in;      /* the request in progress, and what could not run yet */
    struct co_buf writing; /* lent to the kernel by slow->write, empty otherwise */
    struct conn *prev, *next;
    struct conn *next_unsent, **unsent_at; /* NULL: not among those that have something to send */
    struct conn *prev_late, *next_late;
    enum timer_use timer_use;
    uint64_t since_ms;
    uint64_t n_buffer_bytes;  /* our part of the host's */
    struct newcomer newcomer; /* until its first bytes have arrived */
    struct conn_origin origin;
    int n_handles;
    bool is_store; /* decided: these bytes are the store's */
    bool choked;   /* not read from, until enough was sent */
    bool late;     /* not read from until its turn has come: it is in the host's queue */
    bool closing;
};

static struct conn *conn_of(struct session *s)
{
    return (struct conn *)((char *)s - offsetof(struct conn, session));
}

const uv_tcp_t *conn_tcp(const struct conn *c)
{
    return &c->tcp;
}

uint64_t conn_since_ms(const struct conn *c)
{
    return c->since_ms;
}

const struct conn *conn_next(const struct conn *c)
{
    return c->next;
}

/* --- the end --- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    if (--c->n_handles > 0)
        return;
    struct conn_host *h = c->host;
    co_buf_fini(&c->in);
    co_buf_fini(&c->writing);
    free(c->slow);
    free(c);
    h->n_conns--;
    h->n_closing--;
    h->on_gone(h);
}

static void unmark_unsent(struct conn *c)
{
    if (c->unsent_at == NULL)
        return;
    *c->unsent_at = c->next_unsent;
    if (c->next_unsent != NULL)
        c->next_unsent->unsent_at = c->unsent_at;
    c->unsent_at = NULL;
}

static void enter_late(struct conn *c)
{
    struct conn_host *h = c->host;
    c->late = true;
    c->next_late = NULL;
    c->prev_late = h->last_late;
    *(h->last_late != NULL ? &h->last_late->next_late : &h->first_late) = c;
    h->last_late = c;
}

static void leave_late(struct conn *c)
{
    struct conn_host *h = c->host;
    if (!c->late)
        return;
    c->late = false;
    *(c->prev_late != NULL ? &c->prev_late->next_late : &h->first_late) = c->next_late;
    *(c->next_late != NULL ? &c->next_late->prev_late : &h->last_late) = c->prev_late;
}

void conn_close(struct conn *c)
{
    if (c->closing)
        return;
    c->closing = true;
    struct conn_host *h = c->host;
    h->n_closing++;
    h->n_clients -= c->is_store;
    newcomers_remove(&h->newcomers, &c->newcomer);
    session_fini(&c->session);
    unmark_unsent(c);
    leave_late(c);
    *(c->prev != NULL ? &c->prev->next : &h->first) = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    h->n_buffer_bytes -= c->n_buffer_bytes;
    uv_close((uv_handle_t *)&c->tcp, on_handle_closed); /* the last one frees c */
    if (c->slow != NULL)
        uv_close((uv_handle_t *)&c->slow->timer, on_handle_closed);
}

void conn_drop(struct conn *c, const char *format, ...)
{
    if (c->closing)
        return;
    char why[512], client[ADDRESS_TEXT_BYTES], text[640];
    struct sockaddr_storage from = {0};
    int len = sizeof from;
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&from, &len); /* "?" if it is gone */
    address_print(&from, client);
    snprintf(text, sizeof text, "client %s: %s", client, why);
    conn_close(c);
    c->host->on_dropped(c->host, text);
}

void conn_drop_other_user(struct conn *c, uid_t uid)
{
    struct co_error err;
    peer_check_user(uid, &err);
    conn_drop(c, "%s", err.text);
}

/* --- memory --- */

static void trim(struct co_buf *b)
{
    if (co_buf_len(b) == 0 && b->cap > KEEP_BYTES)
        co_buf_fini(b);
}

/* When all buffers together are too large, the connection that holds most has to go: a slow reader
 * shall not cost the others theirs. */
static void drop_largest(struct conn_host *h)
{
    struct conn *largest = h->first;
    for (struct conn *c = h->first; c != NULL; c = c->next)
        if (c->n_buffer_bytes > largest->n_buffer_bytes)
            largest = c;
    conn_drop(largest,
              "dropped with %" PRIu64 " bytes unsent or incomplete: all clients use %" PRIu64
              " (at most %" PRIu64 "); raise --max-memory",
              largest->n_buffer_bytes, h->n_buffer_bytes, h->max_buffer_bytes);
}

static void account(struct conn *c)
{
    if (c->closing)
        return;
    struct conn_host *h = c->host;
    trim(&c->in);
    trim(&c->session.out);
    trim(&c->writing);
    uint64_t n_bytes = c->in.cap + c->session.out.cap + c->writing.cap;
    h->n_buffer_bytes += n_bytes - c->n_buffer_bytes;
    c->n_buffer_bytes = n_bytes;
    while (h->n_buffer_bytes > h->max_buffer_bytes)
        drop_largest(h);
}

/* --- requests --- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf);
static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buf);
static void on_timer(uv_timer_t *timer);
static bool send_now(struct conn *c);

static void mark_unsent(struct conn *c)
{
    struct conn_host *h = c->host;
    if (c->unsent_at != NULL || c->closing)
        return;
    c->next_unsent = h->first_unsent;
    if (c->next_unsent != NULL)
        c->next_unsent->unsent_at = &c->next_unsent;
    c->unsent_at = &h->first_unsent;
    h->first_unsent = c;
}

void conn_on_output(struct session *s)
{
    mark_unsent(conn_of(s));
}

/* Returns false without memory: then c is closing. */
static bool need_slow(struct conn *c)
{
    if (c->slow != NULL)
        return true;
    struct slow *slow = malloc(sizeof *slow);
    if (slow == NULL) {
        conn_drop(c, "out of memory");
        return false;
    }
    uv_timer_init(c->host->loop, &slow->timer);
    slow->timer.data = slow->write.data = c;
    c->n_handles++;
    c->slow = slow;
    return true;
}

static void set_timer(struct conn *c, enum timer_use use)
{
    c->timer_use = use;
    if (use == TIMER_OFF) {
        uv_timer_stop(&c->slow->timer);
        return;
    }
    if (!need_slow(c))
        return;
    if (use == TIMER_AMBIGUOUS)
        uv_update_time(c->host->loop); /* after a long turn the 50 ms would be over at once */
    uv_timer_start(&c->slow->timer, on_timer,
                   use == TIMER_AMBIGUOUS ? AMBIGUOUS_MS : c->host->mid_frame_ms, 0);
}

/* Act on the state of the conversation. A request's time runs from its first byte, but not while
 * this side does not read. */
static void follow_state(struct conn *c, enum session_state state, bool is_new_request)
{
    bool was_read = !c->choked && !c->late;
    c->choked = state == SESSION_CHOKED;
    leave_late(c);
    if (state == SESSION_LATE)
        enter_late(c);
    bool is_read = !c->choked && !c->late;
    if (was_read && !is_read)
        uv_read_stop((uv_stream_t *)&c->tcp);
    else if (!was_read && is_read)
        uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    if (state == SESSION_AMBIGUOUS)
        set_timer(c, TIMER_AMBIGUOUS);
    else if (state == SESSION_MORE && (is_new_request || c->timer_use != TIMER_MID_FRAME))
        set_timer(c, TIMER_MID_FRAME);
    else if (state != SESSION_MORE && c->timer_use != TIMER_OFF)
        set_timer(c, TIMER_OFF);
}

enum protocol conn_protocol(const uint8_t *bytes, size_t len)
{
    static const char preface[] = PROTOCOL_CONTROL_PREFACE;
    if (len == 0)
        return PROTOCOL_UNDECIDED;
    if (bytes[0] < 'A' || bytes[0] > 'Z')
        return PROTOCOL_STORE;
    for (size_t i = 0; i < sizeof preface - 1; i++) {
        if (i == len)
            return PROTOCOL_UNDECIDED;
        if (bytes[i] != (uint8_t)preface[i]) /* DELETE begins as the preface does */
            return PROTOCOL_HTTP;
    }
    return PROTOCOL_CONTROL;
}

/* The descriptor outlives libuv's handle as a copy: closing one of two does not end the
 * connection. */
static void hand_over(struct conn *c, enum protocol protocol, const uint8_t *bytes, size_t len)
{
    struct conn_host *h = c->host;
    uv_os_fd_t fd;
    int copy = uv_fileno((uv_handle_t *)&c->tcp, &fd) < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        conn_drop(c, "out of file descriptors; raise the limit with ulimit -n");
        return;
    }
    struct conn_origin origin = c->origin;
    conn_close(c);
    h->on_foreign(h, protocol, copy, &origin, bytes, len);
}

static void become_client(struct conn *c)
{
    c->is_store = true;
    c->host->n_clients++;
    newcomers_remove(&c->host->newcomers, &c->newcomer);
}

/* Look at a connection's first bytes. Returns whether they are for the store; if not, they are too
 * few to decide, or c is closing. */
static bool decide_protocol(struct conn *c, const uint8_t *bytes, size_t len)
{
    bool is_any = c->host->on_foreign != NULL;
    enum protocol protocol = is_any ? conn_protocol(bytes, len) : PROTOCOL_STORE;
    if (protocol == PROTOCOL_UNDECIDED)
        follow_state(c, SESSION_MORE, false);
    else if (protocol != PROTOCOL_STORE)
        hand_over(c, protocol, bytes, len);
    else if (c->host->max_clients == 0)
        conn_drop(c, "refused: a store client, but this port serves no store");
    else if (c->origin.is_other_user)
        conn_drop_other_user(c, c->origin.uid);
    else if (c->host->n_clients >= c->host->max_clients)
        conn_drop(c, "refused: %u clients are connected, the maximum", c->host->max_clients);
    else
        become_client(c);
    return c->is_store;
}

/* Returns how many of the bytes were taken; c may be closing afterwards. */
static size_t feed_bytes(struct conn *c, const uint8_t *bytes, size_t len)
{
    if (!c->is_store && !decide_protocol(c, bytes, len))
        return 0;
    struct co_error err = {0};
    size_t n_used;
    int state = session_feed(&c->session, bytes, len, &n_used, &err);
    if (co_buf_len(&c->session.out) > 0)
        mark_unsent(c);
    if (state < 0) {
        send_now(c); /* what the good requests in front were owed */
        conn_drop(c, "%s", err.text);
    } else {
        follow_state(c, (enum session_state)state, n_used > 0);
    }
    return n_used;
}

static void feed_kept(struct conn *c)
{
    size_t n_used = feed_bytes(c, co_buf_bytes(&c->in), co_buf_len(&c->in));
    co_buf_consume(&c->in, n_used);
    account(c);
}

void conn_serve_late(struct conn_host *h)
{
    for (uint64_t n_work = 0; h->first_late != NULL && n_work < LATE_WORK;) {
        struct conn *c = h->first_late;
        feed_kept(c); /* puts it at the end of the line again, if there is more to do */
        n_work += c->session.n_work + 1;
    }
}

static void keep(struct conn *c, const uint8_t *bytes, size_t len)
{
    if (!c->closing && co_buf_append(&c->in, bytes, len) < 0)
        conn_drop(c, "out of memory");
}

/* Requests are run where they were read. The kept part of an incomplete one goes in front of the
 * bytes to come, if it is short; else these go after it. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct conn *c = handle->data;
    size_t n_kept = co_buf_len(&c->in);
    if (n_kept < LONG_REQUEST_BYTES) {
        if (n_kept > 0)
            memcpy(c->host->scratch, co_buf_bytes(&c->in), n_kept);
        *buf =
            uv_buf_init((char *)c->host->scratch + n_kept, (unsigned)(CONN_SCRATCH_BYTES - n_kept));
        return;
    }
    uint8_t *room = co_buf_room(&c->in, CONN_SCRATCH_BYTES);
    *buf = uv_buf_init((char *)room, room != NULL ? CONN_SCRATCH_BYTES : 0);
}

static void feed_scratch(struct conn *c, size_t n_read)
{
    const uint8_t *scratch = c->host->scratch;
    size_t len = co_buf_len(&c->in) + n_read;
    co_buf_consume(&c->in, co_buf_len(&c->in));
    size_t n_used = feed_bytes(c, scratch, len);
    keep(c, scratch + n_used, len - n_used);
    account(c);
}

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buf)
{
    struct conn *c = stream->data;
    (void)buf;
    if (n_read == 0)
        return;
    if (n_read == UV_ENOBUFS) {
        conn_drop(c, "out of memory");
    } else if (n_read < 0) {
        /* gone; what it was owed it may still read, if it only closed its half */
        conn_flush_all(c->host);
        conn_close(c);
    } else if (co_buf_len(&c->in) < LONG_REQUEST_BYTES) {
        feed_scratch(c, (size_t)n_read);
    } else {
        co_buf_added(&c->in, (size_t)n_read);
        feed_kept(c);
    }
}

/* What was sent in time may still lie in the kernel, if our loop was busy or stopped. */
static bool has_unread(const struct conn *c)
{
    uv_os_fd_t fd;
    int n = 0;
    return uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0 && ioctl(fd, FIONREAD, &n) == 0 &&
           n > 0;
}

static void on_timer(uv_timer_t *timer)
{
    struct conn *c = timer->data;
    if (has_unread(c)) {
        uv_timer_start(timer, on_timer, AMBIGUOUS_MS, 0);
    } else if (c->timer_use == TIMER_AMBIGUOUS) {
        c->timer_use = TIMER_OFF;
        session_decide_a(&c->session);
        feed_kept(c);
    } else if (co_buf_len(&c->in) == 0) {
        conn_drop(c, "timed out after %" PRIu64 " ms waiting for the first bytes",
                  c->host->mid_frame_ms);
    } else {
        conn_drop(c,
                  "timed out after %" PRIu64
                  " ms waiting for the rest of a request: received %zu bytes",
                  c->host->mid_frame_ms, co_buf_len(&c->in));
    }
}

/* --- replies --- */

static void on_written(uv_write_t *write, int status)
{
    struct conn *c = write->data;
    if (c->closing)
        return;
    if (status < 0) {
        conn_close(c);
        return;
    }
    co_buf_consume(&c->writing, co_buf_len(&c->writing));
    account(c);
    mark_unsent(c);
}

/* Hand over what the kernel did not take at once; meanwhile replies gather in a buffer of their
 * own. */
static void write_rest(struct conn *c)
{
    if (!need_slow(c))
        return;
    struct co_buf empty = c->writing;
    c->writing = c->session.out;
    c->session.out = empty;
    uv_buf_t buf =
        uv_buf_init((char *)co_buf_bytes(&c->writing), (unsigned)co_buf_len(&c->writing));
    if (uv_write(&c->slow->write, (uv_stream_t *)&c->tcp, &buf, 1, on_written) < 0)
        conn_close(c);
}

/* Send what the kernel takes at once. Returns false when the client is gone. */
static bool send_now(struct conn *c)
{
    struct co_buf *out = &c->session.out;
    if (co_buf_len(&c->writing) > 0 ||
        co_buf_len(out) == 0) /* on_written() comes back for the rest */
        return true;
    uv_buf_t buf = uv_buf_init((char *)co_buf_bytes(out), (unsigned)co_buf_len(out));
    int n_sent = uv_try_write((uv_stream_t *)&c->tcp, &buf, 1);
    if (n_sent < 0 && n_sent != UV_EAGAIN)
        return false;
    co_buf_consume(out, n_sent > 0 ? (size_t)n_sent : 0);
    return true;
}

/* At most one write is under way. While it is, replies gather in the session; on_written() comes
 * back for them. A choked session continues with the requests that it kept once everything is
 * out. */
static void replies_flush(struct conn *c)
{
    unmark_unsent(c);
    if (c->session.no_memory) {
        conn_drop(c, "out of memory");
        return;
    }
    if (!send_now(c)) {
        conn_close(c);
        return;
    }
    bool is_writing = co_buf_len(&c->writing) > 0;
    if (!is_writing && co_buf_len(&c->session.out) > 0)
        write_rest(c);
    account(c);
    if (!c->closing && c->choked && co_buf_len(&c->writing) == 0)
        feed_kept(c);
}

void conn_flush_all(struct conn_host *h)
{
    while (h->first_unsent != NULL)
        replies_flush(h->first_unsent);
}

/* --- the beginning --- */

int conn_accept(struct conn_host *h, uv_stream_t *listener, struct conn **ret_conn)
{
    struct conn *c = calloc(1, sizeof *c);
    if (c == NULL)
        return -ENOMEM;
    c->host = h;
    c->n_handles = 1;
    c->since_ms = uv_now(h->loop);
    c->tcp.data = c;
    uv_tcp_init(h->loop, &c->tcp);
    session_init(&c->session, &h->sessions);
    c->next = h->first;
    if (c->next != NULL)
        c->next->prev = c;
    h->first = c;
    h->n_conns++;
    int rc = uv_accept(listener, (uv_stream_t *)&c->tcp);
    if (rc < 0) {
        conn_close(c);
        return rc;
    }
    *ret_conn = c;
    return 0;
}

/* The newest one is chosen only if all others have shown what they are. */
static void keep_to_limit(struct conn_host *h, const struct conn *newest)
{
    while (h->n_conns - h->n_closing > h->max_conns) {
        struct newcomer *chosen = newcomers_choose(&h->newcomers);
        struct conn *c = (struct conn *)((char *)chosen - offsetof(struct conn, newcomer));
        if (c == newest)
            conn_drop(c, "refused: %u clients are connected, the maximum", h->max_clients);
        else
            conn_drop(c, "closed: it has sent nothing, and %u connections are open, the maximum",
                      h->max_conns);
    }
}

void conn_start(struct conn *c, const struct sockaddr_storage *from,
                const struct conn_origin *origin)
{
    c->origin = *origin;
    newcomers_add(&c->host->newcomers, &c->newcomer, from);
    keep_to_limit(c->host, c);
    if (c->closing)
        return;
    uv_tcp_nodelay(&c->tcp, 1);
    uv_tcp_keepalive(&c->tcp, 1, KEEPALIVE_S); /* clients may be silent for days */
    uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    if (c->host->max_clients == 0) /* a store's client may stay silent: torch 1.13's second one */
        set_timer(c, TIMER_MID_FRAME);
}
