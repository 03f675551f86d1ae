#include "history.h"

#include <stdlib.h>

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

/* A stop of its generation and node came before its end; or it is what the stop is about. */
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

void history_finish(struct history *h)
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
