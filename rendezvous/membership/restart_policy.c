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

void restart_policy_resume(struct restart_policy *p, uint64_t n_counted, uint64_t now_ms)
{
    p->n_restarts = p->n_counted = n_counted;
    for (uint64_t i = 0; p->times_ms != NULL && i < (uint64_t)p->rules.max_restarts; i++)
        p->times_ms[i] = now_ms;
}

bool restart_policy_allows(const struct restart_policy *p, const struct restart_failure *f)
{
    uint64_t max = (uint64_t)p->rules.max_restarts;
    if (p->rules.no_restart_on != NULL && f->exit_code >= 0 && f->exit_code < 256 &&
        p->rules.no_restart_on[f->exit_code])
        return false;
    if (f->is_free)
        return true;
    if (p->n_counted < max || max == 0)
        return max != 0;
    /* the oldest of the last `max` restarts must have left the window */
    return p->times_ms != NULL && f->now_ms - p->times_ms[p->n_counted % max] >= p->rules.window_ms;
}

uint64_t restart_policy_wait_ms(const struct restart_policy *p, const struct restart_failure *f)
{
    if (p->n_restarts == 0 || f->now_ms - f->begun_ms >= RESTART_STEADY_MS)
        return 0;
    if (p->last_wait_ms == 0)
        return RESTART_FIRST_WAIT_MS;
    return p->last_wait_ms < RESTART_MAX_WAIT_MS / 2 ? 2 * p->last_wait_ms : RESTART_MAX_WAIT_MS;
}

void restart_policy_spend(struct restart_policy *p, const struct restart_failure *f)
{
    if (f->is_free)
        return;
    if (p->times_ms != NULL)
        p->times_ms[p->n_counted % (uint64_t)p->rules.max_restarts] = f->now_ms;
    p->n_counted++;
}

bool restart_policy_is_stuck(const struct restart_policy *p)
{
    return p->rules.max_idle > 0 && p->n_idle + 1 >= p->rules.max_idle;
}

void restart_policy_note_progress(struct restart_policy *p, bool any)
{
    p->n_idle = any ? 0 : p->n_idle + (p->n_idle < UINT32_MAX);
}

uint64_t restart_policy_take(struct restart_policy *p, const struct restart_failure *f)
{
    p->last_wait_ms = restart_policy_wait_ms(p, f);
    p->n_restarts++;
    restart_policy_spend(p, f);
    return p->last_wait_ms;
}

bool restart_strikes_add(struct restart_strikes *s, uint32_t limit, uint64_t window_ms,
                         uint64_t now_ms)
{
    s->times_ms[s->n++ % limit] = now_ms;
    const uint64_t oldest_ms = s->times_ms[s->n % limit]; /* once there are so many */
    return s->n >= limit && (window_ms == 0 || now_ms - oldest_ms < window_ms);
}
