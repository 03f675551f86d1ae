/* PMI-1 for the ranks of this node. A rank's requests arrive on its line: read_rank() feeds them to
 * pmi1_server.c, which answers all except barriers, and flush_rank() sends the answers.
 * advance_pmi() decides what a barrier needs: with one node, the ranks are released when all have
 * entered; with several, begin_exchange() takes what they have put to the other nodes
 * (pmi_exchange.c), and on_round() releases them when every node has entered. pmi_host_rank_gone()
 * decides how the end of a rank counts. Read advance_pmi() and pmi_host_rank_gone() first.
 *
 * Invariant: no rank waits for what cannot arrive. If a rank has ended, or the exchange has failed,
 * cut_off() closes the lines of those in the barrier: their calls of MPI fail.
 */
#include "pmi_host.h"

#include "mpi_end.h"
#include "pmi_exchange.h"
#include "rank_line.h"

#include "common/buf.h"
#include "common/error.h"
#include "common/parse.h"
#include "rendezvous/pmi/pmi1_server.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

enum {
    READ_BYTES = 16 << 10,
    LAST_READS = 64, /* of a rank that is gone: more than a socket holds; its children may send */
    NOBODY = -1
};

struct host_rank {
    struct rank_line *line; /* owned; NULL: none, or closed */
    bool is_full;           /* answers wait until the socket takes them */
    bool is_done;           /* it has ended with 0: it comes to no barrier any more */
};

struct pmi_host {
    struct pmi_host_opts opts;
    uv_loop_t *loop;
    char name[32];
    struct pmi1_server *server;    /* owned */
    struct pmi_exchange *exchange; /* owned; NULL: a single node */
    uint32_t *n_ranks;             /* owned; of each node; 0: not known */
    bool knows_nodes;
    bool is_exchanging; /* the ranks are in the barrier, and their puts are on their way */
    bool is_cut_off;    /* no barrier is left any more */
    bool has_said_stuck, has_said_silent;
    int aborter; /* -1: none */
    int n_done;  /* ranks that are */
    struct host_rank ranks[];
};

__attribute__((format(printf, 2, 3))) static void note_text(struct pmi_host *h, const char *format,
                                                            ...)
{
    char text[CO_ERROR_TEXT_BYTES + 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    h->opts.on_note(h->opts.arg, text);
}

static int global_rank(const struct pmi_host *h, int local_rank)
{
    return h->opts.first_rank + local_rank;
}

/* --- lines ------------------------------------------------------------------------------------ */

/* What does not fit into the socket goes when the rank has read some. */
static void flush_rank(struct pmi_host *h, int rank)
{
    struct host_rank *r = &h->ranks[rank];
    struct co_buf *out = pmi1_server_out(h->server, rank);
    if (r->line == NULL)
        return;
    const int fd = rank_line_fd(r->line);
    while (co_buf_len(out) > 0) {
        ssize_t n = send(fd, co_buf_bytes(out), co_buf_len(out), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break; /* EAGAIN; or the peer is gone, which reading reports as well */
        co_buf_consume(out, (size_t)n);
    }
    if (r->is_full == (co_buf_len(out) > 0))
        return;
    r->is_full = !r->is_full;
    rank_line_watch(r->line, r->is_full ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

static void flush_all(struct pmi_host *h)
{
    for (int i = 0; i < h->opts.n_local; i++)
        flush_rank(h, i);
}

/* --- barriers --------------------------------------------------------------------------------- */

static bool is_in_barrier(const struct pmi_host *h, int rank)
{
    return pmi1_server_get_rank(h->server, rank)->in_barrier;
}

/* Ranks that wait for what cannot arrive fail: a call of MPI returns an error, or ends the rank. */
static void cut_off(struct pmi_host *h)
{
    for (int i = 0; i < h->opts.n_local; i++)
        if (is_in_barrier(h, i) || !h->knows_nodes)
            rank_line_close(&h->ranks[i].line);
}

static void fail_all(struct pmi_host *h, const char *text)
{
    if (!h->is_cut_off)
        note_text(h, "MPI: %s", text);
    h->is_cut_off = true;
    cut_off(h);
}

static void release(struct pmi_host *h)
{
    h->is_exchanging = false;
    if (pmi1_server_release(h->server) < 0)
        fail_all(h, "out of memory");
    flush_all(h);
}

static void begin_exchange(struct pmi_host *h)
{
    struct co_buf puts = {0};
    h->is_exchanging = true;
    int rc = pmi1_server_take_puts(h->server, &puts)
                 ?: pmi_exchange_bring(h->exchange, co_buf_bytes(&puts), co_buf_len(&puts));
    co_buf_fini(&puts);
    if (rc < 0)
        fail_all(h, "out of memory");
}

/* A rank that has ended comes to no barrier: the others would wait for good. */
static void look_for_stuck(struct pmi_host *h)
{
    int waiting = NOBODY, done = NOBODY;
    for (int i = 0; h->n_done > 0 && i < h->opts.n_local; i++) {
        if (is_in_barrier(h, i))
            waiting = i;
        else if (h->ranks[i].is_done)
            done = i;
    }
    if (waiting == NOBODY || done == NOBODY)
        return;
    if (!h->has_said_stuck)
        note_text(h, "MPI: rank %d waits for rank %d, which has already exited",
                  global_rank(h, waiting), global_rank(h, done));
    h->has_said_stuck = true;
    cut_off(h);
}

/* A rank has sent something, or has ended. */
static void advance_pmi(struct pmi_host *h)
{
    if (h->is_cut_off)
        cut_off(h);
    else if (!pmi1_server_is_gathered(h->server))
        look_for_stuck(h);
    else if (h->exchange == NULL)
        release(h);
    else if (h->knows_nodes && !h->is_exchanging)
        begin_exchange(h);
}

/* --- requests of ranks ------------------------------------------------------------------------ */

static void note_news(struct pmi_host *h, int rank, const struct pmi1_rank *before)
{
    const struct pmi1_rank *now = pmi1_server_get_rank(h->server, rank);
    if (now->asked_to_spawn && !before->asked_to_spawn)
        note_text(h,
                  "MPI: rank %d called MPI_Comm_spawn, which ddprun does not support; start all "
                  "ranks at launch",
                  global_rank(h, rank));
    if (!now->aborted || h->aborter != NOBODY)
        return;
    h->aborter = rank;
    h->opts.on_abort(h->opts.arg, rank, mpi_end_of_abort(now->exit_code));
}

/* returns   whether there may be more */
static bool read_rank(struct pmi_host *h, int rank)
{
    uint8_t bytes[READ_BYTES];
    struct host_rank *r = &h->ranks[rank];
    const struct pmi1_rank before = *pmi1_server_get_rank(h->server, rank);
    struct co_error err;
    ssize_t n = recv(rank_line_fd(r->line), bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) { /* it has ended, or has closed its end */
        rank_line_close(&r->line);
        return false;
    }
    if (pmi1_server_feed(h->server, rank, bytes, (size_t)n, &err) < 0) {
        note_text(h, "MPI: rank %d: %s", global_rank(h, rank), err.text);
        rank_line_close(&r->line);
        return false;
    }
    note_news(h, rank, &before);
    return true;
}

static void on_line(void *arg, int rank, int events)
{
    struct pmi_host *h = arg;
    if ((events & UV_READABLE) != 0)
        read_rank(h, rank);
    flush_rank(h, rank);
    advance_pmi(h);
}

int pmi_host_add(struct pmi_host *h, int local_rank, int *ret_worker_fd)
{
    struct host_rank *r = &h->ranks[local_rank];
    rank_line_close(&r->line);
    r->is_full = false;
    return rank_line_open(h->loop, SOCK_STREAM, -1, local_rank,
                          &(struct rank_line_owner){.on_event = on_line, .arg = h}, &r->line,
                          ret_worker_fd);
}

int pmi_host_rank_gone(struct pmi_host *h, int local_rank, int status, bool was_signaled,
                       bool *ret_aborted)
{
    struct host_rank *r = &h->ranks[local_rank];
    for (int i = 0; i < LAST_READS && r->line != NULL && read_rank(h, local_rank); i++) {
    }
    rank_line_close(&r->line);
    const struct pmi1_rank *rank = pmi1_server_get_rank(h->server, local_rank);
    const struct mpi_end end = {.stage = rank->state == PMI1_SILENT   ? MPI_END_SILENT
                                         : rank->state == PMI1_INSIDE ? MPI_END_INSIDE
                                                                      : MPI_END_FINALIZED,
                                .has_aborted = rank->aborted,
                                .exit_code = rank->exit_code,
                                .status = status,
                                .was_signaled = was_signaled};
    enum mpi_end_note note;
    *ret_aborted = end.has_aborted;
    status = mpi_end_status(&end, &note);
    if (note == MPI_END_LEFT)
        note_text(h,
                  "MPI: rank %d exited with 0 without calling MPI_Finalize; ddprun treats this as "
                  "a failure",
                  global_rank(h, local_rank));
    if (note == MPI_END_ALONE && !h->has_said_silent) {
        /* ranks of another MPI each run alone, and exit with 0: one note is enough */
        note_text(h,
                  "MPI: rank %d exited without using PMI-1: if it is an MPI program, its MPI is "
                  "not derived from MPICH and it ran as a singleton; use --mpi pmix for Open MPI, "
                  "mpirun or srun for others",
                  global_rank(h, local_rank));
        h->has_said_silent = true;
    }
    r->is_done = status == 0;
    h->n_done += r->is_done;
    advance_pmi(h);
    return status;
}

/* --- other nodes ------------------------------------------------------------------------------ */

static int read_size(struct pmi_host *h, uint32_t node, const uint8_t *bytes, size_t len)
{
    char text[16];
    int64_t n;
    if (len >= sizeof text)
        return -EPROTO;
    memcpy(text, bytes, len);
    text[len] = '\0';
    if (co_parse_int("ranks", text, 1, INT_MAX, &n, NULL) < 0)
        return -EPROTO;
    h->n_ranks[node] = (uint32_t)n;
    return 0;
}

static void on_part(void *arg, uint32_t node, const uint8_t *bytes, size_t len)
{
    struct pmi_host *h = arg;
    struct co_error err = {.text = "a node sent an invalid number of ranks"};
    int rc = h->knows_nodes ? pmi1_server_learn(h->server, bytes, len, &err)
                            : read_size(h, node, bytes, len);
    if (rc < 0)
        fail_all(h, err.text);
}

static void on_round(void *arg, uint32_t round)
{
    struct pmi_host *h = arg;
    struct co_error err;
    if (h->is_cut_off)
        return;
    if (round > 0) {
        release(h);
    } else if (pmi1_server_set_nodes(h->server, h->n_ranks, (int)h->opts.n_nodes, &err) < 0) {
        fail_all(h, err.text);
        return;
    }
    h->knows_nodes = true;
    flush_all(h);
    advance_pmi(h);
}

static void on_failed(void *arg, const char *text)
{
    fail_all(arg, text);
}

static int open_exchange(struct pmi_host *h, struct co_error *err)
{
    const struct pmi_exchange_opts opts = {.host = h->opts.store_host,
                                           .port = h->opts.store_port,
                                           .generation = h->opts.generation,
                                           .node = h->opts.node,
                                           .n_nodes = h->opts.n_nodes,
                                           .on_part = on_part,
                                           .on_round = on_round,
                                           .on_failed = on_failed,
                                           .arg = h};
    char size[16];
    const int n = snprintf(size, sizeof size, "%d", h->opts.n_local);
    h->n_ranks = calloc(h->opts.n_nodes, sizeof *h->n_ranks);
    if (h->n_ranks == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int rc = pmi_exchange_open(h->loop, &opts, &h->exchange, err);
    if (rc == 0 && pmi_exchange_bring(h->exchange, (const uint8_t *)size, (size_t)n) < 0)
        rc = co_fail(err, -ENOMEM, "out of memory");
    return rc;
}

/* --- the whole -------------------------------------------------------------------------------- */

static int open_pmi_server(struct pmi_host *h, struct co_error *err)
{
    struct pmi1_place place = {.n_local = h->opts.n_local,
                               .world_size = h->opts.world_size,
                               .n_nodes = (int)h->opts.n_nodes,
                               .name = h->name,
                               .appnum = h->opts.appnum};
    snprintf(h->name, sizeof h->name, "ddp-%u", h->opts.generation);
    if (getrandom(&place.seed, sizeof place.seed, 0) != (ssize_t)sizeof place.seed)
        return co_fail(err, -EIO, "cannot get random bytes for PMI");
    return pmi1_server_create(&place, &h->server, err);
}

int pmi_host_open(uv_loop_t *loop, const struct pmi_host_opts *opts, struct pmi_host **ret,
                  struct co_error *err)
{
    struct pmi_host *h = calloc(1, sizeof *h + (size_t)opts->n_local * sizeof h->ranks[0]);
    if (h == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    h->opts = *opts;
    h->loop = loop;
    h->aborter = NOBODY;
    h->knows_nodes = opts->n_nodes == 1;
    int rc = open_pmi_server(h, err);
    if (rc == 0 && opts->n_nodes > 1)
        rc = open_exchange(h, err);
    h->opts.store_host = NULL; /* was lent */
    if (rc < 0) {
        pmi_host_close(h);
        return rc;
    }
    *ret = h;
    return 0;
}

void pmi_host_close(struct pmi_host *h)
{
    if (h == NULL)
        return;
    pmi_exchange_close(h->exchange);
    h->exchange = NULL;
    for (int i = 0; i < h->opts.n_local; i++)
        rank_line_close(&h->ranks[i].line);
    pmi1_server_destroy(h->server);
    free(h->n_ranks);
    free(h);
}
