#include "client_stream.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "rendezvous/store/wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    FIRST_PAUSE_MS = 5, /* between attempts to connect; grows to the other */
    LONGEST_PAUSE_MS = 250,
    FILL_BYTES = 64 << 10,
};

/* --- bytes --- */

int stream_die(struct store_client *c, int rc)
{
    c->dead = -EPIPE;
    return rc;
}

static int fail_gone(struct store_client *c, int error, struct co_error *err)
{
    return stream_die(c, co_fail(err, -EPIPE, "lost the connection to the store: %s",
                                 error == 0 ? "the store closed the connection" : strerror(error)));
}

/* as stream_await_reply(), for these events */
static int await(struct store_client *c, short events, uint64_t deadline_ms, struct co_error *err)
{
    struct pollfd p = {.fd = c->fd, .events = events};
    for (;;) {
        int left_ms = co_left_ms(deadline_ms);
        int n = poll(&p, 1, left_ms);
        if (n > 0)
            return 1;
        if (n < 0 && errno != EINTR)
            return fail_gone(c, errno, err);
        if (n == 0 && left_ms >= 0 && co_left_ms(deadline_ms) == 0)
            return 0;
    }
}

static int fail_timeout(struct store_client *c, const char *what, struct co_error *err)
{
    return stream_die(c, co_fail(err, -ETIMEDOUT, "timed out waiting for the store to %s", what));
}

/* Drop the first n bytes of the run of buffers. */
static void advance(struct iovec **v, size_t *n_v, size_t n)
{
    while (*n_v > 0 && n >= (*v)->iov_len) {
        n -= (*v)->iov_len;
        (*v)++;
        (*n_v)--;
    }
    if (*n_v > 0) {
        (*v)->iov_base = (char *)(*v)->iov_base + n;
        (*v)->iov_len -= n;
    }
}

int stream_send(struct store_client *c, struct iovec *v, size_t n_v, uint64_t deadline_ms,
                struct co_error *err)
{
    if (c->dead != 0)
        return co_fail(err, c->dead, "the connection to the store was lost earlier");
    advance(&v, &n_v, 0);
    while (n_v > 0) {
        struct msghdr message = {.msg_iov = v, .msg_iovlen = n_v};
        ssize_t n = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            advance(&v, &n_v, (size_t)n);
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return fail_gone(c, errno, err);
        int rc = await(c, POLLOUT, deadline_ms, err);
        if (rc <= 0)
            return rc < 0 ? rc : fail_timeout(c, "read the request", err);
    }
    return 0;
}

/* Interpret the result of recv(): 0 if it is to be called again, or for what it has read. */
static int take_in(struct store_client *c, ssize_t n_read, uint64_t deadline_ms,
                   struct co_error *err)
{
    if (n_read > 0 || (n_read < 0 && errno == EINTR))
        return 0;
    if (n_read == 0)
        return fail_gone(c, 0, err);
    if (errno != EAGAIN)
        return fail_gone(c, errno, err);
    int rc = await(c, POLLIN, deadline_ms, err);
    if (rc <= 0)
        return rc < 0 ? rc : fail_timeout(c, "answer", err);
    return 0;
}

int stream_receive(struct store_client *c, void *bytes, size_t n, uint64_t deadline_ms,
                   struct co_error *err)
{
    uint8_t *at = bytes;
    while (n > 0) {
        ssize_t n_read = recv(c->fd, at, n, MSG_DONTWAIT);
        int rc = take_in(c, n_read, deadline_ms, err);
        if (rc < 0)
            return rc;
        at += n_read > 0 ? n_read : 0;
        n -= n_read > 0 ? (size_t)n_read : 0;
    }
    return 0;
}

int stream_fill(struct store_client *c, struct co_buf *in, size_t n, uint64_t deadline_ms,
                struct co_error *err)
{
    while (co_buf_len(in) < n) {
        size_t missing = n - co_buf_len(in);
        size_t most = missing > FILL_BYTES ? missing : FILL_BYTES;
        uint8_t *room = co_buf_room(in, most);
        if (room == NULL)
            return stream_die(c, co_fail(err, -ENOMEM, "out of memory"));
        ssize_t n_read = recv(c->fd, room, most, MSG_DONTWAIT);
        int rc = take_in(c, n_read, deadline_ms, err);
        if (rc < 0)
            return rc;
        co_buf_added(in, n_read > 0 ? (size_t)n_read : 0);
    }
    return 0;
}

int stream_await_reply(struct store_client *c, uint64_t deadline_ms, struct co_error *err)
{
    return await(c, POLLIN, deadline_ms, err);
}

/* --- connecting --- */

/* returns a descriptor that is connected, or -errno */
static int connect_to(const struct addrinfo *to, uint64_t deadline_ms)
{
    co_autoclose_fd int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, to->ai_addr, to->ai_addrlen) < 0) {
        if (errno != EINPROGRESS)
            return -errno;
        struct store_client c = {.fd = fd};
        int rc = await(&c, POLLOUT, deadline_ms, NULL);
        if (rc <= 0)
            return rc < 0 ? rc : -ETIMEDOUT;
        int error = 0;
        socklen_t len = sizeof error;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
            return -errno;
        if (error != 0)
            return -error;
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return co_take_fd(&fd);
}

/* A store does not identify itself. All of torch's servers since 2.2 answer CANCEL_WAIT with one
 * known byte, which they do not do for PING.
 *
 * Four of them are sent because of older servers: those take VALIDATE for a SET, and the bytes
 * after it for the length of a key. That length is larger than any memory, so they close at once.
 * Three zeros instead of the last three would be a key of 20 GB, for which they do allocate
 * memory. */
static int shake_hands(struct store_client *c, struct wire_bytes word, uint64_t deadline_ms,
                       struct co_error *err)
{
    enum { N_CANCELS = 4 };
    uint8_t hello[1 + 4 + N_CANCELS] = {WIRE_VALIDATE};
    uint8_t answers[N_CANCELS];
    wire_put_u32(hello + 1, WIRE_MAGIC);
    memset(hello + 5, WIRE_CANCEL_WAIT, N_CANCELS);
    struct iovec v[] = {{(void *)word.at, word.len}, {hello, sizeof hello}};
    int rc = stream_send(c, v, 2, deadline_ms, err);
    if (rc == 0)
        rc = stream_receive(c, answers, sizeof answers, deadline_ms, err);
    if (rc == -EPIPE)
        return co_fail(err, rc,
                       "the store closed the connection, as stores of PyTorch before 2.2 do: use "
                       "PyTorch 2.2 or later");
    for (int i = 0; rc == 0 && i < N_CANCELS; i++)
        if (answers[i] != WIRE_WAIT_CANCELED)
            rc = co_fail(err, -EPROTO,
                         "the program that listens there is not a TCPStore: byte %d of its answer "
                         "is %u instead of 1",
                         i, answers[i]);
    return rc;
}

static int try_addresses(const struct addrinfo *list, struct wire_bytes word, uint64_t deadline_ms,
                         struct store_client *ret_client, struct co_error *err)
{
    int rc = -ENOENT;
    for (const struct addrinfo *to = list; to != NULL; to = to->ai_next) {
        int fd = connect_to(to, deadline_ms);
        if (fd < 0) {
            rc = co_fail(err, fd, "%s", strerror(-fd));
            continue;
        }
        struct store_client c = {.fd = fd};
        rc = shake_hands(&c, word, deadline_ms, err);
        if (rc == 0) {
            *ret_client = c;
            return 0;
        }
        close(fd);
    }
    return rc;
}

/* What goes by itself: the server is not there yet, or closed with us in its backlog. */
static bool may_pass(int rc)
{
    switch (-rc) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ETIMEDOUT:
    case EAGAIN:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL:
        return true;
    default:
        return false;
    }
}

static int resolve(const char *host, uint16_t port, struct addrinfo **ret_list,
                   struct co_error *err)
{
    char service[8];
    snprintf(service, sizeof service, "%u", (unsigned)port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG};
    /* figures need no name server, and none of their addresses is left out */
    struct addrinfo numeric = {.ai_family = AF_UNSPEC,
                               .ai_socktype = SOCK_STREAM,
                               .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    int rc = getaddrinfo(host, service, &numeric, ret_list);
    if (rc == EAI_NONAME)
        rc = getaddrinfo(host, service, &hints, ret_list);
    if (rc == 0)
        return 0;
    return co_fail(err, -EINVAL, "cannot resolve '%.200s': %s", host, gai_strerror(rc));
}

int stream_connect(const char *host, uint16_t port, struct wire_bytes word, uint64_t deadline_ms,
                   bool retry, struct store_client *ret_client, struct co_error *err)
{
    struct addrinfo *list = NULL;
    int rc = resolve(host, port, &list, err);
    for (int pause_ms = FIRST_PAUSE_MS; rc == 0; pause_ms *= 2) {
        rc = try_addresses(list, word, deadline_ms, ret_client, err);
        if (rc == 0 || !retry || !may_pass(rc))
            break;
        int left_ms = co_left_ms(deadline_ms);
        rc = left_ms == 0 ? -ETIMEDOUT : 0;
        pause_ms = pause_ms < LONGEST_PAUSE_MS ? pause_ms : LONGEST_PAUSE_MS;
        poll(NULL, 0, left_ms < 0 || pause_ms < left_ms ? pause_ms : left_ms);
    }
    if (list != NULL)
        freeaddrinfo(list);
    return rc;
}
