#include "http_conn.h"

#include "common/buf.h"
#include "http.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    READ_BYTES = 4096,
    REQUEST_MS = 10000, /* from the first byte of a request to its last, and for its reply */
    IDLE_MS = 75000,    /* between two requests; scrapers come once a minute */
    LINGER_MS = 2000,   /* for a client to take the last reply in */
};

struct http_conn {
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct http_host *host; /* borrowed */
    struct http_conn *older, *newer;
    struct co_buf in;
    struct co_buf out;  /* lent to `write` while that is under way, empty otherwise */
    size_t n_looked_at; /* of `in`, in search of a head's end */
    size_t n_request;   /* the head that is being answered */
    bool is_trusted;
    bool keep_alive;   /* after this reply */
    bool is_lingering; /* everything was sent; what still arrives is discarded */
    bool closing;
    int n_handles;
};

/* --- the end --- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct http_conn *c = handle->data;
    if (--c->n_handles > 0)
        return;
    struct http_host *h = c->host;
    co_buf_fini(&c->in);
    co_buf_fini(&c->out);
    free(c);
    h->n_conns--;
    h->on_gone(h);
}

static void list_remove(struct http_conn *c)
{
    struct http_host *h = c->host;
    *(c->older != NULL ? &c->older->newer : &h->oldest) = c->newer;
    *(c->newer != NULL ? &c->newer->older : &h->newest) = c->older;
}

static void list_append(struct http_conn *c)
{
    struct http_host *h = c->host;
    c->newer = NULL;
    c->older = h->newest;
    *(h->newest != NULL ? &h->newest->newer : &h->oldest) = c;
    h->newest = c;
}

static void close_conn(struct http_conn *c)
{
    if (c->closing)
        return;
    c->closing = true;
    list_remove(c);
    c->host->n_open--;
    uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed); /* the last one frees c */
}

void http_conn_close_all(struct http_host *h)
{
    while (h->oldest != NULL)
        close_conn(h->oldest);
}

static void on_timer(uv_timer_t *timer)
{
    close_conn(timer->data);
}

static void start_timer(struct http_conn *c, uint64_t timeout_ms)
{
    uv_timer_start(&c->timer, on_timer, timeout_ms, 0);
}

/* --- replies --- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf);
static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buf);
static void look_for_request(struct http_conn *c);

static void on_shutdown(uv_shutdown_t *request, int status)
{
    if (status < 0)
        close_conn(request->data);
}

/* To close with bytes unread would be a reset, which may overtake the reply: so end our half, and
 * read until the client ends its own. */
static void linger(struct http_conn *c)
{
    c->is_lingering = true;
    co_buf_consume(&c->in, co_buf_len(&c->in));
    start_timer(c, LINGER_MS);
    if (uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, on_shutdown) < 0)
        close_conn(c);
}

static void on_written(uv_write_t *write, int status)
{
    struct http_conn *c = write->data;
    if (c->closing)
        return;
    co_buf_consume(&c->out, co_buf_len(&c->out));
    if (status < 0 || uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) < 0) {
        close_conn(c);
        return;
    }
    if (!c->keep_alive) {
        linger(c);
        return;
    }
    list_remove(c);
    list_append(c);
    co_buf_consume(&c->in, c->n_request);
    c->n_looked_at = 0;
    start_timer(c, co_buf_len(&c->in) > 0 ? REQUEST_MS : IDLE_MS);
    look_for_request(c);
}

/* Of what on_page() returned. */
static int status_of(int rc)
{
    switch (rc) {
    case 0:
        return 200;
    case -EACCES:
        return 401;
    case -ENOENT:
        return 404;
    case -EAGAIN:
        return 503;
    case -EXDEV:
        return 421;
    default:
        return 500;
    }
}

/* returns   0, -ENOMEM */
static int make_reply(struct http_conn *c, const struct http_request *r)
{
    static const char plain[] = "text/plain; charset=utf-8";
    struct co_buf body = {0};
    const char *type = plain;
    int status = r->status;
    int rc = 0;
    if (status == 0)
        rc = c->host->on_page(c->host, r, c->is_trusted, &body, &type);
    if (status == 0)
        status = status_of(rc);
    if (status == 200 || status == 421)
        rc = http_reply(&c->out, r, status, type, &body);
    else
        rc = http_reply(&c->out, r, status, plain, NULL);
    co_buf_fini(&body);
    return rc;
}

static void answer(struct http_conn *c, const struct http_request *r)
{
    c->host->n_requests++;
    c->keep_alive = r->keep_alive;
    c->n_request = r->len_bytes;
    uv_read_stop((uv_stream_t *)&c->tcp); /* one request at a time */
    start_timer(c, REQUEST_MS);
    if (make_reply(c, r) < 0) {
        close_conn(c);
        return;
    }
    uv_buf_t buf = uv_buf_init((char *)co_buf_bytes(&c->out), (unsigned)co_buf_len(&c->out));
    if (uv_write(&c->write, (uv_stream_t *)&c->tcp, &buf, 1, on_written) < 0)
        close_conn(c);
}

/* --- requests --- */

static void look_for_request(struct http_conn *c)
{
    struct http_request request;
    if (http_next(co_buf_bytes(&c->in), co_buf_len(&c->in), &c->n_looked_at, &request))
        answer(c, &request);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct http_conn *c = handle->data;
    uint8_t *room = co_buf_room(&c->in, READ_BYTES);
    *buf = uv_buf_init((char *)room, room != NULL ? READ_BYTES : 0);
}

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buf)
{
    (void)buf;
    struct http_conn *c = stream->data;
    if (n_read < 0)
        close_conn(c);
    if (n_read <= 0 || c->is_lingering)
        return;
    if (co_buf_len(&c->in) == 0)
        start_timer(c, REQUEST_MS);
    co_buf_added(&c->in, (size_t)n_read);
    look_for_request(c);
}

/* --- the beginning --- */

static struct http_conn *create(struct http_host *h)
{
    struct http_conn *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->host = h;
    c->n_handles = 2;
    c->tcp.data = c->timer.data = c->write.data = c->shutdown.data = c;
    uv_tcp_init(h->loop, &c->tcp);
    uv_timer_init(h->loop, &c->timer);
    list_append(c);
    h->n_open++;
    h->n_conns++;
    return c;
}

void http_conn_start(struct http_host *h, int fd, bool is_trusted, const uint8_t *bytes, size_t len)
{
    if (h->n_open >= h->max_open &&
        h->oldest != NULL) /* drop the connection that was quiet for the longest time */
        close_conn(h->oldest);
    struct http_conn *c = create(h);
    if (c == NULL || uv_tcp_open(&c->tcp, fd) < 0) {
        close(fd);
        if (c != NULL)
            close_conn(c);
        return;
    }
    c->is_trusted = is_trusted;
    start_timer(c, REQUEST_MS);
    if (co_buf_append(&c->in, bytes, len) < 0 ||
        uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) < 0) {
        close_conn(c);
        return;
    }
    look_for_request(c);
}
