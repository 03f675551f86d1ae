/* channel_conn.c - carries the bytes of a seal, and the messages in them.
 *
 * Read conn_receive(), take_next() and conn_flush() first. Bytes go to the seal (seal.c), which
 * answers the greeting and returns frames; take_frame() makes messages of them and calls
 * on_message(). channel_conn_send() encodes a message into the seal's output, and conn_flush()
 * sends it. The stage only moves forward: greeting, open, lingering, closing.
 *
 * A callback must not run inside a call of the user's. fail_later() therefore notes a failure, and
 * the timer reports it after the caller has returned. */
#include "channel_conn.h"

#include "common/error.h"
#include "rendezvous/net/address.h"
#include "seal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SCRATCH_BYTES = 64 << 10,
    KEEPALIVE_S = 60, /* a link of the relay may be silent for days */
};

enum stage {
    STAGE_GREETING, /* being made, or the greetings are not over */
    STAGE_OPEN,
    STAGE_LINGERING, /* everything was sent; what still arrives is discarded */
    STAGE_CLOSING,
};

struct channel_conn {
    uv_tcp_t tcp;
    uv_timer_t timer;
    union { /* one after the other */
        uv_req_t any;
        uv_connect_t connect;
        uv_write_t write;
        uv_shutdown_t shutdown;
    } request;
    struct channel_conn_host *host; /* borrowed */
    struct channel_conn_callbacks callbacks;
    struct seal *seal;     /* owned */
    struct co_buf in;      /* of an incomplete frame */
    struct co_buf writing; /* lent to the kernel by a write, empty otherwise */
    enum stage stage;
    bool is_connected;
    bool is_mid_frame; /* the timer runs for that */
    bool ends;         /* linger once all is out */
    bool is_muted;     /* notes are not called any more */
    size_t n_counted;  /* of the host's n_buffer_bytes */
    int failure;       /* found where on_end must not be called; the timer does it */
    char failure_text[256];
    struct sockaddr_in6 peer; /* of either family; the kernel has it no more once it is gone */
    int n_handles;
};

/* --- shared --- */

int channel_conn_host_init(struct channel_conn_host *h, uv_loop_t *loop, struct co_error *err)
{
    *h = (struct channel_conn_host){.loop = loop,
                                    .mid_frame_ms = CHANNEL_CONN_MID_FRAME_MS,
                                    .scratch = malloc(SCRATCH_BYTES),
                                    .wire = malloc(sizeof *h->wire),
                                    .frame = calloc(1, sizeof *h->frame)};
    if (h->scratch != NULL && h->wire != NULL && h->frame != NULL)
        return 0;
    channel_conn_host_fini(h);
    return co_fail(err, -ENOMEM, "out of memory");
}

void channel_conn_host_fini(struct channel_conn_host *h)
{
    free(h->scratch);
    free(h->wire);
    if (h->frame != NULL)
        co_buf_fini(h->frame);
    free(h->frame);
    *h = (struct channel_conn_host){0};
}

/* Call it when the buffers may have changed. returns whether there may be more in them */
static bool count_buffers(struct channel_conn *c)
{
    struct channel_conn_host *h = c->host;
    size_t n = co_buf_len(&c->in) + co_buf_len(&c->writing) + co_buf_len(seal_output(c->seal));
    h->n_buffer_bytes += n - c->n_counted; /* wraps, when it is less */
    c->n_counted = n;
    return h->max_buffer_bytes == 0 || h->n_buffer_bytes <= h->max_buffer_bytes ||
           n <= h->max_buffer_bytes / h->n_conns;
}

/* --- the end --- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct channel_conn *c = handle->data;
    if (--c->n_handles > 0)
        return;
    struct channel_conn_host *h = c->host;
    h->n_buffer_bytes -= c->n_counted;
    seal_destroy(c->seal);
    co_buf_fini(&c->in);
    co_buf_fini(&c->writing);
    free(c);
    h->n_conns--;
    if (h->on_gone != NULL)
        h->on_gone(h);
}

/* Close now, also what is being ended. */
static void end_now(struct channel_conn *c)
{
    c->is_muted = true;
    if (c->stage == STAGE_CLOSING)
        return;
    c->stage = STAGE_CLOSING;
    c->host->n_open--;
    uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed); /* the last one frees c */
}

static void conn_fail(struct channel_conn *c, int code, const char *text)
{
    bool tell = !c->is_muted;
    end_now(c);
    if (tell)
        c->callbacks.on_end(c->callbacks.arg, code, text);
}

static void on_failure_due(uv_timer_t *timer)
{
    struct channel_conn *c = timer->data;
    conn_fail(c, c->failure, c->failure_text);
}

/* Report it after the caller has returned. */
static void fail_later(struct channel_conn *c, int code, const char *text)
{
    if (c->stage == STAGE_CLOSING || c->failure != 0)
        return;
    c->failure = code;
    snprintf(c->failure_text, sizeof c->failure_text, "%s", text);
    uv_read_stop((uv_stream_t *)&c->tcp);
    uv_timer_start(&c->timer, on_failure_due, 0, 0);
}

static void on_late(uv_timer_t *timer)
{
    struct channel_conn *c = timer->data;
    if (c->stage == STAGE_LINGERING)
        end_now(c);
    else if (!c->is_connected)
        conn_fail(c, -ETIMEDOUT, "timed out waiting for the connection");
    else if (c->stage == STAGE_GREETING)
        conn_fail(c, -ETIMEDOUT, "timed out waiting for the peer's answer to the handshake");
    else
        conn_fail(c, -ETIMEDOUT, "timed out waiting for the rest of a frame");
}

/* --- sending --- */

static void conn_flush(struct channel_conn *c);

size_t channel_conn_n_unsent(const struct channel_conn *c)
{
    return co_buf_len(&c->writing) + co_buf_len(seal_output(c->seal));
}

static void on_written(uv_write_t *write, int status)
{
    struct channel_conn *c = write->data;
    if (c->stage == STAGE_CLOSING)
        return;
    co_buf_fini(&c->writing);
    if (status < 0)
        conn_fail(c, status, uv_strerror(status));
    else
        conn_flush(c);
    count_buffers(c);
    if (c->stage == STAGE_OPEN && !c->is_muted && c->callbacks.on_sent != NULL &&
        channel_conn_n_unsent(c) == 0)
        c->callbacks.on_sent(c->callbacks.arg);
}

static void on_shutdown(uv_shutdown_t *request, int status)
{
    struct channel_conn *c = request->data;
    if (status < 0)
        end_now(c);
}

/* To close with bytes unread would be a reset, which may overtake the last message: so end our
 * half, and read until the other end closes its own. */
static void linger(struct channel_conn *c)
{
    c->stage = STAGE_LINGERING;
    uv_timer_start(&c->timer, on_late, CHANNEL_CONN_LINGER_MS, 0);
    if (uv_shutdown(&c->request.shutdown, (uv_stream_t *)&c->tcp, on_shutdown) < 0)
        end_now(c);
}

/* What the kernel does not take at once; meanwhile output gathers in the seal's buffer. */
static void write_rest(struct channel_conn *c, struct co_buf *out)
{
    struct co_buf empty = c->writing;
    c->writing = *out;
    *out = empty;
    uv_buf_t buf =
        uv_buf_init((char *)co_buf_bytes(&c->writing), (unsigned)co_buf_len(&c->writing));
    int rc = uv_write(&c->request.write, (uv_stream_t *)&c->tcp, &buf, 1, on_written);
    if (rc < 0)
        fail_later(c, rc, uv_strerror(rc));
}

static void conn_flush(struct channel_conn *c)
{
    struct co_buf *out = seal_output(c->seal);
    if (!c->is_connected || c->stage >= STAGE_LINGERING || co_buf_len(&c->writing) > 0)
        return;
    if (co_buf_len(out) > 0) {
        uv_buf_t buf = uv_buf_init((char *)co_buf_bytes(out), (unsigned)co_buf_len(out));
        int n = uv_try_write((uv_stream_t *)&c->tcp, &buf, 1);
        if (n < 0 && n != UV_EAGAIN) {
            fail_later(c, n, uv_strerror(n));
            return;
        }
        co_buf_consume(out, n > 0 ? (size_t)n : 0);
    }
    if (co_buf_len(out) > 0) {
        write_rest(c, out);
        return;
    }
    co_buf_fini(out); /* of many connections, most are silent */
    if (c->ends)
        linger(c);
}

void channel_conn_send(struct channel_conn *c, const struct message *m)
{
    struct co_buf *frame = c->host->frame;
    struct co_error err = {0};
    if (c->stage != STAGE_OPEN || c->failure != 0)
        return;
    co_buf_consume(frame, co_buf_len(frame));
    int rc = channel_wire_encode(m, frame, &err);
    if (rc < 0)
        fail_later(c, rc, err.text);
    else
        channel_conn_send_frame(c, co_buf_bytes(frame), co_buf_len(frame));
}

void channel_conn_send_frame(struct channel_conn *c, const void *frame, size_t len)
{
    struct co_error err = {0};
    if (c->stage != STAGE_OPEN || c->failure != 0)
        return;
    int rc = seal_put(c->seal, frame, len, &err);
    if (rc < 0)
        fail_later(c, rc, err.text);
    else if (co_buf_len(seal_output(c->seal)) > CHANNEL_CONN_MAX_UNSENT)
        fail_later(c, -ETIMEDOUT, "the peer does not read what is sent to it");
    else
        conn_flush(c);
    if (!count_buffers(c))
        fail_later(
            c, -ENOMEM,
            "the peer does not read what is sent to it, and the memory for unsent data is used up");
}

void channel_conn_end(struct channel_conn *c)
{
    c->is_muted = true;
    if (c->stage == STAGE_OPEN && c->failure == 0) {
        c->ends = true;
        uv_timer_start(&c->timer, on_late, CHANNEL_CONN_LINGER_MS, 0);
        conn_flush(c);
    } else if (c->stage != STAGE_LINGERING) {
        end_now(c);
    }
}

int channel_conn_detach(struct channel_conn *c)
{
    uv_os_fd_t fd;
    if (c->stage != STAGE_OPEN || c->failure != 0 || channel_conn_n_unsent(c) > 0)
        return -EAGAIN;
    int rc = uv_fileno((uv_handle_t *)&c->tcp, &fd);
    const int copy = rc < 0 ? rc : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return rc < 0 ? rc : -errno;
    end_now(c); /* closes its own descriptor: no end is sent */
    return copy;
}

/* --- receiving --- */

static void take_frame(struct channel_conn *c, const uint8_t *frame, size_t len)
{
    struct co_error err = {0};
    struct message m;
    if (c->callbacks.on_frame != NULL) {
        if (!c->is_muted)
            c->callbacks.on_frame(c->callbacks.arg, frame, len);
        return;
    }
    int rc = channel_wire_decode(frame, len, c->host->wire, &m, &err);
    if (rc < 0)
        conn_fail(c, rc, err.text);
    else if (!c->is_muted)
        c->callbacks.on_message(c->callbacks.arg, &m);
}

static void follow_mid_frame(struct channel_conn *c)
{
    bool is_mid_frame = seal_is_mid_frame(c->seal);
    if (c->stage != STAGE_OPEN || c->ends || c->failure != 0 || is_mid_frame == c->is_mid_frame)
        return;
    c->is_mid_frame = is_mid_frame;
    if (is_mid_frame)
        uv_timer_start(&c->timer, on_late, c->host->mid_frame_ms, 0);
    else
        uv_timer_stop(&c->timer);
}

/* Take one thing out of what was received. returns whether there may be another */
static bool take_next(struct channel_conn *c, const uint8_t *bytes, size_t len, size_t *ret_used)
{
    struct co_error err = {0};
    const uint8_t *frame;
    size_t frame_len;
    int rc = seal_feed(c->seal, bytes, len, ret_used, &frame, &frame_len, &err);
    if (rc < 0) {
        conn_flush(c); /* reports the reason to the other end */
        conn_fail(c, rc, err.text);
    } else if (rc == SEAL_OPENED) {
        c->stage = STAGE_OPEN;
        uv_timer_stop(&c->timer);
        conn_flush(c);
        if (!c->is_muted)
            c->callbacks.on_open(c->callbacks.arg);
    } else if (rc == SEAL_FRAME) {
        take_frame(c, frame, frame_len);
    } else {
        conn_flush(c); /* of the greeting */
        return false;
    }
    return true;
}

/* Returns how many bytes were taken; c may be closing afterwards. */
static size_t take_all(struct channel_conn *c, const uint8_t *bytes, size_t len)
{
    size_t n_used = 0, n;
    bool more = true;
    while (more && c->stage <= STAGE_OPEN && c->failure == 0) {
        more = take_next(c, bytes + n_used, len - n_used, &n);
        n_used += n;
    }
    seal_trim(c->seal); /* it is not counted in n_buffer_bytes: only one at a time has it */
    follow_mid_frame(c);
    return n_used;
}

static void receive_kept(struct channel_conn *c)
{
    co_buf_consume(&c->in, take_all(c, co_buf_bytes(&c->in), co_buf_len(&c->in)));
    if (co_buf_len(&c->in) == 0) /* silent for a second: free the memory */
        co_buf_fini(&c->in);
}

static void conn_receive(struct channel_conn *c, const uint8_t *bytes, size_t len)
{
    if (c->stage > STAGE_OPEN)
        return;
    bool had_kept = co_buf_len(&c->in) > 0;
    size_t n_used = had_kept ? 0 : take_all(c, bytes, len);
    if (n_used < len && co_buf_append(&c->in, bytes + n_used, len - n_used) < 0)
        conn_fail(c, -ENOMEM, "out of memory");
    else if (had_kept)
        receive_kept(c);
    if (!count_buffers(c))
        conn_fail(c, -ENOMEM,
                  "a frame is incomplete, and the memory for incomplete frames is used up");
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct channel_conn *c = handle->data;
    (void)suggested;
    *buf = uv_buf_init((char *)c->host->scratch, SCRATCH_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buf)
{
    struct channel_conn *c = stream->data;
    if (n_read > 0)
        conn_receive(c, (const uint8_t *)buf->base, (size_t)n_read);
    else if (n_read < 0 && c->stage == STAGE_LINGERING)
        end_now(c);
    else if (n_read == UV_EOF)
        conn_fail(c, -ECONNRESET, "the peer closed the connection");
    else if (n_read < 0)
        conn_fail(c, (int)n_read, uv_strerror((int)n_read));
}

/* --- the beginning --- */

static int create(struct channel_conn_host *h, struct seal *seal,
                  const struct channel_conn_callbacks *callbacks, struct channel_conn **ret_conn,
                  struct co_error *err)
{
    struct channel_conn *c = calloc(1, sizeof *c);
    if (c == NULL) {
        seal_destroy(seal);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    c->host = h;
    c->seal = seal;
    c->callbacks = *callbacks;
    c->n_handles = 2;
    c->tcp.data = c->timer.data = c->request.any.data = c;
    uv_tcp_init(h->loop, &c->tcp);
    uv_timer_init(h->loop, &c->timer);
    h->n_conns++;
    h->n_open++;
    *ret_conn = c;
    return 0;
}

static int conn_begin(struct channel_conn *c)
{
    struct sockaddr_storage from = {0};
    int len = sizeof from;
    c->is_connected = true;
    uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&from, &len);
    memcpy(&c->peer, &from, sizeof c->peer);
    uv_tcp_nodelay(&c->tcp, 1);
    uv_tcp_keepalive(&c->tcp, 1, KEEPALIVE_S);
    uv_timer_start(&c->timer, on_late, c->host->mid_frame_ms, 0);
    return uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
}

static void on_adopted(uv_timer_t *timer)
{
    struct channel_conn *c = timer->data;
    uv_timer_start(&c->timer, on_late, c->host->mid_frame_ms, 0);
    conn_receive(c, NULL, 0);
}

int channel_conn_adopt(struct channel_conn_host *h, struct seal *seal, int fd, const uint8_t *bytes,
                       size_t len, const struct channel_conn_callbacks *callbacks,
                       struct channel_conn **ret_conn, struct co_error *err)
{
    struct channel_conn *c = NULL;
    int rc = create(h, seal, callbacks, &c, err);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    rc = uv_tcp_open(&c->tcp, fd);
    if (rc < 0)
        close(fd);
    if (rc == 0)
        rc = conn_begin(c);
    if (rc == 0)
        rc = co_buf_append(&c->in, bytes, len);
    if (rc == 0) /* they are looked at when the caller has returned */
        uv_timer_start(&c->timer, on_adopted, 0, 0);
    if (rc < 0) {
        end_now(c);
        return co_fail(err, rc, "cannot take over a control connection: %s", strerror(-rc));
    }
    *ret_conn = c;
    return 0;
}

static void on_connected(uv_connect_t *request, int status)
{
    struct channel_conn *c = request->data;
    if (c->stage == STAGE_CLOSING)
        return;
    if (status == 0)
        status = conn_begin(c);
    if (status < 0)
        conn_fail(c, status, uv_strerror(status));
    else
        conn_flush(c); /* the greeting */
}

int channel_conn_connect(struct channel_conn_host *h, struct seal *seal, const struct sockaddr *to,
                         uint64_t connect_ms, const struct channel_conn_callbacks *callbacks,
                         struct channel_conn **ret_conn, struct co_error *err)
{
    struct channel_conn *c = NULL;
    int rc = create(h, seal, callbacks, &c, err);
    if (rc < 0)
        return rc;
    uv_timer_start(&c->timer, on_late, connect_ms, 0);
    rc = uv_tcp_connect(&c->request.connect, &c->tcp, to, on_connected);
    if (rc < 0) {
        end_now(c);
        return co_fail(err, rc, "%s", uv_strerror(rc));
    }
    *ret_conn = c;
    return 0;
}

void channel_conn_peer(const struct channel_conn *c, char text[CHANNEL_CONN_PEER_BYTES])
{
    struct sockaddr_storage from = {0};
    _Static_assert(CHANNEL_CONN_PEER_BYTES >= ADDRESS_TEXT_BYTES, "any address fits");
    memcpy(&from, &c->peer, sizeof c->peer);
    address_print(&from, text);
}

int channel_conn_own_address(const struct channel_conn *c, struct sockaddr_storage *ret)
{
    int len = sizeof *ret;
    return uv_tcp_getsockname(&c->tcp, (struct sockaddr *)ret, &len);
}
