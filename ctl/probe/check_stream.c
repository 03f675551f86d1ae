#include "check_stream.h"

#include "common/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

void check_stream_be_patient(int fd, uint64_t ms)
{
    const struct timeval time = {.tv_sec = (time_t)(ms / 1000),
                                 .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
    const int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

int check_stream_send(int fd, const void *bytes, size_t n, uint64_t end_ms)
{
    const char *at = bytes;
    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return -errno;
        at += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
        if (n > 0 && co_now_ms() >= end_ms)
            return -ETIMEDOUT;
    }
    return 0;
}

int check_stream_receive(int fd, void *bytes, size_t n, uint64_t end_ms)
{
    char *at = bytes;
    while (n > 0) {
        ssize_t got = recv(fd, at, n, 0);
        if (got == 0 || (got < 0 && errno != EINTR))
            return got == 0 ? -EPIPE : -errno;
        at += got > 0 ? got : 0;
        n -= got > 0 ? (size_t)got : 0;
        if (n > 0 && co_now_ms() >= end_ms)
            return -ETIMEDOUT;
    }
    return 0;
}

int check_stream_pour(int fd, const uint8_t *chunk, uint64_t ms, uint64_t end_ms)
{
    uint64_t last_ms = co_deadline_ms(ms);
    int rc = 0;
    while (rc == 0 && co_now_ms() < last_ms)
        rc = check_stream_send(fd, chunk, CHECK_CHUNK_BYTES, end_ms);
    return rc;
}

int check_stream_drain(int fd, uint8_t *chunk, uint64_t end_ms, uint64_t *ret_bytes)
{
    ssize_t n;
    *ret_bytes = 0;
    while ((n = recv(fd, chunk, CHECK_CHUNK_BYTES, 0)) != 0) {
        if (n < 0 && errno != EINTR)
            return -errno;
        *ret_bytes += n > 0 ? (uint64_t)n : 0;
        if (co_now_ms() >= end_ms)
            return -ETIMEDOUT;
    }
    return 0;
}
