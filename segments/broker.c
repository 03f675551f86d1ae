#include "broker.h"

#include "common/error.h"
#include "common/scope.h"
#include "control.h"
#include "node_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SEGMENT_MAX_BYTES (UINT64_C(1) << 46)

struct member {
    int fd; /* its user segment; -1 until its HELLO */
    uint64_t bytes;
    bool gone;
    bool lost_peer;
    int sock;      /* borrowed; -1 when it has none open */
    int waits_for; /* the local rank its open FETCH asks for; -1: none open */
};

struct broker {
    int control_fd;
    unsigned n_local;
    uint64_t n_steps;
    struct member member[];
};

int broker_create(unsigned n_local, int control_fd, struct broker **ret, struct co_error *err)
{
    if (n_local < 1 || n_local > CONTROL_MAX_LOCAL)
        return co_fail(err, -EINVAL, "a node has 1 to %d ranks, not %u", CONTROL_MAX_LOCAL,
                       n_local);
    co_autofree struct broker *b = malloc(sizeof *b + n_local * sizeof b->member[0]);
    if (b == NULL)
        return co_fail(err, -ENOMEM, "no memory for %u ranks", n_local);
    b->control_fd = fcntl(control_fd, F_DUPFD_CLOEXEC, 0);
    if (b->control_fd < 0)
        return co_fail(err, -errno, "cannot keep the control segment: %s", strerror(errno));
    b->n_local = n_local;
    b->n_steps = 0;
    for (unsigned i = 0; i < n_local; i++)
        b->member[i] = (struct member){.fd = -1, .sock = -1, .waits_for = -1};
    *ret = co_take(&b);
    return 0;
}

void broker_destroy(struct broker *b)
{
    if (b == NULL)
        return;
    for (unsigned i = 0; i < b->n_local; i++)
        if (b->member[i].fd >= 0)
            close(b->member[i].fd);
    close(b->control_fd);
    free(b);
}

uint64_t broker_n_steps(const struct broker *b)
{
    return b->n_steps;
}

bool broker_has_lost_peer(const struct broker *b, unsigned local_rank)
{
    return b->member[local_rank].lost_peer;
}

bool broker_has_said_hello(const struct broker *b, unsigned local_rank)
{
    return b->member[local_rank].fd >= 0;
}

static struct node_message message(enum node_message_type type)
{
    return (struct node_message){
        .magic = NODE_SOCKET_MAGIC, .version = NODE_SOCKET_VERSION, .type = (uint16_t)type};
}

static void refuse(int sock, int code, const char *text)
{
    struct node_message m = message(NODE_REFUSED);
    m.code = code;
    size_t n = strnlen(text, sizeof m.text - 1);
    memcpy(m.text, text, n);
    node_message_send(sock, &m, -1); /* if it doesn't arrive the closed socket tells the same */
}

static int send_segment(struct broker *b, int sock, unsigned of, struct co_error *err)
{
    struct node_message m = message(NODE_SEGMENT);
    m.local_rank = of;
    m.bytes = b->member[of].bytes;
    int code = node_message_send(sock, &m, b->member[of].fd);
    if (code != 0)
        return co_fail(err, code, "cannot send local rank %u's segment: %s", of, strerror(-code));
    return 0;
}

/* A user segment must not shrink under those who map it. */
static int check_segment(int fd, uint64_t bytes, struct co_error *err)
{
    struct stat st;
    if (fd < 0)
        return co_fail(err, -EPROTO, "HELLO without a segment");
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return co_fail(err, -EPROTO, "the user segment is not sealed against shrinking");
    if (fstat(fd, &st) != 0 || bytes > SEGMENT_MAX_BYTES || (uint64_t)st.st_size < bytes)
        return co_fail(err, -EPROTO, "the user segment is smaller than it was said to be");
    return 0;
}

static int on_hello(struct broker *b, int known_rank, int sock, const struct node_message *m,
                    int *segment_fd, int *ret_rank, struct co_error *err)
{
    if (m->n_local != b->n_local)
        return co_fail(err, -EPROTO, "a rank expects %u ranks on this node, there are %u",
                       m->n_local, b->n_local);
    if (m->local_rank >= b->n_local || (known_rank >= 0 && (unsigned)known_rank != m->local_rank))
        return co_fail(err, -EPROTO, "a rank says it is local rank %u, which it is not",
                       m->local_rank);
    struct member *self = &b->member[m->local_rank];
    if (self->fd >= 0)
        return co_fail(err, -EPROTO, "local rank %u has joined already", m->local_rank);
    int code = check_segment(*segment_fd, m->bytes, err);
    if (code != 0)
        return code;

    struct node_message answer = message(NODE_CONTROL);
    answer.n_local = b->n_local;
    answer.bytes = control_bytes(b->n_local);
    code = node_message_send(sock, &answer, b->control_fd);
    if (code != 0)
        return co_fail(err, code, "cannot send the control segment: %s", strerror(-code));
    self->fd = co_take_fd(segment_fd);
    self->bytes = m->bytes;
    self->sock = sock;
    *ret_rank = (int)m->local_rank;

    for (unsigned i = 0; i < b->n_local; i++) {
        struct member *other = &b->member[i];
        if (other->waits_for != (int)m->local_rank)
            continue;
        other->waits_for = -1;
        send_segment(b, other->sock, m->local_rank, NULL); /* a dead reader is found by its owner */
    }
    return 0;
}

static int on_fetch(struct broker *b, int rank, int sock, const struct node_message *m,
                    struct co_error *err)
{
    if (rank < 0 || b->member[rank].fd < 0)
        return co_fail(err, -EPROTO, "FETCH before HELLO");
    if (m->local_rank >= b->n_local || (int)m->local_rank == rank)
        return co_fail(err, -EPROTO, "FETCH of local rank %u, of %u ranks, by local rank %d",
                       m->local_rank, b->n_local, rank);
    if (b->member[rank].waits_for >= 0)
        return co_fail(err, -EPROTO, "local rank %d has two FETCHes open", rank);
    struct member *whose = &b->member[m->local_rank];
    if (whose->fd >= 0)
        return send_segment(b, sock, m->local_rank, err);
    if (whose->gone)
        return co_fail(err, -ECONNRESET, "local rank %u ended before it joined", m->local_rank);
    b->member[rank].waits_for = (int)m->local_rank;
    return 0;
}

/* STEP, LOST: what a rank tells of itself. */
static int on_news(struct broker *b, int rank, const struct node_message *m, struct co_error *err)
{
    if (rank < 0 || m->local_rank != (unsigned)rank)
        return co_fail(err, -EPROTO, "%s of local rank %u by local rank %d",
                       m->type == NODE_STEP ? "STEP" : "LOST", m->local_rank, rank);
    if (m->type == NODE_STEP)
        b->n_steps++;
    else
        b->member[rank].lost_peer = true;
    return 0;
}

int broker_on_readable(struct broker *b, int local_rank, int sock, int *ret_local_rank,
                       struct co_error *err)
{
    struct co_error local_err = {0};
    struct co_error *e = err != NULL ? err : &local_err;
    for (;;) {
        struct node_message m;
        co_autoclose_fd int fd = -1;
        int rc = node_message_receive(sock, &m, &fd, e);
        if (rc == -EAGAIN)
            return 1;
        if (rc == 1 && m.type == NODE_HELLO)
            rc = on_hello(b, local_rank, sock, &m, &fd, &local_rank, e);
        else if (rc == 1 && m.type == NODE_FETCH)
            rc = on_fetch(b, local_rank, sock, &m, e);
        else if (rc == 1 && (m.type == NODE_STEP || m.type == NODE_LOST))
            rc = on_news(b, local_rank, &m, e);
        else if (rc == 1)
            rc = co_fail(e, -EPROTO, "a message of type %u, which a rank does not send", m.type);
        else {
            if (local_rank >= 0) /* closed, or unreadable */
                b->member[local_rank].sock = b->member[local_rank].waits_for = -1;
            return rc;
        }
        if (rc < 0) {
            refuse(sock, rc, e->text);
            if (local_rank >= 0)
                b->member[local_rank].sock = b->member[local_rank].waits_for = -1;
            return rc;
        }
        *ret_local_rank = local_rank;
    }
}

void broker_rank_gone(struct broker *b, unsigned local_rank)
{
    struct member *self = &b->member[local_rank];
    self->gone = true;
    self->sock = self->waits_for = -1;
    if (self->fd >= 0)
        return;
    char text[NODE_SOCKET_TEXT_MAX];
    snprintf(text, sizeof text, "local rank %u ended before it joined", local_rank);
    for (unsigned i = 0; i < b->n_local; i++) {
        struct member *other = &b->member[i];
        if (other->waits_for != (int)local_rank)
            continue;
        other->waits_for = -1;
        refuse(other->sock, -ECONNRESET, text);
    }
}
