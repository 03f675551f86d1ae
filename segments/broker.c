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

struct asked { /* for a generation that is not there yet */
    int fd;    /* its user segment; -1: it has not */
    uint64_t bytes;
    bool mends;
};

struct member {
    int fd; /* its user segment; -1 until its HELLO */
    uint64_t bytes;
    bool mends;
    struct asked asked;
    bool gone;
    bool lost_peer;
    int sock;      /* borrowed; -1 when it has none open */
    int waits_for; /* the local rank its open FETCH asks for; -1: none open */
};

struct broker {
    int control_fd;
    unsigned n_local;
    uint32_t generation;
    bool offers_more, gave_up;
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
    b->generation = 0;
    b->offers_more = b->gave_up = false;
    b->n_steps = 0;
    for (unsigned i = 0; i < n_local; i++)
        b->member[i] = (struct member){.fd = -1, .asked.fd = -1, .sock = -1, .waits_for = -1};
    *ret = co_take(&b);
    return 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void broker_destroy(struct broker *b)
{
    if (b == NULL)
        return;
    for (unsigned i = 0; i < b->n_local; i++) {
        close_fd(&b->member[i].fd);
        close_fd(&b->member[i].asked.fd);
    }
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

bool broker_mends(const struct broker *b, unsigned local_rank)
{
    return b->member[local_rank].mends;
}

void broker_offer_more(struct broker *b, uint32_t generation)
{
    b->generation = generation;
    b->offers_more = true;
}

static struct node_message message(const struct broker *b, enum node_message_type type)
{
    return (struct node_message){.magic = NODE_SOCKET_MAGIC,
                                 .version = NODE_SOCKET_VERSION,
                                 .type = (uint16_t)type,
                                 .generation = b->generation};
}

/* generation   what is refused is about it: who is past that does not listen */
static void refuse(const struct broker *b, uint32_t generation, int sock, int code,
                   const char *text)
{
    struct node_message m = message(b, NODE_REFUSED);
    m.generation = generation;
    m.code = code;
    size_t n = strnlen(text, sizeof m.text - 1);
    memcpy(m.text, text, n);
    node_message_send(sock, &m, -1); /* if it doesn't arrive the closed socket tells the same */
}

static int send_segment(struct broker *b, int sock, unsigned of, struct co_error *err)
{
    struct node_message m = message(b, NODE_SEGMENT);
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

/* Let a rank into the generation, and give its segment to those who wait for it.
 *
 * segment   taken over on success */
static int admit(struct broker *b, unsigned rank, int sock, struct asked *segment,
                 struct co_error *err)
{
    struct member *self = &b->member[rank];
    struct node_message answer = message(b, NODE_CONTROL);
    answer.n_local = b->n_local;
    answer.bytes = control_bytes(b->n_local);
    answer.flags = b->offers_more ? NODE_MENDS : 0;
    int code = node_message_send(sock, &answer, b->control_fd);
    if (code != 0)
        return co_fail(err, code, "cannot send the control segment: %s", strerror(-code));
    self->fd = co_take_fd(&segment->fd);
    self->bytes = segment->bytes;
    self->mends = segment->mends;
    self->sock = sock;

    for (unsigned i = 0; i < b->n_local; i++) {
        struct member *other = &b->member[i];
        if (other->waits_for != (int)rank)
            continue;
        other->waits_for = -1;
        send_segment(b, other->sock, rank, NULL); /* a dead reader is found by its owner */
    }
    return 0;
}

/* It has left this generation, and wants the next one. */
static int on_hello_again(struct broker *b, int sock, const struct node_message *m,
                          struct asked *segment, struct co_error *err)
{
    const unsigned rank = m->local_rank;
    struct member *self = &b->member[rank];
    if (!b->offers_more || m->generation != b->generation + 1 || self->asked.fd >= 0)
        return co_fail(err, -EPROTO, "local rank %u asks for generation %u after %u", rank,
                       m->generation, b->generation);
    self->waits_for = -1;
    self->sock = sock;
    self->asked = *segment;
    segment->fd = -1;
    if (b->gave_up)
        broker_give_up(b);
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
    int code = check_segment(*segment_fd, m->bytes, err);
    if (code != 0)
        return code;
    struct asked segment = {*segment_fd, m->bytes, (m->flags & NODE_MENDS) != 0};
    if (m->generation > b->generation)
        code = on_hello_again(b, sock, m, &segment, err);
    else if (b->member[m->local_rank].fd >= 0)
        code = co_fail(err, -EPROTO, "local rank %u has joined already", m->local_rank);
    else
        code = admit(b, m->local_rank, sock, &segment, err);
    *segment_fd = segment.fd;
    if (code == 0)
        *ret_rank = (int)m->local_rank;
    return code;
}

/* To who waits for a rank that will not come to this generation. */
static void refuse_gone(const struct broker *b, int sock, unsigned gone)
{
    char text[NODE_SOCKET_TEXT_MAX];
    snprintf(text, sizeof text, "local rank %u ended before it joined", gone);
    refuse(b, b->generation, sock, -ECONNRESET, text);
}

static int on_fetch(struct broker *b, int rank, int sock, const struct node_message *m,
                    struct co_error *err)
{
    if (m->generation < b->generation) /* it will find that generation broken, and come again */
        return 0;
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
    if (whose->gone && b->offers_more) { /* it may come again, for the next generation */
        refuse_gone(b, sock, m->local_rank);
        return 0;
    }
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

/* Nothing more comes from there, and nothing goes there. */
static void forget_socket(struct broker *b, int rank)
{
    if (rank < 0)
        return;
    b->member[rank].sock = b->member[rank].waits_for = -1;
    close_fd(&b->member[rank].asked.fd);
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
            forget_socket(b, local_rank); /* closed, or unreadable */
            return rc;
        }
        if (rc == -EPIPE) { /* it has gone since it asked */
            forget_socket(b, local_rank);
            return 0;
        }
        if (rc < 0) {
            refuse(b, b->generation + 1, sock, rc, e->text);
            forget_socket(b, local_rank);
            return rc;
        }
        *ret_local_rank = local_rank;
    }
}

void broker_rank_gone(struct broker *b, unsigned local_rank)
{
    struct member *self = &b->member[local_rank];
    self->gone = true;
    forget_socket(b, (int)local_rank);
    if (self->fd >= 0)
        return;
    for (unsigned i = 0; i < b->n_local; i++) {
        struct member *other = &b->member[i];
        if (other->waits_for != (int)local_rank)
            continue;
        other->waits_for = -1;
        refuse_gone(b, other->sock, local_rank);
    }
}

/* --- more than one generation ----------------------------------------------------------------- */

int broker_renew(struct broker *b, int control_fd, uint32_t generation, struct co_error *err)
{
    const int fd = fcntl(control_fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return co_fail(err, -errno, "cannot keep the control segment: %s", strerror(errno));
    close(b->control_fd);
    b->control_fd = fd;
    b->generation = generation;
    b->n_steps = 0;
    for (unsigned i = 0; i < b->n_local; i++) {
        struct member *m = &b->member[i];
        close_fd(&m->fd);
        m->gone = m->mends = m->lost_peer = false;
        m->waits_for = -1;
    }
    for (unsigned i = 0; i < b->n_local; i++) {
        struct member *m = &b->member[i];
        if (m->asked.fd >= 0)
            admit(b, i, m->sock, &m->asked, NULL); /* where that fails, its owner finds it dead */
        close_fd(&m->asked.fd);
    }
    return 0;
}

void broker_give_up(struct broker *b)
{
    b->gave_up = true;
    for (unsigned i = 0; i < b->n_local; i++) {
        struct member *m = &b->member[i];
        if (m->asked.fd >= 0)
            refuse(b, b->generation + 1, m->sock, -ECONNRESET,
                   "nobody takes the place of a rank that is gone");
        close_fd(&m->asked.fd);
    }
}
