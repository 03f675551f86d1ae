#include "rank_line.h"

#include "common/scope.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct rank_line {
    uv_poll_t poll;
    int fd;
    int rank;
    struct rank_line_owner owner;
};

static void on_poll(uv_poll_t *poll, int status, int events)
{
    const struct rank_line *l = poll->data;
    l->owner.on_event(l->owner.arg, l->rank, status < 0 ? events | UV_READABLE : events);
}

static void on_line_closed(uv_handle_t *handle)
{
    struct rank_line *l = handle->data;
    const struct rank_line_owner owner = l->owner;
    free(l);
    if (owner.on_closed != NULL)
        owner.on_closed(owner.arg);
}

int rank_line_open(uv_loop_t *loop, int type, int fd, int rank, const struct rank_line_owner *owner,
                   struct rank_line **ret_line, int *ret_worker_fd)
{
    int pair[2] = {fd, -1};
    if (fd < 0 && socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    co_autoclose_fd int own_fd = pair[0], worker_fd = pair[1];
    co_autofree struct rank_line *l = malloc(sizeof *l);
    if (l == NULL)
        return -ENOMEM;
    *l = (struct rank_line){.fd = own_fd, .rank = rank, .owner = *owner};
    int rc = uv_poll_init(loop, &l->poll, own_fd); /* makes our end non-blocking */
    if (rc < 0)
        return rc;
    co_take_fd(&own_fd);
    if (fd < 0)
        *ret_worker_fd = co_take_fd(&worker_fd);
    l->poll.data = l;
    rank_line_watch(l, UV_READABLE);
    *ret_line = co_take(&l);
    return 0;
}

int rank_line_fd(const struct rank_line *l)
{
    return l->fd;
}

void rank_line_watch(struct rank_line *l, int events)
{
    uv_poll_start(&l->poll, events, on_poll);
}

void rank_line_close(struct rank_line **l)
{
    if (*l == NULL)
        return;
    uv_close((uv_handle_t *)&(*l)->poll, on_line_closed);
    close((*l)->fd);
    *l = NULL;
}
