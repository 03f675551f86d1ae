#include "figures.h"

#include <stddef.h>

/* returns whether the node takes part in the generation */
static bool find_member(const struct peer *p, uint32_t generation, struct roster_node_view *ret)
{
    return roster_generation(p->job->roster) == generation &&
           roster_view_link(p->job->roster, p->link, ret) && ret->is_member;
}

static void ask_others(struct peer *first, uint32_t generation)
{
    struct job *job = first->job;
    const struct jobs *j = job->jobs;
    const struct message m = {.type = MESSAGE_FIGURES,
                              .generation = generation,
                              .figures = {.kind = MESSAGE_FIGURES_ASKED}};
    struct roster_node_view view;
    if (uv_now(j->loop) < job->figures_next_ms)
        return;
    job->figures_next_ms = uv_now(j->loop) + FIGURES_EVERY_MS;
    job->figures_link = first->link;
    for (uint32_t i = 0; i < j->n_slots; i++) {
        struct peer *p = j->peers[i];
        if (p == NULL || p == first || p->job != job || !find_member(p, generation, &view))
            continue;
        p->owes_figures = true;
        jobs_send(p, &m);
    }
}

/* The place that the node itself states means nothing. */
static void pass_on(struct peer *p, const struct message *m, uint32_t node_index)
{
    struct peer *first = jobs_find_peer(p->jobs, p->job->figures_link);
    struct message copy = *m;
    copy.figures.node_index = node_index;
    if (p->owes_figures && first != NULL && first->job == p->job)
        jobs_send(first, &copy);
    p->owes_figures = false;
}

void figures_take(struct peer *p, const struct message *m)
{
    struct roster_node_view view;
    if (!find_member(p, m->generation, &view))
        return;
    if (m->figures.kind == MESSAGE_FIGURES_RANKS)
        pass_on(p, m, view.node_index);
    else if (view.node_index == 0)
        ask_others(p, m->generation);
}
