/* life.c - the table, its conditions, and the one function that writes the state. */
#include "life.h"

#include "common/machine.h"

#include <stddef.h>

#define STATES(X) /* name, meaning */                                                              \
    X(NEW, "there is no communicator yet")                                                         \
    X(MAKING, "it is being made, with all its ranks")                                              \
    X(READY, "work may be put on streams")                                                         \
    X(ENDING, "it is being freed in good order")                                                   \
    X(REVOKING, "its kernels are being ended")                                                     \
    X(REVOKED, "nothing runs on it; it may be shrunk")                                             \
    X(ABORTING, "it is being freed, whatever it does")                                             \
    X(GONE, "there is none any more")                                                              \
    X(STUCK, "it cannot be freed; the process is lost to its device")

static const struct co_machine_state states[] = {
#define X(name, meaning) [LIFE_##name] = {#name, meaning, "nothing"},
    STATES(X)
#undef X
};

static const char *const event_names[] = {
    [LIFE_MAKE] = "MAKE", [LIFE_DONE] = "DONE",     [LIFE_FAILED] = "FAILED",
    [LIFE_LATE] = "LATE", [LIFE_BROKEN] = "BROKEN", [LIFE_CLOSE] = "CLOSE",
};

/* The actions, as the drawing has them. */
#define NAME_OF_NOTHING "nothing"
#define NAME_OF_BEGIN   "begin"
#define NAME_OF_END     "end"
#define NAME_OF_REVOKE  "revoke"
#define NAME_OF_ABORT   "abort"

typedef bool condition(const struct life *l);

static bool always(const struct life *l)
{
    (void)l;
    return true;
}

static bool can_revoke(const struct life *l)
{
    return l->can_revoke;
}

struct row {
    struct co_machine_row at;
    condition *only_if;
    enum life_action action;
};

#define ROW(in, on, only_if, action, then)                                                         \
    {                                                                                              \
        {LIFE_##in, LIFE_##on, LIFE_##then, #only_if, NAME_OF_##action}, only_if, LIFE_##action    \
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
    {LIFE_NEW, LIFE_DONE},      {LIFE_NEW, LIFE_FAILED},     {LIFE_NEW, LIFE_LATE},
    {LIFE_NEW, LIFE_BROKEN},    {LIFE_MAKING, LIFE_MAKE},    {LIFE_READY, LIFE_MAKE},
    {LIFE_READY, LIFE_DONE},    {LIFE_ENDING, LIFE_MAKE},    {LIFE_ENDING, LIFE_CLOSE},
    {LIFE_REVOKING, LIFE_MAKE}, {LIFE_REVOKING, LIFE_CLOSE}, {LIFE_REVOKING, LIFE_BROKEN},
    {LIFE_REVOKED, LIFE_MAKE},  {LIFE_REVOKED, LIFE_DONE},   {LIFE_REVOKED, LIFE_BROKEN},
    {LIFE_ABORTING, LIFE_MAKE}, {LIFE_ABORTING, LIFE_CLOSE}, {LIFE_ABORTING, LIFE_BROKEN},
    {LIFE_GONE, LIFE_MAKE},     {LIFE_GONE, LIFE_DONE},      {LIFE_GONE, LIFE_FAILED},
    {LIFE_GONE, LIFE_LATE},     {LIFE_GONE, LIFE_BROKEN},    {LIFE_GONE, LIFE_CLOSE},
    {LIFE_STUCK, LIFE_MAKE},    {LIFE_STUCK, LIFE_DONE},     {LIFE_STUCK, LIFE_FAILED},
    {LIFE_STUCK, LIFE_LATE},    {LIFE_STUCK, LIFE_BROKEN},   {LIFE_STUCK, LIFE_CLOSE},
};

const struct co_machine life_machine =
    CO_MACHINE("nccl_life", "worker-runtime/nccl/life.c", states, event_names, rows, ignored);

enum life_action life_step(struct life *l, enum life_event e)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        if (r->at.in != l->state || r->at.on != e || !r->only_if(l))
            continue;
        l->state = r->at.then;
        return r->action;
    }
    return LIFE_NOTHING;
}

bool life_is_busy(enum life_state s)
{
    return s == LIFE_MAKING || s == LIFE_ENDING || s == LIFE_REVOKING || s == LIFE_ABORTING;
}

const char *life_state_name(enum life_state s)
{
    return (unsigned)s < LIFE_N_STATES ? states[s].name : "?";
}
