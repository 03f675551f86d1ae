#include "node_history.h"

#include "launcher/generation/node_memory.h"
#include "launcher/job/job_spec.h"

#include "segments/rank_status.h"

static bool read_rank(const struct node_view *n, int rank, struct progress *ret)
{
    uint64_t digest;
    return node_memory_read_progress(n->gen->memory, rank, ret, &digest);
}

bool node_history_step(const struct node_view *n, int rank, uint64_t *ret)
{
    struct progress progress;
    if (!read_rank(n, rank, &progress))
        return false;
    *ret = progress.steps_before + progress.steps;
    return true;
}

/* A page that says nothing yet looks as one of ranks that have met before the job's first step. */
static void add(struct events_steps *sum, const struct progress *p, uint32_t generation)
{
    const uint64_t after = p->steps_before + p->steps;
    sum->has_met |= generation == 0 || after > 0;
    if (p->steps_before > sum->before)
        sum->before = p->steps_before;
    if (after > sum->after)
        sum->after = after;
}

static void note_end(const struct node_view *n, bool lives)
{
    const uint32_t generation = n->io->generation; /* the supervisor's may be the next one */
    struct events_steps sum = {.lives = lives};
    struct progress progress;
    bool any = false;
    for (int i = 0; i < n->spec->n_local; i++) {
        if (!read_rank(n, i, &progress))
            continue;
        any = true;
        add(&sum, &progress, generation);
    }
    if (any)
        events_steps(n->events, generation, &sum);
}

const struct node_feature node_history_feature = {.on_end = note_end};
