/* restart_policy.h - may the job be started again after a failure, and when? Pure.
 *
 * --max-restarts N counts the failures of the whole job, N/window those of the last `window`. The
 * first restart comes at once, the next after 100 ms, each later one after twice the time of the
 * one before, 30 s at most. A generation that ran for a minute or longer begins that row anew. */
#ifndef DDP_RENDEZVOUS_RESTART_POLICY_H
#define DDP_RENDEZVOUS_RESTART_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#define RESTART_FIRST_WAIT_MS 100
#define RESTART_MAX_WAIT_MS   30000
#define RESTART_STEADY_MS     60000

struct restart_rules {
    int max_restarts;          /* 0: none */
    uint64_t window_ms;        /* 0: the whole job */
    const bool *no_restart_on; /* 256 of them, by exit code; borrowed; NULL: none */
};

struct restart_policy {
    struct restart_rules rules;
    uint64_t *times_ms;  /* owned; with a window: a ring of the last max_restarts restarts */
    uint64_t n_restarts; /* of the whole job */
    uint64_t last_wait_ms;
};

/* returns   0, -ENOMEM */
int restart_policy_init(struct restart_policy *p, const struct restart_rules *rules);
void restart_policy_fini(struct restart_policy *p); /* a zeroed one is fine */

/* Would a failure that means `exit_code` for the job be followed by a restart? */
bool restart_policy_allows(const struct restart_policy *p, int exit_code, uint64_t now_ms);

/* How long to wait before a restart that follows now, in ms.
 *
 * ran_ms    how long the failed generation ran */
uint64_t restart_policy_wait_ms(const struct restart_policy *p, uint64_t ran_ms);

/* Count a restart.
 *
 * returns   what restart_policy_wait_ms() said */
uint64_t restart_policy_take(struct restart_policy *p, uint64_t now_ms, uint64_t ran_ms);

#endif
