/* comm_state.c - the table, its conditions, and the one function that writes the state. */
#include "comm_state.h"

#include "common/machine.h"

#include <stddef.h>

static const struct co_machine_state states[] = {
#define X(name, meaning) [COMM_##name] = {#name, meaning, "nothing"},
    COMM_STATES(X)
#undef X
};

static const char *const event_names[] = {
    [COMM_MAKE] = "MAKE", [COMM_DONE] = "DONE",     [COMM_FAILED] = "FAILED",
    [COMM_LATE] = "LATE", [COMM_BROKEN] = "BROKEN", [COMM_CLOSE] = "CLOSE",
};

/* The actions, as the drawing has them. */
#define NAME_OF_NOTHING "nothing"
#define NAME_OF_BEGIN   "begin"
#define NAME_OF_END     "end"
#define NAME_OF_REVOKE  "revoke"
#define NAME_OF_ABORT   "abort"

typedef bool condition(const struct comm_life *l);

static bool always(const struct comm_life *l)
{
    (void)l;
    return true;
}

static bool can_revoke(const struct comm_life *l)
{
    return l->can_revoke;
}

struct row {
    struct co_machine_row at;
    condition *only_if;
    enum comm_action action;
};

#define ROW(in, on, only_if, action, then)                                                         \
    {                                                                                              \
        {COMM_##in, COMM_##on, COMM_##then, #only_if, NAME_OF_##action}, only_if, COMM_##action    \
    }

/* From top to bottom, the first match wins. */
static const struct row rows[] = {
    ROW(NEW, MAKE, always, BEGIN, MAKING),         ROW(NEW, CLOSE, always, NOTHING, GONE),

    ROW(MAKING, DONE, always, NOTHING, READY),     ROW(MAKING, FAILED, always, ABORT, ABORTING),
    ROW(MAKING, LATE, always, ABORT, ABORTING),    ROW(MAKING, BROKEN, always, ABORT, ABORTING),
    ROW(MAKING, CLOSE, always, ABORT, ABORTING),

    ROW(READY, CLOSE, always, END, ENDING),        ROW(READY, FAILED, can_revoke, REVOKE, REVOKING),
    ROW(READY, FAILED, always, ABORT, ABORTING),   ROW(READY, LATE, can_revoke, REVOKE, REVOKING),
    ROW(READY, LATE, always, ABORT, ABORTING),     ROW(READY, BROKEN, can_revoke, REVOKE, REVOKING),
    ROW(READY, BROKEN, always, ABORT, ABORTING),

    ROW(ENDING, DONE, always, NOTHING, GONE),      ROW(ENDING, FAILED, always, ABORT, ABORTING),
    ROW(ENDING, LATE, always, ABORT, ABORTING),    ROW(ENDING, BROKEN, always, ABORT, ABORTING),

    ROW(REVOKING, DONE, always, NOTHING, REVOKED), ROW(REVOKING, FAILED, always, ABORT, ABORTING),
    ROW(REVOKING, LATE, always, ABORT, ABORTING),

    ROW(REVOKED, FAILED, always, ABORT, ABORTING), ROW(REVOKED, LATE, always, ABORT, ABORTING),
    ROW(REVOKED, CLOSE, always, ABORT, ABORTING),

    ROW(ABORTING, DONE, always, NOTHING, GONE),    ROW(ABORTING, FAILED, always, NOTHING, STUCK),
    ROW(ABORTING, LATE, always, NOTHING, STUCK),
};

/* Pairs that mean nothing: what is on its way to its end anyhow, and news of what is known. */
static const struct co_machine_pair ignored[] = {
    {COMM_NEW, COMM_DONE},      {COMM_NEW, COMM_FAILED},     {COMM_NEW, COMM_LATE},
    {COMM_NEW, COMM_BROKEN},    {COMM_MAKING, COMM_MAKE},    {COMM_READY, COMM_MAKE},
    {COMM_READY, COMM_DONE},    {COMM_ENDING, COMM_MAKE},    {COMM_ENDING, COMM_CLOSE},
    {COMM_REVOKING, COMM_MAKE}, {COMM_REVOKING, COMM_CLOSE}, {COMM_REVOKING, COMM_BROKEN},
    {COMM_REVOKED, COMM_MAKE},  {COMM_REVOKED, COMM_DONE},   {COMM_REVOKED, COMM_BROKEN},
    {COMM_ABORTING, COMM_MAKE}, {COMM_ABORTING, COMM_CLOSE}, {COMM_ABORTING, COMM_BROKEN},
    {COMM_GONE, COMM_MAKE},     {COMM_GONE, COMM_DONE},      {COMM_GONE, COMM_FAILED},
    {COMM_GONE, COMM_LATE},     {COMM_GONE, COMM_BROKEN},    {COMM_GONE, COMM_CLOSE},
    {COMM_STUCK, COMM_MAKE},    {COMM_STUCK, COMM_DONE},     {COMM_STUCK, COMM_FAILED},
    {COMM_STUCK, COMM_LATE},    {COMM_STUCK, COMM_BROKEN},   {COMM_STUCK, COMM_CLOSE},
};

const struct co_machine comm_state_machine = CO_MACHINE(
    "comm_state", "worker-runtime/nccl/comm_state.c", states, event_names, rows, ignored);

enum comm_action comm_state_step(struct comm_life *l, enum comm_event e)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        if (r->at.in != l->state || r->at.on != e || !r->only_if(l))
            continue;
        l->state = r->at.then;
        return r->action;
    }
    return COMM_NOTHING;
}
