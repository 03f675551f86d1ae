/* health.c - the table of states, and the times between checks. */
#include "health.h"

#include "common/clock.h"
#include "common/machine.h"

#include <stddef.h>

/* --- Conditions and actions --- */

typedef void action(struct health *h, uint64_t now_ms);

static void nothing(struct health *h, uint64_t now_ms)
{
    (void)h;
    (void)now_ms;
}

static void rest(struct health *h, uint64_t now_ms)
{
    (void)now_ms;
    h->deadline_ms = CO_NEVER_MS;
}

static void begin_check(struct health *h, uint64_t now_ms)
{
    h->orders->begin = true;
    h->deadline_ms = now_ms + h->limit_ms;
}

static void wait_to_repeat(struct health *h, uint64_t now_ms)
{
    h->deadline_ms = now_ms + HEALTH_REPEAT_MS;
}

static void wait_to_retry(struct health *h, uint64_t now_ms)
{
    uint64_t wait_ms = HEALTH_RETRY_FIRST_MS;
    for (uint32_t i = 1; i < h->n_bad && wait_ms < HEALTH_RETRY_MOST_MS; i++)
        wait_ms *= 2;
    h->deadline_ms = now_ms + (wait_ms < HEALTH_RETRY_MOST_MS ? wait_ms : HEALTH_RETRY_MOST_MS);
}

static void report_fit(struct health *h, uint64_t now_ms)
{
    (void)now_ms;
    h->n_bad = 0;
    h->orders->report_fit = true;
}

static void report_unfit(struct health *h, uint64_t now_ms)
{
    (void)now_ms;
    h->n_bad++;
    h->orders->report_unfit = true;
}

static void give_up(struct health *h, uint64_t now_ms)
{
    h->orders->cancel = h->orders->is_late = true;
    report_unfit(h, now_ms);
}

static void cancel(struct health *h, uint64_t now_ms)
{
    (void)now_ms;
    h->orders->cancel = true;
}

/* --- The table: a pair of state and event has one row --- */

struct row {
    struct co_machine_row at;
    action *does;
};

/* clang-format off */
#define ROW(in, on, does, then)                                                                    \
    {{HEALTH_##in, HEALTH_EV_##on, HEALTH_##then, "always", #does}, does}
#define IGNORE(in, on) {HEALTH_##in, HEALTH_EV_##on}

static const struct row rows[] = {
    ROW(IDLE,       NEEDED, nothing,      CHECKING),

    ROW(CHECKING,   TAKEN,  cancel,       IDLE),
    ROW(CHECKING,   GOOD,   report_fit,   HEALTHY),
    ROW(CHECKING,   BAD,    report_unfit, UNHEALTHY),
    ROW(CHECKING,   DUE,    give_up,      UNHEALTHY),

    /* this node joins again, or its parked ranks were stopped: what was known does not count */
    ROW(HEALTHY,    NEEDED, nothing,      CHECKING),
    ROW(HEALTHY,    TAKEN,  nothing,      IDLE),
    ROW(HEALTHY,    DUE,    nothing,      RECHECKING),

    ROW(RECHECKING, NEEDED, cancel,       CHECKING),
    ROW(RECHECKING, TAKEN,  cancel,       IDLE),
    ROW(RECHECKING, GOOD,   nothing,      HEALTHY),
    ROW(RECHECKING, BAD,    report_unfit, UNHEALTHY),
    ROW(RECHECKING, DUE,    give_up,      UNHEALTHY),

    ROW(UNHEALTHY,  NEEDED, nothing,      CHECKING),
    ROW(UNHEALTHY,  TAKEN,  nothing,      IDLE),
    ROW(UNHEALTHY,  DUE,    nothing,      RETRYING),

    ROW(RETRYING,   NEEDED, cancel,       CHECKING),
    ROW(RETRYING,   TAKEN,  cancel,       IDLE),
    ROW(RETRYING,   GOOD,   report_fit,   HEALTHY),
    ROW(RETRYING,   BAD,    report_unfit, UNHEALTHY),
    ROW(RETRYING,   DUE,    give_up,      UNHEALTHY),
};

/* Pairs that cannot happen, or that mean nothing when they do. */
static const struct co_machine_pair ignored[] = {
    /* nothing is checked */
    IGNORE(IDLE, TAKEN), IGNORE(IDLE, GOOD), IGNORE(IDLE, BAD), IGNORE(IDLE, DUE),
    IGNORE(HEALTHY, GOOD), IGNORE(HEALTHY, BAD), IGNORE(UNHEALTHY, GOOD), IGNORE(UNHEALTHY, BAD),
    /* its result is still to come */
    IGNORE(CHECKING, NEEDED),
#undef IGNORE
};
#undef ROW
/* clang-format on */

static const struct co_machine_state states[] = {HEALTH_STATES(CO_MACHINE_STATE)};
static action *const entries[] = {HEALTH_STATES(CO_MACHINE_ENTRY)};
static const char *const event_names[] = {HEALTH_EVENTS(CO_MACHINE_EVENT)};

const struct co_machine health_machine =
    CO_MACHINE("health", "launcher/supervisor/health.c", states, event_names, rows, ignored);

void health_init(struct health *h, uint64_t limit_ms)
{
    *h = (struct health){
        .state = HEALTH_IDLE, .limit_ms = limit_ms, .deadline_ms = CO_NEVER_MS, .orders = NULL};
}

/* The only place that writes the state. */
void health_step(struct health *h, enum health_event_type type, uint64_t now_ms,
                 struct health_orders *ret)
{
    *ret = (struct health_orders){0};
    h->orders = ret;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        if (row->at.in != h->state || row->at.on != type)
            continue;
        row->does(h, now_ms);
        h->state = row->at.then;
        entries[h->state](h, now_ms);
        break;
    }
    h->orders = NULL;
}

uint64_t health_deadline_ms(const struct health *h)
{
    return h->deadline_ms;
}
