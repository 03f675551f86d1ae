#include "bringup.h"

#include "common/clock.h"

#include <stdbool.h>
#include <stdlib.h>

struct bringup {
    struct bringup_limits limits;
    size_t n_in[BRINGUP_N_PHASES];
    uint64_t enough_ms; /* when min_nodes were up; CO_NEVER_MS: not yet */
    bool has_begun;     /* at least one host has its order */
    struct {
        enum bringup_phase phase;
        uint64_t since_ms;  /* of AGAIN and REACHING */
        uint64_t missed_ms; /* since when it is to be reached; CO_NEVER_MS: it is a node, or its
                             * turn has not come */
    } hosts[];
};

struct bringup *bringup_create(const struct bringup_limits *limits)
{
    struct bringup *m = calloc(1, sizeof *m + limits->n_hosts * sizeof m->hosts[0]);
    if (m == NULL)
        return NULL;
    m->limits = *limits;
    m->n_in[BRINGUP_IDLE] = limits->n_hosts;
    m->enough_ms = CO_NEVER_MS;
    for (size_t i = 0; i < limits->n_hosts; i++)
        m->hosts[i].missed_ms = CO_NEVER_MS;
    return m;
}

void bringup_destroy(struct bringup *m)
{
    free(m);
}

/* Those that are nodes, or can become nodes. */
static size_t n_there(const struct bringup *m)
{
    return m->n_in[BRINGUP_UP] + m->n_in[BRINGUP_ORDERED] + m->n_in[BRINGUP_READY];
}

static size_t n_open(const struct bringup *m)
{
    return m->n_in[BRINGUP_IDLE] + m->n_in[BRINGUP_AGAIN] + m->n_in[BRINGUP_REACHING];
}

void bringup_set(struct bringup *m, size_t host, enum bringup_phase phase, uint64_t now_ms)
{
    m->n_in[m->hosts[host].phase]--;
    m->n_in[phase]++;
    m->hosts[host].phase = phase;
    m->hosts[host].since_ms = now_ms;
    if (phase == BRINGUP_READY)
        m->hosts[host].missed_ms = CO_NEVER_MS;
    else if (m->hosts[host].missed_ms == CO_NEVER_MS &&
             (phase == BRINGUP_REACHING || phase == BRINGUP_AGAIN))
        m->hosts[host].missed_ms = now_ms;
    m->has_begun |= phase == BRINGUP_ORDERED;
    if (n_there(m) < m->limits.min_nodes)
        m->enough_ms = CO_NEVER_MS;
    else if (m->enough_ms == CO_NEVER_MS)
        m->enough_ms = now_ms;
}

enum bringup_phase bringup_get(const struct bringup *m, size_t host)
{
    return m->hosts[host].phase;
}

size_t bringup_count(const struct bringup *m, enum bringup_phase phase)
{
    return m->n_in[phase];
}

static bool can_be_enough(const struct bringup *m)
{
    return n_there(m) + n_open(m) >= m->limits.min_nodes;
}

bool bringup_may_retry(const struct bringup *m, size_t host, uint64_t now_ms)
{
    const uint64_t missed_ms = m->hosts[host].missed_ms;
    return m->limits.pause_ms > 0 && (missed_ms == CO_NEVER_MS ||
                                      now_ms + m->limits.pause_ms - missed_ms <= m->limits.miss_ms);
}

void bringup_wake(struct bringup *m, uint64_t now_ms)
{
    for (size_t i = 0; m->n_in[BRINGUP_AGAIN] > 0 && i < m->limits.n_hosts; i++)
        if (m->hosts[i].phase == BRINGUP_AGAIN &&
            now_ms - m->hosts[i].since_ms >= m->limits.pause_ms)
            bringup_set(m, i, BRINGUP_IDLE, now_ms);
}

ptrdiff_t bringup_next(const struct bringup *m)
{
    if (m->n_in[BRINGUP_REACHING] >= m->limits.at_once || m->n_in[BRINGUP_IDLE] == 0 ||
        (!m->has_begun && !can_be_enough(m)))
        return -1;
    size_t host = 0;
    while (m->hosts[host].phase != BRINGUP_IDLE)
        host++;
    return (ptrdiff_t)host;
}

ptrdiff_t bringup_late(const struct bringup *m, uint64_t now_ms)
{
    for (size_t i = 0; m->n_in[BRINGUP_REACHING] > 0 && i < m->limits.n_hosts; i++)
        if (m->hosts[i].phase == BRINGUP_REACHING &&
            now_ms - m->hosts[i].since_ms >= m->limits.reach_ms)
            return (ptrdiff_t)i;
    return -1;
}

enum bringup_state bringup_look(const struct bringup *m, uint64_t now_ms)
{
    if (m->has_begun)
        return n_there(m) + n_open(m) > 0 ? BRINGUP_GOES : BRINGUP_IS_OVER;
    if (!can_be_enough(m))
        return m->n_in[BRINGUP_REACHING] > 0 ? BRINGUP_GATHERS : BRINGUP_IS_SHORT;
    if (n_open(m) == 0)
        return BRINGUP_GOES;
    bool waited = m->enough_ms != CO_NEVER_MS && now_ms - m->enough_ms >= m->limits.window_ms;
    return waited ? BRINGUP_GOES : BRINGUP_GATHERS;
}

/* When the host's phase ends by itself. */
static uint64_t host_end_ms(const struct bringup *m, size_t host)
{
    if (m->hosts[host].phase == BRINGUP_REACHING)
        return m->hosts[host].since_ms + m->limits.reach_ms;
    if (m->hosts[host].phase == BRINGUP_AGAIN)
        return m->hosts[host].since_ms + m->limits.pause_ms;
    return CO_NEVER_MS;
}

uint64_t bringup_deadline_ms(const struct bringup *m)
{
    uint64_t first_ms = CO_NEVER_MS;
    const size_t n_timed = m->n_in[BRINGUP_REACHING] + m->n_in[BRINGUP_AGAIN];
    for (size_t i = 0; n_timed > 0 && i < m->limits.n_hosts; i++) {
        const uint64_t end_ms = host_end_ms(m, i);
        first_ms = end_ms < first_ms ? end_ms : first_ms;
    }
    if (!m->has_begun && m->enough_ms != CO_NEVER_MS &&
        m->enough_ms + m->limits.window_ms < first_ms)
        first_ms = m->enough_ms + m->limits.window_ms;
    return first_ms;
}
