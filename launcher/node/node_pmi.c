/* node_pmi.c - this node's part in PMI-1 or PMIx, and the ranks that call MPI_Abort.
 *
 * Of such ranks the first is ended here; the others are stopped as after any failure.
 *
 *     NONE        on_abort(): other nodes take part, and it may be the cause    -> REPORTED
 *                             else                                             -> ANSWERED
 *     REPORTED    the supervisor hears ABORTED                                  -> HELD
 *     HELD        the rank waits in MPI_Abort, with its connections, and no rank of this node is
 *                 stopped because of it: so no rank of another node can fail because of it before
 *                 the coordinator has decided. Also in REPORTED:
 *                   the coordinator has decided, the ranks are stopped for another reason, the rank
 *                   has ended, or SUPERVISOR_CAUSE_MS                           -> ANSWERED
 *     ANSWERED    its call returns, and it ends by itself. A rank of PMI-1 waits. ABORT_MS
 *                                                                               -> TERMINATED
 *     TERMINATED  it has SIGTERM, and SIGKILL after failure_grace_ms
 *
 * A rank that was already ending when the answer was given does not end because of it. */
#include "node_pmi.h"

#include "launcher/generation/node_memory.h"
#include "launcher/generation/pmi_host.h"
#include "launcher/generation/pmix_host.h"
#include "launcher/job/job_spec.h"
#include "launcher/platform/binding.h"
#include "launcher/spawner/runtime_dir.h"
#include "node_dump.h"
#include "node_errors.h"

#include "common/error.h"
#include "common/process.h"
#include "common/tree.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

enum { NO_RANK = -1 };

enum abort_state { ABORT_NONE, ABORT_REPORTED, ABORT_HELD, ABORT_ANSWERED, ABORT_TERMINATED };

struct node_pmi {
    const struct node_view *n;
    struct pmi_host *host;        /* owned; of this generation; NULL: none yet, or PMIx is used */
    struct pmix_host *pmix;       /* owned; NULL: PMI-1 is used */
    const char *shared_directory; /* borrowed; made for PMIx; NULL: none */
    int *appnum;                  /* owned; the number of each rank's program; NULL: there is one */
    enum abort_state abort;
    int aborter;   /* NO_RANK, or local */
    bool has_stop; /* which waits for the coordinator: */
    struct supervisor_event stop;
    bool *was_ending; /* owned; each local rank: the answer is not why it ends */
    uv_timer_t timer; /* of the state */
};

enum { ABORT_MS = 50 }; /* for an end by itself: MPICH's ranks wait to be ended */

static void on_note(void *arg, const char *text)
{
    struct node_pmi *p = arg;
    const enum supervisor_state state = supervisor_get_state(p->n->supervisor);
    if (state == SUPERVISOR_STARTING || state == SUPERVISOR_RUNNING || state == SUPERVISOR_AWAITING)
        node_say(p->n, CO_WARNING, "%s", text); /* else the ranks are being stopped anyway */
}

/* --- ranks that abort ------------------------------------------------------------------------- */

static void on_abort_time(uv_timer_t *timer);

static void enter(struct node_pmi *p, enum abort_state state, uint64_t ms)
{
    p->abort = state;
    uv_update_time(p->n->loop);
    uv_timer_start(&p->timer, on_abort_time, ms, 0);
}

static bool is_held(const struct node_pmi *p)
{
    return p->abort == ABORT_REPORTED || p->abort == ABORT_HELD;
}

static void note_endings(struct node_pmi *p)
{
    struct co_process process;
    for (int i = 0; i < p->n->spec->n_local; i++)
        p->was_ending[i] =
            co_process_look(supervisor_get_rank(p->n->supervisor, i)->pid, &process, NULL) == 0 &&
            process.is_ending;
}

/* A stop that had to wait follows as well. */
static void answer(struct node_pmi *p)
{
    note_endings(p);
    if (p->has_stop && !node_dump_holds(p->n, &p->stop))
        node_post(p->n, &p->stop);
    p->has_stop = false;
    if (p->pmix != NULL)
        pmix_host_answer_aborts(p->pmix);
    enter(p, ABORT_ANSWERED, ABORT_MS);
}

static void signal_aborter(struct node_pmi *p, enum spawner_target target, int sig)
{
    if (spawner_signal_one(p->n->spawner, target, p->aborter, sig) < 0)
        node_lose_spawner(p->n);
}

static void on_abort_time(uv_timer_t *timer)
{
    struct node_pmi *p = timer->data;
    if (is_held(p)) {
        answer(p);
    } else if (p->abort == ABORT_ANSWERED) {
        enter(p, ABORT_TERMINATED, p->n->spec->failure_grace_ms);
        signal_aborter(p, SPAWNER_MAIN, SIGTERM);
    } else {
        signal_aborter(p, SPAWNER_GROUP, SIGKILL);
    }
}

/* While a failure is held back for a dump, that one came first. What was a consequence by the
 * rank's own word has its cause elsewhere, and is not urgent. */
static bool may_be_cause(const struct node_pmi *p, int rank)
{
    return p->n->start->place.n_nodes > 1 && !node_dump_is_busy(p->n) &&
           !node_memory_has_lost_peer(p->n->gen->memory, rank) &&
           !node_errors_says_peer_lost(p->n, rank);
}

static void on_abort(void *arg, int local_rank, int status)
{
    struct node_pmi *p = arg;
    p->aborter = local_rank;
    if (!may_be_cause(p, local_rank)) {
        answer(p);
        return;
    }
    enter(p, ABORT_REPORTED, SUPERVISOR_CAUSE_MS);
    node_post(p->n, &(struct supervisor_event){.type = SUPERVISOR_EV_ABORTED,
                                               .rank = local_rank,
                                               .status = status,
                                               .progress = node_progress(p->n)});
}

static void pmi_on_event(const struct node_view *n, const struct supervisor_event *e)
{
    struct node_pmi *p = n->parts->pmi;
    if (p != NULL && p->abort == ABORT_REPORTED && e->type == SUPERVISOR_EV_ABORTED)
        p->abort = ABORT_HELD;
}

/* The ranks are being stopped, or the supervisor does not take it for the cause. */
static void pmi_on_step(const struct node_view *n)
{
    struct node_pmi *p = n->parts->pmi;
    if (p != NULL && p->abort == ABORT_HELD && supervisor_get_aborter(n->supervisor) < 0)
        answer(p);
}

bool node_pmi_holds(const struct node_view *n, const struct supervisor_event *e)
{
    struct node_pmi *p = n->parts->pmi;
    if (p == NULL || !is_held(p) || e->type != SUPERVISOR_EV_ORDER_STOP)
        return false;
    p->stop = *e;
    p->has_stop = true;
    return true;
}

void node_pmi_note_stop(const struct node_view *n)
{
    struct node_pmi *p = n->parts->pmi;
    if (p != NULL && is_held(p))
        answer(p);
}

static void forget_abort(struct node_pmi *p)
{
    uv_timer_stop(&p->timer);
    p->abort = ABORT_NONE;
    p->aborter = NO_RANK;
    p->has_stop = false;
}

/* --- generations ------------------------------------------------------------------------------ */

static int number_programs(struct node_pmi *p)
{
    const struct job_spec *spec = p->n->spec;
    int number = 0;
    if (spec->more == NULL)
        return 0;
    p->appnum = calloc((size_t)spec->n_local, sizeof *p->appnum);
    if (p->appnum == NULL)
        return -ENOMEM;
    for (int i = 0; i < spec->n_local; i++) {
        if (number < spec->more->n && i >= spec->more->of[number].first_rank)
            number++;
        p->appnum[i] = number;
    }
    return 0;
}

static void take_variables(struct node_pmi *p)
{
    struct generation_place *place = &p->n->start->place;
    place->n_variables = pmix_host_variables(p->pmix, &place->variables);
}

static void on_ready(void *arg, int failure)
{
    struct node_pmi *p = arg;
    take_variables(p);
    p->n->resume(p->n->node, failure);
}

bool node_pmi_is_meeting(const struct node_view *n)
{
    const struct node_pmi *p = n->parts->pmi;
    return p != NULL && p->pmix != NULL && pmix_host_is_meeting(p->pmix);
}

/* Early: see pmix_host_open(). */
static int open_pmix(struct node_pmi *p, struct co_error *err)
{
    if (p->n->spec->mpi != MPI_BY_PMIX)
        return 0;
    p->shared_directory = runtime_dir_make_shared(p->n->runtime_names, p->n->runtime_dir);
    const struct pmix_host_opts opts = {.n_local = p->n->spec->n_local,
                                        .has_others = p->n->spec->world.has_others,
                                        .directory = p->n->runtime_dir,
                                        .shared_directory = p->shared_directory,
                                        .on_note = on_note,
                                        .on_abort = on_abort,
                                        .on_ready = on_ready,
                                        .arg = p};
    return pmix_host_open(p->n->loop, &opts, &p->pmix, err);
}

static int pmi_open(const struct node_view *n, struct co_error *err)
{
    if (n->spec->mpi == MPI_BY_NOTHING)
        return 0;
    struct node_pmi *p = calloc(1, sizeof *p);
    if (p == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    p->n = n;
    p->aborter = NO_RANK;
    p->was_ending = calloc((size_t)n->spec->n_local, sizeof *p->was_ending);
    if (p->was_ending == NULL || number_programs(p) < 0) {
        free(p->was_ending);
        free(p);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    uv_timer_init(n->loop, &p->timer);
    p->timer.data = p;
    n->parts->pmi = p;
    return open_pmix(p, err);
}

static int renew_pmi1(struct node_pmi *p, struct co_error *err)
{
    const struct generation_place *place = &p->n->start->place;
    const struct pmi_host_opts opts = {.n_local = place->local_world_size,
                                       .world_size = place->world_size,
                                       .first_rank = p->n->start->first_rank,
                                       .node = (uint32_t)place->node_rank,
                                       .n_nodes = (uint32_t)place->n_nodes,
                                       .generation = place->generation,
                                       .store_host = place->master_addr,
                                       .store_port = place->master_port,
                                       .appnum = p->appnum,
                                       .on_note = on_note,
                                       .on_abort = on_abort,
                                       .arg = p};
    pmi_host_close(p->host);
    p->host = NULL;
    int rc = pmi_host_open(p->n->loop, &opts, &p->host, err);
    p->n->start->pmi = p->host;
    return rc;
}

static int renew_pmix(struct node_pmi *p, struct co_error *err)
{
    const struct generation_place *place = &p->n->start->place;
    const struct binding *binding = p->n->spec->binding;
    const struct cpu_set *cpus[JOB_RANKS_MAX];
    const bool is_bound = binding != NULL && binding->is_bound;
    for (int i = 0; is_bound && i < place->local_world_size; i++)
        cpus[i] = &binding->ranks[i].cpus;
    const struct pmix_host_place for_host = {.first_rank = p->n->start->first_rank,
                                             .world_size = (uint32_t)place->world_size,
                                             .generation = place->generation,
                                             .node = (uint32_t)place->node_rank,
                                             .n_nodes = (uint32_t)place->n_nodes,
                                             .store_host = place->master_addr,
                                             .store_port = place->master_port,
                                             .appnum = p->appnum,
                                             .cpus = is_bound ? cpus : NULL};
    int rc = pmix_host_begin(p->pmix, &for_host, err);
    if (rc == 0)
        take_variables(p); /* of a single node; else they follow */
    return rc;
}

/* The generation before has no ranks any more. n->start gets what the new ones connect to. */
static int pmi_renew(const struct node_view *n)
{
    struct node_pmi *p = n->parts->pmi;
    struct co_error err;
    if (p == NULL)
        return 0;
    forget_abort(p);
    int rc = p->pmix != NULL ? renew_pmix(p, &err) : renew_pmi1(p, &err);
    if (rc < 0)
        node_say(p->n, CO_ERROR, "MPI: %s", err.text);
    return rc;
}

void node_pmi_note_exit(const struct node_view *n, struct supervisor_exit *x)
{
    struct node_pmi *p = n->parts->pmi;
    if (p == NULL || (p->host == NULL && p->pmix == NULL))
        return;
    const bool was_answered = p->abort == ABORT_ANSWERED || p->abort == ABORT_TERMINATED;
    bool has_aborted;
    x->status = p->pmix != NULL
                    ? pmix_host_rank_gone(p->pmix, x->rank, x->status, !x->was_ending, &has_aborted)
                    : pmi_host_rank_gone(p->host, x->rank, x->status, !x->was_ending, &has_aborted);
    x->aborts = has_aborted && n->start->place.n_nodes > 1;
    if (x->rank == p->aborter && is_held(p))
        answer(p);
    if (x->rank == p->aborter)
        uv_timer_stop(&p->timer);
    else if (was_answered && !p->was_ending[x->rank])
        x->aborter = p->aborter;
}

static void on_closed(uv_handle_t *handle)
{
    struct node_pmi *p = handle->data;
    free(p->appnum);
    free(p->was_ending);
    free(p);
}

static void pmi_close(const struct node_view *n)
{
    struct node_pmi *p = n->parts->pmi;
    if (p == NULL)
        return;
    pmi_host_close(p->host);
    p->host = NULL;
    pmix_host_close(p->pmix);
    p->pmix = NULL;
    if (p->shared_directory != p->n->runtime_dir)
        co_tree_remove(p->shared_directory);
    uv_close((uv_handle_t *)&p->timer, on_closed);
}

const struct node_feature node_pmi_feature = {.open = pmi_open,
                                              .on_event = pmi_on_event,
                                              .on_step = pmi_on_step,
                                              .on_generation = pmi_renew,
                                              .close = pmi_close};
