#include "sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void sink_open(struct sink *s, int fd)
{
    struct stat st;
    *s = (struct sink){.kind = SINK_ASK, .fd = fd};
    if (fstat(fd, &st) < 0) {
        s->kind = SINK_DEAD;
    } else if (S_ISREG(st.st_mode)) { /* not opened again: the offset must stay shared */
        s->kind = SINK_FILE;
    } else if (S_ISSOCK(st.st_mode)) {
        s->kind = SINK_SOCKET;
    } else {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (own >= 0) {
            s->kind = SINK_OWN;
            s->fd = own;
        } else if (errno == ENXIO) { /* a pipe without a reader */
            s->kind = SINK_DEAD;
        }
    }
}

void sink_close(struct sink *s)
{
    if (s->kind == SINK_OWN)
        close(s->fd);
    s->kind = SINK_DEAD;
}

static ssize_t write_some(const struct sink *s, const char *bytes, size_t n)
{
    if (s->kind == SINK_SOCKET)
        return send(s->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (s->kind == SINK_ASK) {
        struct pollfd p = {.fd = s->fd, .events = POLLOUT};
        if (poll(&p, 1, 0) == 0) {
            errno = EAGAIN;
            return -1;
        }
        if (n > PIPE_BUF / 8) /* what poll() promised fits */
            n = PIPE_BUF / 8;
    }
    return write(s->fd, bytes, n);
}

size_t sink_write(struct sink *s, const char *bytes, size_t n)
{
    size_t done = 0;
    while (done < n && s->kind != SINK_DEAD) {
        ssize_t took = write_some(s, bytes + done, n - done);
        if (took > 0)
            done += (size_t)took;
        else if (took < 0 && errno == EAGAIN)
            return done;
        else if (took < 0 && errno != EINTR)
            sink_close(
                s); /* EPIPE, ENOSPC, EIO: a launcher does not end a job for want of a reader */
    }
    return s->kind == SINK_DEAD ? n : done;
}
