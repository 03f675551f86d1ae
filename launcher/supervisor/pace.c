#include "pace.h"

#include "segments/rank_status.h"

#include <stddef.h>

enum { FIRST_MS = 1000, LONGEST_MS = 60000 };

struct pace_rank pace_of(const struct progress *p)
{
    if (p == NULL || p->mean_ns == 0)
        return (struct pace_rank){0};
    return (struct pace_rank){.is_known = true,
                              .steps = p->steps_before + p->steps,
                              .step_ns = p->mean_ns,
                              .own_ns = p->mean_ns - p->inside_ns};
}

/* Whether rank a comes before rank b in the order of their own times. */
static bool is_before(const struct pace_rank *ranks, int a, int b)
{
    return ranks[a].own_ns < ranks[b].own_ns || (ranks[a].own_ns == ranks[b].own_ns && a < b);
}

static int place_of(const struct pace_rank *ranks, int n, int rank)
{
    int place = 0;
    for (int i = 0; i < n; i++)
        place += ranks[i].is_known && is_before(ranks, i, rank);
    return place;
}

/* The middle one of all that are known; the lower one of two. A thousand ranks at most. */
static uint64_t middle_own_ns(const struct pace_rank *ranks, int n, int n_known)
{
    for (int i = 0; i < n; i++)
        if (ranks[i].is_known && place_of(ranks, n, i) == (n_known - 1) / 2)
            return ranks[i].own_ns;
    return 0;
}

void pace_judge(const struct pace_rank *ranks, int n, struct pace *ret)
{
    *ret = (struct pace){.slowest = -1};
    for (int i = 0; i < n; i++) {
        if (!ranks[i].is_known)
            continue;
        ret->n_known++;
        ret->steps = ranks[i].steps > ret->steps ? ranks[i].steps : ret->steps;
        if (ret->slowest < 0 || ranks[i].own_ns > ranks[ret->slowest].own_ns)
            ret->slowest = i;
    }
    if (ret->slowest < 0)
        return;
    const struct pace_rank *slowest = &ranks[ret->slowest];
    ret->step_ns = slowest->step_ns;
    ret->share = (double)(slowest->own_ns - middle_own_ns(ranks, n, ret->n_known)) /
                 (double)slowest->step_ns;
}

bool pace_is_due(uint64_t *next_ms, uint64_t begun_ms, uint64_t now_ms)
{
    if (*next_ms < begun_ms + FIRST_MS)
        *next_ms = begun_ms + FIRST_MS;
    if (now_ms < *next_ms)
        return false;
    const uint64_t age_ms = now_ms - begun_ms;
    *next_ms = now_ms + (age_ms < LONGEST_MS ? age_ms : LONGEST_MS);
    return true;
}
