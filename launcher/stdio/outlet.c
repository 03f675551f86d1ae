#include "outlet.h"

#include "sink.h"

#include "common/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { REST_BYTES = 256 * 1024 }; /* memory that is kept for the next time */

struct outlet {
    uv_loop_t *loop; /* borrowed */
    int fd;          /* borrowed */
    void (*on_room)(void *arg);
    void *arg;
    struct sink sink;
    bool is_open;
    struct co_buf rest; /* what the sink did not take yet */
    int room_fd;        /* an epoll of the sink alone: readable when the sink has room. libuv sets
                           O_NONBLOCK on what it polls, and the sink may belong to others */
    uv_poll_t room;
    bool has_room_handle, room_is_polled;
};

struct outlet *outlet_create(uv_loop_t *loop, int fd, void (*on_room)(void *arg), void *arg)
{
    struct outlet *o = malloc(sizeof *o);
    if (o != NULL)
        *o = (struct outlet){.loop = loop, .fd = fd, .on_room = on_room, .arg = arg, .room_fd = -1};
    return o;
}

static void outlet_destroy(struct outlet *o)
{
    if (o->is_open)
        sink_close(&o->sink);
    if (o->room_fd >= 0)
        close(o->room_fd);
    co_buf_fini(&o->rest);
    free(o);
}

static void on_room_closed(uv_handle_t *handle)
{
    outlet_destroy(handle->data);
}

void outlet_close(struct outlet *o)
{
    if (o == NULL)
        return;
    if (o->has_room_handle)
        uv_close((uv_handle_t *)&o->room, on_room_closed);
    else
        outlet_destroy(o);
}

bool outlet_is_full(const struct outlet *o)
{
    return co_buf_len(&o->rest) > 0;
}

/* --- Waiting for room --- */

static int make_room_handle(struct outlet *o)
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
    return 0;
}

/* What was kept is out. Much of it is rare: its memory is given back. */
static void forget_rest(struct outlet *o)
{
    if (o->rest.cap > REST_BYTES)
        co_buf_fini(&o->rest);
    else
        co_buf_consume(&o->rest, co_buf_len(&o->rest));
}

static void flush(struct outlet *o)
{
    size_t n = co_buf_len(&o->rest);
    size_t took = sink_write(&o->sink, (const char *)co_buf_bytes(&o->rest), n);
    if (took == n)
        forget_rest(o);
    else
        co_buf_consume(&o->rest, took);
}

static void on_room(uv_poll_t *poll, int status, int events)
{
    struct outlet *o = poll->data;
    (void)status;
    (void)events;
    flush(o);
    if (outlet_is_full(o))
        return;
    o->on_room(o->arg);
    if (!outlet_is_full(o)) {
        uv_poll_stop(&o->room);
        o->room_is_polled = false;
    }
}

static int await_room(struct outlet *o)
{
    if (o->room_is_polled)
        return 0;
    int rc = o->has_room_handle ? 0 : make_room_handle(o);
    if (rc == 0)
        rc = uv_poll_start(&o->room, UV_READABLE, on_room);
    o->room_is_polled = rc == 0;
    return rc;
}

/* --- Writing --- */

void outlet_write(struct outlet *o, const char *bytes, size_t n)
{
    if (!o->is_open) {
        sink_open(&o->sink, o->fd);
        o->is_open = true;
    }
    size_t took = outlet_is_full(o) ? 0 : sink_write(&o->sink, bytes, n);
    if (took == n)
        return;
    if (co_buf_append(&o->rest, bytes + took, n - took) < 0 || await_room(o) < 0) {
        sink_close(&o->sink);
        forget_rest(o);
    }
}
