#include "node_steps.h"

#include "launcher/job/job_spec.h"
#include "launcher/supervisor/pace.h"

#include "common/clock.h"
#include "common/error.h"
#include "segments/rank_status.h"

#include <errno.h>
#include <stdlib.h>

enum { LOOK_MS = 1000 };

static bool read_rank(const struct node_view *n, int rank, struct progress *ret)
{
    uint64_t digest;
    return generation_read_progress(n->gen, rank, ret, &digest);
}

bool node_steps_of(const struct node_view *n, int rank, uint64_t *ret)
{
    struct progress progress;
    if (!read_rank(n, rank, &progress))
        return false;
    *ret = progress.steps_before + progress.steps;
    return true;
}

/* A page without data yet looks like one of ranks that have joined before the job's first step. */
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

/* --- The pace --- */

struct node_pace {
    const struct node_view *n;
    uv_timer_t timer;
    struct pace_rank *ranks; /* owned */
    uint32_t generation;
    uint64_t begun_ms, next_ms; /* start of the generation; when the pace is reported next */
    uint64_t told_steps;        /* what was known then */
};

void node_steps_tell_pace(const struct node_view *n)
{
    struct node_pace *p = n->parts->pace;
    struct pace pace;
    if (p == NULL || p->n->gen->memory == NULL) /* a node may end before its generation begins */
        return;
    for (int i = 0; i < p->n->spec->n_local; i++) {
        struct progress progress;
        uint64_t digest;
        const bool has_page = generation_read_progress(p->n->gen, i, &progress, &digest);
        p->ranks[i] = pace_of(has_page ? &progress : NULL);
    }
    pace_judge(p->ranks, p->n->spec->n_local, &pace);
    if (pace.slowest < 0 || pace.steps == p->told_steps)
        return;
    p->told_steps = pace.steps;
    events_pace(p->n->events, supervisor_generation(p->n->supervisor), &pace, p->ranks,
                p->n->spec->n_local);
}

static void on_time(uv_timer_t *timer)
{
    struct node_pace *p = timer->data;
    const uint64_t now_ms = co_now_ms();
    const uint32_t generation = supervisor_generation(p->n->supervisor);
    if (supervisor_get_state(p->n->supervisor) != SUPERVISOR_RUNNING)
        return;
    if (generation != p->generation) {
        p->generation = generation;
        p->begun_ms = now_ms;
        p->next_ms = 0;
    }
    if (pace_is_due(&p->next_ms, p->begun_ms, now_ms))
        node_steps_tell_pace(p->n);
}

static int pace_open(const struct node_view *n, struct co_error *err)
{
    if (n->spec->events == NULL)
        return 0;
    struct node_pace *p = calloc(1, sizeof *p);
    struct pace_rank *ranks = calloc((size_t)n->spec->n_local, sizeof *ranks);
    if (p == NULL || ranks == NULL) {
        free(p);
        free(ranks);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    *p = (struct node_pace){.n = n, .ranks = ranks, .begun_ms = co_now_ms()};
    uv_timer_init(n->loop, &p->timer);
    p->timer.data = p;
    uv_timer_start(&p->timer, on_time, LOOK_MS, LOOK_MS);
    n->parts->pace = p;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct node_pace *p = handle->data;
    free(p->ranks);
    free(p);
}

static void pace_close(const struct node_view *n)
{
    if (n->parts->pace != NULL)
        uv_close((uv_handle_t *)&n->parts->pace->timer, on_closed);
}

const struct node_feature node_steps_feature = {
    .open = pace_open, .on_end = note_end, .close = pace_close};
