/* net_map.c - positions: ranks are sorted by node to find each node's lowest rank, and again by
 * that and by local rank. */
#include "net_map.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct net_place place;
    unsigned rank, lowest; /* of the node's ranks */
};

static int compare_nodes(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->place.node != y->place.node)
        return x->place.node < y->place.node ? -1 : 1;
    return x->rank < y->rank ? -1 : 1;
}

static int compare_places(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->lowest != y->lowest)
        return x->lowest < y->lowest ? -1 : 1;
    return x->place.local_rank < y->place.local_rank ? -1 : 1;
}

static int map_fill(struct net_map *m, const struct entry *e, unsigned rank, struct co_error *err)
{
    m->is_identity = true;
    for (unsigned i = 0; i < m->n; i++) {
        const bool begins = i == 0 || e[i].place.node != e[i - 1].place.node;
        if (!begins && e[i].place.local_rank == e[i - 1].place.local_rank)
            return co_fail(err, -EINVAL, "ranks %u and %u are both local rank %u of one node",
                           e[i - 1].rank, e[i].rank, e[i].place.local_rank);
        if (begins)
            m->first[m->n_nodes++] = i;
        m->rank_at[i] = e[i].rank;
        m->position_of[e[i].rank] = i;
        m->is_identity = m->is_identity && e[i].rank == i;
    }
    m->first[m->n_nodes] = m->n;
    m->position = m->position_of[rank];
    m->node = net_map_node_of(m, m->position);
    m->local = m->position - m->first[m->node];
    m->n_slots = m->n;
    for (unsigned k = 0; k < m->n_nodes; k++) {
        const unsigned n_local = net_map_n_local(m, k);
        m->n_slots = n_local < m->n_slots ? n_local : m->n_slots;
        m->n_most = n_local > m->n_most ? n_local : m->n_most;
    }
    return 0;
}

int net_map_init(struct net_map *m, const struct net_place *place, unsigned n, unsigned rank,
                 struct co_error *err)
{
    co_autofree struct entry *e = calloc(n, sizeof *e);
    *m = (struct net_map){.n = n, .first = calloc(3 * (size_t)n + 1, sizeof *m->first)};
    if (e == NULL || m->first == NULL) {
        net_map_fini(m);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    m->rank_at = m->first + n + 1;
    m->position_of = m->rank_at + n;
    for (unsigned r = 0; r < n; r++)
        e[r] = (struct entry){.place = place[r], .rank = r};
    qsort(e, n, sizeof *e, compare_nodes);
    for (unsigned i = 0; i < n; i++)
        e[i].lowest = i > 0 && e[i].place.node == e[i - 1].place.node ? e[i - 1].lowest : e[i].rank;
    qsort(e, n, sizeof *e, compare_places);
    const int code = map_fill(m, e, rank, err);
    if (code != 0)
        net_map_fini(m);
    return code;
}

void net_map_fini(struct net_map *m)
{
    free(m->first);
    *m = (struct net_map){0};
}
