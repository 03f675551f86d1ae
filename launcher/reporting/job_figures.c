#include "job_figures.h"

#include "launcher/supervisor/rank_numbers.h"
#include "status_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- other nodes --- */

static void forget_node(struct job_figures_node *node)
{
    free(node->host);
    free(node->ranks);
    *node = (struct job_figures_node){0};
}

void job_figures_fini(struct job_figures *f)
{
    for (uint32_t i = 0; i < f->n_nodes; i++)
        forget_node(&f->nodes[i]);
    free(f->nodes);
    *f = (struct job_figures){0};
}

int job_figures_begin(struct job_figures *f, uint32_t generation, uint32_t n_nodes, uint64_t now_ms)
{
    job_figures_fini(f);
    f->nodes = calloc(n_nodes, sizeof *f->nodes);
    if (f->nodes == NULL)
        return -ENOMEM;
    f->generation = generation;
    f->n_nodes = n_nodes;
    f->begun_ms = now_ms;
    return 0;
}

int job_figures_take(struct job_figures *f, const struct message *m, uint64_t now_ms)
{
    const struct message_figures *from = &m->figures;
    if (m->generation != f->generation || from->node_index == 0 || from->node_index >= f->n_nodes)
        return -ESTALE;
    struct job_figures_node *node = &f->nodes[from->node_index];
    f->n_ranks -= node->n;
    forget_node(node);
    if (from->n_ranks > JOB_FIGURES_MAX_RANKS - f->n_ranks)
        return -E2BIG;
    node->host = strdup(from->host);
    node->ranks = calloc(from->n_ranks + 1, sizeof *node->ranks);
    if (node->host == NULL || node->ranks == NULL) {
        forget_node(node);
        return -ENOMEM;
    }
    if (from->n_ranks > 0)
        memcpy(node->ranks, from->ranks, from->n_ranks * sizeof *node->ranks);
    node->n = from->n_ranks;
    node->heard_ms = now_ms;
    f->n_ranks += node->n;
    return 0;
}

uint64_t job_figures_age_ms(const struct job_figures *f, uint32_t node, uint64_t now_ms)
{
    const uint64_t heard_ms = f->nodes[node].heard_ms;
    const uint64_t since_ms = heard_ms != 0 ? heard_ms : f->begun_ms;
    return now_ms > since_ms ? now_ms - since_ms : 0;
}

bool job_figures_is_stale(const struct job_figures *f, uint32_t node, uint64_t now_ms)
{
    return job_figures_age_ms(f, node, now_ms) >= JOB_FIGURES_STALE_MS;
}

/* --- this node --- */

const char *job_figures_phase_name(enum message_phase phase)
{
    static const char *const names[] = {
        [MESSAGE_PHASE_NOT_STARTED] = "not started",
        [MESSAGE_PHASE_ASKED] = "asked",
        [MESSAGE_PHASE_RUNS] = "running",
        [MESSAGE_PHASE_ENDED] = "ended",
        [MESSAGE_PHASE_FAILED_TO_START] = "failed to start",
    };
    return names[phase];
}

enum message_phase job_figures_phase(enum supervisor_phase phase)
{
    static const enum message_phase phases[] = {
        [RANK_NOT_STARTED] = MESSAGE_PHASE_NOT_STARTED,
        [RANK_ASKED] = MESSAGE_PHASE_ASKED,
        [RANK_RUNS] = MESSAGE_PHASE_RUNS,
        [RANK_ENDED] = MESSAGE_PHASE_ENDED,
        [RANK_FAILED_TO_START] = MESSAGE_PHASE_FAILED_TO_START,
    };
    return phases[phase];
}

static uint64_t since(uint64_t from_ms, uint64_t to_ms)
{
    const uint64_t ms = to_ms > from_ms ? to_ms - from_ms : 0;
    return ms < MESSAGE_MAX_MS ? ms : MESSAGE_MAX_MS;
}

bool job_figures_of_rank(const struct status *s, int local_rank, struct message_figures_rank *ret)
{
    const struct rank_numbers numbers = {.first = s->first_rank, .supervisor = s->supervisor};
    const struct supervisor_rank *r = supervisor_get_rank(s->supervisor, local_rank);
    const struct status_rank *more = &s->ranks[local_rank];
    const uint64_t steps = more->progress.steps_before + more->progress.steps;
    const bool ran = r->phase == RANK_RUNS || r->phase == RANK_ENDED;
    *ret = (struct message_figures_rank){
        .rank = (uint32_t)rank_number(numbers, local_rank),
        .pid = r->pid,
        .phase = job_figures_phase(r->phase),
        .status = r->phase == RANK_ENDED ? (uint16_t)r->status : 0,
        .restarts = more->restarts,
        .age_ms = ran ? since(r->started_ms, r->phase == RANK_ENDED ? r->ended_ms : s->now_ms) : 0,
        .has_steps = more->has_progress,
        .steps = !more->has_progress         ? 0
                 : steps < MESSAGE_MAX_STEPS ? steps
                                             : MESSAGE_MAX_STEPS,
        .own_ns = more->own_ns,
        .silent_ms = more->output_ms != 0 ? since(more->output_ms, s->now_ms) : MESSAGE_MAX_MS};
    return !r->is_dropped;
}
