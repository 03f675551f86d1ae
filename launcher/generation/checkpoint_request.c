#include "checkpoint_request.h"

#include "rank_line.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/types.h>

struct checkpoint_rank {
    struct rank_line *line; /* owned; NULL: none, or closed */
    bool saved;
    bool is_out; /* it has not come to this generation yet */
};

struct checkpoint_request {
    uv_loop_t *loop;
    int n_local;
    int n_kept; /* of those: not dropped */
    int n_saved;
    bool is_asked;
    void (*on_saved)(void *arg);
    void *arg;
    struct checkpoint_rank ranks[];
};

int checkpoint_request_create(uv_loop_t *loop, int n_local, void (*on_saved)(void *arg), void *arg,
                              struct checkpoint_request **ret)
{
    struct checkpoint_request *s = calloc(1, sizeof *s + (size_t)n_local * sizeof s->ranks[0]);
    if (s == NULL)
        return -ENOMEM;
    s->loop = loop;
    s->n_local = s->n_kept = n_local;
    s->on_saved = on_saved;
    s->arg = arg;
    *ret = s;
    return 0;
}

/* A rank that has closed its end, or has ended, sends nothing more. */
static void on_line(void *arg, int rank, int events)
{
    struct checkpoint_request *s = arg;
    struct checkpoint_rank *r = &s->ranks[rank];
    char bytes[256];
    (void)events;
    ssize_t n = recv(rank_line_fd(r->line), bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        rank_line_close(&r->line);
        return;
    }
    if (!s->is_asked || r->saved || r->is_out)
        return;
    r->saved = true;
    if (++s->n_saved == s->n_kept)
        s->on_saved(s->arg); /* which may close us */
}

/* The queue is empty, so the byte fits. A missing reader is fine. */
static void ask_rank(const struct checkpoint_rank *r)
{
    if (r->line != NULL && !r->is_out)
        send(rank_line_fd(r->line), "\n", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* A new line that replaces the rank's: on fd, or, with -1, on a new pair. */
static int open_line(struct checkpoint_request *s, int rank, int fd, int *ret_worker_fd)
{
    const struct rank_line_owner owner = {.on_event = on_line, .arg = s};
    struct checkpoint_rank *r = &s->ranks[rank];
    rank_line_close(&r->line);
    int rc = rank_line_open(s->loop, SOCK_STREAM, fd, rank, &owner, &r->line, ret_worker_fd);
    if (rc < 0)
        return rc;
    r->is_out = false;
    s->n_saved -= r->saved; /* a process that had saved is gone, and what it had with it, perhaps */
    r->saved = false;
    if (s->is_asked)
        ask_rank(r);
    return 0;
}

int checkpoint_request_adopt(struct checkpoint_request *s, int rank, int fd)
{
    return open_line(s, rank, fd, NULL);
}

int checkpoint_request_add(struct checkpoint_request *s, int rank, int *ret_worker_fd)
{
    return open_line(s, rank, -1, ret_worker_fd);
}

bool checkpoint_request_ask(struct checkpoint_request *s)
{
    if (s->is_asked)
        return false;
    s->is_asked = true;
    for (int i = 0; i < s->n_local; i++)
        ask_rank(&s->ranks[i]);
    return true;
}

void checkpoint_request_drop(struct checkpoint_request *s, int rank)
{
    struct checkpoint_rank *r = &s->ranks[rank];
    rank_line_close(&r->line);
    s->n_saved -= r->saved;
    r->saved = false;
    s->n_kept--;
}

void checkpoint_request_renew(struct checkpoint_request *s)
{
    s->is_asked = false;
    s->n_saved = 0;
    for (int i = 0; i < s->n_local; i++) {
        s->ranks[i].saved = false;
        s->ranks[i].is_out = true;
    }
}

void checkpoint_request_let_in(struct checkpoint_request *s, int rank)
{
    struct checkpoint_rank *r = &s->ranks[rank];
    if (!r->is_out)
        return;
    r->is_out = false;
    if (s->is_asked)
        ask_rank(r);
}

bool checkpoint_request_all_saved(const struct checkpoint_request *s)
{
    return s != NULL && s->n_saved == s->n_kept;
}

void checkpoint_request_close(struct checkpoint_request *s)
{
    if (s == NULL)
        return;
    for (int i = 0; i < s->n_local; i++)
        rank_line_close(&s->ranks[i].line);
    free(s);
}
