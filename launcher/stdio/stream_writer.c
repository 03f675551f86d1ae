/* What goes to one sink. stream_writer_write() hands bytes to the sink, in the way that its kind
 * allows (enum sink_kind, chosen at the first write), and keeps what the sink does not take; when
 * the epoll of the sink reports that it is writable, on_writable() writes the rest. A disk that is
 * full has no such event: on_retry() tries again after a pause, and what exceeds REST_BYTES until
 * then is lost. Read stream_writer_write() first.
 *
 * Invariant: the sink belongs to other processes too, so O_NONBLOCK is never set on its open file
 * description. */
#include "stream_writer.h"

#include "disk.h"

#include "common/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    REST_BYTES = 256 * 1024, /* memory that is kept for the next time */
    RETRY_MS = 1000,
};

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
    int error, loss;    /* see stream_writer_error(), stream_writer_loss() */
    bool is_terminal;
    bool is_failing; /* the disk is full: the rest waits for on_retry() */
    bool has_hole;   /* bytes are lost after the rest */
    bool is_torn;    /* the last line that was written has no end, and what follows was lost */
    char last;       /* the last byte that was written */
    int room_fd;     /* an epoll of the sink alone: readable when the sink is writable. libuv sets
                   * O_NONBLOCK on what it polls, and the sink may belong to others */
    uv_poll_t room;
    uv_timer_t retry;
    int n_handles;
    bool has_room_handle, room_is_polled, has_retry_handle;
};

static void on_writable(uv_poll_t *poll, int status, int events);
static void on_retry(uv_timer_t *timer);

struct stream_writer *stream_writer_create(uv_loop_t *loop, int fd, void (*on_room)(void *arg),
                                           void *arg)
{
    struct stream_writer *w = malloc(sizeof *w);
    if (w != NULL)
        *w = (struct stream_writer){
            .loop = loop, .fd = fd, .on_room = on_room, .arg = arg, .room_fd = -1, .last = '\n'};
    return w;
}

int stream_writer_error(const struct stream_writer *w)
{
    return w->error;
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

/* A terminal that was closed also has errors. */
static bool is_unread(const struct stream_writer *w, int error)
{
    return error == EPIPE || error == ECONNRESET || (error == EIO && w->is_terminal);
}

/* A job does not end for want of a reader, or of disk space. */
static void note_error(struct stream_writer *w, int error)
{
    if (w->error == 0 && !is_unread(w, error))
        w->error = -error;
}

static void lose(struct stream_writer *w, int error)
{
    note_error(w, error);
    if (w->loss == 0 && !is_unread(w, error))
        w->loss = -error;
    close_sink(w);
}

/* returns   how many bytes were taken, all of them where the rest is lost; fewer: it is full, or
 *           w->is_failing */
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
        } else if (took < 0 && !is_unread(w, errno) && disk_may_recover(errno)) {
            note_error(w, errno);
            w->is_failing = true;
            return done;
        } else if (took < 0 && errno != EINTR) {
            lose(w, errno);
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

static void on_handle_closed(uv_handle_t *handle)
{
    struct stream_writer *w = handle->data;
    if (--w->n_handles == 0)
        destroy_writer(w);
}

void stream_writer_close(struct stream_writer *w)
{
    if (w == NULL)
        return;
    if (w->has_room_handle)
        uv_close((uv_handle_t *)&w->room, on_handle_closed);
    if (w->has_retry_handle)
        uv_close((uv_handle_t *)&w->retry, on_handle_closed);
    if (w->n_handles == 0)
        destroy_writer(w);
}

bool stream_writer_is_full(const struct stream_writer *w)
{
    return co_buf_len(&w->rest) > 0 && !w->is_failing;
}

/* What was kept is out, or lost. Much of it is rare: its memory is given back. */
static void forget_rest(struct stream_writer *w)
{
    if (w->rest.cap > REST_BYTES)
        co_buf_fini(&w->rest);
    else
        co_buf_consume(&w->rest, co_buf_len(&w->rest));
    w->is_torn |= w->has_hole && w->last != '\n';
    w->has_hole = w->is_failing = false;
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
        w->n_handles += rc == 0;
    }
    if (rc == 0)
        rc = uv_poll_start(&w->room, UV_READABLE, on_writable);
    w->room_is_polled = rc == 0;
    return rc;
}

static int await_space(struct stream_writer *w)
{
    if (!w->has_retry_handle) {
        uv_timer_init(w->loop, &w->retry);
        w->retry.data = w;
        w->has_retry_handle = true;
        w->n_handles++;
    }
    return uv_is_active((uv_handle_t *)&w->retry)
               ? 0
               : uv_timer_start(&w->retry, on_retry, RETRY_MS, RETRY_MS);
}

/* Look again when what is kept can be written. */
static void await(struct stream_writer *w)
{
    int rc = 0;
    if (w->is_failing)
        rc = await_space(w);
    else if (co_buf_len(&w->rest) > 0)
        rc = await_room(w);
    if (rc < 0) {
        lose(w, -rc);
        forget_rest(w);
    }
    if (w->room_is_polled && !stream_writer_is_full(w)) {
        uv_poll_stop(&w->room);
        w->room_is_polled = false;
    }
    if (w->has_retry_handle && !w->is_failing)
        uv_timer_stop(&w->retry);
}

/* returns   whether all of it is out */
static bool write_rest(struct stream_writer *w)
{
    const size_t n = co_buf_len(&w->rest);
    w->is_failing = false;
    const size_t took = write_sink(w, (const char *)co_buf_bytes(&w->rest), n);
    if (took == n)
        forget_rest(w);
    else
        co_buf_consume(&w->rest, took);
    return took == n;
}

static void resume(struct stream_writer *w)
{
    if (write_rest(w))
        w->on_room(w->arg);
    await(w);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    resume(poll->data);
}

static void on_retry(uv_timer_t *timer)
{
    resume(timer->data);
}

/* How much of this is kept until the disk has space: all, or the lines that fit. */
static size_t keep_some(struct stream_writer *w, const char *bytes, size_t n)
{
    const size_t len = co_buf_len(&w->rest), space = len < REST_BYTES ? REST_BYTES - len : 0;
    if (!w->is_failing || (n <= space && !w->has_hole))
        return n;
    const char *newline = w->has_hole ? NULL : memrchr(bytes, '\n', space);
    w->has_hole = true;
    w->loss = w->loss != 0 ? w->loss : w->error;
    return newline != NULL ? (size_t)(newline + 1 - bytes) : 0;
}

void stream_writer_write(struct stream_writer *w, const char *bytes, size_t n)
{
    if (w->kind == SINK_NEW)
        open_sink(w);
    const bool waits = w->is_failing || co_buf_len(&w->rest) > 0;
    const size_t took = waits ? 0 : write_sink(w, bytes, n);
    if (took == n)
        return;
    if (co_buf_append(&w->rest, bytes + took, keep_some(w, bytes + took, n - took)) < 0) {
        lose(w, ENOMEM);
        forget_rest(w);
    }
    await(w);
}

void stream_writer_finish(struct stream_writer *w)
{
    if (!w->is_failing)
        return;
    if (!write_rest(w) && w->is_failing) {
        w->loss = w->loss != 0 ? w->loss : w->error;
        w->has_hole = true;
        forget_rest(w);
    }
    await(w);
}
