#include "channel_link.h"

#include "common/error.h"
#include "jobs.h"
#include "rendezvous/channel/channel_conn.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/resolve.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct channel_link {
    uv_loop_t *loop;
    struct channel_link_callbacks callbacks;
    struct jobs *jobs; /* borrowed; NULL: over TCP */
    char *host;        /* owned */
    uint16_t port;
    const struct seal_key *key; /* borrowed; NULL: in the clear */
    struct channel_conn_host conns;
    struct resolve *resolve;   /* while the name is looked up */
    struct channel_conn *conn; /* NULL: none */
    struct sockaddr_storage addresses[RESOLVE_MAX_ADDRESSES];
    size_t n_addresses, next_address;
    struct sockaddr_storage own;
    bool has_own;
    bool is_up;
    uv_timer_t timer; /* reports later what was found during a call */
    char why[1200];
    int code; /* for on_down */
    bool closing, timer_closed;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* --- reporting --- */

static void on_down_due(uv_timer_t *timer)
{
    struct channel_link *l = timer->data;
    l->callbacks.on_down(l->callbacks.arg, l->why, l->code);
}

static bool is_final(int code)
{
    return code == -EACCES || code == -EPROTO;
}

/* From the loop, since the caller may be within a call. */
static void go_down(struct channel_link *l, const char *text, int code)
{
    l->is_up = false;
    l->code = is_final(code) ? code : 0;
    snprintf(l->why, sizeof l->why, "%s", text);
    uv_timer_start(&l->timer, on_down_due, 0, 0);
}

/* --- within the process --- */

static void on_local_message(void *arg, const struct message *m)
{
    struct channel_link *l = arg;
    if (m != NULL) {
        l->callbacks.on_message(l->callbacks.arg, m);
    } else if (l->is_up) {
        l->is_up = false;
        l->callbacks.on_down(l->callbacks.arg, "the coordinator closed the connection", 0);
    }
}

static void on_local_up(uv_timer_t *timer)
{
    struct channel_link *l = timer->data;
    struct co_error err = {0};
    if (jobs_local_up(l->jobs, on_local_message, l, &err) < 0) {
        l->callbacks.on_down(l->callbacks.arg, err.text, 0);
        return;
    }
    l->is_up = true;
    l->callbacks.on_up(l->callbacks.arg);
}

/* --- over TCP --- */

static void try_next(struct channel_link *l);

static void on_open(void *arg)
{
    struct channel_link *l = arg;
    l->is_up = true;
    l->has_own = channel_conn_own_address(l->conn, &l->own) == 0;
    l->callbacks.on_up(l->callbacks.arg);
}

static void on_message(void *arg, const struct message *m)
{
    struct channel_link *l = arg;
    l->callbacks.on_message(l->callbacks.arg, m);
}

static void on_end(void *arg, int code, const char *text)
{
    struct channel_link *l = arg;
    char at[ADDRESS_TEXT_BYTES], line[1100];
    bool was_up = l->is_up;
    l->conn = NULL;
    address_print(&l->addresses[l->next_address - 1], at);
    snprintf(line, sizeof line, "%s: %.900s", at, text);
    if (was_up || is_final(code) || l->next_address == l->n_addresses)
        go_down(l, line, code);
    else
        try_next(l);
}

static void try_next(struct channel_link *l)
{
    const struct channel_conn_callbacks callbacks = {
        .on_open = on_open, .on_message = on_message, .on_end = on_end, .arg = l};
    struct co_error err = {0};
    struct seal *seal;
    const struct sockaddr_storage *to = &l->addresses[l->next_address++];
    int rc = seal_create_node(l->key, CHANNEL_WIRE_VERSION, CHANNEL_WIRE_VERSION, &seal, &err);
    if (rc == 0)
        rc = channel_conn_connect(&l->conns, seal, (const struct sockaddr *)to,
                                  CHANNEL_LINK_CONNECT_MS, &callbacks, &l->conn, &err);
    if (rc == 0)
        return;
    l->conn = NULL;
    if (l->next_address < l->n_addresses)
        try_next(l);
    else
        go_down(l, err.text, 0);
}

static void on_resolved(void *arg, int code, const char *text,
                        const struct sockaddr_storage *addresses, size_t n)
{
    struct channel_link *l = arg;
    l->resolve = NULL;
    if (code < 0) {
        go_down(l, text, 0);
        return;
    }
    memcpy(l->addresses, addresses, n * sizeof *addresses);
    l->n_addresses = n;
    l->next_address = 0;
    try_next(l);
}

/* --- the link --- */

void channel_link_disconnect(struct channel_link *l)
{
    if (!l->closing)
        uv_timer_stop(&l->timer);
    if (l->resolve != NULL)
        resolve_cancel(l->resolve);
    if (l->conn != NULL)
        channel_conn_end(l->conn);
    if (l->jobs != NULL && l->is_up)
        jobs_local_down(l->jobs);
    l->resolve = NULL;
    l->conn = NULL;
    l->is_up = false;
}

void channel_link_connect(struct channel_link *l)
{
    struct co_error err = {0};
    channel_link_disconnect(l);
    if (l->jobs != NULL)
        uv_timer_start(&l->timer, on_local_up, 0, 0);
    else if (resolve_start(l->loop, l->host, l->port, on_resolved, l, &l->resolve, &err) < 0)
        go_down(l, err.text, 0);
}

void channel_link_send(struct channel_link *l, const struct message *m)
{
    if (!l->is_up)
        return;
    if (l->jobs != NULL)
        jobs_local_send(l->jobs, m);
    else
        channel_conn_send(l->conn, m);
}

int channel_link_detach(struct channel_link *l)
{
    const int fd = l->is_up && l->conn != NULL ? channel_conn_detach(l->conn) : -ENOTCONN;
    if (fd >= 0) {
        l->conn = NULL;
        l->is_up = false;
    }
    return fd;
}

int channel_link_own_address(const struct channel_link *l, struct sockaddr_storage *ret)
{
    if (!l->has_own)
        return -ENOTCONN;
    *ret = l->own;
    return 0;
}

/* --- beginning and end --- */

static void destroy_if_closed(struct channel_link *l)
{
    if (!l->closing || !l->timer_closed || l->conns.n_conns > 0)
        return;
    void (*on_closed)(void *arg) = l->on_closed;
    void *arg = l->on_closed_arg;
    channel_conn_host_fini(&l->conns);
    free(l->host);
    free(l);
    if (on_closed != NULL)
        on_closed(arg);
}

static void on_conn_gone(struct channel_conn_host *h)
{
    destroy_if_closed((struct channel_link *)((char *)h - offsetof(struct channel_link, conns)));
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct channel_link *l = handle->data;
    l->timer_closed = true;
    destroy_if_closed(l);
}

void channel_link_close(struct channel_link *l, void (*on_closed)(void *arg), void *arg)
{
    channel_link_disconnect(l);
    l->closing = true;
    l->on_closed = on_closed;
    l->on_closed_arg = arg;
    uv_close((uv_handle_t *)&l->timer, on_timer_closed);
}

static int create(uv_loop_t *loop, const struct channel_link_callbacks *callbacks,
                  struct channel_link **ret, struct co_error *err)
{
    struct channel_link *l = calloc(1, sizeof *l);
    if (l == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    l->loop = loop;
    l->callbacks = *callbacks;
    l->timer.data = l;
    uv_timer_init(loop, &l->timer);
    *ret = l;
    return 0;
}

int channel_link_create_local(uv_loop_t *loop, struct jobs *jobs,
                              const struct channel_link_callbacks *callbacks,
                              struct channel_link **ret, struct co_error *err)
{
    int rc = create(loop, callbacks, ret, err);
    if (rc == 0)
        (*ret)->jobs = jobs;
    return rc;
}

int channel_link_create(uv_loop_t *loop, const char *host, uint16_t port,
                        const struct seal_key *key, const struct channel_link_callbacks *callbacks,
                        struct channel_link **ret, struct co_error *err)
{
    struct channel_link *l = NULL;
    int rc = create(loop, callbacks, &l, err);
    if (rc < 0)
        return rc;
    l->host = strdup(host);
    l->port = port;
    l->key = key;
    rc = l->host == NULL ? co_fail(err, -ENOMEM, "out of memory")
                         : channel_conn_host_init(&l->conns, loop, err);
    l->conns.on_gone = on_conn_gone;
    if (rc < 0) {
        channel_link_close(l, NULL, NULL);
        return rc;
    }
    *ret = l;
    return 0;
}
