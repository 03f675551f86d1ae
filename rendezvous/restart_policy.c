#include "restart_policy.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

int restart_policy_init(struct restart_policy *p, const struct restart_rules *rules)
{
    *p = (struct restart_policy){.rules = *rules};
    if (rules->max_restarts > 0 && rules->window_ms > 0)
        p->times_ms = calloc((size_t)rules->max_restarts, sizeof *p->times_ms);
    return rules->max_restarts > 0 && rules->window_ms > 0 && p->times_ms == NULL ? -ENOMEM : 0;
}

void restart_policy_fini(struct restart_policy *p)
{
    free(p->times_ms);
    *p = (struct restart_policy){0};
}

bool restart_policy_allows(const struct restart_policy *p, int exit_code, uint64_t now_ms)
{
    uint64_t max = (uint64_t)p->rules.max_restarts;
    if (p->rules.no_restart_on != NULL && exit_code >= 0 && exit_code < 256 &&
        p->rules.no_restart_on[exit_code])
        return false;
    if (p->n_restarts < max || max == 0)
        return max != 0;
    /* the oldest of the last `max` restarts must have left the window */
    return p->times_ms != NULL && now_ms - p->times_ms[p->n_restarts % max] >= p->rules.window_ms;
}

uint64_t restart_policy_wait_ms(const struct restart_policy *p, uint64_t ran_ms)
{
    if (p->n_restarts == 0 || ran_ms >= RESTART_STEADY_MS)
        return 0;
    if (p->last_wait_ms == 0)
        return RESTART_FIRST_WAIT_MS;
    return p->last_wait_ms < RESTART_MAX_WAIT_MS / 2 ? 2 * p->last_wait_ms : RESTART_MAX_WAIT_MS;
}

uint64_t restart_policy_take(struct restart_policy *p, uint64_t now_ms, uint64_t ran_ms)
{
    p->last_wait_ms = restart_policy_wait_ms(p, ran_ms);
    if (p->times_ms != NULL)
        p->times_ms[p->n_restarts % (uint64_t)p->rules.max_restarts] = now_ms;
    p->n_restarts++;
    return p->last_wait_ms;
}
