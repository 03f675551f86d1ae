/* The node sockets of the ranks, and the shared memory that they give access to. Each rank has a
 * line from its start on (open_line()); when it asks for the first time, serve_rank() makes the
 * control segment and the broker, which answers all ranks. node_memory_rank_gone() notifies the
 * ranks that wait in the memory, by the abort word, that a rank has ended, and learns from it which
 * rank died before. node_memory_renew() makes the memory of the next generation while ranks live:
 * they reach it through the sockets they have. Read serve_rank() and tell_rank_gone() first.
 *
 * State: `gone` and `status` are kept from before the broker exists, so that make_broker() can pass
 * them on. Invariant: a rank may write anything into the shared memory, so its content is never
 * more than a reason to look.
 */
#include "node_memory.h"

#include "rank_line.h"

#include "common/error.h"
#include "common/hash.h"
#include "segments/broker.h"
#include "segments/control.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LAST_TURNS = 16 /* of the broker: more messages than a socket holds */ };

struct rank_memory {
    struct rank_line *line; /* NULL: none, or closed */
    bool gone;              /* the rank has ended ... */
    int status;             /* ... like this */
    bool has_joined;        /* this generation, and that was reported */
    bool has_asked;         /* for the next one, and that was reported */
    uint64_t wait_hash;     /* hash of what it waits for, as last passed to on_wait() */
    unsigned n_waits;       /* so many of them, in this generation */
};

struct node_memory {
    uv_loop_t *loop;
    struct node_memory_opts opts;
    int n_local;
    struct broker *broker; /* both NULL until a rank asks */
    struct control *control;
    bool is_death_reported; /* in this generation, by either side */
    int n_lines;            /* that the loop has; below 0: closed and none left */
    struct rank_memory ranks[];
};

int node_memory_create(uv_loop_t *loop, const struct node_memory_opts *opts,
                       struct node_memory **ret, struct co_error *err)
{
    struct node_memory *m = calloc(1, sizeof *m + (size_t)opts->n_local * sizeof m->ranks[0]);
    if (m == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    m->loop = loop;
    m->opts = *opts;
    m->n_local = opts->n_local;
    *ret = m;
    return 0;
}

/* A callback for a line's news may close it, so it is freed after its lines. */
static void unref(void *arg)
{
    struct node_memory *m = arg;
    if (--m->n_lines >= 0)
        return;
    broker_destroy(m->broker);
    control_unmap(m->control);
    free(m);
}

/* Release the ranks that wait for a rank that will never join, or never return. */
static void tell_rank_gone(struct node_memory *m, int rank, int status)
{
    const int local = broker_local_of(m->broker, (unsigned)rank);
    if (local < 0)
        return;
    struct control_abort why = {
        .cause = CONTROL_RANK_DIED, .rank = (uint16_t)local, .detail = (uint32_t)status};
    const struct control_line *line = &m->control->line[local];
    if (status == 0 && atomic_load(&line->joined) == 0)
        why.cause = CONTROL_RANK_LEFT;
    if (status != 0 || why.cause == CONTROL_RANK_LEFT)
        control_abort_set(m->control, why);
    else
        control_look(m->control, (unsigned)local); /* aborts unless it left in good order */
    broker_rank_gone(m->broker, (unsigned)rank);
}

static int make_broker(struct node_memory *m, struct co_error *err)
{
    int fd;
    int rc = control_create((unsigned)m->n_local, m->opts.generation, &fd, &m->control, err);
    if (rc < 0)
        return rc;
    rc = broker_create((unsigned)m->n_local, fd, &m->broker, err);
    close(fd);
    if (rc < 0) {
        control_unmap(m->control);
        m->control = NULL;
        return rc;
    }
    if (m->opts.recovers)
        broker_offer_more(m->broker, m->opts.generation);
    for (int i = 0; i < m->n_local; i++) {
        if (m->ranks[i].gone)
            tell_rank_gone(m, i, m->ranks[i].status);
    }
    return 0;
}

static void note_joined(struct node_memory *m, int rank)
{
    struct rank_memory *r = &m->ranks[rank];
    if (r->has_joined || !broker_has_said_hello(m->broker, (unsigned)rank))
        return;
    r->has_joined = true;
    m->opts.on_joined(m->opts.arg, rank, broker_recovers(m->broker, (unsigned)rank));
}

/* The rank that found it out notifies us at once; the kernel does so only when it has freed all
 * memory. */
static void note_death(struct node_memory *m)
{
    if (!m->opts.recovers || m->is_death_reported ||
        control_abort_get(m->control).cause != CONTROL_RANK_DIED)
        return;
    m->is_death_reported = true;
    m->opts.on_death(m->opts.arg);
}

/* The same text again is not reported, and the number of different texts of a rank is limited. */
static void note_wait(struct node_memory *m, int rank)
{
    struct rank_memory *r = &m->ranks[rank];
    const char *text = broker_wait_of(m->broker, (unsigned)rank);
    const uint64_t hash = co_hash_bytes(CO_HASH_START, text, strlen(text));
    if (text[0] == '\0' || hash == r->wait_hash || r->n_waits == NODE_MEMORY_MOST_WAITS)
        return;
    r->wait_hash = hash;
    r->n_waits++;
    if (m->opts.on_wait != NULL)
        m->opts.on_wait(m->opts.arg, rank, text);
}

/* returns   as broker_on_readable(), and never 2 */
static int read_messages(struct node_memory *m, int *rank, int fd, struct co_error *err)
{
    enum { CALLS = 64 };
    int rc = 2;
    for (int i = 0; i < CALLS && rc == 2; i++) {
        rc = broker_on_readable(m->broker, *rank, fd, rank, err);
        if (rc > 0)
            note_wait(m, *rank);
    }
    return rc == 2 ? 1 : rc;
}

/* What is on a rank's socket: read and answer it. */
static void serve_rank(struct node_memory *m, int rank)
{
    struct rank_memory *r = &m->ranks[rank];
    const int fd = rank_line_fd(r->line);
    struct co_error err;
    char byte;
    if (m->broker == NULL && recv(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) == 0) {
        /* it ended without ever asking: the common case */
        rank_line_close(&r->line);
        return;
    }
    int rc = (m->broker == NULL ? make_broker(m, &err) : 0) ?: read_messages(m, &rank, fd, &err);
    if (rc < 0) {
        char text[CO_ERROR_TEXT_BYTES + 64];
        snprintf(text, sizeof text, "rank %d runs without shared memory: %s", rank, err.text);
        m->opts.on_note(m->opts.arg, text);
    }
    if (rc != 1)
        rank_line_close(&r->line);
    if (m->broker == NULL)
        return;
    note_death(m);
    note_joined(m, rank);
    if (!r->has_asked && broker_asks(m->broker, (unsigned)rank)) {
        r->has_asked = true;
        m->opts.on_asked(m->opts.arg, rank);
    }
}

static void on_line(void *arg, int rank, int events)
{
    (void)events;
    serve_rank(arg, rank);
}

/* A new line that replaces the rank's: on fd, or, with -1, on a new pair. */
static int open_line(struct node_memory *m, int rank, int fd, int *ret_worker_fd)
{
    const struct rank_line_owner owner = {.on_event = on_line, .on_closed = unref, .arg = m};
    struct rank_line **line = &m->ranks[rank].line;
    rank_line_close(line); /* that of a standby that was given the rank, and died */
    int rc = rank_line_open(m->loop, SOCK_SEQPACKET, fd, rank, &owner, line, ret_worker_fd);
    m->n_lines += rc == 0;
    return rc;
}

int node_memory_adopt(struct node_memory *m, int rank, int fd)
{
    return open_line(m, rank, fd, NULL);
}

int node_memory_add(struct node_memory *m, int rank, int *ret_worker_fd)
{
    return open_line(m, rank, -1, ret_worker_fd);
}

static bool has_message(const struct rank_line *line)
{
    char byte;
    return line != NULL && recv(rank_line_fd(line), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* The last messages of a rank, which the loop has not received yet. Its children may still send. */
static void hear_last_words(struct node_memory *m, int rank)
{
    for (int i = 0; i < LAST_TURNS && has_message(m->ranks[rank].line); i++)
        serve_rank(m, rank);
}

int node_memory_rank_gone(struct node_memory *m, int rank, int status)
{
    struct rank_memory *r = &m->ranks[rank];
    hear_last_words(m, rank);
    r->gone = true;
    r->status = status;
    if (m->broker == NULL)
        return -1;
    tell_rank_gone(m, rank, status); /* the abort word stays if it was written before */
    struct control_abort why = control_abort_get(m->control);
    if (why.cause != CONTROL_RANK_DIED)
        return -1;
    const int died = broker_seat_at(m->broker, why.rank); /* -1: ranks can write what they like */
    m->is_death_reported |= died == rank;
    return died != rank ? died : -1;
}

void node_memory_part(struct node_memory *m)
{
    if (m->control != NULL)
        control_abort_set(m->control, (struct control_abort){.cause = CONTROL_RENEWED});
}

void node_memory_drop(struct node_memory *m, int rank)
{
    broker_drop(m->broker, (unsigned)rank);
}

int node_memory_n_kept(const struct node_memory *m)
{
    return m->broker != NULL ? (int)broker_n_kept(m->broker) : m->n_local;
}

int node_memory_renew(struct node_memory *m, uint32_t generation, const struct broker_world *world,
                      struct co_error *err)
{
    struct control *next;
    int fd;
    int rc = control_create(broker_n_kept(m->broker), generation, &fd, &next, err);
    if (rc < 0)
        return rc;
    rc = broker_renew(m->broker, fd, generation, world, err);
    close(fd);
    if (rc < 0) {
        control_unmap(next);
        return rc;
    }
    control_unmap(m->control); /* its ranks know that it broke: the abort word is set */
    m->control = next;
    m->is_death_reported = false;
    for (int i = 0; i < m->n_local; i++) {
        struct rank_memory *r = &m->ranks[i];
        if (r->gone)
            rank_line_close(&r->line);
        r->gone = r->has_joined = r->has_asked = false;
        r->wait_hash = r->n_waits = 0;
    }
    return 0;
}

void node_memory_let_in(struct node_memory *m)
{
    for (int i = 0; i < m->n_local; i++)
        note_joined(m, i);
}

void node_memory_give_up(struct node_memory *m)
{
    if (m->broker != NULL)
        broker_give_up(m->broker);
}

bool node_memory_has_lost_peer(const struct node_memory *m, int rank)
{
    return m->broker != NULL && broker_has_lost_peer(m->broker, (unsigned)rank);
}

uint64_t node_memory_most_steps(struct node_memory *m)
{
    if (m->n_local == 1) /* the only one that may be without peers */
        hear_last_words(m, 0);
    if (m->broker == NULL)
        return 0;
    uint64_t n_reported = broker_n_steps(m->broker);
    uint64_t n_counted = control_most_steps(m->control);
    return n_reported > n_counted ? n_reported : n_counted;
}

uint64_t node_memory_most_bytes(const struct node_memory *m)
{
    return m->broker != NULL ? broker_most_bytes(m->broker) : 0;
}

bool node_memory_read_progress(const struct node_memory *m, int rank, struct progress *ret,
                               uint64_t *ret_digest)
{
    const int local =
        m != NULL && m->control != NULL ? broker_local_of(m->broker, (unsigned)rank) : -1;
    const struct control_line *line = local >= 0 ? &m->control->line[local] : NULL;
    if (line == NULL || atomic_load(&line->joined) == 0)
        return false;
    rank_status_read(&line->progress, ret);
    *ret_digest = co_hash_word(rank_status_digest(&line->progress), atomic_load(&line->arrived));
    return true;
}

const char *node_memory_wait_of(const struct node_memory *m, int rank)
{
    return m != NULL && m->broker != NULL ? broker_wait_of(m->broker, (unsigned)rank) : "";
}

void node_memory_close(struct node_memory *m)
{
    if (m == NULL)
        return;
    for (int i = 0; i < m->n_local; i++)
        rank_line_close(&m->ranks[i].line);
    unref(m);
}
