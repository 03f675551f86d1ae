/* join_host.c - the broker of segments/broker.h on a socket, inside of the wait of local rank 0.
 *
 * join_host_turn() is one turn of its loop: it accepts, reads from each peer what the broker
 * answers, and drops peers that are gone. */
#include "join_host.h"

#include "common/error.h"
#include "common/listener.h"
#include "common/scope.h"
#include "segments/broker.h"
#include "segments/control.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Connections beyond one per rank: so many may be open and silent. */
enum { UNPROVEN_PEERS = 32 };

struct peer {
    int sock;
    int local_rank; /* -1: it has not sent its hello */
};

struct join_host {
    struct co_listener listener;
    struct control *control;
    struct broker *broker;
    struct co_error refusal;
    size_t n_peers, max_peers;
    struct peer *peer;    /* max_peers */
    struct pollfd *watch; /* max_peers + 2: the peers, the listener, the caller's */
};

static int listen_at(const char *name, int *ret_sock, struct co_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strnlen(name, sizeof address.sun_path - 1);
    memcpy(address.sun_path + 1, name, length); /* after a NUL: an abstract name, which vanishes
                                                   with this process */
    co_autoclose_fd int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0)
        return co_fail(err, -errno, "cannot create a socket: %s", strerror(errno));
    if (bind(sock, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) != 0 ||
        listen(sock, SOMAXCONN) != 0)
        return co_fail(err, -errno, "cannot listen on the socket @%s: %s", name, strerror(errno));
    *ret_sock = co_take_fd(&sock);
    return 0;
}

int join_host_create(const char *name, unsigned n_local, uint32_t generation,
                     struct join_host **ret, int *ret_sock, struct co_error *err)
{
    int ends[2], control_fd = -1;
    struct join_host *h = calloc(1, sizeof *h);
    if (h == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    h->max_peers = n_local + UNPROVEN_PEERS;
    h->listener.fd = -1;
    h->peer = calloc(h->max_peers, sizeof *h->peer);
    h->watch = calloc(h->max_peers + 2, sizeof *h->watch);
    int code = 0;
    if (h->peer == NULL || h->watch == NULL)
        code = co_fail(err, -ENOMEM, "out of memory");
    if (code == 0)
        code = listen_at(name, &h->listener.fd, err);
    if (code == 0)
        code = control_create(n_local, generation, &control_fd, &h->control, err);
    if (code == 0)
        code = broker_create(n_local, control_fd, &h->broker, err);
    if (code == 0 &&
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        code = co_fail(err, -errno, "cannot create a socket pair: %s", strerror(errno));
    if (control_fd >= 0)
        close(control_fd);
    if (code != 0) {
        join_host_destroy(h);
        return code;
    }
    h->peer[h->n_peers++] = (struct peer){.sock = ends[0], .local_rank = -1};
    *ret_sock = ends[1];
    *ret = h;
    return 0;
}

void join_host_destroy(struct join_host *h)
{
    if (h == NULL)
        return;
    for (size_t i = 0; i < h->n_peers; i++)
        close(h->peer[i].sock);
    co_close_at(&h->listener.fd);
    broker_destroy(h->broker);
    control_unmap(h->control);
    free(h->peer);
    free(h->watch);
    free(h);
}

bool join_host_has_come(const struct join_host *h, unsigned local_rank)
{
    return broker_has_said_hello(h->broker, local_rank);
}

const char *join_host_last_refusal(const struct join_host *h)
{
    return h->refusal.text;
}

/* What is not accepted in this turn keeps the listener readable. */
static void accept_some(struct join_host *h)
{
    enum { ACCEPTS = 64 };
    for (int i = 0; i < ACCEPTS; i++) {
        int sock = co_listener_accept(&h->listener, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct ucred peer;
        socklen_t size = sizeof peer;
        if (sock < 0)
            return;
        if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) {
            co_fail(&h->refusal, -EACCES, "a process of another user connected");
            close(sock);
        } else if (h->n_peers == h->max_peers) {
            co_fail(&h->refusal, -EMFILE, "more than %zu connections", h->max_peers);
            close(sock);
        } else {
            h->peer[h->n_peers++] = (struct peer){.sock = sock, .local_rank = -1};
        }
    }
}

/* A rank that closed its socket has all it wants, or died before it could join. */
static void drop_peer(struct join_host *h, size_t i)
{
    int rank = h->peer[i].local_rank;
    if (rank >= 0 && !atomic_load(&h->control->line[rank].joined))
        control_abort_set(
            h->control, (struct control_abort){.cause = CONTROL_RANK_DIED, .rank = (uint16_t)rank});
    if (rank >= 0)
        broker_rank_gone(h->broker, (unsigned)rank);
    close(h->peer[i].sock);
    h->peer[i] = h->peer[--h->n_peers];
}

int join_host_turn(struct join_host *h, int also, int timeout_ms, struct co_error *err)
{
    size_t n = h->n_peers;
    for (size_t i = 0; i < n; i++)
        h->watch[i] = (struct pollfd){.fd = h->peer[i].sock, .events = POLLIN};
    h->watch[n] = co_listener_poll(&h->listener);
    h->watch[n + 1] = (struct pollfd){.fd = also, .events = POLLIN};
    const int wait_ms = co_listener_wait_ms(&h->listener, timeout_ms);
    if (poll(h->watch, n + 2, wait_ms) < 0 && errno != EINTR)
        return co_fail(err, -errno, "poll: %s", strerror(errno));
    for (size_t i = n; i-- > 0;) { /* from the end: a dropped one is replaced by the last */
        if (h->watch[i].revents == 0)
            continue;
        struct peer *p = &h->peer[i];
        struct co_error refusal; /* also gives the reason when there is nothing more to read */
        int rc = broker_on_readable(h->broker, p->local_rank, p->sock, &p->local_rank, &refusal);
        if (rc < 0)
            h->refusal = refusal;
        if (rc <= 0)
            drop_peer(h, i);
    }
    if (h->watch[n].revents != 0)
        accept_some(h);
    return 0;
}
