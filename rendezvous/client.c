#include "client.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    FIRST_PAUSE_MS = 5, /* between attempts to connect; grows to the other */
    LONGEST_PAUSE_MS = 250,
    CANCEL_MS = 5000, /* for the server to confirm that a wait is cancelled */
    FIRST_VALUE_BYTES = 64 << 10,
};
#define MAX_VALUE_BYTES ((uint64_t)1 << 30)

struct store_client {
    int fd;
    int dead; /* 0, or -EPIPE: requests and replies are out of step */
};

/* --- bytes --- */

/* The stream stopped in the middle of something: nobody knows what comes next on it. */
static int die(struct store_client *c, int rc)
{
    c->dead = -EPIPE;
    return rc;
}

static int fail_gone(struct store_client *c, int error, struct co_error *err)
{
    return die(c, co_fail(err, -EPIPE, "the store went away: %s",
                          error == 0 ? "it closed the connection" : strerror(error)));
}

/* returns 1 when ready, 0 when the deadline has passed, -EPIPE */
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
    return die(c, co_fail(err, -ETIMEDOUT, "the store did not %s in time", what));
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

static int send_all(struct store_client *c, struct iovec *v, size_t n_v, uint64_t deadline_ms,
                    struct co_error *err)
{
    if (c->dead != 0)
        return co_fail(err, c->dead, "the connection to the store broke earlier");
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
            return rc < 0 ? rc : fail_timeout(c, "take the request", err);
    }
    return 0;
}

static int receive(struct store_client *c, void *bytes, size_t n, uint64_t deadline_ms,
                   struct co_error *err)
{
    uint8_t *at = bytes;
    while (n > 0) {
        ssize_t n_read = recv(c->fd, at, n, MSG_DONTWAIT);
        if (n_read > 0) {
            at += n_read;
            n -= (size_t)n_read;
            continue;
        }
        if (n_read == 0)
            return fail_gone(c, 0, err);
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return fail_gone(c, errno, err);
        int rc = await(c, POLLIN, deadline_ms, err);
        if (rc <= 0)
            return rc < 0 ? rc : fail_timeout(c, "answer", err);
    }
    return 0;
}

/* --- requests --- */

/* An opcode, perhaps a count of 1, a key, perhaps a value. One write, nothing copied. */
static int send_request(struct store_client *c, enum wire_op op, bool counted,
                        struct wire_bytes key, const struct wire_bytes *value, uint64_t deadline_ms,
                        struct co_error *err)
{
    uint8_t head[17] = {(uint8_t)op};
    size_t n_head = 1;
    if (counted) {
        wire_put_u64(head + n_head, 1);
        n_head += 8;
    }
    wire_put_u64(head + n_head, key.len);
    n_head += 8;
    uint8_t value_head[8];
    struct iovec v[4] = {{head, n_head}, {(void *)key.at, key.len}};
    size_t n_v = 2;
    if (value != NULL) {
        wire_put_u64(value_head, value->len);
        v[n_v++] = (struct iovec){value_head, sizeof value_head};
        v[n_v++] = (struct iovec){(void *)value->at, value->len};
    }
    return send_all(c, v, n_v, deadline_ms, err);
}

static int receive_i64(struct store_client *c, uint64_t deadline_ms, int64_t *ret_value,
                       struct co_error *err)
{
    uint8_t bytes[8];
    int rc = receive(c, bytes, sizeof bytes, deadline_ms, err);
    if (rc == 0)
        *ret_value = (int64_t)wire_get_u64(bytes);
    return rc;
}

/* The length is only a promise: memory grows with what really comes. */
static int receive_value(struct store_client *c, uint64_t deadline_ms, uint8_t **ret_value,
                         size_t *ret_len, struct co_error *err)
{
    int64_t promised = 0;
    int rc = receive_i64(c, deadline_ms, &promised, err);
    if (rc < 0)
        return rc;
    uint64_t len = (uint64_t)promised;
    if (len > MAX_VALUE_BYTES)
        return die(c, co_fail(err, -EPROTO, "the store sends a value of %llu bytes (at most %llu)",
                              (unsigned long long)len, (unsigned long long)MAX_VALUE_BYTES));
    co_autofree uint8_t *value = NULL;
    size_t n_here = 0;
    size_t room = FIRST_VALUE_BYTES;
    do {
        room = room < len - n_here ? room : len - n_here;
        uint8_t *larger = realloc(value, n_here + room + 1);
        if (larger == NULL)
            return die(c, co_fail(err, -ENOMEM, "no memory for a value of %zu bytes", (size_t)len));
        value = larger;
        rc = receive(c, value + n_here, room, deadline_ms, err);
        if (rc < 0)
            return rc;
        n_here += room;
        room = n_here; /* twice as much */
    } while (n_here < len);
    value[len] = '\0';
    *ret_len = len;
    *ret_value = co_take(&value);
    return 0;
}

int client_set(struct store_client *c, const void *key, size_t key_len, const void *value,
               size_t value_len, uint64_t deadline_ms, struct co_error *err)
{
    struct wire_bytes k = {key, key_len};
    struct wire_bytes v = {value, value_len};
    return send_request(c, WIRE_SET, false, k, &v, deadline_ms, err);
}

/* The answer may have crossed the cancellation: then it comes first, and the confirmation behind
 * it. The time is up either way. */
static int cancel_wait(struct store_client *c, const void *key, size_t key_len,
                       struct co_error *err)
{
    uint8_t op = WIRE_CANCEL_WAIT;
    uint8_t answer;
    struct iovec v = {&op, 1};
    uint64_t deadline_ms = co_deadline_ms(CANCEL_MS);
    int rc = send_all(c, &v, 1, deadline_ms, err);
    if (rc == 0)
        rc = receive(c, &answer, 1, deadline_ms, err);
    if (rc == 0 && answer == WIRE_STOP_WAITING)
        rc = receive(c, &answer, 1, deadline_ms, err);
    if (rc < 0)
        return rc;
    if (answer != WIRE_WAIT_CANCELED)
        return die(c, co_fail(err, -EPROTO, "the store answers a cancelled wait with %u", answer));
    return co_fail(err, -ETIMEDOUT, "nobody has stored '%.*s' in time",
                   (int)(key_len < 200 ? key_len : 200), (const char *)key);
}

int client_wait(struct store_client *c, const void *key, size_t key_len, uint64_t deadline_ms,
                struct co_error *err)
{
    int rc =
        send_request(c, WIRE_WAIT, true, (struct wire_bytes){key, key_len}, NULL, deadline_ms, err);
    if (rc < 0)
        return rc;
    rc = await(c, POLLIN, deadline_ms, err);
    if (rc <= 0)
        return rc < 0 ? rc : cancel_wait(c, key, key_len, err);
    uint8_t answer;
    rc = receive(c, &answer, 1, deadline_ms, err);
    if (rc == 0 && answer != WIRE_STOP_WAITING)
        rc = die(c, co_fail(err, -EPROTO, "the store answers a wait with %u", answer));
    return rc;
}

int client_get(struct store_client *c, const void *key, size_t key_len, uint64_t deadline_ms,
               uint8_t **ret_value, size_t *ret_len, struct co_error *err)
{
    int rc = client_wait(c, key, key_len, deadline_ms, err);
    if (rc == 0)
        rc = send_request(c, WIRE_GET, false, (struct wire_bytes){key, key_len}, NULL, deadline_ms,
                          err);
    return rc < 0 ? rc : receive_value(c, deadline_ms, ret_value, ret_len, err);
}

int client_add(struct store_client *c, const void *key, size_t key_len, int64_t delta,
               uint64_t deadline_ms, int64_t *ret_value, struct co_error *err)
{
    uint8_t head[9] = {WIRE_ADD};
    uint8_t tail[8];
    wire_put_u64(head + 1, key_len);
    wire_put_u64(tail, (uint64_t)delta);
    struct iovec v[] = {{head, sizeof head}, {(void *)key, key_len}, {tail, sizeof tail}};
    int rc = send_all(c, v, sizeof v / sizeof *v, deadline_ms, err);
    return rc < 0 ? rc : receive_i64(c, deadline_ms, ret_value, err);
}

int client_delete(struct store_client *c, const void *key, size_t key_len, uint64_t deadline_ms,
                  int64_t *ret_deleted, struct co_error *err)
{
    struct wire_bytes k = {key, key_len};
    int rc = send_request(c, WIRE_DELETE_KEY, false, k, NULL, deadline_ms, err);
    return rc < 0 ? rc : receive_i64(c, deadline_ms, ret_deleted, err);
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

/* A store says nothing of itself. A CHECK of no keys is answered with one known byte by torch's
 * servers since 2.2, which 2.5's PING is not. */
static int shake_hands(struct store_client *c, uint64_t deadline_ms, struct co_error *err)
{
    uint8_t hello[1 + 4 + 1 + 8] = {[0] = WIRE_VALIDATE, [5] = WIRE_CHECK};
    wire_put_u32(hello + 1, WIRE_MAGIC);
    uint8_t answer;
    struct iovec v = {hello, sizeof hello};
    int rc = send_all(c, &v, 1, deadline_ms, err);
    if (rc == 0)
        rc = receive(c, &answer, 1, deadline_ms, err);
    if (rc == 0 && answer != WIRE_READY)
        rc = co_fail(err, -EPROTO, "its first byte is %u, a store's is 0", answer);
    return rc;
}

static int try_addresses(const struct addrinfo *list, uint64_t deadline_ms,
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
        rc = shake_hands(&c, deadline_ms, err);
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
    return co_fail(err, -EINVAL, "no address for '%.200s': %s", host, gai_strerror(rc));
}

int client_connect(const char *host, uint16_t port, uint64_t deadline_ms,
                   struct store_client **ret_client, struct co_error *err)
{
    struct store_client *c = malloc(sizeof *c);
    struct addrinfo *list = NULL;
    struct co_error reason = {0};
    int rc =
        c == NULL ? co_fail(&reason, -ENOMEM, "no memory") : resolve(host, port, &list, &reason);
    for (int pause_ms = FIRST_PAUSE_MS; rc == 0; pause_ms *= 2) {
        rc = try_addresses(list, deadline_ms, c, &reason);
        if (rc == 0) {
            freeaddrinfo(list);
            *ret_client = c;
            return 0;
        }
        if (!may_pass(rc))
            break;
        int left_ms = co_left_ms(deadline_ms);
        rc = left_ms == 0 ? -ETIMEDOUT : 0;
        pause_ms = pause_ms < LONGEST_PAUSE_MS ? pause_ms : LONGEST_PAUSE_MS;
        poll(NULL, 0, left_ms < 0 || pause_ms < left_ms ? pause_ms : left_ms);
    }
    if (list != NULL)
        freeaddrinfo(list);
    free(c);
    return co_fail(err, rc, "no store at %.200s port %u: %s", host, (unsigned)port, reason.text);
}

void client_addresses(const struct store_client *c, struct sockaddr_storage *ret_local,
                      struct sockaddr_storage *ret_peer)
{
    socklen_t length = sizeof *ret_local;
    memset(ret_local, 0, sizeof *ret_local);
    memset(ret_peer, 0, sizeof *ret_peer);
    if (getsockname(c->fd, (struct sockaddr *)ret_local, &length) != 0)
        ret_local->ss_family = 0;
    length = sizeof *ret_peer;
    if (getpeername(c->fd, (struct sockaddr *)ret_peer, &length) != 0)
        ret_peer->ss_family = 0;
}

void client_close(struct store_client *c)
{
    if (c == NULL)
        return;
    co_close_at(&c->fd);
    free(c);
}
