/* health.h - when this node checks its health, and what is reported to the coordinator.
 *
 * Pure. The caller feeds in what happens, runs the checks that are ordered, and passes on what is
 * to be reported. docs/design/health.dot is the drawing of the table in health.c, compared with it
 * by a test; docs/design/health.md has the rules and why.
 *
 * A check has one result, GOOD or BAD, and a time limit. A result of a check that was canceled, or
 * that another one has replaced, is not fed. */
#ifndef DDP_LAUNCHER_SUPERVISOR_HEALTH_H
#define DDP_LAUNCHER_SUPERVISOR_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#define HEALTH_STATES(X) /* name, on entry, meaning */                                             \
    X(IDLE, rest, "ranks have a place in a generation, or the job ends")                           \
    X(CHECKING, begin_check, "a check runs; until its result this node is in no generation")       \
    X(HEALTHY, wait_to_repeat, "the last check succeeded, and no rank was started since")          \
    X(RECHECKING, begin_check, "the same, but long ago: a check runs again")                       \
    X(UNHEALTHY, wait_to_retry, "the last check failed; the next one waits for its time")          \
    X(RETRYING, begin_check, "the last check failed; a check runs again")

#define HEALTH_EVENTS(X) /* name, meaning */                                                       \
    X(NEEDED, "no rank takes part in a generation here, and another one may begin")                \
    X(TAKEN, "a generation begins here, or the job ends")                                          \
    X(GOOD, "the check succeeded")                                                                 \
    X(BAD, "the check failed, or could not be made")                                               \
    X(DUE, "the time of the state is over")

enum health_state {
#define X(name, on_entry, meaning) HEALTH_##name,
    HEALTH_STATES(X)
#undef X
        HEALTH_N_STATES
};

enum health_event_type {
#define X(name, meaning) HEALTH_EV_##name,
    HEALTH_EVENTS(X)
#undef X
        HEALTH_N_EVENTS
};

#define HEALTH_REPEAT_MS      60000 /* a node that waits is checked again after so long */
#define HEALTH_RETRY_FIRST_MS 2000  /* after a failed check; then twice as long each time, */
#define HEALTH_RETRY_MOST_MS  60000 /* up to this */

struct health { /* in the caller's memory; health_init() fills it */
    enum health_state state;
    uint64_t limit_ms;            /* of a check */
    uint64_t deadline_ms;         /* CO_NEVER_MS: none */
    uint32_t n_bad;               /* checks that failed in a row */
    struct health_orders *orders; /* of this step */
};

/* What the caller has to do now; in this order. */
struct health_orders {
    bool cancel;       /* the check that runs */
    bool begin;        /* a check */
    bool is_late;      /* the canceled check has exceeded its limit: that is the reason */
    bool report_fit;   /* to the coordinator */
    bool report_unfit; /* with the reason of the BAD that was fed, or that of is_late */
};

void health_init(struct health *h, uint64_t limit_ms);

/* ret   what to do; written always */
void health_step(struct health *h, enum health_event_type type, uint64_t now_ms,
                 struct health_orders *ret);

uint64_t health_deadline_ms(const struct health *h); /* feed DUE then; CO_NEVER_MS: never */

/* The table, for its drawing and its tests. */
extern const struct co_machine health_machine;

#endif
