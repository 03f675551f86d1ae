/* server.c - the listeners of a server, and what its connections share.
 *
 * Read on_connection() and on_prepare() first. accept_one() creates a connection (conn.c) and
 * checks whether its peer is allowed. The connection carries out requests as it reads them.
 * on_prepare() runs once per turn of the loop: it sends the replies, gives late sessions their
 * share, and accepts what has to wait for a turn. A connection of another protocol leaves through
 * on_foreign(). server_close() closes everything; destroy_if_closed() frees the server after the
 * last callback. */
#include "server.h"

#include "common/buf.h"
#include "common/error.h"
#include "common/hash.h"
#include "conn.h"
#include "http.h"
#include "http_conn.h"
#include "page.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/allow.h"
#include "rendezvous/net/host_names.h"
#include "rendezvous/net/peer.h"
#include "rendezvous/net/port_owner.h"
#include "rendezvous/net/refusals.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEFAULT_MAX_CLIENTS = 65536,
    MAX_KEY_BYTES = 64 << 10,
    MAX_KEYS_A_REQUEST = 131072,
    MAX_NAMES = 16 << 20,
    HIGH_WATER_BYTES = 1 << 20,
    MAX_ACCEPTS = 128,     /* in a turn of the loop: some milliseconds */
    MAX_WORK = 8192,       /* of one client in a turn of the loop: less than a millisecond */
    SPARE_FOR_OTHERS = 16, /* accepted in addition to the clients: a full store's port still serves
                              nodes, and can be asked for its status */
    MAX_HTTP = 64,
};
#define MIB ((uint64_t)1 << 20)

struct listener {
    uv_tcp_t tcp;
    struct server *server;
    struct listener *next;
    bool
        has_waiting; /* a connection that libuv holds for us: until we take it, it takes no other */
};

struct server {
    struct conn_host host;
    struct http_host http;
    struct server_opts opts;
    struct peer peer;
    struct server_guest guest; /* zeroed: none */
    struct listener *first;    /* in the order in which they were opened */
    uv_prepare_t prepare;      /* sends a turn's replies before the loop sleeps */
    uv_idle_t idle;            /* active while a connection is late */
    uint64_t started_ms;
    uint64_t n_connections, n_refused; /* so far */
    struct refusals refusals;
    unsigned n_accepted;  /* in this turn of the loop */
    unsigned max_accepts; /* that is at most half of the newcomers that fit: each one is read from
                             before it can be displaced */
    int n_handles;        /* listeners, prepare and idle */
    bool closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static struct server *server_of(struct conn_host *h)
{
    return (struct server *)((char *)h - offsetof(struct server, host));
}

/* --- refusals --- */

static void report_text(struct server *s, const char *text)
{
    if (s->opts.on_refused == NULL || s->closing)
        return;
    const char *report = refusals_note(&s->refusals, uv_now(s->host.loop), text);
    if (report != NULL)
        s->opts.on_refused(s->opts.arg, report);
}

static void on_dropped(struct conn_host *h, const char *text)
{
    struct server *s = server_of(h);
    s->n_refused++;
    report_text(s, text);
}

static bool find_ends(const struct conn *c, struct sockaddr_storage *ours,
                      struct sockaddr_storage *theirs)
{
    int our_len = sizeof *ours, their_len = sizeof *theirs;
    return uv_tcp_getpeername(conn_tcp(c), (struct sockaddr *)theirs, &their_len) == 0 &&
           uv_tcp_getsockname(conn_tcp(c), (struct sockaddr *)ours, &our_len) == 0;
}

/* Torch's clients cannot authenticate themselves, but on this machine the kernel knows their user.
 * A peer need not use loopback for that: it may connect by any other address of this machine, and
 * from yet another one.
 *
 * returns   whether the connection may stay */
static bool find_owner(struct server *s, struct conn *c, const struct sockaddr_storage *ours,
                       const struct sockaddr_storage *theirs, struct conn_origin *origin)
{
    const struct in6_addr here = address_as_v6(ours), there = address_as_v6(theirs);
    const bool is_loopback = address_is_loopback(theirs);
    const bool is_near = is_loopback || memcmp(&here, &there, sizeof here) == 0;
    struct co_error err = {0};
    struct peer_owner owner;
    if (s->peer.method == PEER_BY_NOTHING || (s->peer.method == PEER_BY_PROC && !is_near))
        return true; /* or it would read a long file for each connection from elsewhere */
    int rc = peer_find(&s->peer, ours, theirs, &owner, &err);
    if (rc < 0 && (is_near || rc == -ESRCH)) {
        conn_drop(c, "refused: %s", err.text);
        return false;
    }
    if (rc < 0)
        return true;
    origin->is_trusted = peer_check_user(owner.uid, NULL) == 0;
    origin->is_other_user = !origin->is_trusted;
    origin->uid = owner.uid;
    if (is_loopback && origin->is_other_user)
        conn_drop_other_user(c, owner.uid);
    return !is_loopback || origin->is_trusted;
}

/* returns whether the connection may stay */
static bool find_origin(struct server *s, struct conn *c, struct sockaddr_storage *theirs,
                        struct conn_origin *origin)
{
    const struct allow_list *allow = s->opts.allow;
    struct sockaddr_storage ours;
    if (!find_ends(c, &ours, theirs)) {
        conn_close(c); /* gone already */
        return false;
    }
    *origin = (struct conn_origin){.is_trusted = allow != NULL && allow_has(allow, theirs)};
    if (origin->is_trusted && allow_has_in_net(allow, theirs))
        return true;
    if (allow != NULL && !origin->is_trusted && !address_is_loopback(theirs)) {
        conn_drop(c, "refused: its address is not in --allow");
        return false;
    }
    return find_owner(s, c, &ours, theirs, origin);
}

/* --- connections --- */

static void report_not_accepted(struct server *s, int rc)
{
    char text[128];
    snprintf(text, sizeof text, "cannot accept a client: %s", uv_strerror(rc));
    report_text(s, text);
}

static void accept_one(struct listener *l)
{
    struct server *s = l->server;
    struct sockaddr_storage from;
    struct conn_origin origin;
    struct conn *c;
    int rc = conn_accept(&s->host, (uv_stream_t *)&l->tcp, &c);
    l->has_waiting = rc == -ENOMEM; /* nothing was taken: again next turn */
    if (rc < 0) {
        report_not_accepted(s, rc);
        return;
    }
    s->n_accepted++;
    s->n_connections++;
    if (find_origin(s, c, &from, &origin))
        conn_start(c, &from, &origin);
}

/* libuv calls this as long as connections come, and they can come as fast as we take them. */
static void on_connection(uv_stream_t *stream, int status)
{
    struct listener *l = stream->data;
    if (status < 0)
        report_not_accepted(l->server, status);
    else if (l->server->n_accepted >= l->server->max_accepts)
        l->has_waiting = true;
    else
        accept_one(l);
}

/* A new turn; libuv continues by itself when it is rid of the connection that it held. */
static void accept_waiting(struct server *s)
{
    s->n_accepted = 0;
    for (struct listener *l = s->first; l != NULL; l = l->next)
        if (l->has_waiting)
            accept_one(l);
}

/* Its only use is that the loop does not sleep while it is active. */
static void on_idle(uv_idle_t *idle)
{
    (void)idle;
}

void server_admit(struct server *s, const struct server_guest *guest, struct session_host *ret_host)
{
    s->guest = guest != NULL ? *guest : (struct server_guest){0};
    if (ret_host != NULL)
        *ret_host = (struct session_host){.store = s->host.sessions.store,
                                          .limits = s->host.sessions.limits,
                                          .high_water_bytes = s->host.sessions.high_water_bytes,
                                          .max_reply_bytes = s->host.sessions.max_reply_bytes,
                                          .max_work = s->host.sessions.max_work};
}

/* What the guest runs may wake clients of ours, and the other way around: so its replies are sent
 * when no request of this turn is left. */
static void on_prepare(uv_prepare_t *prepare)
{
    struct server *s = prepare->data;
    const struct server_guest *g = &s->guest;
    conn_flush_all(&s->host); /* a connection that asked for little is served before the late ones
                                 continue */
    conn_serve_late(&s->host);
    bool is_busy = g->on_turn != NULL && g->on_turn(g->arg);
    conn_flush_all(&s->host);
    is_busy |= g->on_turn_over != NULL && g->on_turn_over(g->arg);
    accept_waiting(s);
    if (is_busy || s->host.first_late != NULL)
        uv_idle_start(&s->idle, on_idle);
    else
        uv_idle_stop(&s->idle);
}

static void on_foreign(struct conn_host *h, enum protocol protocol, int fd,
                       const struct conn_origin *origin, const uint8_t *bytes, size_t len)
{
    struct server *s = server_of(h);
    if (protocol == PROTOCOL_CONTROL && s->opts.on_control != NULL) {
        s->opts.on_control(s->opts.arg, fd, bytes, len);
    } else if (protocol == PROTOCOL_HTTP && s->opts.http) {
        http_conn_start(&s->http, fd, origin->is_trusted, bytes, len);
    } else {
        close(fd);
        s->n_refused++;
        report_text(s, protocol == PROTOCOL_CONTROL
                           ? "refused: a control connection, but this port manages no jobs"
                           : "refused: an HTTP request, but this port does not serve HTTP");
    }
}

static bool is_path(const struct http_request *r, const char *wanted)
{
    return r->path_len == strlen(wanted) && memcmp(r->path, wanted, r->path_len) == 0;
}

/* A browser cannot know the key, so that its holder may call us by any name. HTTP/1.0 needs no
 * name; no browser leaves it out. */
static int check_access(const struct server *s, const struct http_request *r, bool is_trusted)
{
    const struct server_pages *p = &s->opts.pages;
    char host[HTTP_HOST_BYTES];
    if (p->is_key != NULL && r->bearer != NULL && p->is_key(p->arg, r->bearer, r->bearer_len))
        return 0;
    if (p->is_key != NULL && !is_trusted)
        return -EACCES;
    int rc = http_host(r, host);
    return rc == -ENOENT || (rc == 0 && host_names_allow(host, s->opts.hosts)) ? 0 : -EXDEV;
}

/* returns   -EXDEV, -ENOMEM */
static int refuse_host(const struct server *s, const struct http_request *r, struct co_buf *body)
{
    char host[HTTP_HOST_BYTES] = "?", advice[HTTP_HOST_BYTES + 80] = "";
    char text[sizeof host + sizeof advice + 96];
    const bool is_name = http_host(r, host) == 0;
    if (s->opts.host_advice != NULL)
        snprintf(advice, sizeof advice, ", or %.64s %s", s->opts.host_advice,
                 is_name ? host : "NAME");
    const int len =
        snprintf(text, sizeof text,
                 "421 Misdirected Request: '%s' is not a name of this machine; use an address%s\n",
                 host, advice);
    return co_buf_append(body, text, (size_t)len) ?: -EXDEV;
}

static int print_metrics(struct server *s, const struct stats *stats, struct co_buf *body)
{
    const struct server_pages *p = &s->opts.pages;
    int rc = page_stats_prometheus(stats, body);
    return rc == 0 && p->on_metrics != NULL ? p->on_metrics(p->arg, body) : rc;
}

static int print_status(struct server *s, const struct stats *stats, struct co_buf *body)
{
    const struct server_pages *p = &s->opts.pages;
    struct co_buf more = {0};
    int rc = p->on_status != NULL ? p->on_status(p->arg, &more) : 0;
    if (rc == 0)
        rc = page_stats_json(stats, &more, body);
    co_buf_fini(&more);
    return rc;
}

static int print_own_page(struct server *s, const struct http_request *r, int access,
                          struct co_buf *body, const char **ret_type)
{
    const bool is_metrics = is_path(r, "/metrics");
    struct stats stats;
    if (is_path(r, "/healthz"))
        return co_buf_append(body, "ok\n", 3);
    if (!is_metrics && !is_path(r, "/status"))
        return -ENOENT;
    if (access < 0)
        return access;
    server_get_stats(s, &stats);
    *ret_type = is_metrics ? "text/plain; version=0.0.4; charset=utf-8" : "application/json";
    return is_metrics ? print_metrics(s, &stats, body) : print_status(s, &stats, body);
}

static int on_page(struct http_host *h, const struct http_request *r, bool is_trusted,
                   struct co_buf *body, const char **ret_type)
{
    struct server *s = (struct server *)((char *)h - offsetof(struct server, http));
    const struct server_pages *p = &s->opts.pages;
    const int access = check_access(s, r, is_trusted);
    int rc = p->on_page != NULL ? p->on_page(p->arg, r, access, body, ret_type)
                                : print_own_page(s, r, access, body, ret_type);
    return rc == -EXDEV ? refuse_host(s, r, body) : rc;
}

/* --- in figures --- */

uint16_t server_port(const struct server *s)
{
    struct sockaddr_storage bound;
    int len = sizeof bound;
    if (s->first == NULL || uv_tcp_getsockname(&s->first->tcp, (struct sockaddr *)&bound, &len) < 0)
        return 0;
    return address_port(&bound);
}

uint32_t server_n_clients(const struct server *s)
{
    return s->host.n_conns;
}

void server_get_stats(const struct server *s, struct stats *ret)
{
    const struct session_host *sessions = &s->host.sessions;
    *ret = (struct stats){
        .version = s->opts.version != NULL ? s->opts.version : "",
        .uptime_ms = uv_now(s->host.loop) - s->started_ms,
        .n_clients = s->host.n_conns - s->host.n_closing,
        .max_clients = s->opts.max_clients,
        .n_connections = s->n_connections,
        .n_refused = s->n_refused,
        .n_keys = store_n_keys(sessions->store),
        .n_store_bytes = store_n_bytes(sessions->store),
        .max_store_bytes = s->opts.max_bytes,
        .n_buffer_bytes = s->host.n_buffer_bytes,
        .max_buffer_bytes = s->opts.max_buffer_bytes,
        .n_http_requests = s->http.n_requests,
    };
    memcpy(ret->n_requests, sessions->n_requests, sizeof ret->n_requests);
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
    if (!s->closing || s->n_handles > 0 || s->host.n_conns > 0 || s->http.n_conns > 0)
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

static void on_http_gone(struct http_host *h)
{
    destroy_if_closed((struct server *)((char *)h - offsetof(struct server, http)));
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct server *s = handle->data;
    s->n_handles--;
    destroy_if_closed(s);
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct listener *l = handle->data;
    struct server *s = l->server;
    free(l);
    s->n_handles--;
    destroy_if_closed(s);
}

uint64_t server_n_connections(const struct server *s)
{
    return s->n_connections;
}

size_t server_list_local(struct server *s, struct server_local *list, size_t max)
{
    struct sockaddr_storage ours, theirs;
    struct peer_owner owner;
    size_t n = 0;
    for (const struct conn *c = s->host.first; c != NULL && n < max; c = conn_next(c))
        if (find_ends(c, &ours, &theirs) && peer_find(&s->peer, &ours, &theirs, &owner, NULL) == 0)
            list[n++] = (struct server_local){owner.inode, conn_since_ms(c)};
    return n;
}

void server_close(struct server *s, void (*on_closed)(void *arg), void *arg)
{
    s->closing = true;
    s->on_closed = on_closed;
    s->on_closed_arg = arg;
    while (s->host.first != NULL)
        conn_close(s->host.first);
    http_conn_close_all(&s->http);
    for (struct listener *l = s->first; l != NULL; l = l->next)
        uv_close((uv_handle_t *)&l->tcp, on_listener_closed);
    s->first = NULL;
    uv_close((uv_handle_t *)&s->prepare, on_handle_closed);
    uv_close((uv_handle_t *)&s->idle, on_handle_closed);
}

/* --- the beginning --- */

static int fill_opts(struct server_opts *opts, struct co_error *err)
{
    if (opts->max_clients == 0)
        opts->max_clients = DEFAULT_MAX_CLIENTS;
    if (opts->max_bytes == 0)
        opts->max_bytes = 1024 * MIB;
    if (opts->max_buffer_bytes == 0)
        opts->max_buffer_bytes = opts->max_bytes;
    if (opts->max_value_bytes == 0)
        opts->max_value_bytes = 64 * MIB;
    if (opts->mid_frame_ms == 0)
        opts->mid_frame_ms = opts->no_store ? 10000 : 30000;
    if (opts->max_value_bytes < SERVER_MIN_VALUE_BYTES)
        return co_fail(
            err, -EINVAL,
            "invalid maximum of values: the store must accept values of 8 MiB, as PyTorch's does");
    return 0;
}

static int alloc_server(uv_loop_t *loop, const struct server_opts *opts, struct server **ret_server,
                        struct co_error *err)
{
    struct server *s = calloc(1, sizeof *s);
    uint8_t *scratch = malloc(CONN_SCRATCH_BYTES);
    if (s == NULL || scratch == NULL) {
        free(s);
        free(scratch);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    const bool has_others = opts->http || opts->on_control != NULL;
    s->opts = *opts;
    s->host = (struct conn_host){
        .sessions = {.limits = {.max_key_bytes = MAX_KEY_BYTES,
                                .max_value_bytes = opts->max_value_bytes,
                                .max_keys = MAX_KEYS_A_REQUEST,
                                .max_request_bytes =
                                    opts->max_value_bytes + SERVER_REQUEST_EXTRA_BYTES},
                     .high_water_bytes = HIGH_WATER_BYTES,
                     .max_work = MAX_WORK,
                     .max_reply_bytes = opts->max_bytes < 1024 * MIB ? opts->max_bytes : 1024 * MIB,
                     .on_output = conn_on_output},
        .loop = loop,
        .scratch = scratch,
        .max_clients = opts->no_store ? 0 : opts->max_clients,
        .mid_frame_ms = opts->mid_frame_ms,
        .max_buffer_bytes = opts->max_buffer_bytes,
        .on_dropped = on_dropped,
        .on_gone = on_conn_gone,
        .on_foreign = has_others ? on_foreign : NULL,
        .max_conns = opts->max_clients + (has_others ? SPARE_FOR_OTHERS : 0),
        .newcomers = {.seed = co_hash_seed()},
    };
    s->max_accepts =
        s->host.max_conns < 2 * MAX_ACCEPTS ? (s->host.max_conns + 1) / 2 : MAX_ACCEPTS;
    s->http = (struct http_host){
        .loop = loop,
        .max_open = opts->no_store && opts->max_clients < MAX_HTTP ? opts->max_clients : MAX_HTTP,
        .on_page = on_page,
        .on_gone = on_http_gone};
    s->started_ms = uv_now(loop);
    peer_init(&s->peer);
    struct store_limits limits = {.max_bytes = opts->max_bytes, .max_names = MAX_NAMES};
    int rc =
        store_create(&limits, co_hash_seed(), session_on_wake, NULL, &s->host.sessions.store, err);
    if (rc < 0) {
        server_destroy(s);
        return rc;
    }
    *ret_server = s;
    return 0;
}

int server_create(uv_loop_t *loop, const struct server_opts *given, struct server **ret_server,
                  struct co_error *err)
{
    struct server_opts opts = *given;
    struct server *s = NULL;
    opts.bind_addr = NULL; /* the caller's text is not ours to keep */
    int rc = fill_opts(&opts, err);
    if (rc == 0)
        rc = alloc_server(loop, &opts, &s, err);
    if (rc < 0)
        return rc;
    s->n_handles = 2;
    s->prepare.data = s->idle.data = s;
    uv_prepare_init(loop, &s->prepare);
    uv_idle_init(loop, &s->idle);
    uv_prepare_start(&s->prepare, on_prepare);
    if (s->peer.method == PEER_BY_NOTHING)
        report_text(s, "cannot determine the user of a connection on this system: the store "
                       "accepts all local users");
    *ret_server = s;
    return 0;
}

/* --- listeners --- */

static struct listener *listener_create(struct server *s)
{
    struct listener *l = calloc(1, sizeof *l);
    if (l == NULL)
        return NULL;
    l->server = s;
    l->tcp.data = l;
    uv_tcp_init(s->host.loop, &l->tcp);
    s->n_handles++;
    return l;
}

/* Accept connections, if nothing went wrong before; else the listener is closed.
 * rc        what bind or open returned */
static int listener_start(struct listener *l, int rc, struct sockaddr_storage *ret_bound)
{
    struct sockaddr_storage bound = {0};
    int len = sizeof bound;
    if (rc == 0) /* the system cuts the backlog to net.core.somaxconn */
        rc = uv_listen((uv_stream_t *)&l->tcp, INT_MAX, on_connection);
    if (rc == 0)
        rc = uv_tcp_getsockname(&l->tcp, (struct sockaddr *)&bound, &len);
    if (rc < 0) {
        uv_close((uv_handle_t *)&l->tcp, on_listener_closed);
        return rc;
    }
    struct listener **last = &l->server->first;
    while (*last != NULL)
        last = &(*last)->next;
    *last = l;
    if (ret_bound != NULL)
        *ret_bound = bound;
    return 0;
}

int server_listen(struct server *s, const char *text, uint16_t port,
                  struct sockaddr_storage *ret_bound, struct co_error *err)
{
    struct sockaddr_storage address;
    if (address_parse(text, port, &address) < 0)
        return co_fail(err, -EINVAL, "cannot bind the store to '%.100s': not a numeric address",
                       text);
    struct listener *l = listener_create(s);
    if (l == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    /* a bind that fails may report it only in listen */
    int rc = listener_start(l, uv_tcp_bind(&l->tcp, (struct sockaddr *)&address, 0), ret_bound);
    char owner[PORT_OWNER_BYTES] = "";
    if (rc < 0)
        return co_fail(err, rc, "cannot serve the store on %s port %u: %s%s", text, (unsigned)port,
                       uv_strerror(rc),
                       rc == -EADDRINUSE ? port_owner_text(&address, owner) : owner);
    return 0;
}

static bool is_listener(int fd)
{
    int listens = 0;
    socklen_t len = sizeof listens;
    struct sockaddr_storage address = {0};
    socklen_t address_len = sizeof address;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 && listens != 0 &&
           getsockname(fd, (struct sockaddr *)&address, &address_len) == 0 &&
           (address.ss_family == AF_INET || address.ss_family == AF_INET6);
}

int server_adopt(struct server *s, int fd, struct sockaddr_storage *ret_bound, struct co_error *err)
{
    if (!is_listener(fd))
        return co_fail(err, -EINVAL, "file descriptor %d is not a listening TCP socket", fd);
    struct listener *l = listener_create(s);
    if (l == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* until it is certain, the caller's stays open */
    int rc = copy < 0 ? -errno : uv_tcp_open(&l->tcp, copy);
    if (rc < 0 && copy >= 0)
        close(copy);
    rc = listener_start(l, rc, ret_bound);
    if (rc < 0)
        return co_fail(err, rc, "cannot listen on file descriptor %d: %s", fd, uv_strerror(rc));
    close(fd);
    return 0;
}

int server_start(uv_loop_t *loop, const struct server_opts *opts, struct server **ret_server,
                 struct co_error *err)
{
    struct server *s;
    int rc = server_create(loop, opts, &s, err);
    if (rc < 0)
        return rc;
    const char *address = opts->bind_addr != NULL ? opts->bind_addr : "127.0.0.1";
    rc = server_listen(s, address, opts->port, NULL, err);
    if (rc < 0) {
        server_close(s, NULL, NULL);
        return rc;
    }
    *ret_server = s;
    return 0;
}
