/* server.h - a key-value store, served over TCP in PyTorch's TCPStore protocol.
 *
 * The libuv shell around store.h (keys, waiters) and session.h (bytes). Runs inside ddprun, one
 * server a generation, opened empty, closed with it; and as ddp-rendezvous, whose keys stay as long
 * as it runs, and which answers HTTP on the same port. Never resolves a name, never blocks, never
 * allocates memory for a length that a client only announced. The program must ignore SIGPIPE,
 * since libuv does not block it: a client that disconnects before its reply would end the
 * program. */
#ifndef DDP_RENDEZVOUS_SERVER_SERVER_H
#define DDP_RENDEZVOUS_SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct allow_list;
struct co_buf;
struct co_error;
struct http_request;
struct server; /* opaque */
struct session_host;
struct stats;

#define SERVER_MIN_VALUE_BYTES ((uint64_t)8 << 20) /* what torch's own server takes */
#define SERVER_REQUEST_EXTRA_BYTES                                                                 \
    ((uint64_t)16 << 20) /* for the rest of a request, in addition to
                                                           one value */

/* The pages for HTTP; zeroed: the server's own, open to all that are served. */
struct server_pages {
    /* /metrics and /status are for trusted peers (our own user and root on this machine, addresses
     * of server_opts.allow), and for requests with an "Authorization: Bearer" that this accepts;
     * text: lent. NULL: for all that are served */
    bool (*is_key)(void *arg, const char *text, size_t len);

    /* Pages in place of the server's own: append the requested one to body. access: 0; or what to
     * return instead of a page that is not for all: -EACCES, -EXDEV (the request calls this machine
     * by a wrong name). returns 0 with its type in *ret_type (static text; plain text if it is left
     * alone); `access`; -ENOENT; -EAGAIN: not now; -ENOMEM. NULL: the server's own */
    int (*on_page)(void *arg, const struct http_request *r, int access, struct co_buf *body,
                   const char **ret_type);

    /* More for the server's own pages: append metrics to the one of /metrics, members of the JSON
     * object, each after a comma, to the one of /status. returns 0, -ENOMEM. NULL: no more */
    int (*on_metrics)(void *arg, struct co_buf *page);
    int (*on_status)(void *arg, struct co_buf *page);
    void *arg;
};

struct server_opts {
    const char *bind_addr; /* of server_start(): a numeric address; NULL: "127.0.0.1" */
    uint16_t port;         /* of server_start(); 0: any free one */
    uint32_t max_clients;  /* 0: 65536. With no_store: connections without their first bytes */
    uint64_t max_bytes;    /* keys and values together, with what is kept about them; 0: 1 GiB */
    uint64_t max_buffer_bytes; /* requests and replies on their way; 0: as max_bytes */
    uint64_t max_value_bytes;  /* 0: 64 MiB; not less than SERVER_MIN_VALUE_BYTES */
    uint64_t mid_frame_ms;     /* a request that was begun must be complete after this; 0: 30 000,
                                  or with no_store, where it runs from the connection's beginning,
                                  10 000 */

    /* Hosts that are served in addition to loopback peers of our own uid, and root's. NULL: all
     * other machines. Other users of this machine are served only if a network of the list has the
     * address that they come from. Borrowed until server_close(). */
    const struct allow_list *allow;

    bool no_store;       /* clients of the store are refused: for the other protocols only */
    bool http;           /* also answer GET /healthz, /metrics and /status */
    const char *version; /* for these pages; static text */

    /* A connection of the control channel: takes its descriptor over. The bytes, lent, were read
     * from it already. NULL: such are refused */
    void (*on_control)(void *arg, int fd, const uint8_t *bytes, size_t len);

    /* Clients must call /metrics and /status by an address or a name of this machine, or by one of
     * these (host_names.h), unless they have a key; borrowed until server_close(); NULL: none.
     * host_advice: what to do about a name that is refused, up to the name; static text */
    const char *hosts, *host_advice;
    struct server_pages pages;

    void (*on_refused)(void *arg, const char *text); /* a connection was refused or dropped for bad
                                                        bytes; called at most once a second, must
                                                        not close the server; NULL: ignored */
    void *arg;
};

/* Make a server that does not listen yet.
 *
 * Peers that connect over loopback and are not in `allow` are served only if they run under our own
 * uid, or root's; those that connect by another address of this machine have the store only then.
 * Where the system does not report the owner of a connection (neither NETLINK_SOCK_DIAG nor
 * /proc/net/tcp), all of them are served, and on_refused reports it once.
 *
 * ret_server   server_close() it
 * returns      0, -EINVAL (limits), -ENOMEM */
int server_create(uv_loop_t *loop, const struct server_opts *opts, struct server **ret_server,
                  struct co_error *err);

/* Listen at one more address: a numeric one, at any free port if that is 0. Of IPv6's "any" address
 * this makes a listener for both families.
 *
 * ret_bound   NULL is fine; the address with the port that it has
 * returns     0, -EINVAL (address), -EADDRINUSE (text names the port), -EACCES, -ENOMEM, -errno */
int server_listen(struct server *s, const char *address, uint16_t port,
                  struct sockaddr_storage *ret_bound, struct co_error *err);

/* Listen on a socket that another process has bound for us, and take it over.
 *
 * returns   0, -EINVAL (no listening stream socket of an internet family), -ENOMEM, -errno; the
 *           descriptor stays the caller's on failure */
int server_adopt(struct server *s, int fd, struct sockaddr_storage *ret_bound,
                 struct co_error *err);

/* server_create(), and server_listen() at the address of the options.
 *
 * returns   as both; after a failure the loop may have handles left to close */
int server_start(uv_loop_t *loop, const struct server_opts *opts, struct server **ret_server,
                 struct co_error *err);

uint16_t server_port(const struct server *s); /* of the first listener */
uint32_t server_n_clients(const struct server *s);
void server_get_stats(const struct server *s, struct stats *ret);

uint64_t server_n_connections(const struct server *s); /* that were made so far */

/* A connection from this machine. */
struct server_local {
    uint64_t inode;    /* of the socket at its other end */
    uint64_t since_ms; /* CLOCK_MONOTONIC */
};

/* Those that are open, as far as the system reports them (see peer.h): the kernel is asked about
 * each, some microseconds a question.
 *
 * returns   how many, at most max */
size_t server_list_local(struct server *s, struct server_local *list, size_t max);

/* Another module that runs requests on the same store, in the same loop (relay_hub.h). Called once
 * in each turn of the loop, in this order, before the loop sleeps. Each returns whether it must
 * not. */
struct server_guest {
    bool (*on_turn)(void *arg);      /* run what waits for its share of a turn */
    bool (*on_turn_over)(void *arg); /* send what this turn's requests have made; run none */
    void *arg;
};

/* guest      copied; NULL: the guest is gone, as it must be before server_close()
 * ret_host   what its sessions share: all but on_output. NULL is fine */
void server_admit(struct server *s, const struct server_guest *guest,
                  struct session_host *ret_host);

/* Stop listening, cut all connections and free everything; on_closed (NULL allowed) is called from
 * the loop when the last handle is closed. The server must not be used after this call. */
void server_close(struct server *s, void (*on_closed)(void *arg), void *arg);

#endif
