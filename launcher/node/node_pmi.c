#include "node_pmi.h"

#include "launcher/generation/pmi_host.h"
#include "launcher/generation/pmix_host.h"
#include "launcher/job/job_spec.h"
#include "launcher/platform/binding.h"
#include "launcher/spawner/runtime_dir.h"

#include "common/error.h"
#include "common/tree.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

struct node_pmi {
    const struct node_view *n;
    struct pmi_host *host;        /* owned; of this generation; NULL: none yet, or PMIx is used */
    struct pmix_host *pmix;       /* owned; NULL: PMI-1 is used */
    const char *shared_directory; /* borrowed; made for PMIx; NULL: none */
    int *appnum;                  /* owned; the number of each rank's program; NULL: there is one */
    uv_timer_t timer;             /* a rank that aborts is to have ended */
    bool is_told;                 /* it was sent SIGTERM */
};

enum { ABORT_MS = 50 }; /* for an end by itself: MPICH's ranks wait to be ended */

static void on_note(void *arg, const char *text)
{
    struct node_pmi *p = arg;
    const enum supervisor_state state = supervisor_get_state(p->n->supervisor);
    if (state == SUPERVISOR_STARTING || state == SUPERVISOR_RUNNING || state == SUPERVISOR_AWAITING)
        node_say(p->n, CO_WARNING, "%s", text); /* else the ranks are being stopped anyway */
}

static int aborter(const struct node_pmi *p)
{
    return p->pmix != NULL ? pmix_host_aborter(p->pmix) : pmi_host_aborter(p->host);
}

static void on_overdue(uv_timer_t *timer)
{
    struct node_pmi *p = timer->data;
    const int rank = aborter(p);
    const bool is_last = p->is_told;
    p->is_told = true;
    if (!is_last)
        uv_timer_start(&p->timer, on_overdue, p->n->spec->failure_grace_ms, 0);
    if (spawner_signal_one(p->n->spawner, is_last ? SPAWNER_GROUP : SPAWNER_MAIN, rank,
                           is_last ? SIGKILL : SIGTERM) < 0)
        node_lose_spawner(p->n);
}

static void on_abort(void *arg, int local_rank)
{
    struct node_pmi *p = arg;
    (void)local_rank;
    uv_update_time(p->n->loop);
    p->is_told = false;
    uv_timer_start(&p->timer, on_overdue, ABORT_MS, 0);
}

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
    if (number_programs(p) < 0) {
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
    uv_timer_stop(&p->timer);
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
    x->status = p->pmix != NULL ? pmix_host_rank_gone(p->pmix, x->rank, x->status, !x->was_ending)
                                : pmi_host_rank_gone(p->host, x->rank, x->status, !x->was_ending);
    x->aborter = aborter(p);
    if (x->rank == x->aborter)
        uv_timer_stop(&p->timer);
}

static void on_closed(uv_handle_t *handle)
{
    struct node_pmi *p = handle->data;
    free(p->appnum);
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

const struct node_feature node_pmi_feature = {
    .open = pmi_open, .on_generation = pmi_renew, .close = pmi_close};
