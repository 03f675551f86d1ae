/* port_client.c - bytes between one socket and its struct relay_client.
 *
 * Read port_client_look() first: it does what the relay has for the client. Replies stay in the
 * relay until the kernel has taken them, so that the store gets credit for no more than the process
 * has read. */
#include "port_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

enum {
    WRITE_BYTES = 64 << 10, /* that are copied for the kernel at a time */
    QUIET_MS = 50,          /* as a connection of its own: conn.c */
    KEEPALIVE_S = 60,
};

/* --- the end --- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct port_client *c = handle->data;
    struct port_client_host *h = c->host;
    h->n_handles--;
    if (--c->n_handles == 0) {
        free(c->writing);
        free(c);
    }
    h->on_gone(h);
}

void port_client_close(struct port_client *c)
{
    if (c->is_closing)
        return;
    c->is_closing = true;
    if (c->end != NULL)
        relay_client_release(c->end);
    c->end = NULL;
    TAILQ_REMOVE(&c->host->open, c, all);
    c->host->n_open--;
    uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed);
}

/* --- replies --- */

static void on_written(uv_write_t *write, int status)
{
    struct port_client *c = write->data;
    const size_t n = c->n_writing;
    c->n_writing = 0;
    if (c->is_closing)
        return;
    if (status < 0) {
        port_client_close(c);
        return;
    }
    relay_client_sent(c->end, n);
    port_client_look(c);
}

/* What the kernel does not take at once. The relay's buffer may move meanwhile. */
static int write_rest(struct port_client *c, const uint8_t *bytes, size_t len)
{
    if (c->writing == NULL)
        c->writing = malloc(WRITE_BYTES);
    if (c->writing == NULL)
        return -ENOMEM;
    c->n_writing = len < WRITE_BYTES ? len : WRITE_BYTES;
    memcpy(c->writing, bytes, c->n_writing);
    uv_buf_t buf = uv_buf_init((char *)c->writing, (unsigned)c->n_writing);
    return uv_write(&c->write, (uv_stream_t *)&c->tcp, &buf, 1, on_written);
}

/* returns   0: all is out, or on_written() continues; -errno */
static int send_replies(struct port_client *c)
{
    const struct co_buf *out;
    while (c->n_writing == 0 && co_buf_len(out = relay_client_replies(c->end)) > 0) {
        const size_t len = co_buf_len(out) < INT32_MAX ? co_buf_len(out) : INT32_MAX;
        uv_buf_t buf = uv_buf_init((char *)co_buf_bytes(out), (unsigned)len);
        const int n = uv_try_write((uv_stream_t *)&c->tcp, &buf, 1);
        if (n == UV_EAGAIN)
            return write_rest(c, co_buf_bytes(out), len);
        if (n < 0)
            return n;
        relay_client_sent(c->end, (size_t)n);
    }
    return 0;
}

/* --- requests --- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    const struct port_client *c = handle->data;
    size_t space = relay_client_space(c->end);
    (void)suggested;
    if (space > PORT_CLIENT_SCRATCH_BYTES)
        space = PORT_CLIENT_SCRATCH_BYTES;
    *buf = uv_buf_init((char *)c->host->scratch, (unsigned)space);
}

static void stop_reading(struct port_client *c)
{
    uv_read_stop((uv_stream_t *)&c->tcp);
    c->is_reading = false;
}

/* It sends nothing more, but may still read what its requests have made. */
static void leave(struct port_client *c)
{
    stop_reading(c);
    c->has_left = true;
    relay_client_leave(c->end);
}

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buf)
{
    struct port_client *c = stream->data;
    if (n_read == 0)
        return;
    if (n_read == UV_ENOBUFS) { /* no space; others may have used it up */
        stop_reading(c);
    } else if (n_read == UV_EOF) {
        leave(c);
    } else if (n_read < 0 ||
               relay_client_push(c->end, (const uint8_t *)buf->base, (size_t)n_read) < 0) {
        port_client_close(c);
    } else {
        uv_timer_stop(&c->timer);
        if (relay_client_space(c->end) == 0)
            stop_reading(c);
    }
}

static void start_reading(struct port_client *c)
{
    if (!c->is_reading && !c->has_left && relay_client_space(c->end) > 0)
        c->is_reading = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) == 0;
}

/* --- silence --- */

/* What was sent in time may still lie in the kernel. */
static bool has_unread(const struct port_client *c)
{
    uv_os_fd_t fd;
    int n = 0;
    return uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0 && ioctl(fd, FIONREAD, &n) == 0 &&
           n > 0;
}

static void on_quiet(uv_timer_t *timer)
{
    struct port_client *c = timer->data;
    if (has_unread(c))
        uv_timer_start(timer, on_quiet, QUIET_MS, 0);
    else
        relay_client_quiet(c->end);
}

static void watch_silence(struct port_client *c)
{
    if (!relay_client_is_asked(c->end) || uv_is_active((uv_handle_t *)&c->timer))
        return;
    uv_update_time(c->host->loop); /* after a long turn the 50 ms would be over at once */
    uv_timer_start(&c->timer, on_quiet, QUIET_MS, 0);
}

/* --- both --- */

void port_client_look(struct port_client *c)
{
    const char *why;
    if (c->is_closing || c->end == NULL)
        return;
    if (send_replies(c) < 0) {
        port_client_close(c);
        return;
    }
    watch_silence(c);
    start_reading(c);
    if (!relay_client_is_ended(c->end, &why) || c->n_writing > 0)
        return;
    if (why[0] != '\0')
        c->host->on_dropped(c->host, c, why);
    port_client_close(c);
}

void port_client_start(struct port_client *c, struct relay_client *end)
{
    c->end = end;
    uv_tcp_nodelay(&c->tcp, 1);
    uv_tcp_keepalive(&c->tcp, 1, KEEPALIVE_S); /* as the store: clients may be silent for days */
    start_reading(c);
}

int port_client_accept(struct port_client_host *h, uv_stream_t *listener, struct port_client **ret)
{
    struct port_client *c = calloc(1, sizeof *c);
    if (c == NULL)
        return -ENOMEM;
    c->host = h;
    c->n_handles = 2;
    c->tcp.data = c->timer.data = c->write.data = c;
    uv_tcp_init(h->loop, &c->tcp);
    uv_timer_init(h->loop, &c->timer);
    h->n_handles += 2;
    h->n_open++;
    TAILQ_INSERT_TAIL(&h->open, c, all);
    const int rc = uv_accept(listener, (uv_stream_t *)&c->tcp);
    if (rc < 0) {
        port_client_close(c);
        return rc;
    }
    *ret = c;
    return 0;
}
