#include "scale.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

struct rank_line {
    struct scale *s;
    uv_poll_t poll;
    int fd; /* -1: none, or closed */
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
    for (int i = 0; i < n_local; i++) {
        s->ranks[i].s = s;
        s->ranks[i].fd = -1;
    }
    *ret = s;
    return 0;
}

static void unref(struct scale *s)
{
    if (--s->n_handles < 0)
        free(s);
}

static void on_line_closed(uv_handle_t *handle)
{
    struct rank_line *r = handle->data;
    unref(r->s);
}

static void line_close(struct rank_line *r)
{
    if (r->fd < 0)
        return;
    uv_close((uv_handle_t *)&r->poll, on_line_closed);
    close(r->fd);
    r->fd = -1;
}

/* A rank that has closed its end, or has ended, says nothing more. */
static void on_line(uv_poll_t *poll, int status, int events)
{
    struct rank_line *r = poll->data;
    struct scale *s = r->s;
    char bytes[256];
    (void)status;
    (void)events;
    ssize_t n = recv(r->fd, bytes, sizeof bytes, MSG_DONTWAIT);
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
    if (r->fd >= 0)
        send(r->fd, "\n", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int scale_add(struct scale *s, int rank, int *ret_worker_fd)
{
    struct rank_line *r = &s->ranks[rank];
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    int rc = uv_poll_init(s->loop, &r->poll, pair[0]); /* makes our end non-blocking */
    if (rc < 0) {
        close(pair[0]);
        close(pair[1]);
        return rc;
    }
    r->poll.data = r;
    r->fd = pair[0];
    s->n_handles++;
    *ret_worker_fd = pair[1];
    if (s->is_asked)
        ask_rank(r);
    return uv_poll_start(&r->poll, UV_READABLE, on_line);
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
