#include "launch_watch.h"

#include "launch_wire.h"

#include "common/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

enum { READ_BYTES = 256 };

struct launch_watch {
    uv_poll_t poll;
    int fd;
    struct launch_watch_callbacks callbacks;
    struct co_buf in;
    bool closing;
};

static void go(struct launch_watch *w)
{
    uv_poll_stop(&w->poll);
    w->callbacks.on_gone(w->callbacks.arg);
}

/* Whoever speaks another language is not our starter, or not any more. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct launch_watch *w = poll->data;
    uint8_t *room = co_buf_room(&w->in, READ_BYTES);
    ssize_t n = room != NULL ? read(w->fd, room, READ_BYTES) : 0;
    int sig = 0;
    (void)status, (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    co_buf_added(&w->in, n > 0 ? (size_t)n : 0);
    while (!w->closing && n > 0 && (sig = launch_take_signal(&w->in)) > 0)
        w->callbacks.on_signal(w->callbacks.arg, sig);
    if (!w->closing && (n <= 0 || sig < 0))
        go(w);
}

/* A pipe or a socket of our own: nobody else reads from it. */
int launch_watch_open(uv_loop_t *loop, int fd, const struct launch_watch_callbacks *callbacks,
                      struct launch_watch **ret, struct co_error *err)
{
    struct launch_watch *w = calloc(1, sizeof *w);
    if (w == NULL)
        return co_fail(err, -ENOMEM, "no memory for a launch channel");
    w->fd = fd;
    w->callbacks = *callbacks;
    w->poll.data = w;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    int rc = uv_poll_init(loop, &w->poll, fd);
    if (rc < 0) {
        free(w);
        return co_fail(err, rc, "cannot watch the launch channel: %s", uv_strerror(rc));
    }
    uv_poll_start(&w->poll, UV_READABLE | UV_DISCONNECT, on_readable);
    *ret = w;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct launch_watch *w = handle->data;
    co_buf_fini(&w->in);
    free(w);
}

void launch_watch_close(struct launch_watch *w)
{
    if (w == NULL)
        return;
    w->closing = true;
    uv_close((uv_handle_t *)&w->poll, on_closed);
}
