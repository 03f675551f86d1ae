#include "broker.h"

#include "common/error.h"
#include "common/scope.h"
#include "common/utf8.h"
#include "control.h"
#include "node_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SEGMENT_MAX_BYTES (UINT64_C(1) << 46)

enum { MESSAGES = 64 /* of a rank in one turn: the others are answered between */ };

struct asked { /* for a generation that does not exist yet */
    int fd;    /* its user segment; -1: it has not */
    uint64_t bytes;
    bool recovers;
};

struct member {
    int fd; /* its user segment; -1 until its HELLO */
    uint64_t bytes;
    bool recovers;
    struct asked asked;
    bool gone;
    bool lost_peer;
    bool is_dropped;                 /* since, or from the next generation on */
    int local;                       /* in this generation; -1: in none */
    int sock;                        /* borrowed; -1 when it has none open */
    int waits_for;                   /* the seat its open FETCH asks for; -1: none open */
    char wait[NODE_SOCKET_TEXT_MAX]; /* of its last WAIT */
};

struct broker {
    int control_fd;
    unsigned n_seats;
    unsigned n_local;        /* in this generation */
    struct node_place place; /* of local rank 0 in it ... */
    char host[NODE_SOCKET_TEXT_MAX];
    bool is_placed; /* ... if that is known */
    uint32_t generation;
    bool offers_more, gave_up;
    uint64_t n_steps;
    struct member member[]; /* by seat */
};

int broker_create(unsigned n_local, int control_fd, struct broker **ret, struct co_error *err)
{
    if (n_local < 1 || n_local > CONTROL_MAX_LOCAL)
        return co_fail(err, -EINVAL,
                       "invalid number of ranks on this node: expected 1 to %d, not %u",
                       CONTROL_MAX_LOCAL, n_local);
    co_autofree struct broker *b = malloc(sizeof *b + n_local * sizeof b->member[0]);
    if (b == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    b->control_fd = fcntl(control_fd, F_DUPFD_CLOEXEC, 0);
    if (b->control_fd < 0)
        return co_fail(err, -errno, "cannot duplicate the control segment's descriptor: %s",
                       strerror(errno));
    b->n_seats = b->n_local = n_local;
    b->generation = 0;
    b->offers_more = b->gave_up = b->is_placed = false;
    b->n_steps = 0;
    for (unsigned i = 0; i < n_local; i++)
        b->member[i] =
            (struct member){.fd = -1, .asked.fd = -1, .sock = -1, .waits_for = -1, .local = (int)i};
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
    for (unsigned i = 0; i < b->n_seats; i++) {
        close_fd(&b->member[i].fd);
        close_fd(&b->member[i].asked.fd);
    }
    close(b->control_fd);
    free(b);
}

uint64_t broker_most_bytes(const struct broker *b)
{
    enum { BLOCK_BYTES = 512 }; /* of st_blocks, whatever the file system's own are */
    uint64_t most = 0;
    for (unsigned i = 0; i < b->n_seats; i++) {
        struct stat st;
        if (b->member[i].fd < 0 || fstat(b->member[i].fd, &st) != 0)
            continue;
        const uint64_t bytes = (uint64_t)st.st_blocks * BLOCK_BYTES;
        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t broker_n_steps(const struct broker *b)
{
    return b->n_steps;
}

bool broker_has_lost_peer(const struct broker *b, unsigned seat)
{
    return b->member[seat].lost_peer;
}

const char *broker_wait_of(const struct broker *b, unsigned seat)
{
    return b->member[seat].wait;
}

bool broker_has_said_hello(const struct broker *b, unsigned seat)
{
    return b->member[seat].fd >= 0;
}

bool broker_asks(const struct broker *b, unsigned seat)
{
    return b->member[seat].asked.fd >= 0;
}

bool broker_recovers(const struct broker *b, unsigned seat)
{
    return b->member[seat].recovers;
}

int broker_local_of(const struct broker *b, unsigned seat)
{
    return b->member[seat].local;
}

int broker_seat_at(const struct broker *b, unsigned local_rank)
{
    for (unsigned seat = 0; local_rank < b->n_local && seat < b->n_seats; seat++)
        if (b->member[seat].local == (int)local_rank)
            return (int)seat;
    return -1;
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

/* generation   the refused request is about it: a rank that is past it ignores the message */
static void refuse_request(const struct broker *b, uint32_t generation, int sock, int code,
                           const char *text)
{
    struct node_message m = message(b, NODE_REFUSED);
    m.generation = generation;
    m.code = code;
    size_t n = strnlen(text, sizeof m.text - 1);
    memcpy(m.text, text, n);
    node_message_send(sock, &m, -1); /* if it is lost, the closed socket has the same effect */
}

static int send_segment(struct broker *b, int sock, unsigned of, struct co_error *err)
{
    struct node_message m = message(b, NODE_SEGMENT);
    m.local_rank = (uint32_t)b->member[of].local;
    m.bytes = b->member[of].bytes;
    int code = node_message_send(sock, &m, b->member[of].fd);
    if (code != 0)
        return co_fail(err, code, "cannot send local rank %u's segment: %s", m.local_rank,
                       strerror(-code));
    return 0;
}

/* A user segment must not shrink while other ranks map it. */
static int check_segment(int fd, uint64_t bytes, struct co_error *err)
{
    struct stat st;
    if (fd < 0)
        return co_fail(err, -EPROTO, "HELLO without a segment");
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return co_fail(err, -EPROTO, "the user segment is not sealed against shrinking");
    if (fstat(fd, &st) != 0 || bytes > SEGMENT_MAX_BYTES || (uint64_t)st.st_size < bytes)
        return co_fail(err, -EPROTO, "the user segment is smaller than announced");
    return 0;
}

/* Admit a rank to the generation, and send its segment to the ranks that wait for it.
 *
 * segment   taken over on success */
static int admit(struct broker *b, unsigned seat, int sock, struct asked *segment,
                 struct co_error *err)
{
    struct member *self = &b->member[seat];
    struct node_message answer = message(b, NODE_CONTROL);
    answer.local_rank = (uint32_t)self->local;
    answer.n_local = b->n_local;
    answer.bytes = control_bytes(b->n_local);
    answer.flags = b->offers_more ? NODE_RECOVERS : 0;
    if (b->is_placed) {
        answer.flags |= NODE_PLACED;
        answer.place = b->place;
        answer.place.rank += answer.local_rank;
        memcpy(answer.text, b->host, sizeof answer.text);
    }
    int code = node_message_send(sock, &answer, b->control_fd);
    if (code != 0)
        return co_fail(err, code, "cannot send the control segment: %s", strerror(-code));
    self->fd = co_take_fd(&segment->fd);
    self->bytes = segment->bytes;
    self->recovers = segment->recovers;
    self->sock = sock;

    for (unsigned i = 0; i < b->n_seats; i++) {
        struct member *other = &b->member[i];
        if (other->waits_for != (int)seat)
            continue;
        other->waits_for = -1;
        send_segment(b, other->sock, seat, NULL); /* a dead reader is found by its owner */
    }
    return 0;
}

/* It has left this generation, and wants the next one. */
static int on_hello_again(struct broker *b, int sock, const struct node_message *m,
                          struct asked *segment, struct co_error *err)
{
    struct member *self = &b->member[m->local_rank];
    if (!b->offers_more || m->generation != b->generation + 1 || self->asked.fd >= 0)
        return co_fail(err, -EPROTO, "local rank %u requests generation %u after %u", m->local_rank,
                       m->generation, b->generation);
    self->waits_for = -1;
    self->sock = sock;
    self->asked = *segment;
    segment->fd = -1;
    if (b->gave_up)
        broker_give_up(b);
    return 0;
}

static int on_hello(struct broker *b, int known_seat, int sock, const struct node_message *m,
                    int *segment_fd, int *ret_seat, struct co_error *err)
{
    if (m->n_local != b->n_seats)
        return co_fail(
            err, -EPROTO,
            "a rank expects %u ranks on this node, but there are %u; check LOCAL_WORLD_SIZE",
            m->n_local, b->n_seats);
    if (m->local_rank >= b->n_seats || b->member[m->local_rank].is_dropped ||
        (known_seat >= 0 && (unsigned)known_seat != m->local_rank))
        return co_fail(err, -EPROTO,
                       "a process claims to be local rank %u, but ddprun started it as another one",
                       m->local_rank);
    int code = check_segment(*segment_fd, m->bytes, err);
    if (code != 0)
        return code;
    struct asked segment = {*segment_fd, m->bytes, (m->flags & NODE_RECOVERS) != 0};
    if (m->generation > b->generation)
        code = on_hello_again(b, sock, m, &segment, err);
    else if (b->member[m->local_rank].fd >= 0)
        code = co_fail(err, -EPROTO, "local rank %u has already joined", m->local_rank);
    else
        code = admit(b, m->local_rank, sock, &segment, err);
    *segment_fd = segment.fd;
    if (code == 0)
        *ret_seat = (int)m->local_rank;
    return code;
}

/* Refuse a request for the segment of a rank that will not join this generation. */
static void refuse_gone(const struct broker *b, int sock, unsigned gone)
{
    char text[NODE_SOCKET_TEXT_MAX];
    snprintf(text, sizeof text, "local rank %d exited before it joined", b->member[gone].local);
    refuse_request(b, b->generation, sock, -ECONNRESET, text);
}

static int on_fetch(struct broker *b, int seat, int sock, const struct node_message *m,
                    struct co_error *err)
{
    if (m->generation < b->generation) /* it will find that generation broken, and rejoin */
        return 0;
    if (seat < 0 || b->member[seat].fd < 0)
        return co_fail(err, -EPROTO, "FETCH before HELLO");
    struct member *self = &b->member[seat];
    if (m->local_rank >= b->n_local || (int)m->local_rank == self->local)
        return co_fail(err, -EPROTO, "FETCH of local rank %u, of %u ranks, by local rank %d",
                       m->local_rank, b->n_local, self->local);
    if (self->waits_for >= 0)
        return co_fail(err, -EPROTO, "local rank %d has two open FETCHes", self->local);
    const unsigned whose = (unsigned)broker_seat_at(b, m->local_rank);
    if (b->member[whose].fd >= 0)
        return send_segment(b, sock, whose, err);
    if (b->member[whose].gone && b->offers_more) { /* it may join the next generation */
        refuse_gone(b, sock, whose);
        return 0;
    }
    if (b->member[whose].gone)
        return co_fail(err, -ECONNRESET, "local rank %u exited before it joined", m->local_rank);
    self->waits_for = (int)whose;
    return 0;
}

/* node_message_receive() has checked that its text ends. */
static void on_wait(struct member *self, const struct node_message *m)
{
    memcpy(self->wait, m->text, sizeof self->wait);
    co_utf8_clean(self->wait, strlen(self->wait));
}

/* STEP, LOST, WAIT: what a rank reports about itself. */
static int on_news(struct broker *b, int seat, const struct node_message *m, struct co_error *err)
{
    if (seat < 0 || m->local_rank != (unsigned)seat)
        return co_fail(err, -EPROTO, "%s of local rank %u by local rank %d",
                       m->type == NODE_STEP   ? "STEP"
                       : m->type == NODE_LOST ? "LOST"
                                              : "WAIT",
                       m->local_rank, seat);
    if (m->type == NODE_STEP)
        b->n_steps++;
    else if (m->generation < b->generation) /* what broke before is known by now */
        return 0;
    else if (m->type == NODE_WAIT)
        on_wait(&b->member[seat], m);
    else
        b->member[seat].lost_peer = true;
    return 0;
}

/* This socket is not used any more. */
static void forget_socket(struct broker *b, int seat)
{
    if (seat < 0)
        return;
    b->member[seat].sock = b->member[seat].waits_for = -1;
    close_fd(&b->member[seat].asked.fd);
}

int broker_on_readable(struct broker *b, int seat, int sock, int *ret_seat, struct co_error *err)
{
    struct co_error local_err = {0};
    struct co_error *e = err != NULL ? err : &local_err;
    for (int i = 0; i < MESSAGES; i++) {
        struct node_message m;
        co_autoclose_fd int fd = -1;
        int rc = node_message_receive(sock, &m, &fd, e);
        if (rc == -EAGAIN)
            return 1;
        if (rc == 1 && m.type == NODE_HELLO)
            rc = on_hello(b, seat, sock, &m, &fd, &seat, e);
        else if (rc == 1 && m.type == NODE_FETCH)
            rc = on_fetch(b, seat, sock, &m, e);
        else if (rc == 1 && (m.type == NODE_STEP || m.type == NODE_LOST || m.type == NODE_WAIT))
            rc = on_news(b, seat, &m, e);
        else if (rc == 1)
            rc = co_fail(e, -EPROTO, "unexpected message of type %u from a rank", m.type);
        else {
            forget_socket(b, seat); /* closed, or unreadable */
            return rc;
        }
        if (rc == -EPIPE) { /* it has gone since its request */
            forget_socket(b, seat);
            return 0;
        }
        if (rc < 0) {
            refuse_request(b, b->generation + 1, sock, rc, e->text);
            forget_socket(b, seat);
            return rc;
        }
        *ret_seat = seat;
        if (m.type == NODE_WAIT && seat >= 0 && b->member[seat].wait[0] != '\0')
            return 2; /* the next one may replace it */
    }
    return 1;
}

void broker_rank_gone(struct broker *b, unsigned seat)
{
    struct member *self = &b->member[seat];
    self->gone = true;
    self->wait[0] = '\0';
    forget_socket(b, (int)seat);
    if (self->fd >= 0)
        return;
    for (unsigned i = 0; i < b->n_seats; i++) {
        struct member *other = &b->member[i];
        if (other->waits_for != (int)seat)
            continue;
        other->waits_for = -1;
        refuse_gone(b, other->sock, seat);
    }
}

/* --- more than one generation ----------------------------------------------------------------- */

void broker_drop(struct broker *b, unsigned seat)
{
    b->member[seat].is_dropped = true;
}

unsigned broker_n_kept(const struct broker *b)
{
    unsigned n = 0;
    for (unsigned i = 0; i < b->n_seats; i++)
        n += !b->member[i].is_dropped;
    return n;
}

static void take_places(struct broker *b, const struct broker_world *w)
{
    b->n_local = 0;
    for (unsigned i = 0; i < b->n_seats; i++) {
        struct member *m = &b->member[i];
        m->local = m->is_dropped ? -1 : (int)b->n_local++;
    }
    b->place = (struct node_place){.rank = w->first_rank,
                                   .world_size = w->world_size,
                                   .node_rank = w->node_rank,
                                   .n_nodes = w->n_nodes,
                                   .port = w->port};
    snprintf(b->host, sizeof b->host, "%s", w->host);
    b->is_placed = true;
}

int broker_renew(struct broker *b, int control_fd, uint32_t generation,
                 const struct broker_world *world, struct co_error *err)
{
    const int fd = fcntl(control_fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return co_fail(err, -errno, "cannot duplicate the control segment's descriptor: %s",
                       strerror(errno));
    close(b->control_fd);
    b->control_fd = fd;
    b->generation = generation;
    b->n_steps = 0;
    b->gave_up = false;
    take_places(b, world);
    for (unsigned i = 0; i < b->n_seats; i++) {
        struct member *m = &b->member[i];
        close_fd(&m->fd);
        m->gone = m->recovers = m->lost_peer = false;
        m->waits_for = -1;
        m->wait[0] = '\0';
    }
    for (unsigned i = 0; i < b->n_seats; i++) {
        struct member *m = &b->member[i];
        if (m->asked.fd >= 0 && !m->is_dropped)
            admit(b, i, m->sock, &m->asked, NULL); /* where that fails, its owner finds it dead */
        close_fd(&m->asked.fd);
    }
    return 0;
}

void broker_give_up(struct broker *b)
{
    b->gave_up = true;
    for (unsigned i = 0; i < b->n_seats; i++) {
        struct member *m = &b->member[i];
        if (m->asked.fd >= 0)
            refuse_request(b, b->generation + 1, m->sock, -ECONNRESET, "no rank is being replaced");
        close_fd(&m->asked.fd);
    }
}
