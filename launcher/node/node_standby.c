#include "node_standby.h"

#include "launcher/generation/checkpoint_request.h"
#include "launcher/generation/node_memory.h"
#include "launcher/generation/progress_pipes.h"
#include "launcher/job/job_spec.h"
#include "launcher/stdio/rank_io.h"

#include "common/clock.h"
#include "common/error.h"
#include "segments/node_socket.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 20,         /* until the first step is completed, and for new ones */
    FIRST_WAIT_MS = 1000, /* after one that ended without a rank, then twice as long each time */
    TRIES = 5,
};

enum standby_state {
    STANDBY_NONE,
    STANDBY_ASKED, /* the spawner has not answered */
    STANDBY_WAITS,
};

struct standby {
    enum standby_state state;
    struct standby_ends ends; /* unless NONE */
};

struct node_standby {
    const struct node_view *n;
    uv_timer_t timer;
    uint64_t next_ms; /* none is started before */
    int n_failed;     /* in a row */
    struct standby of[];
};

static int count_of(const struct node_standby *w)
{
    return w->n->spec->n_standby;
}

static int number_of(const struct node_standby *w, int i)
{
    return w->n->spec->n_local + i;
}

/* --- starting --------------------------------------------------------------------------------- */

static void note_failed(struct node_standby *w, const char *why)
{
    w->n_failed++; /* beyond TRIES, if several wait */
    const int n_doubled = w->n_failed < TRIES ? w->n_failed - 1 : TRIES - 1;
    w->next_ms = co_now_ms() + ((uint64_t)FIRST_WAIT_MS << n_doubled);
    if (w->n_failed == TRIES)
        node_say(w->n, CO_WARNING, "--standby: no more standby processes are started: %s %d times",
                 why, TRIES);
}

static void start_one(struct node_standby *w, int i)
{
    const struct node_view *n = w->n;
    struct standby *s = &w->of[i];
    if (start_standby(n->start, number_of(w, i), node_memory_most_bytes(n->gen->memory), &s->ends) <
        0)
        note_failed(w, "one failed to start");
    else
        s->state = STANDBY_ASKED;
}

/* The ranks end, and no rank will be taken: those that wait hear it by the end of their socket,
 * whatever they do about signals. */
static void let_go(struct node_standby *w)
{
    for (int i = 0; i < count_of(w); i++)
        standby_ends_close(&w->of[i].ends);
}

/* Not while ranks are starting; and only when it is known how much memory they need. */
static void on_time(uv_timer_t *timer)
{
    struct node_standby *w = timer->data;
    const struct node_view *n = w->n;
    const enum supervisor_state state = supervisor_get_state(n->supervisor);
    if (state == SUPERVISOR_STOPPING || state == SUPERVISOR_LEFTOVERS)
        let_go(w);
    if (state != SUPERVISOR_RUNNING || w->n_failed >= TRIES || co_now_ms() < w->next_ms ||
        node_memory_most_steps(n->gen->memory) == 0)
        return;
    for (int i = 0; i < count_of(w); i++)
        if (w->of[i].state == STANDBY_NONE) {
            start_one(w, i);
            return;
        }
}

/* --- stepping in ------------------------------------------------------------------------------ */

static int find_waiting(const struct node_standby *w)
{
    for (int i = 0; i < count_of(w); i++)
        if (w->of[i].state == STANDBY_WAITS)
            return i;
    return -1;
}

static int tell_place(const struct node_standby *w, int fd, int rank)
{
    char path[PATH_MAX];
    struct node_message take = {
        .magic = NODE_SOCKET_MAGIC,
        .version = NODE_SOCKET_VERSION,
        .type = NODE_TAKE,
        .local_rank = (uint32_t)rank,
        .n_local = (uint32_t)w->n->spec->n_local,
        .generation = supervisor_generation(w->n->supervisor),
        .place.rank = (uint32_t)(w->n->start->first_rank + rank),
    };
    rank_io_error_file(w->n->io, w->n->runtime_dir, rank, path, sizeof path);
    if (strlen(path) < sizeof take.text) /* without it, only the text of an exception is lost */
        strcpy(take.text, path);
    return node_message_send(fd, &take, -1);
}

/* What is handed over is not closed here any more. */
static int hand_over(struct node_standby *w, struct standby_ends *e, int rank)
{
    const struct node_view *n = w->n;
    int rc = tell_place(w, e->node_fd, rank);
    if (rc == 0) {
        rc = rank_io_adopt(n->io, rank, n->start->first_rank + rank, e->out, NULL);
        e->out[0] = e->out[1] = -1;
    }
    if (rc == 0) {
        rc = node_memory_adopt(n->gen->memory, rank, e->node_fd);
        e->node_fd = -1;
    }
    if (rc == 0 && n->gen->checkpoint_request != NULL && e->checkpoint_fd >= 0) {
        rc = checkpoint_request_adopt(n->gen->checkpoint_request, rank, e->checkpoint_fd);
        e->checkpoint_fd = -1;
    }
    if (rc == 0) {
        rc = progress_pipes_adopt(n->gen->pipes, rank, e->progress_fd);
        e->progress_fd = -1;
    }
    return rc;
}

bool node_standby_take(const struct node_view *n, int rank)
{
    struct node_standby *w = n->parts->standby;
    const int i = w != NULL ? find_waiting(w) : -1;
    if (i < 0)
        return false;
    struct standby *s = &w->of[i];
    int rc = hand_over(w, &s->ends, rank);
    standby_ends_close(&s->ends);
    if (rc == 0)
        rc = spawner_renumber(w->n->spawner, number_of(w, i), rank);
    if (rc < 0) { /* it may know its rank already: it must not become that rank */
        spawner_signal_one(w->n->spawner, SPAWNER_GROUP, number_of(w, i), SIGKILL);
        return false;
    }
    s->state = STANDBY_NONE;
    w->n_failed = 0;
    return true;
}

/* --- hearing ---------------------------------------------------------------------------------- */

static void hear_end(struct node_standby *w, struct standby *s, const char *why)
{
    if (s->state != STANDBY_NONE)
        note_failed(w, why);
    standby_ends_close(&s->ends);
    s->state = STANDBY_NONE;
}

bool node_standby_hear(const struct node_view *n, const struct spawner_report *r)
{
    struct node_standby *w = n->parts->standby;
    if (w == NULL || r->local_rank < 0)
        return false;
    const int i = r->local_rank - w->n->spec->n_local;
    if (i < 0 || i >= count_of(w))
        return false;
    struct standby *s = &w->of[i];
    if (r->event == SPAWNER_STARTED && s->state == STANDBY_ASKED)
        s->state = STANDBY_WAITS;
    else if (r->event == SPAWNER_START_FAILED)
        hear_end(w, s, "one failed to start");
    else if (r->event == SPAWNER_EXITED)
        hear_end(w, s, "one exited before it got a rank");
    if (r->empty) /* it was the last that ran */
        node_post(w->n, &(struct supervisor_event){.type = SUPERVISOR_EV_EMPTY});
    return true;
}

/* All that ran has been swept. */
static void forget(const struct node_view *n, bool lives)
{
    struct node_standby *w = n->parts->standby;
    if (w == NULL || lives)
        return;
    for (int i = 0; i < count_of(w); i++) {
        standby_ends_close(&w->of[i].ends);
        w->of[i].state = STANDBY_NONE;
    }
    w->n_failed = 0;
}

/* --- the whole -------------------------------------------------------------------------------- */

static int standby_open(const struct node_view *n, struct co_error *err)
{
    const size_t n_standby = (size_t)n->spec->n_standby;
    if (n_standby == 0)
        return 0;
    struct node_standby *w = calloc(1, sizeof *w + n_standby * sizeof w->of[0]);
    if (w == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    w->n = n;
    for (size_t i = 0; i < n_standby; i++)
        w->of[i].ends = standby_ends_none;
    uv_timer_init(n->loop, &w->timer);
    w->timer.data = w;
    uv_timer_start(&w->timer, on_time, LOOK_MS, LOOK_MS);
    n->parts->standby = w;
    return 0;
}

static void standby_close(const struct node_view *n)
{
    if (n->parts->standby == NULL)
        return;
    forget(n, false);
    uv_close((uv_handle_t *)&n->parts->standby->timer, node_free_data);
}

const struct node_feature node_standby_feature = {
    .open = standby_open, .on_end = forget, .close = standby_close};
