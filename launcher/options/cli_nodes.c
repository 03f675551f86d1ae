/* The options about how many nodes there are, and which one this is. */
#include "cli_draft.h"
#include "launcher/job/job_spec.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* "4" or "2:4" */
static int parse_nodes(const struct given *g, uint32_t *ret_min, uint32_t *ret_max,
                       struct co_error *err)
{
    char first[24];
    int64_t min, max;
    size_t n = strcspn(g->value, ":");
    snprintf(first, sizeof first, "%.*s", n < sizeof first ? (int)n : 0, g->value);
    const char *second = g->value[n] == ':' ? g->value + n + 1 : first;
    int min_rc = co_parse_int(g->by, first, 1, MESSAGE_MAX_NODES, &min, NULL);
    int max_rc = co_parse_int(g->by, second, 1, MESSAGE_MAX_NODES, &max, NULL);
    if (min_rc < 0 || max_rc < 0)
        return co_fail(err, -EINVAL, "%s '%.200s' is neither a number from 1 to %d nor MIN:MAX",
                       g->by, g->value, MESSAGE_MAX_NODES);
    if (min > max)
        return co_fail(err, -EINVAL, "%s '%s': the minimum is above the maximum", g->by, g->value);
    *ret_min = (uint32_t)min;
    *ret_max = (uint32_t)max;
    return 0;
}

/* Where nodes have numbers, the only one has 0. */
static int check_only_rank(const struct draft *d, int64_t rank, bool standalone,
                           struct co_error *err)
{
    const struct given *g = &d->given[OPTION_NODE_RANK];
    const struct given *backend = &d->given[OPTION_RDZV_BACKEND];
    bool counts = !standalone && (backend->value == NULL || strcmp(backend->value, "static") == 0);
    if (rank == 0 || !counts)
        return 0;
    return co_fail(err, -EINVAL,
                   "%s %s: there is one node, whose number is 0; --nnodes says how many there are",
                   g->by, g->value);
}

static int set_node_rank(const struct draft *d, struct job_world *w, bool standalone,
                         struct co_error *err)
{
    const struct given *g = &d->given[OPTION_NODE_RANK];
    int64_t rank = 0;
    w->node_rank = MESSAGE_NO_RANK;
    if (g->value == NULL)
        return 0;
    int rc = co_parse_int(g->by, g->value, 0, INT32_MAX, &rank, err);
    if (rc < 0 || !w->guided)
        return rc < 0 ? rc : check_only_rank(d, rank, standalone, err);
    if (rank >= w->max_nodes)
        return co_fail(err, -EINVAL, "%s %s: with at most %u nodes the last one's number is %u",
                       g->by, g->value, w->max_nodes, w->max_nodes - 1);
    w->node_rank = (int32_t)rank;
    return 0;
}

int cli_set_nodes(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_NNODES];
    struct job_world *w = &spec->world;
    bool standalone;
    w->min_nodes = w->max_nodes = 1;
    int rc = cli_flag(d, OPTION_STANDALONE, &standalone, err);
    if (rc == 0 && g->value != NULL)
        rc = parse_nodes(g, &w->min_nodes, &w->max_nodes, err);
    if (rc < 0)
        return rc;
    if (spec->remote != NULL && g->value == NULL)
        w->min_nodes = w->max_nodes = (uint32_t)spec->remote->hosts.n;
    else if (spec->remote != NULL && w->max_nodes > spec->remote->hosts.n)
        return co_fail(err, -EINVAL, "%s %s, and there are %zu hosts", g->by, g->value,
                       spec->remote->hosts.n);
    if (w->max_nodes > 1 && standalone)
        return co_fail(err, -EINVAL,
                       "%s %s and %s contradict each other: a standalone job has one "
                       "node",
                       g->by, g->value, d->given[OPTION_STANDALONE].by);
    w->guided = w->max_nodes > 1 || spec->remote != NULL || d->assignment != NULL;
    return set_node_rank(d, w, standalone, err);
}
