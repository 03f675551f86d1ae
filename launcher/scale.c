#include "scale.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

struct line_socket { /* apart from its rank: it lives until the loop has closed it */
    struct scale *s;
    uv_poll_t poll;
    int rank, fd;
};

struct rank_line {
    struct line_socket *socket; /* owned by the loop once it closes; NULL: none, or closed */
    bool saved;
};

struct scale {
    uv_loop_t *loop;
    int n_local;
    int n_saved;
    bool is_asked;
    void (*on_saved)(void *arg);
    void *arg;
    int n_handles; /* below 0: closed and none left */
    struct rank_line ranks[];
};

int scale_create(uv_loop_t *loop, int n_local, void (*on_saved)(void *arg), void *arg,
                 struct scale **ret)
{
    struct scale *s = calloc(1, sizeof *s + (size_t)n_local * sizeof s->ranks[0]);
    if (s == NULL)
        return -ENOMEM;
    s->loop = loop;
    s->n_local = n_local;
    s->on_saved = on_saved;
    s->arg = arg;
    *ret = s;
    return 0;
}

static void unref(struct scale *s)
{
    if (--s->n_handles < 0)
        free(s);
}

static void on_socket_closed(uv_handle_t *handle)
{
    struct line_socket *socket = handle->data;
    struct scale *s = socket->s;
    free(socket);
    unref(s);
}

static void line_close(struct rank_line *r)
{
    if (r->socket == NULL)
        return;
    uv_close((uv_handle_t *)&r->socket->poll, on_socket_closed);
    close(r->socket->fd);
    r->socket = NULL;
}

/* A rank that has closed its end, or has ended, says nothing more. */
static void on_line(uv_poll_t *poll, int status, int events)
{
    const struct line_socket *socket = poll->data;
    struct scale *s = socket->s;
    struct rank_line *r = &s->ranks[socket->rank];
    char bytes[256];
    (void)status;
    (void)events;
    ssize_t n = recv(socket->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        line_close(r);
        return;
    }
    if (!s->is_asked || r->saved)
        return;
    r->saved = true;
    if (++s->n_saved == s->n_local)
        s->on_saved(s->arg);
}

/* The queue is empty: there is room. Nobody there is fine. */
static void ask_rank(const struct rank_line *r)
{
    if (r->socket != NULL)
        send(r->socket->fd, "\n", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int scale_add(struct scale *s, int rank, int *ret_worker_fd)
{
    struct rank_line *r = &s->ranks[rank];
    int pair[2];
    struct line_socket *socket = malloc(sizeof *socket);
    if (socket == NULL)
        return -ENOMEM;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        int rc = -errno;
        free(socket);
        return rc;
    }
    *socket = (struct line_socket){.s = s, .rank = rank, .fd = pair[0]};
    int rc = uv_poll_init(s->loop, &socket->poll, pair[0]); /* makes our end non-blocking */
    if (rc < 0) {
        close(pair[0]);
        close(pair[1]);
        free(socket);
        return rc;
    }
    line_close(r); /* of the one whose place it takes: what that has saved is not its own */
    s->n_saved -= r->saved;
    r->saved = false;
    socket->poll.data = socket;
    r->socket = socket;
    s->n_handles++;
    *ret_worker_fd = pair[1];
    if (s->is_asked)
        ask_rank(r);
    return uv_poll_start(&socket->poll, UV_READABLE, on_line);
}

bool scale_ask(struct scale *s)
{
    if (s->is_asked)
        return false;
    s->is_asked = true;
    for (int i = 0; i < s->n_local; i++)
        ask_rank(&s->ranks[i]);
    return true;
}

bool scale_all_saved(const struct scale *s)
{
    return s != NULL && s->n_saved == s->n_local;
}

void scale_close(struct scale *s)
{
    if (s == NULL)
        return;
    for (int i = 0; i < s->n_local; i++)
        line_close(&s->ranks[i]);
    unref(s);
}
