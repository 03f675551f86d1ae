/* server.h - a generation's key-value store, served over TCP in PyTorch's TCPStore protocol.
 *
 * The libuv shell around store.h (keys, waiters) and session.h (bytes). Runs inside ddprun: one
 * server a generation, opened empty, closed with it. Never resolves a name, never blocks, never
 * allocates by a length it was only told. The program must ignore SIGPIPE, since libuv does not keep
 * it away: a client that goes before its reply would end the program. */
#ifndef DDP_RENDEZVOUS_SERVER_H
#define DDP_RENDEZVOUS_SERVER_H

#include <stdint.h>
#include <uv.h>

struct co_error;
struct server; /* opaque */

struct server_opts {
    const char *bind_addr; /* a numeric address; NULL: "127.0.0.1" */
    uint16_t port;         /* 0: any free one */
    uint32_t max_clients;  /* 0: 65536 */
    uint64_t max_bytes;    /* keys and values together, and as much again for requests and replies
                                 on their way; 0: 1 GiB */
    uint64_t max_value_bytes; /* 0: 64 MiB; not less than 8 MiB */
    uint64_t mid_frame_ms;    /* a request that was begun must be complete after this; 0: 30 000 */
    void (*on_refused)(void *arg, const char *text); /* a connection was refused or dropped for bad
                                    bytes; called at most once a second, must not close the server;
                                    NULL: nobody cares */
    void *arg;
};

/* Bind and listen. Peers that come over loopback are served only when they are of our own uid, or
 * root's. Where the system does not tell whose a connection is (neither NETLINK_SOCK_DIAG nor
 * /proc/net/tcp), all of them are, and on_refused hears of it once.
 *
 * ret_server   server_close() it
 * returns      0, -EINVAL (address), -EADDRINUSE (text names the port), -EACCES, -ENOMEM, -errno;
 *              after a failure the loop may have handles left to close */
int server_start(uv_loop_t *loop, const struct server_opts *opts, struct server **ret_server,
                 struct co_error *err);

uint16_t server_port(const struct server *s);
uint32_t server_n_clients(const struct server *s);

/* Stop listening, cut all connections and free everything; on_closed (NULL allowed) is called from
 * the loop when the last handle is closed. The server must not be used after this call. */
void server_close(struct server *s, void (*on_closed)(void *arg), void *arg);

#endif
