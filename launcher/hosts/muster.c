#include "muster.h"

#include "common/clock.h"

#include <stdlib.h>

struct muster {
    struct muster_limits limits;
    size_t n_in[MUSTER_N_PHASES];
    uint64_t enough_ms; /* when min_nodes were up; CO_NEVER_MS: not yet */
    bool has_begun;     /* somebody was told */
    struct {
        enum muster_phase phase;
        uint64_t since_ms; /* of REACHING */
    } hosts[];
};

struct muster *muster_create(const struct muster_limits *limits)
{
    struct muster *m = calloc(1, sizeof *m + limits->n_hosts * sizeof m->hosts[0]);
    if (m == NULL)
        return NULL;
    m->limits = *limits;
    m->n_in[MUSTER_IDLE] = limits->n_hosts;
    m->enough_ms = CO_NEVER_MS;
    return m;
}

void muster_destroy(struct muster *m)
{
    free(m);
}

/* Those that are nodes, or can be told to be. */
static size_t n_there(const struct muster *m)
{
    return m->n_in[MUSTER_UP] + m->n_in[MUSTER_TOLD] + m->n_in[MUSTER_READY];
}

static size_t n_open(const struct muster *m)
{
    return m->n_in[MUSTER_IDLE] + m->n_in[MUSTER_REACHING];
}

void muster_set(struct muster *m, size_t host, enum muster_phase phase, uint64_t now_ms)
{
    m->n_in[m->hosts[host].phase]--;
    m->n_in[phase]++;
    m->hosts[host].phase = phase;
    m->hosts[host].since_ms = now_ms;
    m->has_begun |= phase == MUSTER_TOLD;
    if (n_there(m) < m->limits.min_nodes)
        m->enough_ms = CO_NEVER_MS;
    else if (m->enough_ms == CO_NEVER_MS)
        m->enough_ms = now_ms;
}

enum muster_phase muster_get(const struct muster *m, size_t host)
{
    return m->hosts[host].phase;
}

size_t muster_count(const struct muster *m, enum muster_phase phase)
{
    return m->n_in[phase];
}

static bool can_be_enough(const struct muster *m)
{
    return n_there(m) + n_open(m) >= m->limits.min_nodes;
}

ptrdiff_t muster_next(const struct muster *m)
{
    if (m->n_in[MUSTER_REACHING] >= m->limits.at_once || m->n_in[MUSTER_IDLE] == 0 ||
        (!m->has_begun && !can_be_enough(m)))
        return -1;
    size_t host = 0;
    while (m->hosts[host].phase != MUSTER_IDLE)
        host++;
    return (ptrdiff_t)host;
}

ptrdiff_t muster_late(const struct muster *m, uint64_t now_ms)
{
    for (size_t i = 0; m->n_in[MUSTER_REACHING] > 0 && i < m->limits.n_hosts; i++)
        if (m->hosts[i].phase == MUSTER_REACHING &&
            now_ms - m->hosts[i].since_ms >= m->limits.reach_ms)
            return (ptrdiff_t)i;
    return -1;
}

enum muster_state muster_look(const struct muster *m, uint64_t now_ms)
{
    if (m->has_begun)
        return n_there(m) + n_open(m) > 0 ? MUSTER_GOES : MUSTER_IS_OVER;
    if (!can_be_enough(m))
        return m->n_in[MUSTER_REACHING] > 0 ? MUSTER_GATHERS : MUSTER_IS_SHORT;
    if (n_open(m) == 0)
        return MUSTER_GOES;
    bool waited = m->enough_ms != CO_NEVER_MS && now_ms - m->enough_ms >= m->limits.window_ms;
    return waited ? MUSTER_GOES : MUSTER_GATHERS;
}

uint64_t muster_deadline_ms(const struct muster *m)
{
    uint64_t first_ms = CO_NEVER_MS;
    for (size_t i = 0; m->n_in[MUSTER_REACHING] > 0 && i < m->limits.n_hosts; i++)
        if (m->hosts[i].phase == MUSTER_REACHING &&
            m->hosts[i].since_ms + m->limits.reach_ms < first_ms)
            first_ms = m->hosts[i].since_ms + m->limits.reach_ms;
    if (!m->has_begun && m->enough_ms != CO_NEVER_MS &&
        m->enough_ms + m->limits.window_ms < first_ms)
        first_ms = m->enough_ms + m->limits.window_ms;
    return first_ms;
}
