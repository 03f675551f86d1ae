#include "node_figures.h"

#include "launcher/job/job_spec.h"
#include "launcher/job/worker_env.h"
#include "launcher/reporting/job_figures.h"
#include "node_roster.h"
#include "node_status.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <stdlib.h>

enum { LOOK_MS = 1000 };

struct node_figures {
    const struct node_view *n;
    uv_timer_t timer;
    struct job_figures figures;
    uint64_t asked_ms; /* 0: not in this generation */
};

static bool is_running(const struct node_view *n)
{
    return supervisor_get_state(n->supervisor) == SUPERVISOR_RUNNING;
}

/* --- the first node --- */

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
    if (!enter(p, now_ms) || (p->asked_ms != 0 && now_ms - p->asked_ms < NODE_FIGURES_MS))
        return;
    p->asked_ms = now_ms;
    const struct message m = {.type = MESSAGE_FIGURES,
                              .generation = p->figures.generation,
                              .figures = {.kind = MESSAGE_FIGURES_ASKED}};
    node_roster_send(p->n->parts->roster, &m);
}

const struct job_figures *node_figures_get(const struct node_view *n)
{
    const struct node_figures *p = n->parts->figures;
    return p != NULL && p->figures.nodes != NULL ? &p->figures : NULL;
}

/* --- another node --- */

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

void node_figures_hear(const struct node_view *n, const struct message *m)
{
    struct node_figures *p = n->parts->figures;
    if (m->figures.kind == MESSAGE_FIGURES_ASKED)
        answer(n, m->generation);
    else if (p != NULL && p->figures.nodes != NULL)
        job_figures_take(&p->figures, m, co_now_ms());
}

/* --- beginning and end --- */

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

const struct node_feature node_figures_feature = {.open = figures_open, .close = figures_close};
