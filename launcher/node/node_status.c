#include "node_status.h"

#include "launcher/generation/generation.h"
#include "launcher/generation/node_memory.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/worker_env.h"
#include "launcher/reporting/job_figures.h"
#include "launcher/stdio/output.h"
#include "launcher/trainjob/trainjob_poster.h"
#include "node_goodput.h"
#include "node_roster.h"
#include "node_stacks.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct node_figures { /* of the first node of several, with --http */
    const struct node_view *n;
    uv_timer_t timer;
    struct job_figures figures;
    uint64_t asked_ms; /* 0: not in this generation */
};

struct rank_facts {
    uint32_t n_starts;
    uint64_t came_ms; /* the last time; a rank may come before we hear that it was started */
};

struct node_status {
    uint64_t n_looked_at;  /* connections that the store had had when arrivals were looked for */
    uint64_t looked_in_ms; /* and the beginning of the generation then */
    struct rank_facts ranks[];
};

static void note_event(const struct node_view *n, const struct supervisor_event *e)
{
    struct rank_facts *ranks = n->parts->status->ranks;
    if (e->type == SUPERVISOR_EV_STARTED)
        ranks[e->rank].n_starts++;
    else if (e->type == SUPERVISOR_EV_JOINED)
        ranks[e->rank].came_ms = co_now_ms();
}

/* The last one that is not empty, in place. */
static const char *last_line(char *tail)
{
    if (tail == NULL)
        return NULL;
    size_t n = strlen(tail);
    while (n > 0 && tail[n - 1] == '\n')
        tail[--n] = '\0';
    const char *newline = strrchr(tail, '\n');
    return newline != NULL ? newline + 1 : tail;
}

/* What is in memory: a request must not make the loop wait for a slow file system. */
static char *tail_at_hand(const struct rank_io *io, int local_rank)
{
    return rank_io_bypasses(io, local_rank) ? NULL : rank_io_tail(io, local_rank);
}

/* A rank that reports nothing itself may have connected to the store. Look again when a connection
 * has arrived since. */
static void look_for_arrivals(const struct node_view *n, uint64_t generation_ms)
{
    struct node_status *p = n->parts->status;
    int n_local = n->spec->n_local;
    uint64_t n_connections = n->gen->store != NULL ? server_n_connections(n->gen->store) : 0;
    if (n_connections == 0 || (n_connections == p->n_looked_at && generation_ms == p->looked_in_ms))
        return;
    co_autofree struct arrival *list = calloc((size_t)n_local, sizeof *list);
    p->n_looked_at = n_connections;
    p->looked_in_ms = generation_ms;
    for (int i = 0; list != NULL && i < n_local; i++) {
        const struct supervisor_rank *r = supervisor_get_rank(n->supervisor, i);
        if (r->phase == RANK_RUNS && p->ranks[i].came_ms < generation_ms)
            list[i].pid = r->pid;
    }
    if (list != NULL)
        store_arrivals_find(n->gen->store, list, n_local);
    for (int i = 0; list != NULL && i < n_local; i++)
        if (list[i].came_ms != 0)
            p->ranks[i].came_ms = list[i].came_ms;
}

static void fill_ranks(const struct node_view *n, struct node_status_data *d)
{
    uint64_t generation_ms = supervisor_generation_ms(n->supervisor);
    look_for_arrivals(n, generation_ms);
    for (int i = 0; i < n->spec->n_local; i++) {
        const struct rank_facts *r = &n->parts->status->ranks[i];
        d->tails[i] = tail_at_hand(n->io, i);
        d->ranks[i] = (struct status_rank){.last_line = last_line(d->tails[i]),
                                           .output_ms = output_rank_ms(n->output, i),
                                           .came_ms = r->came_ms >= generation_ms ? r->came_ms : 0,
                                           .restarts = r->n_starts > 0 ? r->n_starts - 1 : 0};
    }
}

/* How fast the steps are, as libddp's ranks report. */
static void judge_pace(const struct node_view *n, struct status_rank *ranks, struct pace *ret)
{
    const unsigned n_local = (unsigned)n->spec->n_local;
    co_autofree struct pace_rank *paces = calloc(n_local, sizeof *paces);
    *ret = (struct pace){.slowest = -1};
    for (unsigned i = 0; paces != NULL && i < n_local; i++) {
        uint64_t digest;
        struct status_rank *r = &ranks[i];
        r->wait = node_memory_wait_of(n->gen->memory, (int)i);
        r->has_progress = generation_read_progress(n->gen, (int)i, &r->progress, &digest);
        paces[i] = pace_of(r->has_progress ? &r->progress : NULL);
        r->own_ns = paces[i].is_known ? paces[i].own_ns : 0;
    }
    if (paces != NULL)
        pace_judge(paces, (int)n_local, ret);
}

int node_status_collect(const struct node_view *n, struct node_status_data *d)
{
    const size_t n_local = (size_t)n->spec->n_local;
    const struct node_figures *others = n->parts->figures;
    struct generation_place place = {0};
    *d = (struct node_status_data){.ranks = calloc(n_local, sizeof *d->ranks),
                                   .tails = calloc(n_local, sizeof *d->tails)};
    if (d->ranks == NULL || d->tails == NULL) {
        node_status_release(d);
        return -ENOMEM;
    }
    gethostname(d->host, sizeof d->host - 1);
    fill_ranks(n, d);
    judge_pace(n, d->ranks, &d->pace);
    const uint64_t now_ms = co_now_ms();
    d->goodput = node_goodput_read(n, now_ms);
    d->status = (struct status){.spec = n->spec,
                                .supervisor = n->supervisor,
                                .ranks = d->ranks,
                                .pace = &d->pace,
                                .goodput = &d->goodput,
                                .host = d->host,
                                .version = DDPRUN_VERSION,
                                .events = n->events->real_path,
                                .http = n->parts->http_address,
                                .pid = getpid(),
                                .now_ms = now_ms,
                                .begun_ms = n->begun_ms,
                                .generation_ms = supervisor_generation_ms(n->supervisor)};
    d->status.unhealthy = n->parts->unhealthy;
    node_stacks_fill_nccl(n, &d->status);
    d->status.others = others != NULL && others->figures.nodes != NULL ? &others->figures : NULL;
    node_roster_fill_place(n->parts->roster, &place, &d->status.first_rank);
    d->status.node = place.node_rank;
    d->status.n_nodes = place.n_nodes;
    d->status.world = place.world_size;
    d->status.waiting = node_roster_waiting(n->parts->roster);
    return 0;
}

void node_status_release(struct node_status_data *d)
{
    const int n = d->status.spec != NULL ? d->status.spec->n_local : 0;
    for (int i = 0; i < n; i++)
        free(d->tails[i]);
    free(d->tails);
    free(d->ranks);
    *d = (struct node_status_data){0};
}

/* --- the ranks of other nodes --- */

enum { LOOK_MS = 1000 };

static bool is_running(const struct node_view *n)
{
    return supervisor_get_state(n->supervisor) == SUPERVISOR_RUNNING;
}

/* The place is that of the generation that runs. */
static bool is_first(const struct node_view *n)
{
    const struct generation_place *place = &n->start->place;
    return is_running(n) && place->node_rank == 0 && place->n_nodes > 1;
}

/* returns whether what arrives can be kept */
static bool enter(struct node_figures *p, uint64_t now_ms)
{
    const uint32_t n_nodes = (uint32_t)p->n->start->place.n_nodes;
    const uint32_t generation = supervisor_generation(p->n->supervisor);
    if (p->figures.nodes != NULL && p->figures.generation == generation &&
        p->figures.n_nodes == n_nodes)
        return true;
    p->asked_ms = 0;
    return job_figures_begin(&p->figures, generation, n_nodes, now_ms) == 0;
}

static void on_time(uv_timer_t *timer)
{
    struct node_figures *p = timer->data;
    const uint64_t now_ms = co_now_ms();
    if (!is_first(p->n)) {
        job_figures_fini(&p->figures);
        return;
    }
    if (!enter(p, now_ms) || (p->asked_ms != 0 && now_ms - p->asked_ms < NODE_STATUS_ASK_MS))
        return;
    p->asked_ms = now_ms;
    const struct message m = {.type = MESSAGE_FIGURES,
                              .generation = p->figures.generation,
                              .figures = {.kind = MESSAGE_FIGURES_ASKED}};
    node_roster_send(p->n->parts->roster, &m);
}

static void answer(const struct node_view *n, uint32_t generation)
{
    struct node_status_data data;
    const size_t n_local = (size_t)n->spec->n_local;
    size_t n_ranks = 0;
    co_autofree struct message_figures_rank *ranks = calloc(n_local, sizeof *ranks);
    if (ranks == NULL || !is_running(n) || supervisor_generation(n->supervisor) != generation ||
        node_status_collect(n, &data) < 0)
        return;
    for (size_t i = 0; i < n_local; i++)
        n_ranks += job_figures_of_rank(&data.status, (int)i, &ranks[n_ranks]);
    const struct message m = {.type = MESSAGE_FIGURES,
                              .generation = generation,
                              .figures = {.kind = MESSAGE_FIGURES_RANKS,
                                          .node_index = (uint32_t)data.status.node,
                                          .host = data.host,
                                          .n_ranks = n_ranks,
                                          .ranks = ranks}};
    node_roster_send(n->parts->roster, &m);
    node_status_release(&data);
}

static void hear_figures(const struct node_view *n, const struct message *m)
{
    struct node_figures *p = n->parts->figures;
    if (m->figures.kind == MESSAGE_FIGURES_ASKED)
        answer(n, m->generation);
    else if (p != NULL && p->figures.nodes != NULL)
        job_figures_take(&p->figures, m, co_now_ms());
}

static int figures_open(const struct node_view *n, struct co_error *err)
{
    if (n->spec->http == NULL || !n->spec->world.has_others)
        return 0;
    struct node_figures *p = calloc(1, sizeof *p);
    if (p == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    p->n = n;
    uv_timer_init(n->loop, &p->timer);
    p->timer.data = p;
    uv_timer_start(&p->timer, on_time, LOOK_MS, LOOK_MS);
    n->parts->figures = p;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct node_figures *p = handle->data;
    job_figures_fini(&p->figures);
    free(p);
}

static void figures_close(const struct node_view *n)
{
    if (n->parts->figures != NULL)
        uv_close((uv_handle_t *)&n->parts->figures->timer, on_closed);
    n->parts->figures = NULL;
}

static int status_open(const struct node_view *n, struct co_error *err)
{
    struct node_status *p = calloc(1, sizeof *p + (size_t)n->spec->n_local * sizeof p->ranks[0]);
    if (p == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    n->parts->status = p;
    n->parts->hear_figures = hear_figures;
    return figures_open(n, err);
}

static void status_close(const struct node_view *n)
{
    figures_close(n);
    n->parts->hear_figures = NULL;
    free(n->parts->status);
    n->parts->status = NULL;
}

/* --- The TrainJob that the job belongs to --- */

/* Nothing is known before a rank of this node has completed a step; only the first node posts. */
static bool read_progress(void *arg, struct trainjob_progress *ret)
{
    const struct node_view *n = arg;
    struct node_status_data data;
    uint64_t most = 0;
    if (node_status_collect(n, &data) < 0)
        return false;
    const struct status *s = &data.status;
    for (int i = 0; i < n->spec->n_local; i++) {
        const struct status_rank *r = &s->ranks[i];
        const uint64_t steps = r->progress.steps_before + r->progress.steps;
        most = r->has_progress && steps > most ? steps : most;
    }
    const bool is_known = most > 0 && s->node == 0;
    if (is_known)
        *ret = (struct trainjob_progress){.steps = most,
                                          .total = n->spec->trainjob_steps,
                                          .step_s = (double)s->pace->step_ns / 1e9,
                                          .goodput = goodput_ratio(s->goodput),
                                          .generation = n->io->generation,
                                          .world_size = s->world};
    node_status_release(&data);
    return is_known;
}

static void warn(void *arg, const char *text)
{
    node_say(arg, CO_WARNING, "%s", text);
}

static int trainjob_open(const struct node_view *n, struct co_error *err)
{
    const struct trainjob_user user = {read_progress, warn, (void *)n};
    struct co_error why = {0};
    if (n->spec->trainjob_steps == 0)
        return 0;
    (void)err;
    if (trainjob_poster_open(n->loop, &user, &n->parts->trainjob, &why) < 0)
        node_say(n, CO_WARNING, "--trainjob-progress ignored: %s", why.text);
    return 0;
}

/* The pages of the ranks are still there. */
static void trainjob_on_end(const struct node_view *n, bool lives)
{
    (void)lives;
    if (n->parts->trainjob != NULL)
        trainjob_poster_look(n->parts->trainjob);
}

static void trainjob_close(const struct node_view *n)
{
    trainjob_poster_close(n->parts->trainjob);
    n->parts->trainjob = NULL;
}

const struct node_feature node_trainjob_feature = {
    .open = trainjob_open, .on_end = trainjob_on_end, .close = trainjob_close};

const struct node_feature node_status_feature = {
    .open = status_open, .on_event = note_event, .close = status_close};
