#include "self_probe.h"

#include "common/buf.h"
#include "common/error.h"
#include "rendezvous/channel/channel_wire.h"
#include "rendezvous/channel/seal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NONCE_AT = SEAL_GREETING_BYTES - 32, /* the greeting's last field */
    NONCE_ENOUGH = 8,                    /* enough of its bytes to be unguessable */
    TEXT_BYTES = 128,
};

struct self_probe {
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_connect_t connect;
    uv_write_t write;
    uint8_t greeting[SEAL_GREETING_BYTES];
    uint8_t answer[1];
    int n_handles;
    bool is_over;
    enum self_probe_result result;
    char text[TEXT_BYTES];
    self_probe_done on_done; /* NULL: called already, or not wanted */
    void *arg;
};

static void on_closed(uv_handle_t *handle)
{
    struct self_probe *p = handle->data;
    if (--p->n_handles == 0)
        free(p);
}

static void close_handles(struct self_probe *p)
{
    uv_close((uv_handle_t *)&p->tcp, on_closed);
    uv_close((uv_handle_t *)&p->timer, on_closed);
}

static void on_result(uv_timer_t *timer)
{
    struct self_probe *p = timer->data;
    self_probe_done on_done = p->on_done;
    p->on_done = NULL;
    close_handles(p);
    on_done(p->arg, p->result, p->text);
}

/* Report from the loop: the owner may have called us. */
static void finish(struct self_probe *p, enum self_probe_result result, const char *text)
{
    if (p->is_over)
        return;
    p->is_over = true;
    p->result = result;
    snprintf(p->text, sizeof p->text, "%s", text);
    uv_timer_start(&p->timer, on_result, 0, 0);
}

static void on_late(uv_timer_t *timer)
{
    finish(timer->data, SELF_PROBE_NOBODY, "no answer");
}

/* --- the connection --- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct self_probe *p = handle->data;
    *buf = uv_buf_init((char *)p->answer, sizeof p->answer);
}

/* Our own listener does not answer: the data is from another process. */
static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    (void)buf;
    struct self_probe *p = stream->data;
    if (n > 0)
        finish(p, SELF_PROBE_ANOTHER, "another program answered");
    else if (n < 0)
        finish(p, SELF_PROBE_ANOTHER, "another program closed the connection");
}

static void on_written(uv_write_t *write, int status)
{
    (void)write, (void)status; /* on_read() reports a broken connection */
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct self_probe *p = connect->data;
    if (p->is_over)
        return;
    uv_buf_t buf = uv_buf_init((char *)p->greeting, sizeof p->greeting);
    int rc = status;
    if (rc == 0)
        rc = uv_write(&p->write, (uv_stream_t *)&p->tcp, &buf, 1, on_written);
    if (rc == 0)
        rc = uv_read_start((uv_stream_t *)&p->tcp, on_alloc, on_read);
    if (rc < 0)
        finish(p, SELF_PROBE_NOBODY, uv_strerror(rc));
}

bool self_probe_claims(struct self_probe *p, const uint8_t *bytes, size_t len)
{
    size_t n = len < sizeof p->greeting ? len : sizeof p->greeting;
    if (n < NONCE_AT + NONCE_ENOUGH || memcmp(bytes, p->greeting, n) != 0)
        return false;
    finish(p, SELF_PROBE_US, "");
    return true;
}

/* --- beginning and end --- */

static int make_greeting(const struct seal_key *key, uint8_t greeting[SEAL_GREETING_BYTES],
                         struct co_error *err)
{
    struct seal *seal;
    int rc = seal_create_node(key, CHANNEL_WIRE_VERSION, CHANNEL_WIRE_VERSION, &seal, err);
    if (rc < 0)
        return rc;
    struct co_buf *out = seal_output(seal);
    if (co_buf_len(out) == SEAL_GREETING_BYTES)
        memcpy(greeting, co_buf_bytes(out), SEAL_GREETING_BYTES);
    else
        rc = co_fail(err, -EPROTO, "malformed handshake");
    seal_destroy(seal);
    return rc;
}

int self_probe_start(uv_loop_t *loop, const struct sockaddr_storage *to, const struct seal_key *key,
                     self_probe_done on_done, void *arg, struct self_probe **ret,
                     struct co_error *err)
{
    struct self_probe *p = calloc(1, sizeof *p);
    if (p == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int rc = make_greeting(key, p->greeting, err);
    if (rc < 0) {
        free(p);
        return rc;
    }
    p->n_handles = 2;
    p->tcp.data = p->timer.data = p->connect.data = p;
    uv_tcp_init(loop, &p->tcp);
    uv_timer_init(loop, &p->timer);
    rc = uv_tcp_connect(&p->connect, &p->tcp, (const struct sockaddr *)to, on_connected);
    if (rc < 0) {
        close_handles(p);
        return co_fail(err, rc, "cannot connect: %s", uv_strerror(rc));
    }
    uv_timer_start(&p->timer, on_late, SELF_PROBE_MS, 0);
    p->on_done = on_done;
    p->arg = arg;
    *ret = p;
    return 0;
}

void self_probe_close(struct self_probe *p)
{
    p->is_over = true;
    p->on_done = NULL;
    close_handles(p);
}
