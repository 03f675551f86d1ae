/* What goes to one sink. stream_writer_write() hands bytes to the sink, in the way that its kind
 * allows (enum sink_kind, chosen at the first write), and keeps what the sink does not take; when
 * the epoll of the sink reports that it is writable, on_room() writes the rest. Read
 * stream_writer_write() first.
 *
 * Invariant: the sink belongs to other processes too, so O_NONBLOCK is never set on its open file
 * description. */
#include "stream_writer.h"

#include "common/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REST_BYTES = 256 * 1024 }; /* memory that is kept for the next time */

enum sink_kind {
    SINK_NEW,    /* not looked at yet */
    SINK_FILE,   /* never waits for long */
    SINK_OWN,    /* opened once more, non-blocking */
    SINK_SOCKET, /* MSG_DONTWAIT */
    SINK_ASK,    /* could not be opened once more: asked before each small write */
    SINK_DEAD    /* without a reader, or with an error: everything is dropped */
};

struct stream_writer {
    uv_loop_t *loop; /* borrowed */
    enum sink_kind kind;
    int fd; /* the sink: borrowed, or for SINK_OWN owned */
    void (*on_room)(void *arg);
    void *arg;
    struct co_buf rest; /* what the sink did not take yet */
    int loss;           /* see stream_writer_loss() */
    bool is_terminal;
    bool is_torn; /* the last line that was written has no end, and what follows was lost */
    char last;    /* the last byte that was written */
    int room_fd;  /* an epoll of the sink alone: readable when the sink is writable. libuv sets
                   * O_NONBLOCK on what it polls, and the sink may belong to others */
    uv_poll_t room;
    bool has_room_handle, room_is_polled;
};

struct stream_writer *stream_writer_create(uv_loop_t *loop, int fd, void (*on_room)(void *arg),
                                           void *arg)
{
    struct stream_writer *w = malloc(sizeof *w);
    if (w != NULL)
        *w = (struct stream_writer){
            .loop = loop, .fd = fd, .on_room = on_room, .arg = arg, .room_fd = -1, .last = '\n'};
    return w;
}

int stream_writer_loss(const struct stream_writer *w)
{
    return w->loss;
}

/* --- the sink --- */

static void open_sink(struct stream_writer *w)
{
    struct stat st;
    w->kind = SINK_ASK;
    if (fstat(w->fd, &st) < 0) {
        w->kind = SINK_DEAD;
    } else if (S_ISREG(st.st_mode)) { /* not opened again: the offset must stay shared */
        w->kind = SINK_FILE;
    } else if (S_ISSOCK(st.st_mode)) {
        w->kind = SINK_SOCKET;
    } else {
        char path[64];
        w->is_terminal = isatty(w->fd) == 1;
        snprintf(path, sizeof path, "/proc/self/fd/%d", w->fd);
        int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (own >= 0) {
            w->kind = SINK_OWN;
            w->fd = own;
        } else if (errno == ENXIO) { /* a pipe without a reader */
            w->kind = SINK_DEAD;
        }
    }
}

static void close_sink(struct stream_writer *w)
{
    if (w->kind == SINK_OWN)
        close(w->fd);
    w->kind = SINK_DEAD;
}

static ssize_t write_some(const struct stream_writer *w, const char *bytes, size_t n)
{
    if (w->kind == SINK_SOCKET)
        return send(w->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (w->kind == SINK_ASK) {
        struct pollfd p = {.fd = w->fd, .events = POLLOUT};
        if (poll(&p, 1, 0) == 0) {
            errno = EAGAIN;
            return -1;
        }
        if (n > PIPE_BUF / 8) /* what poll() promised fits */
            n = PIPE_BUF / 8;
    }
    return write(w->fd, bytes, n);
}

static bool is_full_disk(int error)
{
    return error == ENOSPC || error == EDQUOT;
}

/* A terminal that was closed also has errors. */
static bool is_unread(const struct stream_writer *w, int error)
{
    return error == EPIPE || error == ECONNRESET || (error == EIO && w->is_terminal);
}

/* A job does not end for want of a reader, or of disk space. */
static void lose(struct stream_writer *w, int error)
{
    if (w->loss == 0 && !is_unread(w, error))
        w->loss = -error;
    w->is_torn |= w->last != '\n';
    if (!is_full_disk(error))
        close_sink(w);
}

/* returns   how many bytes were taken, all of them where the rest is lost; fewer: it is full */
static size_t write_sink(struct stream_writer *w, const char *bytes, size_t n)
{
    size_t done = 0;
    while (done < n && w->kind != SINK_DEAD) {
        ssize_t took = w->is_torn ? write_some(w, "\n", 1) : write_some(w, bytes + done, n - done);
        if (took > 0 && w->is_torn) {
            w->is_torn = false;
            w->last = '\n';
        } else if (took > 0) {
            done += (size_t)took;
            w->last = bytes[done - 1];
        } else if (took < 0 && errno == EAGAIN) {
            return done;
        } else if (took < 0 && errno != EINTR) {
            lose(w, errno);
            return n;
        }
    }
    return w->kind == SINK_DEAD ? n : done;
}

/* --- what waits for it --- */

static void destroy_writer(struct stream_writer *w)
{
    close_sink(w);
    if (w->room_fd >= 0)
        close(w->room_fd);
    co_buf_fini(&w->rest);
    free(w);
}

static void on_room_closed(uv_handle_t *handle)
{
    destroy_writer(handle->data);
}

void stream_writer_close(struct stream_writer *w)
{
    if (w != NULL && w->has_room_handle)
        uv_close((uv_handle_t *)&w->room, on_room_closed);
    else if (w != NULL)
        destroy_writer(w);
}

bool stream_writer_is_full(const struct stream_writer *w)
{
    return co_buf_len(&w->rest) > 0;
}

/* What was kept is out. Much of it is rare: its memory is given back. */
static void forget_rest(struct stream_writer *w)
{
    if (w->rest.cap > REST_BYTES)
        co_buf_fini(&w->rest);
    else
        co_buf_consume(&w->rest, co_buf_len(&w->rest));
}

static void on_room(uv_poll_t *poll, int status, int events)
{
    struct stream_writer *w = poll->data;
    (void)status, (void)events;
    size_t n = co_buf_len(&w->rest);
    size_t took = write_sink(w, (const char *)co_buf_bytes(&w->rest), n);
    if (took < n) {
        co_buf_consume(&w->rest, took);
        return;
    }
    forget_rest(w);
    w->on_room(w->arg);
    if (!stream_writer_is_full(w)) {
        uv_poll_stop(&w->room);
        w->room_is_polled = false;
    }
}

static int await_room(struct stream_writer *w)
{
    struct epoll_event when = {.events = EPOLLOUT};
    int rc = 0;
    if (w->room_is_polled)
        return 0;
    if (!w->has_room_handle) {
        w->room_fd = epoll_create1(EPOLL_CLOEXEC);
        if (w->room_fd < 0 || epoll_ctl(w->room_fd, EPOLL_CTL_ADD, w->fd, &when) < 0)
            return -errno;
        rc = uv_poll_init(w->loop, &w->room, w->room_fd);
        w->room.data = w;
        w->has_room_handle = rc == 0;
    }
    if (rc == 0)
        rc = uv_poll_start(&w->room, UV_READABLE, on_room);
    w->room_is_polled = rc == 0;
    return rc;
}

void stream_writer_write(struct stream_writer *w, const char *bytes, size_t n)
{
    if (w->kind == SINK_NEW)
        open_sink(w);
    size_t took = stream_writer_is_full(w) ? 0 : write_sink(w, bytes, n);
    if (took == n)
        return;
    const int rc = co_buf_append(&w->rest, bytes + took, n - took) ?: await_room(w);
    if (rc < 0) {
        lose(w, -rc);
        close_sink(w);
        forget_rest(w);
    }
}
