#include "history.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_times(double a, double b)
{
    return (a > b) - (a < b);
}

static int compare_marks(const void *a, const void *b)
{
    const struct history_mark *one = a, *other = b;
    return compare_times(one->at_s, other->at_s);
}

static int compare_paces(const void *a, const void *b)
{
    const struct history_pace *one = a, *other = b;
    return compare_times(one->at_s, other->at_s);
}

static int compare_numbers(int a, int b)
{
    return (a > b) - (a < b);
}

static int compare_nodes(const void *a, const void *b)
{
    const struct history_stop *one = a, *other = b;
    int order = compare_numbers(one->generation, other->generation);
    return order != 0 ? order : compare_numbers(one->node, other->node);
}

static int compare_stop_times(const void *a, const void *b)
{
    const struct history_stop *one = a, *other = b;
    int order = compare_nodes(a, b);
    return order != 0 ? order : compare_times(one->at_s, other->at_s);
}

static int compare_stop_ranks(const void *a, const void *b)
{
    const struct history_stop *one = a, *other = b;
    int order = compare_nodes(a, b);
    return order != 0 ? order : compare_numbers(one->rank, other->rank);
}

/* Ready for fate_of(): each has the time of its node's first one, and they are in order of rank. */
static void sort_stops(struct history *h)
{
    if (h->n_stops == 0)
        return;
    qsort(h->stops, h->n_stops, sizeof *h->stops, compare_stop_times);
    for (size_t i = 1; i < h->n_stops; i++)
        if (compare_nodes(&h->stops[i], &h->stops[i - 1]) == 0)
            h->stops[i].at_s = h->stops[i - 1].at_s;
    qsort(h->stops, h->n_stops, sizeof *h->stops, compare_stop_ranks);
}

static const struct history_stop *find_stop(const struct history *h, const struct history_run *run,
                                            int (*compare)(const void *a, const void *b))
{
    const struct history_stop key = {
        .generation = run->generation, .node = run->node, .rank = run->rank};
    return h->n_stops > 0 ? bsearch(&key, h->stops, h->n_stops, sizeof key, compare) : NULL;
}

/* FATE_STOPPED: a stop of its generation and node precedes its end, and is not about this run. */
static enum history_fate fate_of(const struct history *h, const struct history_run *run)
{
    if (!run->has_ended)
        return FATE_RUNS;
    if (run->code == 0)
        return FATE_WELL;
    if (find_stop(h, run, compare_stop_ranks) != NULL)
        return FATE_FAILED;
    if (run->lost_peer)
        return FATE_CONSEQUENCE;
    const struct history_stop *stop = find_stop(h, run, compare_nodes);
    return stop != NULL && stop->at_s <= run->ended_s ? FATE_STOPPED : FATE_FAILED;
}

/* --- Nodes that start or end together --- */

static bool is_start(const struct history_mark *m)
{
    return strcmp(m->kind, HISTORY_JOB_START) == 0;
}

static bool is_end(const struct history_mark *m)
{
    return strcmp(m->kind, HISTORY_JOB_END) == 0;
}

static void join(struct history_mark *all, struct history_mark *m)
{
    all->n_nodes++;
    all->node = -1;
    if (is_start(all) && m->number > 0)
        all->number += m->number;
    free(m->text);
}

/* returns   whether there is memory for it */
static bool rewrite(struct history_mark *m)
{
    char *text = NULL;
    if (m->n_nodes == 1)
        return true;
    int n = is_start(m)
                ? asprintf(&text, "%d nodes started with %" PRId64 " ranks", m->n_nodes, m->number)
                : asprintf(&text, "%d nodes exited with status %" PRId64, m->n_nodes, m->number);
    if (n < 0)
        return false;
    free(m->text);
    m->text = text;
    return true;
}

/* Marks in order of time. A job that has ended may start once more. */
static int join_nodes(struct history *h)
{
    size_t n = 0, last = 0; /* the number of the mark that others join, plus 1; 0: none */
    for (size_t i = 0; i < h->n_marks; i++) {
        struct history_mark *m = &h->marks[i], *all = last > 0 ? &h->marks[last - 1] : NULL;
        const bool is_either = is_start(m) || is_end(m);
        if (is_either && all != NULL && is_start(all) == is_start(m) &&
            (is_start(m) || all->number == m->number)) {
            join(all, m);
            continue;
        }
        h->marks[n++] = *m;
        last = is_either ? n : last;
    }
    h->n_marks = n;
    for (size_t i = 0; i < n; i++)
        if (!rewrite(&h->marks[i]))
            return -ENOMEM;
    return 0;
}

void history_set_now(struct history *h, double now_s)
{
    h->is_running = true;
    if (h->n_events > 0 && now_s > h->last_s)
        h->last_s = now_s;
}

int history_finish(struct history *h)
{
    if (h->n_marks > 0)
        qsort(h->marks, h->n_marks, sizeof *h->marks, compare_marks);
    if (h->n_paces > 0)
        qsort(h->paces, h->n_paces, sizeof *h->paces, compare_paces);
    sort_stops(h);
    for (size_t i = 0; i < h->n_runs; i++) {
        h->runs[i].fate = fate_of(h, &h->runs[i]);
        if (!h->runs[i].has_ended)
            h->runs[i].ended_s = h->last_s;
    }
    return join_nodes(h);
}

int history_n_ranks(const struct history *h)
{
    int n = 0;
    for (size_t i = 0; i < h->n_runs; i++)
        n = h->runs[i].rank >= n ? h->runs[i].rank + 1 : n;
    return n;
}

int history_n_generations(const struct history *h)
{
    int n = 0;
    for (size_t i = 0; i < h->n_runs; i++)
        n = h->runs[i].generation >= n ? h->runs[i].generation + 1 : n;
    return n;
}
