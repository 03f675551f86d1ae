/* port_probe.c - connects to each address of a host, one after the other.
 *
 * Read try_next() first: it connects to the next address, on_connected() or on_late() notes the
 * outcome and closes the socket, and on_socket_closed() continues. The first outcome that is no
 * refusal is the result. */
#include "port_probe.h"

#include "common/error.h"
#include "rendezvous/net/resolve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct port_probe {
    uv_loop_t *loop;
    uv_timer_t timer;
    uv_tcp_t tcp; /* open while has_socket */
    uv_connect_t connect;
    struct resolve *resolve; /* NULL: it has answered */
    struct sockaddr_storage addresses[RESOLVE_MAX_ADDRESSES];
    size_t n_addresses, n_tried;
    bool has_socket, has_failed;
    port_probe_done on_done; /* NULL: not wanted any more */
    void *arg;
};

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void finish(struct port_probe *p, bool is_refused)
{
    port_probe_done on_done = p->on_done;
    p->on_done = NULL;
    uv_close((uv_handle_t *)&p->timer, on_timer_closed);
    if (on_done != NULL)
        on_done(p->arg, is_refused);
}

static void try_next(struct port_probe *p);

static void on_socket_closed(uv_handle_t *handle)
{
    struct port_probe *p = handle->data;
    p->has_socket = false;
    if (p->has_failed || p->on_done == NULL)
        finish(p, false);
    else
        try_next(p);
}

static void close_socket(struct port_probe *p, bool was_refused)
{
    uv_timer_stop(&p->timer);
    p->has_failed |= !was_refused;
    uv_close((uv_handle_t *)&p->tcp, on_socket_closed);
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct port_probe *p = connect->data;
    if (!uv_is_closing((uv_handle_t *)&p->tcp))
        close_socket(p, status == UV_ECONNREFUSED);
}

static void on_late(uv_timer_t *timer)
{
    struct port_probe *p = timer->data;
    close_socket(p, false);
}

static void try_next(struct port_probe *p)
{
    if (p->n_tried == p->n_addresses) {
        finish(p, true);
        return;
    }
    const struct sockaddr *to = (const struct sockaddr *)&p->addresses[p->n_tried++];
    uv_tcp_init(p->loop, &p->tcp);
    p->has_socket = true;
    uv_timer_start(&p->timer, on_late, PORT_PROBE_MS, 0);
    int rc = uv_tcp_connect(&p->connect, &p->tcp, to, on_connected);
    if (rc < 0)
        close_socket(p, rc == UV_ECONNREFUSED);
}

static void on_resolved(void *arg, int code, const char *text,
                        const struct sockaddr_storage *addresses, size_t n)
{
    struct port_probe *p = arg;
    (void)text;
    p->resolve = NULL;
    if (code < 0) {
        finish(p, false);
        return;
    }
    memcpy(p->addresses, addresses, n * sizeof *addresses);
    p->n_addresses = n;
    try_next(p);
}

void port_probe_close(struct port_probe *p)
{
    p->on_done = NULL;
    if (p->resolve != NULL)
        resolve_cancel(p->resolve);
    p->resolve = NULL;
    if (!p->has_socket)
        finish(p, false);
    else if (!uv_is_closing((uv_handle_t *)&p->tcp))
        close_socket(p, false);
}

int port_probe_start(uv_loop_t *loop, const char *host, uint16_t port, port_probe_done on_done,
                     void *arg, struct port_probe **ret, struct co_error *err)
{
    struct port_probe *p = calloc(1, sizeof *p);
    if (p == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    *p = (struct port_probe){.loop = loop, .on_done = on_done, .arg = arg};
    p->timer.data = p->tcp.data = p->connect.data = p;
    uv_timer_init(loop, &p->timer);
    int rc = resolve_start(loop, host, port, on_resolved, p, &p->resolve, err);
    if (rc < 0) {
        p->on_done = NULL;
        finish(p, false);
        return rc;
    }
    *ret = p;
    return 0;
}
