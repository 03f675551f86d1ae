#include "scale.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

struct line { /* apart from its rank: it lives until the loop has closed it */
    struct scale *s;
    int rank;
    uv_poll_t poll;
    int fd;
};

struct scale_rank {
    struct line *line; /* owned by the loop once it closes; NULL: none, or closed */
    bool saved;
    bool is_out; /* it has not come to this generation yet */
};

struct scale {
    uv_loop_t *loop;
    int n_local;
    int n_kept; /* of those: not dropped */
    int n_saved;
    bool is_asked;
    void (*on_saved)(void *arg);
    void *arg;
    int n_handles; /* below 0: closed and none left */
    struct scale_rank ranks[];
};

int scale_create(uv_loop_t *loop, int n_local, void (*on_saved)(void *arg), void *arg,
                 struct scale **ret)
{
    struct scale *s = calloc(1, sizeof *s + (size_t)n_local * sizeof s->ranks[0]);
    if (s == NULL)
        return -ENOMEM;
    s->loop = loop;
    s->n_local = s->n_kept = n_local;
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

static void on_line_closed(uv_handle_t *handle)
{
    struct line *l = handle->data;
    struct scale *s = l->s;
    free(l);
    unref(s);
}

static void line_close(struct scale_rank *r)
{
    struct line *l = r->line;
    if (l == NULL)
        return;
    uv_close((uv_handle_t *)&l->poll, on_line_closed);
    close(l->fd);
    r->line = NULL;
}

/* A rank that has closed its end, or has ended, says nothing more. */
static void on_line(uv_poll_t *poll, int status, int events)
{
    const struct line *l = poll->data;
    struct scale *s = l->s;
    struct scale_rank *r = &s->ranks[l->rank];
    char bytes[256];
    (void)status;
    (void)events;
    ssize_t n = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        line_close(r);
        return;
    }
    if (!s->is_asked || r->saved || r->is_out)
        return;
    r->saved = true;
    if (++s->n_saved == s->n_kept)
        s->on_saved(s->arg);
}

/* The queue is empty: there is room. Nobody there is fine. */
static void ask_rank(const struct scale_rank *r)
{
    if (r->line != NULL && !r->is_out)
        send(r->line->fd, "\n", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int scale_adopt(struct scale *s, int rank, int fd)
{
    struct scale_rank *r = &s->ranks[rank];
    line_close(r);
    struct line *l = malloc(sizeof *l);
    if (l == NULL) {
        close(fd);
        return -ENOMEM;
    }
    *l = (struct line){.s = s, .rank = rank, .fd = fd};
    int rc = uv_poll_init(s->loop, &l->poll, fd); /* makes our end non-blocking */
    if (rc < 0) {
        close(fd);
        free(l);
        return rc;
    }
    l->poll.data = l;
    r->line = l;
    r->is_out = false;
    s->n_saved -= r->saved; /* who had saved is gone, and what it had with it, perhaps */
    r->saved = false;
    s->n_handles++;
    if (s->is_asked)
        ask_rank(r);
    return uv_poll_start(&l->poll, UV_READABLE, on_line);
}

int scale_add(struct scale *s, int rank, int *ret_worker_fd)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    int rc = scale_adopt(s, rank, pair[0]);
    if (rc < 0) {
        close(pair[1]);
        return rc;
    }
    *ret_worker_fd = pair[1];
    return 0;
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

void scale_drop(struct scale *s, int rank)
{
    struct scale_rank *r = &s->ranks[rank];
    line_close(r);
    s->n_saved -= r->saved;
    r->saved = false;
    s->n_kept--;
}

void scale_renew(struct scale *s)
{
    s->is_asked = false;
    s->n_saved = 0;
    for (int i = 0; i < s->n_local; i++) {
        s->ranks[i].saved = false;
        s->ranks[i].is_out = true;
    }
}

void scale_let_in(struct scale *s, int rank)
{
    struct scale_rank *r = &s->ranks[rank];
    if (!r->is_out)
        return;
    r->is_out = false;
    if (s->is_asked)
        ask_rank(r);
}

bool scale_all_saved(const struct scale *s)
{
    return s != NULL && s->n_saved == s->n_kept;
}

void scale_close(struct scale *s)
{
    if (s == NULL)
        return;
    for (int i = 0; i < s->n_local; i++)
        line_close(&s->ranks[i]);
    unref(s);
}
