#include "node_replay.h"

#include "launcher/generation/node_memory.h"
#include "launcher/job/job_spec.h"
#include "launcher/reporting/replay.h"
#include "launcher/reporting/replay_read.h"
#include "launcher/supervisor/rank_numbers.h"
#include "node_leave.h"
#include "node_priv.h"
#include "node_roster.h"

#include "common/error.h"
#include "common/scope.h"
#include "segments/rank_status.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_MS = 1 };

struct local {     /* a rank of this node */
    bool is_ended; /* by us, and is to count as one that ended with ... */
    int status;
};

struct node_replay {
    struct node *n;
    struct replay *replay;         /* owned */
    struct replay_action *actions; /* owned; REPLAY_MAX_DEEDS */
    struct local *local;           /* owned; of each rank, as the next two */
    bool *held, *runs;             /* by their places in the generation */
    uv_timer_t timer;
    uint32_t generation; /* that was looked at */
    bool has_looked;
    bool differs; /* from the history: nothing is done any more */
    bool has_met; /* its ranks have, and that was compared */
};

bool node_replay_find_hold(const struct node_replay *r, uint32_t generation, uint64_t *ret_steps)
{
    return r != NULL && !r->differs && replay_find_hold(r->replay, generation, ret_steps);
}

int node_replay_status(struct node_replay *r, int rank, int status)
{
    if (r == NULL || !r->local[rank].is_ended)
        return status;
    r->local[rank].is_ended = false;
    return r->local[rank].status;
}

/* --- Is it the same? --- */

__attribute__((format(printf, 2, 3))) static void differ(struct node_replay *r, const char *format,
                                                         ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->differs = true;
    node_memory_let_go(r->n->gen.memory);
    node_say(r->n, "ddprun: replay: generation %" PRIu32 " %s: nothing is repeated any more\n",
             r->generation, text);
    events_replay(&r->n->events, r->generation, "differs", -1);
}

static void compare_place(struct node_replay *r)
{
    const struct generation_place *p = &r->n->start.place;
    struct replay_shape was;
    if (!replay_get(r->replay, r->generation, &was))
        differ(r, "is not in %.150s", r->n->spec->replay);
    else if (was.n_nodes != (uint32_t)p->n_nodes ||
             (was.world > 0 && was.world != (uint32_t)p->world_size))
        differ(r, "has %d nodes and %d ranks, and had %" PRIu32 " and %" PRIu32 " (%.100s:%u)",
               p->n_nodes, p->world_size, was.n_nodes, was.world, r->n->spec->replay, was.line);
}

/* A rank waits, so all have met. */
static void compare_steps(struct node_replay *r, const struct progress *p)
{
    struct replay_shape was;
    r->has_met = true;
    if (replay_get(r->replay, r->generation, &was) && was.has_before &&
        was.before != p->steps_before)
        differ(r, "began behind step %" PRIu64 ", and did behind step %" PRIu64 " (%.100s:%u)",
               p->steps_before, was.before, r->n->spec->replay, was.line);
}

/* --- What is to be done --- */

static const char *const action_names[] = {
    [REPLAY_KILL] = "kill",       [REPLAY_SIGNAL] = "signal", [REPLAY_DIE] = "die",
    [REPLAY_RESTART] = "restart", [REPLAY_AWAIT] = "await",
};

static void kill_rank(struct node_replay *r, int rank, int status)
{
    r->local[rank] = (struct local){.is_ended = true, .status = status};
    if (spawner_signal_one(&r->n->spawner, SPAWNER_MAIN, rank, SIGKILL) < 0)
        node_lose_spawner(r->n);
}

/* Of several nodes each asks the roster, which does it once: those that come later hear that their
 * ranks are being stopped. */
static void restart(struct node *n)
{
    if (n->agent != NULL)
        node_roster_restart(n->agent);
    else
        node_feed(n, &(struct supervisor_event){.type = SUPERVISOR_EV_RESTART});
}

static struct rank_numbers places(const struct node *n)
{
    return (struct rank_numbers){.supervisor = n->supervisor};
}

static void carry_out(struct node_replay *r, const struct replay_action *action)
{
    struct node *n = r->n;
    const int rank =
        action->type == REPLAY_KILL
            ? rank_of_number(places(n), supervisor_n_ranks(n->supervisor), (int)action->rank)
            : -1;
    events_replay(&n->events, r->generation, action_names[action->type], rank);
    switch (action->type) {
    case REPLAY_KILL:
        kill_rank(r, rank, action->status);
        break;
    case REPLAY_SIGNAL: /* its ranks may want to save their state */
        node_memory_let_go(n->gen.memory);
        node_leave_signal(n, action->sig, false);
        break;
    case REPLAY_DIE:
        kill(getpid(), SIGKILL);
        break;
    case REPLAY_RESTART:
        restart(n);
        break;
    case REPLAY_AWAIT:
        node_say(n, "ddprun: replay: generation %" PRIu32 " waits for %" PRIu32 " node%s to join\n",
                 r->generation, action->n_nodes, action->n_nodes == 1 ? "" : "s");
        break;
    }
}

/* returns   how many have a place */
static int look_at_ranks(struct node_replay *r)
{
    const struct node *n = r->n;
    int n_places = 0;
    for (int i = 0; i < n->spec->n_local; i++) {
        const struct supervisor_rank *rank = supervisor_get_rank(n->supervisor, i);
        struct progress progress;
        uint64_t digest;
        if (rank->is_dropped)
            continue;
        const int at = n_places++;
        r->runs[at] = rank->phase == RANK_RUNS;
        r->held[at] = r->runs[at] &&
                      node_memory_read_progress(n->gen.memory, i, &progress, &digest) &&
                      progress.is_held;
        if (r->held[at] && !r->has_met)
            compare_steps(r, &progress);
    }
    return n_places;
}

static void do_what_is_due(struct node_replay *r, int n_places)
{
    const struct node *n = r->n;
    const struct replay_view view = {.generation = r->generation,
                                     .node = (uint32_t)n->start.place.node_rank,
                                     .first_rank = (uint32_t)n->start.first_rank,
                                     .n_local = (uint32_t)n_places,
                                     .held = r->held,
                                     .runs = r->runs};
    const size_t n_actions = replay_look(r->replay, &view, r->actions);
    for (size_t i = 0; i < n_actions; i++)
        carry_out(r, &r->actions[i]);
}

static bool is_under_way(const struct node *n)
{
    const enum supervisor_state state = supervisor_get_state(n->supervisor);
    return state == SUPERVISOR_RUNNING || state == SUPERVISOR_RECOVERING;
}

static void on_time(uv_timer_t *timer)
{
    struct node_replay *r = timer->data;
    if (r->differs || !is_under_way(r->n))
        return;
    if (!r->has_looked || r->generation != r->n->io.generation) {
        r->generation = r->n->io.generation;
        r->has_looked = true;
        r->has_met = false;
        compare_place(r);
    }
    const int n_places = r->differs ? 0 : look_at_ranks(r); /* that is told once */
    if (!r->differs)
        do_what_is_due(r, n_places);
}

void node_replay_tell_end(struct node_replay *r)
{
    if (r == NULL || r->differs)
        return;
    const uint32_t n_had = replay_n_generations(r->replay);
    uint64_t steps;
    if (r->has_looked && !r->has_met && replay_find_hold(r->replay, r->generation, &steps))
        differ(r, "ended before step %" PRIu64, steps + 1);
    else if (r->has_looked && r->generation + 1 == n_had)
        node_say(r->n, "ddprun: replay: it went as before, in %" PRIu32 " generation%s\n", n_had,
                 n_had == 1 ? "" : "s");
    else
        node_say(r->n,
                 "ddprun: replay: this node's part is over in generation %" PRIu32 " of %" PRIu32
                 "\n",
                 r->generation, n_had);
}

/* --- Beginning and end --- */

static void destroy(struct node_replay *r)
{
    replay_destroy(r->replay);
    free(r->actions);
    free(r->local);
    free(r->held);
    free(r->runs);
    free(r);
}

static int read_file(const char *path, struct replay **ret, struct co_error *err)
{
    co_autoclose FILE *in = fopen(path, "re");
    if (in == NULL)
        return co_fail(err, -EBADMSG, "cannot open %s to repeat what it tells: %s", path,
                       strerror(errno));
    const int rc = replay_read(in, path, ret, err);
    return rc < 0 && rc != -ENOMEM ? -EBADMSG : rc;
}

static int make(struct node *n, struct node_replay *r, struct co_error *err)
{
    const size_t n_local = (size_t)n->spec->n_local;
    r->actions = calloc(REPLAY_MAX_DEEDS, sizeof *r->actions);
    r->local = calloc(n_local, sizeof *r->local);
    r->held = calloc(n_local, sizeof *r->held);
    r->runs = calloc(n_local, sizeof *r->runs);
    if (r->actions == NULL || r->local == NULL || r->held == NULL || r->runs == NULL)
        return co_fail(err, -ENOMEM, "no memory for a replay");
    return read_file(n->spec->replay, &r->replay, err);
}

int node_replay_open(struct node *n, struct node_replay **ret, struct co_error *err)
{
    if (n->spec->replay == NULL)
        return 0;
    struct node_replay *r = calloc(1, sizeof *r);
    if (r == NULL)
        return co_fail(err, -ENOMEM, "no memory for a replay");
    r->n = n;
    int rc = make(n, r, err);
    if (rc < 0) {
        destroy(r);
        return rc;
    }
    uv_timer_init(&n->loop, &r->timer);
    r->timer.data = r;
    uv_timer_start(&r->timer, on_time, LOOK_MS, LOOK_MS);
    *ret = r;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    destroy(handle->data);
}

void node_replay_close(struct node_replay *r)
{
    if (r != NULL)
        uv_close((uv_handle_t *)&r->timer, on_closed);
}
