/* relay_port.c - the listener, the link, and what joins them.
 *
 * Read on_connection(), on_prepare() and the states of the link first. A client that may be served
 * (is_served()) becomes one of the relay (port_client.c), even without a link: what it sends
 * waits in its window. Frames of the link are taken as they come; on_prepare() runs once a
 * turn of the loop, and sends what the turn has brought in one frame. For a moment after that the
 * loop may poll for the reply (poll_time.h).
 *
 *     DOWN         no link. A client comes: RESOLVING
 *     RESOLVING    the store's host is looked up. Addresses: CONNECTING. None: PAUSING
 *     CONNECTING   one address is tried, up to the proof. It succeeds: UP. It fails: the next one,
 *                  or PAUSING, or, if it would fail again (another token), DOWN
 *     PAUSING      before another attempt: RESOLVING. The time to give up has come: DOWN
 *     UP           frames are exchanged. The link ends: DOWN
 *
 * In DOWN there are no clients: lose_clients() closes them on the way there. */
#include "relay_port.h"

#include "common/error.h"
#include "poll_time.h"
#include "port_client.h"
#include "relay_link.h"
#include "rendezvous/channel/channel_conn.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/peer.h"
#include "rendezvous/net/refusals.h"
#include "rendezvous/net/resolve.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_ACCEPTS = 128, /* in a turn of the loop */
    PAUSE_MS = 100,    /* before the second attempt; twice as long before each other one */
    MAX_PAUSE_MS = 2000,
};
#define MAX_BYTES ((uint64_t)256 << 20) /* of all clients, in one direction */

enum link_state { LINK_DOWN, LINK_RESOLVING, LINK_CONNECTING, LINK_PAUSING, LINK_UP };

struct relay_port {
    uv_loop_t *loop;
    struct relay_port_opts opts;
    char *host; /* owned; as opts.host */
    uint8_t hello[RELAY_LINK_HELLO_BYTES];
    size_t hello_len;
    struct peer peer;
    struct refusals refusals;
    uv_tcp_t listener;
    uv_prepare_t prepare;
    uv_idle_t idle;   /* active: the loop polls for a reply */
    uv_timer_t timer; /* PAUSING: the pause; UP: how long the other end takes nothing */
    uint16_t number;
    bool has_waiting;    /* a connection that libuv holds for us */
    unsigned n_accepted; /* in this turn of the loop */
    struct port_client_host clients;
    struct relay_node *node; /* owned; NULL: there were no clients since the link was lost */

    enum link_state state;
    struct channel_conn_host conns;
    struct channel_conn *conn; /* CONNECTING, UP */
    struct poll_time poll;
    struct resolve *resolve; /* RESOLVING */
    struct sockaddr_storage addresses[RESOLVE_MAX_ADDRESSES];
    size_t n_addresses, next;
    uint64_t begun_ms; /* the first attempt of this link */
    uint64_t pause_ms;
    char trouble[256]; /* why the last attempt failed */

    int n_handles; /* of the port itself */
    bool closing;
    struct relay_frame frame; /* to put into */
};

static struct relay_port *port_of(struct port_client_host *h)
{
    return (struct relay_port *)((char *)h - offsetof(struct relay_port, clients));
}

static void report(struct relay_port *p, const char *text)
{
    if (p->opts.on_refused == NULL || p->closing)
        return;
    const char *line = refusals_note(&p->refusals, uv_now(p->loop), text);
    if (line != NULL)
        p->opts.on_refused(p->opts.arg, line);
}

/* --- the end of a link --- */

static void lose_clients(struct relay_port *p)
{
    struct port_client *c;
    while ((c = TAILQ_FIRST(&p->clients.open)) != NULL)
        port_client_close(c);
    relay_node_destroy(p->node);
    p->node = NULL;
}

/* why   for a report; NULL: nothing to report */
static void go_down(struct relay_port *p, const char *why)
{
    char text[CO_ERROR_TEXT_BYTES];
    p->state = LINK_DOWN;
    uv_timer_stop(&p->timer);
    snprintf(text, sizeof text, "relay to %.255s port %u: %.600s", p->host, (unsigned)p->opts.port,
             why != NULL ? why : "");
    if (why != NULL)
        report(p, text);
    lose_clients(p);
}

/* End the link for a reason of ours. */
static void drop_link(struct relay_port *p, const char *why)
{
    struct channel_conn *conn = p->conn;
    p->conn = NULL;
    channel_conn_end(conn);
    go_down(p, why);
}

/* --- frames to the store --- */

static void on_stall(uv_timer_t *timer)
{
    struct relay_port *p = timer->data;
    drop_link(p, "the node with the store does not read what is sent to it");
}

/* As long as the kernel takes it: what waits in this process is at most one frame. */
static void pump(struct relay_port *p)
{
    struct relay_frame *f = &p->frame;
    while (p->state == LINK_UP && channel_conn_n_unsent(p->conn) == 0) {
        relay_node_put(p->node, f);
        if (f->len == 0)
            return;
        channel_conn_send_frame(p->conn, f->bytes, f->len);
        poll_time_expect(&p->poll, POLL_FOR_REPLY, uv_hrtime());
        if (channel_conn_n_unsent(p->conn) > 0)
            uv_timer_start(&p->timer, on_stall, p->opts.stall_ms, 0);
    }
}

/* returns   whether there were any */
static bool look_at_clients(struct relay_port *p)
{
    struct relay_client *c;
    bool some = false;
    while (p->node != NULL && (c = relay_node_next_due(p->node)) != NULL) {
        port_client_look(relay_client_user(c));
        some = true;
    }
    return some;
}

/* Each may make work for the other. */
static void settle(struct relay_port *p)
{
    bool some;
    do {
        some = look_at_clients(p);
        pump(p);
    } while (some);
    look_at_clients(p);
}

/* --- the link --- */

static void try_next(struct relay_port *p);
static void begin_attempt(struct relay_port *p);

static void on_pause_over(uv_timer_t *timer)
{
    begin_attempt(timer->data);
}

static void attempt_failed(struct relay_port *p, int code, const char *why)
{
    const uint64_t now_ms = uv_now(p->loop);
    char text[CO_ERROR_TEXT_BYTES];
    snprintf(p->trouble, sizeof p->trouble, "%s", why);
    if (code == -EACCES || code == -EPROTO || code == -EBADMSG) {
        go_down(p, p->trouble); /* another attempt would fail in the same way */
        return;
    }
    if (now_ms >= p->begun_ms + p->opts.give_up_ms) {
        snprintf(text, sizeof text, "no connection for %" PRIu64 " s: %s",
                 (now_ms - p->begun_ms) / 1000, p->trouble);
        go_down(p, text);
        return;
    }
    p->state = LINK_PAUSING;
    uv_timer_start(&p->timer, on_pause_over, p->pause_ms, 0);
    p->pause_ms = 2 * p->pause_ms < MAX_PAUSE_MS ? 2 * p->pause_ms : MAX_PAUSE_MS;
}

static void on_open(void *arg)
{
    struct relay_port *p = arg;
    p->state = LINK_UP;
    channel_conn_send_frame(p->conn, p->hello, p->hello_len);
}

static void on_frame(void *arg, const uint8_t *frame, size_t len)
{
    struct relay_port *p = arg;
    struct co_error err = {0};
    poll_time_expect(&p->poll, POLL_FOR_REQUEST, uv_hrtime());
    if (relay_node_take(p->node, frame, len, &err) < 0)
        drop_link(p, err.text);
}

static void on_sent(void *arg)
{
    struct relay_port *p = arg;
    uv_timer_stop(&p->timer); /* on_prepare() continues */
}

/* That the store's node has closed the link is how a generation ends. */
static void on_end(void *arg, int code, const char *why)
{
    struct relay_port *p = arg;
    p->conn = NULL;
    if (p->state == LINK_UP)
        go_down(p, code == -ECONNRESET || code == -EPIPE ? NULL : why);
    else if (p->next < p->n_addresses && code != -EACCES && code != -EPROTO)
        try_next(p);
    else
        attempt_failed(p, code, why);
}

static void try_next(struct relay_port *p)
{
    const struct channel_conn_callbacks callbacks = {
        .on_open = on_open, .on_frame = on_frame, .on_sent = on_sent, .on_end = on_end, .arg = p};
    const struct sockaddr *to = (const struct sockaddr *)&p->addresses[p->next++];
    struct co_error err = {0};
    struct seal *seal;
    p->state = LINK_CONNECTING;
    int rc = seal_create_node(p->opts.key, RELAY_LINK_VERSION, RELAY_LINK_VERSION, &seal, &err);
    if (rc == 0)
        rc = channel_conn_connect(&p->conns, seal, to, RELAY_PORT_CONNECT_MS, &callbacks, &p->conn,
                                  &err);
    if (rc < 0) {
        p->conn = NULL;
        attempt_failed(p, rc, err.text);
    }
}

static void on_resolved(void *arg, int code, const char *text,
                        const struct sockaddr_storage *addresses, size_t n)
{
    struct relay_port *p = arg;
    p->resolve = NULL;
    if (code < 0) {
        attempt_failed(p, code, text);
        return;
    }
    memcpy(p->addresses, addresses, n * sizeof *addresses);
    p->n_addresses = n;
    p->next = 0;
    try_next(p);
}

static void begin_attempt(struct relay_port *p)
{
    struct co_error err = {0};
    p->state = LINK_RESOLVING;
    p->n_addresses = p->next = 0;
    int rc = resolve_start(p->loop, p->host, p->opts.port, on_resolved, p, &p->resolve, &err);
    if (rc < 0) {
        p->resolve = NULL;
        attempt_failed(p, rc, err.text);
    }
}

static void begin_link(struct relay_port *p)
{
    if (p->state != LINK_DOWN)
        return;
    p->begun_ms = uv_now(p->loop);
    p->pause_ms = PAUSE_MS;
    begin_attempt(p);
}

/* --- clients --- */

/* "client 127.0.0.1:4711: ..." */
static void report_client(struct relay_port *p, const struct port_client *c, const char *why)
{
    char client[ADDRESS_TEXT_BYTES], text[CO_ERROR_TEXT_BYTES];
    struct sockaddr_storage from = {0};
    int len = sizeof from;
    uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&from, &len); /* "?" if it is gone */
    address_print(&from, client);
    snprintf(text, sizeof text, "client %s: %.800s", client, why);
    report(p, text);
}

static void on_dropped(struct port_client_host *h, const struct port_client *c, const char *text)
{
    report_client(port_of(h), c, text);
}

/* As server.c does it for loopback. returns whether it is; else err has the reason, if it is worth
 * a report */
static bool is_served(struct relay_port *p, const struct port_client *c, struct co_error *err)
{
    struct sockaddr_storage ours = {0}, theirs = {0};
    int our_len = sizeof ours, their_len = sizeof theirs;
    struct peer_owner owner;
    err->text[0] = '\0';
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&theirs, &their_len) < 0 ||
        uv_tcp_getsockname(&c->tcp, (struct sockaddr *)&ours, &our_len) < 0)
        return false; /* gone already */
    if (p->peer.method == PEER_BY_NOTHING)
        return true;
    if (peer_find(&p->peer, &ours, &theirs, &owner, err) < 0) {
        co_fail_in(err, "refused");
        return false;
    }
    return peer_check_user(owner.uid, err) == 0;
}

static int make_node(struct relay_port *p, struct co_error *err)
{
    const struct relay_node_limits limits = {.max_clients = p->opts.max_clients,
                                             .window_bytes = RELAY_LINK_WINDOW_BYTES,
                                             .max_bytes = MAX_BYTES};
    return p->node != NULL ? 0 : relay_node_create(&limits, &p->node, err);
}

static void serve(struct relay_port *p, struct port_client *c)
{
    struct co_error err = {0};
    struct relay_client *end;
    if (is_served(p, c, &err) && make_node(p, &err) == 0 &&
        relay_node_open(p->node, c, &end, &err) == 0) {
        port_client_start(c, end);
        begin_link(p);
        return;
    }
    if (err.text[0] != '\0')
        report_client(p, c, err.text);
    port_client_close(c);
}

static void accept_one(struct relay_port *p)
{
    struct port_client *c;
    char text[128];
    int rc = port_client_accept(&p->clients, (uv_stream_t *)&p->listener, &c);
    p->has_waiting = rc == -ENOMEM; /* nothing was taken: again next turn */
    p->n_accepted++;
    if (rc == 0) {
        serve(p, c);
        return;
    }
    snprintf(text, sizeof text, "cannot accept a client: %s", uv_strerror(rc));
    report(p, text);
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct relay_port *p = stream->data;
    char text[128];
    if (status < 0) {
        snprintf(text, sizeof text, "cannot accept a client: %s", uv_strerror(status));
        report(p, text);
    } else if (p->n_accepted >= MAX_ACCEPTS) {
        p->has_waiting = true;
    } else {
        accept_one(p);
    }
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle;
    sched_yield(); /* polling is for processors that have nothing else to do */
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct relay_port *p = prepare->data;
    settle(p);
    p->n_accepted = 0;
    if (p->has_waiting)
        accept_one(p);
    if (p->state == LINK_UP && poll_time_is_on(&p->poll, uv_hrtime()))
        uv_idle_start(&p->idle, on_idle);
    else
        uv_idle_stop(&p->idle);
}

uint16_t relay_port_number(const struct relay_port *p)
{
    return p->number;
}

uint32_t relay_port_n_clients(const struct relay_port *p)
{
    return p->clients.n_open;
}

/* --- beginning and end --- */

static void destroy_if_closed(struct relay_port *p)
{
    if (!p->closing || p->n_handles > 0 || p->clients.n_handles > 0 || p->conns.n_conns > 0)
        return;
    channel_conn_host_fini(&p->conns);
    peer_fini(&p->peer);
    free(p->clients.scratch);
    free(p->host);
    free(p);
}

static void on_client_gone(struct port_client_host *h)
{
    destroy_if_closed(port_of(h));
}

static void on_conn_gone(struct channel_conn_host *conns)
{
    destroy_if_closed((struct relay_port *)((char *)conns - offsetof(struct relay_port, conns)));
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct relay_port *p = handle->data;
    p->n_handles--;
    destroy_if_closed(p);
}

void relay_port_close(struct relay_port *p)
{
    if (p == NULL)
        return;
    p->closing = true;
    if (p->resolve != NULL)
        resolve_cancel(p->resolve);
    if (p->conn != NULL)
        channel_conn_end(p->conn);
    p->resolve = NULL;
    p->conn = NULL;
    p->state = LINK_DOWN;
    lose_clients(p);
    uv_close((uv_handle_t *)&p->listener, on_handle_closed);
    uv_close((uv_handle_t *)&p->prepare, on_handle_closed);
    uv_close((uv_handle_t *)&p->idle, on_handle_closed);
    uv_close((uv_handle_t *)&p->timer, on_handle_closed);
}

static struct relay_port *alloc_port(uv_loop_t *loop, const struct relay_port_opts *opts)
{
    struct relay_port *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->loop = loop;
    p->opts = *opts;
    p->opts.host = p->opts.run_id = NULL; /* the caller's texts are not ours to keep */
    if (p->opts.give_up_ms == 0)
        p->opts.give_up_ms = RELAY_PORT_GIVE_UP_MS;
    if (p->opts.stall_ms == 0)
        p->opts.stall_ms = RELAY_LINK_STALL_MS;
    p->host = strdup(opts->host);
    p->hello_len = relay_link_hello(opts->generation, opts->run_id, p->hello);
    p->clients = (struct port_client_host){.loop = loop,
                                           .scratch = malloc(PORT_CLIENT_SCRATCH_BYTES),
                                           .on_dropped = on_dropped,
                                           .on_gone = on_client_gone};
    TAILQ_INIT(&p->clients.open);
    if (p->host != NULL && p->clients.scratch != NULL &&
        channel_conn_host_init(&p->conns, loop, NULL) == 0)
        return p;
    free(p->clients.scratch);
    free(p->host);
    free(p);
    return NULL;
}

static int start_listening(struct relay_port *p, struct co_error *err)
{
    struct sockaddr_storage at;
    int len = sizeof at;
    address_parse(RELAY_PORT_ADDRESS, 0, &at);
    int rc = uv_tcp_bind(&p->listener, (struct sockaddr *)&at, 0);
    if (rc == 0)
        rc = uv_listen((uv_stream_t *)&p->listener, INT_MAX, on_connection);
    if (rc == 0)
        rc = uv_tcp_getsockname(&p->listener, (struct sockaddr *)&at, &len);
    if (rc < 0)
        return co_fail(err, rc, "cannot listen on " RELAY_PORT_ADDRESS ": %s", uv_strerror(rc));
    p->number = address_port(&at);
    return 0;
}

int relay_port_open(uv_loop_t *loop, const struct relay_port_opts *opts, struct relay_port **ret,
                    struct co_error *err)
{
    if (opts->max_clients < 1 || opts->max_clients > RELAY_MAX_CLIENTS)
        return co_fail(err, -EINVAL, "invalid limits of a relay");
    struct relay_port *p = alloc_port(loop, opts);
    if (p == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    p->conns.on_gone = on_conn_gone;
    p->conns.mid_frame_ms = RELAY_LINK_MID_FRAME_MS;
    peer_init(&p->peer);
    p->n_handles = 4;
    p->listener.data = p->prepare.data = p->idle.data = p->timer.data = p;
    uv_tcp_init(loop, &p->listener);
    uv_prepare_init(loop, &p->prepare);
    uv_idle_init(loop, &p->idle);
    uv_timer_init(loop, &p->timer);
    uv_prepare_start(&p->prepare, on_prepare);
    int rc = start_listening(p, err);
    if (rc < 0) {
        relay_port_close(p);
        return rc;
    }
    if (p->peer.method == PEER_BY_NOTHING)
        report(p, "cannot determine the user of a connection on this system: the relay accepts "
                  "all local users");
    *ret = p;
    return 0;
}
