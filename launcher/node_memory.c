#include "node_memory.h"

#include "common/error.h"
#include "segments/broker.h"
#include "segments/control.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct rank_socket {
    struct node_memory *m;
    uv_poll_t poll;
    int fd;     /* -1: none, or closed */
    bool gone;  /* the rank has ended ... */
    int status; /* ... like this */
};

struct node_memory {
    uv_loop_t *loop;
    int n_local;
    void (*on_note)(void *arg, const char *text);
    void *arg;
    struct broker *broker; /* both NULL until a rank asks */
    struct control *control;
    int n_handles; /* below 0: closed and none left */
    struct rank_socket ranks[];
};

int node_memory_create(uv_loop_t *loop, int n_local, void (*on_note)(void *arg, const char *text),
                       void *arg, struct node_memory **ret, struct co_error *err)
{
    struct node_memory *m = calloc(1, sizeof *m + (size_t)n_local * sizeof m->ranks[0]);
    if (m == NULL)
        return co_fail(err, -ENOMEM, "no memory for %d ranks' sockets", n_local);
    m->loop = loop;
    m->n_local = n_local;
    m->on_note = on_note;
    m->arg = arg;
    for (int i = 0; i < n_local; i++) {
        m->ranks[i].m = m;
        m->ranks[i].fd = -1;
    }
    *ret = m;
    return 0;
}

static void unref(struct node_memory *m)
{
    if (--m->n_handles >= 0)
        return;
    broker_destroy(m->broker);
    control_unmap(m->control);
    free(m);
}

static void on_socket_closed(uv_handle_t *handle)
{
    struct rank_socket *r = handle->data;
    unref(r->m);
}

static void socket_close(struct rank_socket *r)
{
    if (r->fd < 0)
        return;
    uv_close((uv_handle_t *)&r->poll, on_socket_closed);
    close(r->fd);
    r->fd = -1;
}

/* Let go whoever waits for a rank that will never come, or never come back. */
static void tell_rank_gone(struct node_memory *m, int rank, int status)
{
    struct control_abort why = {
        .cause = CONTROL_RANK_DIED, .rank = (uint16_t)rank, .detail = (uint32_t)status};
    const struct control_line *line = &m->control->line[rank];
    if (status == 0 && atomic_load(&line->joined) == 0)
        why.cause = CONTROL_RANK_LEFT;
    if (status != 0 || why.cause == CONTROL_RANK_LEFT)
        control_abort_set(m->control, why);
    else
        control_look(m->control, (unsigned)rank); /* aborts unless it left in good order */
    broker_rank_gone(m->broker, (unsigned)rank);
}

static int make_broker(struct node_memory *m, struct co_error *err)
{
    int fd;
    int rc = control_create((unsigned)m->n_local, 0, &fd, &m->control, err);
    if (rc < 0)
        return rc;
    rc = broker_create((unsigned)m->n_local, fd, &m->broker, err);
    close(fd);
    if (rc < 0) {
        control_unmap(m->control);
        m->control = NULL;
        return rc;
    }
    for (int i = 0; i < m->n_local; i++) {
        if (m->ranks[i].gone)
            tell_rank_gone(m, i, m->ranks[i].status);
    }
    return 0;
}

static bool is_at_end(int fd)
{
    char byte;
    return recv(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
    struct rank_socket *r = poll->data;
    struct node_memory *m = r->m;
    struct co_error err;
    int rank = (int)(r - m->ranks);
    (void)status;
    (void)events;

    if (m->broker == NULL && is_at_end(r->fd)) { /* it ended without ever asking: the common case */
        socket_close(r);
        return;
    }
    int rc = m->broker == NULL ? make_broker(m, &err) : 0;
    if (rc == 0)
        rc = broker_on_readable(m->broker, rank, r->fd, &rank, &err);
    if (rc < 0) {
        char text[CO_ERROR_TEXT_BYTES + 64];
        snprintf(text, sizeof text, "rank %d gets no shared memory: %s", rank, err.text);
        m->on_note(m->arg, text);
    }
    if (rc != 1)
        socket_close(r);
}

int node_memory_add(struct node_memory *m, int rank, int *ret_worker_fd)
{
    struct rank_socket *r = &m->ranks[rank];
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    int rc = uv_poll_init(m->loop, &r->poll, pair[0]); /* makes our end non-blocking */
    if (rc < 0) {
        close(pair[0]);
        close(pair[1]);
        return rc;
    }
    r->poll.data = r;
    r->fd = pair[0];
    m->n_handles++;
    *ret_worker_fd = pair[1];
    return uv_poll_start(&r->poll, UV_READABLE, on_socket);
}

/* What a rank said last, of which the loop was not told yet. */
static void hear_last_words(struct rank_socket *r)
{
    char byte;
    if (r->fd >= 0 && recv(r->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
        on_socket(&r->poll, 0, UV_READABLE);
}

int node_memory_rank_gone(struct node_memory *m, int rank, int status)
{
    struct rank_socket *r = &m->ranks[rank];
    hear_last_words(r);
    r->gone = true;
    r->status = status;
    if (m->broker == NULL)
        return -1;
    tell_rank_gone(m, rank, status); /* the abort word stays if it was written before */
    struct control_abort why = control_abort_get(m->control);
    bool other_died = why.cause == CONTROL_RANK_DIED && why.rank != rank && why.rank < m->n_local;
    return other_died ? why.rank : -1;
}

bool node_memory_has_lost_peer(const struct node_memory *m, int rank)
{
    return m->broker != NULL && broker_has_lost_peer(m->broker, (unsigned)rank);
}

uint64_t node_memory_most_steps(struct node_memory *m)
{
    if (m->n_local == 1) /* the only one that may be without peers */
        hear_last_words(&m->ranks[0]);
    if (m->broker == NULL)
        return 0;
    uint64_t n_told = broker_n_steps(m->broker);
    uint64_t n_counted = control_most_steps(m->control);
    return n_told > n_counted ? n_told : n_counted;
}

void node_memory_close(struct node_memory *m)
{
    if (m == NULL)
        return;
    for (int i = 0; i < m->n_local; i++)
        socket_close(&m->ranks[i]);
    unref(m);
}
