#include "output.h"

#include "sink.h"
#include "tail.h"

#include "common/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* The happy path: a pipe is readable, a chunk is read, kept in the rank's tail, and written. What
 * the sink does not take waits in `rest`, and until that is gone a readable rank is only marked
 * `waits` and no longer polled. When the sink takes bytes again, `rest` is written and those ranks
 * are polled again. */

struct rank_output {
    struct output *o;
    uv_poll_t poll;
    int fd; /* -1: none, or at its end */
    bool waits;
    struct tail tail;
};

struct output {
    uv_loop_t *loop;
    int n_ranks;
    int to_fd;
    struct sink sink;
    bool sink_is_open; /* with the first byte: a quiet job needs none of this */
    int room_fd;       /* an epoll of the sink alone: readable when the sink has room. libuv sets
                          O_NONBLOCK on what it polls, and the sink may belong to others */
    uv_poll_t room;
    bool has_room_handle, room_is_polled;
    char rest[OUTPUT_CHUNK];
    size_t rest_start, rest_end;
    void (*on_drained)(void *arg);
    void *arg;
    bool draining;
    int n_handles;
    struct rank_output ranks[];
};

static void on_pipe(uv_poll_t *poll, int status, int events);
static void try_drain(struct output *o);

static bool is_full(const struct output *o)
{
    return o->rest_start != o->rest_end;
}

int output_create(uv_loop_t *loop, int n_ranks, int to_fd, struct output **ret,
                  struct co_error *err)
{
    struct output *o = calloc(1, sizeof *o + (size_t)n_ranks * sizeof o->ranks[0]);
    if (o == NULL)
        return co_fail(err, -ENOMEM, "no memory for %d ranks' output", n_ranks);
    o->loop = loop;
    o->n_ranks = n_ranks;
    o->to_fd = to_fd;
    o->room_fd = -1;
    for (int i = 0; i < n_ranks; i++) {
        o->ranks[i].o = o;
        o->ranks[i].fd = -1;
    }
    *ret = o;
    return 0;
}

int output_add(struct output *o, int rank, int fd)
{
    struct rank_output *r = &o->ranks[rank];
    int rc = uv_poll_init(o->loop, &r->poll, fd);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    r->poll.data = r;
    r->fd = fd;
    o->n_handles++;
    return uv_poll_start(&r->poll, UV_READABLE | UV_DISCONNECT, on_pipe);
}

static void output_destroy(struct output *o)
{
    for (int i = 0; i < o->n_ranks; i++)
        tail_fini(&o->ranks[i].tail);
    if (o->sink_is_open)
        sink_close(&o->sink);
    if (o->room_fd >= 0)
        close(o->room_fd);
    free(o);
}

/* Handles close one by one as pipes end; the object goes with the last, after output_close(). */
static void unref(struct output *o)
{
    if (--o->n_handles < 0)
        output_destroy(o);
}

static void on_pipe_closed(uv_handle_t *handle)
{
    struct rank_output *r = handle->data;
    unref(r->o);
}

static void on_room_closed(uv_handle_t *handle)
{
    unref(handle->data);
}

static void pipe_close(struct rank_output *r)
{
    if (r->fd < 0)
        return;
    uv_close((uv_handle_t *)&r->poll, on_pipe_closed);
    close(r->fd);
    r->fd = -1;
}

static void resume_ranks(struct output *o)
{
    for (int i = 0; i < o->n_ranks; i++) {
        struct rank_output *r = &o->ranks[i];
        if (r->waits && r->fd >= 0)
            uv_poll_start(&r->poll, UV_READABLE | UV_DISCONNECT, on_pipe);
        r->waits = false;
    }
}

static void flush(struct output *o)
{
    size_t n = o->rest_end - o->rest_start;
    o->rest_start += sink_write(&o->sink, o->rest + o->rest_start, n);
    if (!is_full(o))
        o->rest_start = o->rest_end = 0;
}

static void on_room(uv_poll_t *poll, int status, int events)
{
    struct output *o = poll->data;
    (void)status;
    (void)events;
    flush(o);
    if (is_full(o))
        return;
    uv_poll_stop(&o->room);
    o->room_is_polled = false;
    resume_ranks(o);
    if (o->draining)
        try_drain(o);
}

static int make_room_handle(struct output *o)
{
    struct epoll_event when = {.events = EPOLLOUT};
    o->room_fd = epoll_create1(EPOLL_CLOEXEC);
    if (o->room_fd < 0 || epoll_ctl(o->room_fd, EPOLL_CTL_ADD, o->sink.fd, &when) < 0)
        return -errno;
    int rc = uv_poll_init(o->loop, &o->room, o->room_fd);
    if (rc < 0)
        return rc;
    o->room.data = o;
    o->has_room_handle = true;
    o->n_handles++;
    return 0;
}

/* Hear of it when the sink has room. A sink that can't be waited for is given up. */
static void await_room(struct output *o)
{
    if (o->room_is_polled)
        return;
    if ((o->has_room_handle || make_room_handle(o) == 0) &&
        uv_poll_start(&o->room, UV_READABLE, on_room) == 0) {
        o->room_is_polled = true;
        return;
    }
    sink_close(&o->sink);
    o->rest_start = o->rest_end = 0;
}

/* Write `bytes`, or keep what is not taken. Only while nothing is kept. */
static void pass_on(struct output *o, const char *bytes, size_t n)
{
    if (!o->sink_is_open) {
        sink_open(&o->sink, o->to_fd);
        o->sink_is_open = true;
    }
    size_t took = sink_write(&o->sink, bytes, n);
    if (took == n)
        return;
    memmove(o->rest, bytes + took, n - took);
    o->rest_start = 0;
    o->rest_end = n - took;
    await_room(o);
}

/* Read one chunk and pass it on. returns false at the end, or when nothing is there */
static bool read_chunk(struct rank_output *r)
{
    struct output *o = r->o;
    ssize_t n;
    do {
        n = read(r->fd, o->rest, sizeof o->rest); /* empty now, and as good a place as any */
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        pipe_close(r);
        return false;
    }
    tail_add(&r->tail, o->rest, (size_t)n);
    pass_on(o, o->rest, (size_t)n);
    return true;
}

static void on_pipe(uv_poll_t *poll, int status, int events)
{
    struct rank_output *r = poll->data;
    (void)status;
    (void)events;
    if (is_full(r->o)) {
        uv_poll_stop(poll);
        r->waits = true;
        return;
    }
    read_chunk(r);
}

void output_say(struct output *o, const char *lines)
{
    if (!is_full(o))
        pass_on(o, lines, strnlen(lines, sizeof o->rest));
}

/* Empty all pipes, unless the sink stops us; then on_room() calls again. */
static void try_drain(struct output *o)
{
    for (int i = 0; i < o->n_ranks; i++) {
        while (!is_full(o) && o->ranks[i].fd >= 0 && read_chunk(&o->ranks[i])) {
        }
        if (is_full(o))
            return;
    }
    o->draining = false;
    o->on_drained(o->arg);
}

void output_drain(struct output *o, void (*on_drained)(void *arg), void *arg)
{
    o->on_drained = on_drained;
    o->arg = arg;
    o->draining = true;
    if (!is_full(o))
        try_drain(o);
}

char *output_tail(const struct output *o, int rank)
{
    return tail_copy(&o->ranks[rank].tail);
}

void output_close(struct output *o)
{
    if (o == NULL)
        return;
    for (int i = 0; i < o->n_ranks; i++)
        pipe_close(&o->ranks[i]);
    if (o->has_room_handle)
        uv_close((uv_handle_t *)&o->room, on_room_closed);
    unref(o);
}
