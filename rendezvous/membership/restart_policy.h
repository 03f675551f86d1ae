/* restart_policy.h - may the job be started again after a failure, and when? Pure.
 *
 * --max-restarts N counts the failures of the whole job, N/window those of the last `window`. The
 * first restart is immediate, the next one follows after 100 ms, and each later one after twice the
 * previous time, at most 30 s. A generation that ran for a minute or longer resets that series.
 *
 * With --restart-after-progress a failure is free, that is not counted, if its generation has made
 * progress, as its node reports (supervisor.h). A program that fails before it makes progress
 * therefore ends with the budget, as without the option.
 *
 * --no-progress N: N generations in a row that ended by a failure or a loss, and in which no rank
 * has completed more steps than any had before, end the job: it fails for a reason that stays.
 *
 * --exclude-node-after N, N/TIME: a node whose ranks have failed so often does not take part any
 * more. All failures count for that, including free ones: if something fails once an hour on one
 * node only, that node is the cause. */
#ifndef DDP_RENDEZVOUS_MEMBERSHIP_RESTART_POLICY_H
#define DDP_RENDEZVOUS_MEMBERSHIP_RESTART_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#define RESTART_FIRST_WAIT_MS 100
#define RESTART_MAX_WAIT_MS   30000
#define RESTART_STEADY_MS     60000
#define RESTART_MAX_STRIKES   16 /* MESSAGE_MAX_STRIKES */

struct restart_rules {
    int max_restarts;          /* 0: none, except free ones */
    uint64_t window_ms;        /* 0: the whole job */
    const bool *no_restart_on; /* 256 of them, by exit status; borrowed; NULL: none */
    uint32_t max_idle;         /* generations without progress, in a row; 0: any number */
};

/* The end of a generation. */
struct restart_failure {
    int exit_code;             /* what it means for the job */
    uint64_t begun_ms, now_ms; /* its start and its end */
    bool is_free;              /* not counted */
};

struct restart_policy {
    struct restart_rules rules;
    uint64_t *times_ms;  /* owned; with a window: a ring of the last max_restarts counted ones */
    uint64_t n_restarts; /* of the whole job */
    uint64_t n_counted;  /* how many of these, and of the replacements, were not free */
    uint64_t last_wait_ms;
    uint32_t n_idle; /* generations without progress, the last ones in a row */
};

struct restart_strikes { /* failures of one node's ranks; zeroed: no failure so far */
    uint32_t n;
    uint64_t times_ms[RESTART_MAX_STRIKES]; /* of the last ones: a ring of `limit` */
};

/* returns   0, -ENOMEM */
int restart_policy_init(struct restart_policy *p, const struct restart_rules *rules);
void restart_policy_fini(struct restart_policy *p); /* a zeroed one is fine */

/* Continue from the number of counted failures of another policy. Their times are unknown: for a
 * window they count as of now. */
void restart_policy_resume(struct restart_policy *p, uint64_t n_counted, uint64_t now_ms);

/* Would this failure be followed by a restart? */
bool restart_policy_allows(const struct restart_policy *p, const struct restart_failure *f);

/* How long to wait before a restart that follows this failure, in ms. */
uint64_t restart_policy_wait_ms(const struct restart_policy *p, const struct restart_failure *f);

/* Count a failure that only one rank is started again after: it uses up the budget as a restart
 * does, and no wait grows by it. */
void restart_policy_spend(struct restart_policy *p, const struct restart_failure *f);

/* Would the end of another generation without progress be one too many? */
bool restart_policy_is_stuck(const struct restart_policy *p);

/* A generation has ended. */
void restart_policy_note_progress(struct restart_policy *p, bool any);

/* Count a restart. returns what restart_policy_wait_ms() returned */
uint64_t restart_policy_take(struct restart_policy *p, const struct restart_failure *f);

/* Note a failure of a node's rank.
 *
 * limit       1 to RESTART_MAX_STRIKES, the same each time
 * window_ms   count those of so many last ms; 0: all
 * returns     whether that makes `limit` of them */
bool restart_strikes_add(struct restart_strikes *s, uint32_t limit, uint64_t window_ms,
                         uint64_t now_ms);

#endif
