#include "server.h"

#include "common/error.h"
#include "conn.h"
#include "peer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    DEFAULT_MAX_CLIENTS = 65536,
    MAX_KEY_BYTES = 64 << 10,
    MAX_KEYS_A_REQUEST = 131072,
    MAX_NAMES = 16 << 20,
    HIGH_WATER_BYTES = 1 << 20,
    REFUSED_EVERY_MS = 1000,
};
#define MIB ((uint64_t)1 << 20)

struct server {
    struct conn_host host;
    struct server_opts opts;
    struct peer peer;
    uv_tcp_t listener;
    uv_prepare_t prepare; /* sends a turn's replies before the loop sleeps */
    uint64_t refused_next_ms;
    unsigned n_refused_untold;
    int n_handles; /* listener and prepare */
    bool closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static struct server *server_of(struct conn_host *h)
{
    return (struct server *)((char *)h - offsetof(struct server, host));
}

/* --- refusals --- */

static void report(struct server *s, const char *text)
{
    uint64_t now_ms = uv_now(s->host.loop);
    if (s->opts.on_refused == NULL || s->closing)
        return;
    if (now_ms < s->refused_next_ms) {
        s->n_refused_untold++;
        return;
    }
    s->refused_next_ms = now_ms + REFUSED_EVERY_MS;
    char with_count[CO_ERROR_TEXT_BYTES];
    snprintf(with_count, sizeof with_count, "%s (and %u others before)", text, s->n_refused_untold);
    s->opts.on_refused(s->opts.arg, s->n_refused_untold > 0 ? with_count : text);
    s->n_refused_untold = 0;
}

static void on_dropped(struct conn_host *h, const char *text)
{
    report(server_of(h), text);
}

/* Torch's clients cannot show who they are, but on this machine the kernel knows. Returns whether
 * the connection may stay. */
static bool may_stay(struct server *s, struct conn *c)
{
    struct sockaddr_storage ours, theirs;
    int our_len = sizeof ours, their_len = sizeof theirs;
    if (uv_tcp_getpeername(conn_tcp(c), (struct sockaddr *)&theirs, &their_len) < 0 ||
        uv_tcp_getsockname(conn_tcp(c), (struct sockaddr *)&ours, &our_len) < 0) {
        conn_close(c); /* gone already */
        return false;
    }
    if (s->peer.method == PEER_BY_NOTHING || !peer_is_loopback((struct sockaddr *)&theirs))
        return true;
    struct co_error err = {0};
    uid_t uid;
    if (peer_uid(&s->peer, &ours, &theirs, &uid, &err) < 0) {
        conn_drop(c, "refused: %s", err.text);
        return false;
    }
    if (uid != geteuid() && uid != 0) {
        conn_drop(c, "refused: it belongs to uid %u, the job to uid %u", (unsigned)uid,
                  (unsigned)geteuid());
        return false;
    }
    return true;
}

/* --- the listener --- */

static void on_connection(uv_stream_t *listener, int status)
{
    struct server *s = listener->data;
    struct conn *c;
    int rc = status;
    if (rc == 0)
        rc = conn_accept(&s->host, listener, &c);
    if (rc < 0) {
        char text[128];
        snprintf(text, sizeof text, "a client could not be accepted: %s", uv_strerror(rc));
        report(s, text);
        return;
    }
    if (s->host.n_conns > s->opts.max_clients)
        conn_drop(c, "refused: there are %u clients", s->opts.max_clients);
    else if (may_stay(s, c))
        conn_start(c);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct server *s = prepare->data;
    conn_flush_all(&s->host);
}

uint16_t server_port(const struct server *s)
{
    struct sockaddr_storage bound;
    int len = sizeof bound;
    if (uv_tcp_getsockname(&s->listener, (struct sockaddr *)&bound, &len) < 0)
        return 0;
    return ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                             : ((struct sockaddr_in *)&bound)->sin_port);
}

uint32_t server_n_clients(const struct server *s)
{
    return s->host.n_conns;
}

/* --- the end --- */

static void server_destroy(struct server *s)
{
    store_destroy(s->host.sessions.store);
    peer_fini(&s->peer);
    free(s->host.scratch);
    free(s);
}

static void destroy_if_closed(struct server *s)
{
    if (!s->closing || s->n_handles > 0 || s->host.n_conns > 0)
        return;
    void (*on_closed)(void *arg) = s->on_closed;
    void *arg = s->on_closed_arg;
    server_destroy(s);
    if (on_closed != NULL)
        on_closed(arg);
}

static void on_conn_gone(struct conn_host *h)
{
    destroy_if_closed(server_of(h));
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct server *s = handle->data;
    s->n_handles--;
    destroy_if_closed(s);
}

void server_close(struct server *s, void (*on_closed)(void *arg), void *arg)
{
    s->closing = true;
    s->on_closed = on_closed;
    s->on_closed_arg = arg;
    while (s->host.first != NULL)
        conn_close(s->host.first);
    uv_close((uv_handle_t *)&s->listener, on_handle_closed);
    uv_close((uv_handle_t *)&s->prepare, on_handle_closed);
}

/* --- the beginning --- */

static int parse_address(const char *text, uint16_t port, struct sockaddr_storage *ret_address,
                         struct co_error *err)
{
    struct sockaddr_storage address = {0};
    if (uv_ip4_addr(text, port, (struct sockaddr_in *)&address) < 0 &&
        uv_ip6_addr(text, port, (struct sockaddr_in6 *)&address) < 0)
        return co_fail(err, -EINVAL, "cannot bind the store to '%.100s': not a numeric address",
                       text);
    *ret_address = address;
    return 0;
}

static int fill_opts(struct server_opts *opts, struct co_error *err)
{
    if (opts->max_clients == 0)
        opts->max_clients = DEFAULT_MAX_CLIENTS;
    if (opts->max_bytes == 0)
        opts->max_bytes = 1024 * MIB;
    if (opts->max_value_bytes == 0)
        opts->max_value_bytes = 64 * MIB;
    if (opts->mid_frame_ms == 0)
        opts->mid_frame_ms = 30000;
    if (opts->max_value_bytes < 8 * MIB)
        return co_fail(err, -EINVAL, "the store must take values of 8 MiB, as torch's does");
    if (opts->bind_addr == NULL)
        opts->bind_addr = "127.0.0.1";
    return 0;
}

static uint64_t random_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = uv_hrtime() ^ (uint64_t)(uintptr_t)&seed;
    return seed;
}

static int create(uv_loop_t *loop, const struct server_opts *opts, struct server **ret_server,
                  struct co_error *err)
{
    struct server *s = calloc(1, sizeof *s);
    uint8_t *scratch = malloc(CONN_SCRATCH_BYTES);
    if (s == NULL || scratch == NULL) {
        free(s);
        free(scratch);
        return co_fail(err, -ENOMEM, "no memory for a store's server");
    }
    s->opts = *opts;
    s->host = (struct conn_host){
        .sessions = {.limits = {.max_key_bytes = MAX_KEY_BYTES,
                                .max_value_bytes = opts->max_value_bytes,
                                .max_keys = MAX_KEYS_A_REQUEST,
                                .max_request_bytes = opts->max_value_bytes + 16 * MIB},
                     .high_water_bytes = HIGH_WATER_BYTES,
                     .max_reply_bytes = opts->max_bytes < 1024 * MIB ? opts->max_bytes : 1024 * MIB,
                     .on_output = conn_on_output},
        .loop = loop,
        .scratch = scratch,
        .mid_frame_ms = opts->mid_frame_ms,
        .max_buffer_bytes = opts->max_bytes,
        .on_dropped = on_dropped,
        .on_gone = on_conn_gone,
    };
    peer_init(&s->peer);
    struct store_limits limits = {.max_bytes = opts->max_bytes, .max_names = MAX_NAMES};
    int rc =
        store_create(&limits, random_seed(), session_on_wake, NULL, &s->host.sessions.store, err);
    if (rc < 0) {
        server_destroy(s);
        return rc;
    }
    *ret_server = s;
    return 0;
}

static int listen_on(struct server *s, const struct sockaddr_storage *address, struct co_error *err)
{
    const struct server_opts *opts = &s->opts;
    /* of IPv6's "any" address this makes a listener for both families; a bind that fails may tell
     * so only when asked to listen */
    int rc = uv_tcp_bind(&s->listener, (const struct sockaddr *)address, 0);
    if (rc == 0) /* the system cuts the backlog to net.core.somaxconn */
        rc = uv_listen((uv_stream_t *)&s->listener, INT_MAX, on_connection);
    if (rc < 0)
        return co_fail(err, rc, "cannot serve the store on %s port %u: %s", opts->bind_addr,
                       (unsigned)opts->port, uv_strerror(rc));
    return 0;
}

int server_start(uv_loop_t *loop, const struct server_opts *given, struct server **ret_server,
                 struct co_error *err)
{
    struct server_opts opts = *given;
    struct sockaddr_storage address;
    struct server *s = NULL;
    int rc = fill_opts(&opts, err);
    if (rc == 0)
        rc = parse_address(opts.bind_addr, opts.port, &address, err);
    if (rc == 0)
        rc = create(loop, &opts, &s, err);
    if (rc < 0)
        return rc;
    s->n_handles = 2;
    s->listener.data = s->prepare.data = s;
    uv_tcp_init(loop, &s->listener);
    uv_prepare_init(loop, &s->prepare);
    uv_prepare_start(&s->prepare, on_prepare);
    rc = listen_on(s, &address, err);
    s->opts.bind_addr = NULL; /* the caller's text is not ours to keep */
    if (rc < 0) {
        server_close(s, NULL, NULL);
        return rc;
    }
    if (s->peer.method == PEER_BY_NOTHING)
        report(s, "this system does not tell whose a connection is: all users of it are served");
    *ret_server = s;
    return 0;
}
