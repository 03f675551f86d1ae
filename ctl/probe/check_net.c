#include "check_net.h"

#include "check_stream.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { PING_BYTES = 8, HELLO_BYTES = CHECK_SECRET_BYTES + 1 };

static socklen_t length_of(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static void fill_hello(const uint8_t secret[CHECK_SECRET_BYTES], char what,
                       uint8_t hello[HELLO_BYTES])
{
    memcpy(hello, secret, CHECK_SECRET_BYTES);
    hello[CHECK_SECRET_BYTES] = (uint8_t)what;
}

/* --- many ports at once --- */

static enum check_reach reach_of(int error)
{
    switch (error) {
    case ECONNREFUSED:
        return CHECK_REACH_REFUSED;
    case ETIMEDOUT:
        return CHECK_REACH_SILENT;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EACCES:
    case EPERM:
        return CHECK_REACH_UNREACHABLE;
    case ECONNRESET:
    case EPIPE:
        return CHECK_REACH_WRONG_SERVICE;
    default:
        return CHECK_REACH_OTHER;
    }
}

struct attempt {
    int fd; /* -1: its answer is known */
    bool is_connected;
    enum check_reach *ret;
};

static void settle(struct attempt *a, enum check_reach reach)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
    *a->ret = reach;
}

static void attempt_begin(struct attempt *a, const struct sockaddr_storage *peer)
{
    a->fd = socket(peer->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (a->fd < 0 || (connect(a->fd, (const struct sockaddr *)peer, length_of(peer)) < 0 &&
                      errno != EINPROGRESS))
        settle(a, reach_of(errno));
}

/* Connected, or not; then the byte of a ddpctl, or of another program. */
static void go_on(struct attempt *a, const uint8_t hello[HELLO_BYTES])
{
    int error = 0;
    socklen_t len = sizeof error;
    uint8_t byte;
    if (!a->is_connected) {
        getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &len);
        a->is_connected = true;
        if (error != 0 || send(a->fd, hello, HELLO_BYTES, MSG_NOSIGNAL) != HELLO_BYTES)
            settle(a, reach_of(error != 0 ? error : errno));
        return;
    }
    ssize_t n = recv(a->fd, &byte, 1, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    settle(a, n == 1 && byte == 'k' ? CHECK_REACH_OK : CHECK_REACH_WRONG_SERVICE);
}

/* returns whether a connection is still awaited */
static bool await_attempts(struct attempt *attempts, size_t n, uint64_t deadline_ms,
                           const uint8_t hello[HELLO_BYTES])
{
    struct pollfd polls[CHECK_CONNECTIONS_MAX];
    bool is_open = false;
    for (size_t i = 0; i < n; i++) {
        polls[i] = (struct pollfd){.fd = attempts[i].fd,
                                   .events = attempts[i].is_connected ? POLLIN : POLLOUT};
        is_open |= attempts[i].fd >= 0;
    }
    int left_ms = co_left_ms(deadline_ms);
    if (!is_open || left_ms == 0 || (poll(polls, n, left_ms) < 0 && errno != EINTR))
        return false;
    for (size_t i = 0; i < n; i++)
        if (attempts[i].fd >= 0 && polls[i].revents != 0)
            go_on(&attempts[i], hello);
    return true;
}

void check_net_reach(const uint8_t secret[CHECK_SECRET_BYTES], const struct sockaddr_storage *peers,
                     size_t n, uint64_t timeout_ms, enum check_reach *ret)
{
    struct attempt attempts[CHECK_CONNECTIONS_MAX];
    uint8_t hello[HELLO_BYTES];
    uint64_t deadline_ms =
        co_deadline_ms(timeout_ms < CHECK_CONNECT_MS ? timeout_ms : CHECK_CONNECT_MS);
    fill_hello(secret, 'r', hello);
    n = n < CHECK_CONNECTIONS_MAX ? n : CHECK_CONNECTIONS_MAX;
    for (size_t i = 0; i < n; i++) {
        attempts[i] = (struct attempt){.ret = &ret[i]};
        attempt_begin(&attempts[i], &peers[i]);
    }
    while (await_attempts(attempts, n, deadline_ms, hello)) {
    }
    for (size_t i = 0; i < n; i++)
        if (attempts[i].fd >= 0)
            settle(&attempts[i], CHECK_REACH_SILENT);
}

/* --- the end that measures --- */

static int open_way(const uint8_t secret[CHECK_SECRET_BYTES], const struct sockaddr_storage *peer,
                    char what, uint64_t end_ms, int *ret_fd)
{
    uint8_t hello[HELLO_BYTES], byte = 0;
    co_autoclose_fd int fd = socket(peer->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    check_stream_be_patient(fd, CHECK_IDLE_MS);
    fill_hello(secret, what, hello);
    if (connect(fd, (const struct sockaddr *)peer, length_of(peer)) < 0)
        return errno == EINPROGRESS ? -ETIMEDOUT : -errno;
    int rc = check_stream_send(fd, hello, sizeof hello, end_ms);
    if (rc == 0)
        rc = check_stream_receive(fd, &byte, 1, end_ms);
    if (rc < 0)
        return rc;
    *ret_fd = co_take_fd(&fd);
    return byte == 'k' ? 0 : -EPROTO;
}

static int u64_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int ping(int fd, uint64_t end_ms, struct check_pair *ret)
{
    uint64_t times[CHECK_PINGS], pings_end_ms = co_deadline_ms(CHECK_PINGS_MS);
    uint8_t message[PING_BYTES] = {0};
    size_t n = 0;
    int rc = 0;
    while (n < CHECK_PINGS && (n == 0 || co_now_ms() < pings_end_ms) && co_now_ms() < end_ms) {
        uint64_t begun_ns = co_now_ns();
        rc = check_stream_send(fd, message, sizeof message, end_ms);
        if (rc == 0)
            rc = check_stream_receive(fd, message, sizeof message, end_ms);
        if (rc < 0)
            return rc;
        times[n++] = co_now_ns() - begun_ns;
    }
    if (n == 0)
        return -ETIMEDOUT;
    qsort(times, n, sizeof *times, u64_compare);
    ret->rtt_min_ns = times[0];
    ret->rtt_median_ns = times[n / 2];
    return 0;
}

static uint64_t per_second(uint64_t bytes, uint64_t begun_ns)
{
    uint64_t ns = co_now_ns() - begun_ns;
    return (uint64_t)((double)bytes / ((double)(ns > 0 ? ns : 1) / 1e9));
}

/* Until the other end has received all of it and confirms that. */
static int measure_forth(int fd, uint8_t *chunk, uint64_t end_ms, struct check_pair *ret)
{
    uint64_t begun_ns = co_now_ns(), n_bytes = 0;
    int rc = check_stream_pour(fd, chunk, CHECK_STREAM_MS, end_ms);
    if (rc == 0 && shutdown(fd, SHUT_WR) < 0)
        rc = -errno;
    if (rc == 0)
        rc = check_stream_receive(fd, &n_bytes, sizeof n_bytes, end_ms);
    ret->forth = per_second(le64toh(n_bytes), begun_ns);
    return rc;
}

static int measure_back(int fd, uint8_t *chunk, uint64_t end_ms, struct check_pair *ret)
{
    uint64_t begun_ns = co_now_ns(), n_bytes = 0;
    int rc = check_stream_drain(fd, chunk, end_ms, &n_bytes);
    ret->back = per_second(n_bytes, begun_ns);
    return rc;
}

int check_net_measure(const uint8_t secret[CHECK_SECRET_BYTES], const struct sockaddr_storage *peer,
                      uint64_t timeout_ms, struct check_pair *ret, struct co_error *err)
{
    static const char what[] = {'p', 's', 'g'};
    uint64_t end_ms = co_deadline_ms(timeout_ms);
    co_autofree uint8_t *chunk = calloc(1, CHECK_CHUNK_BYTES);
    int rc = chunk != NULL ? 0 : -ENOMEM;
    for (size_t i = 0; rc == 0 && i < sizeof what; i++) {
        co_autoclose_fd int fd = -1;
        rc = co_now_ms() < end_ms ? open_way(secret, peer, what[i], end_ms, &fd) : -ETIMEDOUT;
        if (rc == 0)
            rc = i == 0   ? ping(fd, end_ms, ret)
                 : i == 1 ? measure_forth(fd, chunk, end_ms, ret)
                          : measure_back(fd, chunk, end_ms, ret);
    }
    return rc < 0 ? co_fail(err, rc, "%s", rc == -EAGAIN ? "the connection stalled" : strerror(-rc))
                  : 0;
}
