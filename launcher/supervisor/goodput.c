/* goodput.c - which cause a job's time is booked on: the table below, and how time is booked. Read
 * the rows first. `book` gives the tail to the state that is left, `settle` the part of it in which
 * a job without counted steps ran to PRODUCTIVE; `nothing` moves the tail on. */
#include "goodput.h"

#include "common/machine.h"

#include <stddef.h>
#include <string.h>

/* --- Booking --- */

/* The tail until then. What is booked already stays as it is. */
static void book_until(struct goodput *g, uint64_t until_ms, enum goodput_state cause)
{
    if (until_ms <= g->booked_ms)
        return;
    g->sum_ms[cause] += until_ms - g->booked_ms;
    g->booked_ms = until_ms;
}

/* Ranks run, no step was ever reported: the time until they ran is the start's, the rest counts as
 * productive. Where steps are counted, a generation without any has achieved nothing: its time
 * stays in the tail. */
static void settle_until(struct goodput *g, uint64_t until_ms)
{
    if (g->run_ms == 0 || g->is_counted)
        return;
    book_until(g, g->run_ms < until_ms ? g->run_ms : until_ms, g->state);
    book_until(g, until_ms, GOODPUT_PRODUCTIVE);
}

/* --- Conditions --- */

typedef bool condition(const struct goodput *g, const struct goodput_event *e);

static bool always(const struct goodput *g, const struct goodput_event *e)
{
    (void)g;
    (void)e;
    return true;
}

static bool is_first_start(const struct goodput *g, const struct goodput_event *e)
{
    (void)e;
    return !g->has_started;
}

/* A page of the generation before may be read once more. */
static bool is_new_step(const struct goodput *g, const struct goodput_event *e)
{
    return e->at_ms > g->booked_ms && e->at_ms >= g->entered_ms;
}

static bool is_later_step(const struct goodput *g, const struct goodput_event *e)
{
    return e->at_ms > g->booked_ms;
}

/* --- Actions --- */

typedef void action(struct goodput *g, const struct goodput_event *e);

static void nothing(struct goodput *g, const struct goodput_event *e)
{
    (void)g;
    (void)e;
}

static void book(struct goodput *g, const struct goodput_event *e)
{
    book_until(g, e->now_ms, g->state);
}

/* What is left of the tail moves on, to another attempt. */
static void settle(struct goodput *g, const struct goodput_event *e)
{
    settle_until(g, e->now_ms);
    g->run_ms = 0;
    g->entered_ms = e->now_ms;
}

static void settle_and_book(struct goodput *g, const struct goodput_event *e)
{
    settle_until(g, e->now_ms);
    book_until(g, e->now_ms, g->state);
}

/* It moved until then. */
static void book_moved(struct goodput *g, const struct goodput_event *e)
{
    book_until(g, e->at_ms, g->state);
}

static void settle_and_book_moved(struct goodput *g, const struct goodput_event *e)
{
    settle_until(g, e->at_ms);
    book_until(g, e->at_ms, g->state);
}

static void note_run(struct goodput *g, const struct goodput_event *e)
{
    if (g->run_ms == 0)
        g->run_ms = e->now_ms;
}

static void book_step(struct goodput *g, const struct goodput_event *e)
{
    book_until(g, e->at_ms, GOODPUT_PRODUCTIVE);
    g->is_counted = true;
}

/* The first step of a generation is the last part of its start. */
static void book_first_step(struct goodput *g, const struct goodput_event *e)
{
    book_until(g, e->at_ms, g->state);
    g->is_counted = true;
}

static void enter(struct goodput *g, const struct goodput_event *e)
{
    g->entered_ms = e->now_ms;
    g->run_ms = 0;
}

/* --- The table --- */

struct row {
    struct co_machine_row at;
    condition *only_if;
    action *does;
};

/* clang-format off */
#define ROW(in, on, only_if, does, then)                                                           \
    {{GOODPUT_##in, GOODPUT_EV_##on, GOODPUT_##then, #only_if, #does}, only_if, does}
#define IGNORE(in, on) {GOODPUT_##in, GOODPUT_EV_##on}

static const struct row rows[] = {
    ROW(START,      GATHER,    always,         settle_and_book, RENDEZVOUS),
    ROW(START,      FEW_NODES, always,         settle_and_book, NODES),
    ROW(START,      START,     always,         nothing,         START),
    ROW(START,      RECOVER,   always,         settle_and_book, RECOVERY),
    ROW(START,      RUN,       always,         note_run,        START),
    ROW(START,      STEP,      is_new_step,    book_first_step, PRODUCTIVE),
    ROW(START,      STEP,      always,         nothing,         START),
    ROW(START,      SAVE,      always,         settle_and_book, CHECKPOINT),
    ROW(START,      HANG,      always,         settle_and_book_moved, HANG),
    ROW(START,      BREAK,     always,         settle_and_book, RESTART),
    ROW(START,      DONE,      always,         settle_and_book, SHUTDOWN),
    ROW(START,      END,       always,         settle_and_book, SHUTDOWN),

    ROW(RENDEZVOUS, FEW_NODES, always,         book,            NODES),
    ROW(RENDEZVOUS, START,     is_first_start, book,            START),
    ROW(RENDEZVOUS, START,     always,         book,            RESTART),
    ROW(RENDEZVOUS, RECOVER,   always,         book,            RECOVERY),
    ROW(RENDEZVOUS, BREAK,     always,         nothing,         RENDEZVOUS),
    ROW(RENDEZVOUS, END,       always,         book,            SHUTDOWN),

    ROW(NODES,      GATHER,    always,         book,            RENDEZVOUS),
    ROW(NODES,      START,     is_first_start, book,            START),
    ROW(NODES,      START,     always,         book,            RESTART),
    ROW(NODES,      RECOVER,   always,         book,            RECOVERY),
    ROW(NODES,      BREAK,     always,         nothing,         NODES),
    ROW(NODES,      END,       always,         book,            SHUTDOWN),

    ROW(PRODUCTIVE, STEP,      is_later_step,  book_step,       PRODUCTIVE),
    ROW(PRODUCTIVE, STEP,      always,         nothing,         PRODUCTIVE),
    ROW(PRODUCTIVE, FEW_NODES, always,         book,            NODES),
    ROW(PRODUCTIVE, START,     always,         nothing,         RESTART),
    ROW(PRODUCTIVE, RECOVER,   always,         nothing,         RECOVERY),
    ROW(PRODUCTIVE, SAVE,      always,         book,            CHECKPOINT),
    ROW(PRODUCTIVE, HANG,      always,         book_moved,      HANG),
    ROW(PRODUCTIVE, BREAK,     always,         nothing,         RESTART),
    ROW(PRODUCTIVE, DONE,      always,         book,            SHUTDOWN),
    ROW(PRODUCTIVE, END,       always,         book,            SHUTDOWN),

    ROW(CHECKPOINT, STEP,      is_later_step,  book_step,       CHECKPOINT),
    ROW(CHECKPOINT, STEP,      always,         nothing,         CHECKPOINT),
    ROW(CHECKPOINT, FEW_NODES, always,         book,            NODES),
    ROW(CHECKPOINT, START,     always,         book,            RESTART),
    ROW(CHECKPOINT, RECOVER,   always,         book,            RECOVERY),
    ROW(CHECKPOINT, HANG,      always,         book_moved,      HANG),
    ROW(CHECKPOINT, BREAK,     always,         book,            RESTART),
    ROW(CHECKPOINT, DONE,      always,         book,            SHUTDOWN),
    ROW(CHECKPOINT, END,       always,         book,            SHUTDOWN),

    ROW(HANG,       STEP,      is_new_step,    book_first_step, PRODUCTIVE), /* it moves after all */
    ROW(HANG,       STEP,      always,         nothing,         HANG),
    ROW(HANG,       FEW_NODES, always,         book,            NODES),
    ROW(HANG,       START,     always,         book,            RESTART),
    ROW(HANG,       RECOVER,   always,         book,            RECOVERY),
    ROW(HANG,       BREAK,     always,         book,            RESTART),
    ROW(HANG,       DONE,      always,         book,            SHUTDOWN),
    ROW(HANG,       END,       always,         book,            SHUTDOWN),

    ROW(RESTART,    FEW_NODES, always,         settle_and_book, NODES),
    ROW(RESTART,    START,     always,         settle,          RESTART),
    ROW(RESTART,    RECOVER,   always,         settle,          RECOVERY),
    ROW(RESTART,    RUN,       always,         note_run,        RESTART),
    ROW(RESTART,    STEP,      is_new_step,    book_first_step, PRODUCTIVE),
    ROW(RESTART,    STEP,      always,         nothing,         RESTART),
    ROW(RESTART,    SAVE,      always,         settle_and_book, CHECKPOINT),
    ROW(RESTART,    HANG,      always,         settle_and_book_moved, HANG),
    ROW(RESTART,    BREAK,     always,         settle,          RESTART),
    ROW(RESTART,    DONE,      always,         settle_and_book, SHUTDOWN),
    ROW(RESTART,    END,       always,         settle,          SHUTDOWN), /* also what was lost */

    ROW(RECOVERY,   FEW_NODES, always,         settle_and_book, NODES),
    ROW(RECOVERY,   START,     always,         settle,          RESTART),
    ROW(RECOVERY,   RECOVER,   always,         settle,          RECOVERY),
    ROW(RECOVERY,   RUN,       always,         note_run,        RECOVERY),
    ROW(RECOVERY,   STEP,      is_new_step,    book_first_step, PRODUCTIVE),
    ROW(RECOVERY,   STEP,      always,         nothing,         RECOVERY),
    ROW(RECOVERY,   SAVE,      always,         settle_and_book, CHECKPOINT),
    ROW(RECOVERY,   HANG,      always,         settle_and_book_moved, HANG),
    ROW(RECOVERY,   BREAK,     always,         settle,          RESTART),
    ROW(RECOVERY,   DONE,      always,         settle_and_book, SHUTDOWN),
    ROW(RECOVERY,   END,       always,         settle,          SHUTDOWN),

    ROW(SHUTDOWN,   START,     always,         book,            RESTART), /* another node's failed */
    ROW(SHUTDOWN,   RECOVER,   always,         book,            RECOVERY),
    ROW(SHUTDOWN,   FEW_NODES, always,         book,            NODES),
};

/* Pairs that cannot happen, or that mean nothing when they do. */
static const struct co_machine_pair ignored[] = {
    /* the wait for the coordinator is a part of what interrupted the job */
    IGNORE(PRODUCTIVE, GATHER), IGNORE(CHECKPOINT, GATHER), IGNORE(HANG, GATHER),
    IGNORE(RESTART, GATHER), IGNORE(RECOVERY, GATHER), IGNORE(SHUTDOWN, GATHER),
    IGNORE(RENDEZVOUS, GATHER), IGNORE(NODES, FEW_NODES),
    /* nothing runs */
    IGNORE(RENDEZVOUS, RUN), IGNORE(RENDEZVOUS, STEP), IGNORE(RENDEZVOUS, SAVE),
    IGNORE(RENDEZVOUS, HANG), IGNORE(RENDEZVOUS, DONE),
    IGNORE(NODES, RUN), IGNORE(NODES, STEP), IGNORE(NODES, SAVE), IGNORE(NODES, HANG),
    IGNORE(NODES, DONE),
    /* they run already */
    IGNORE(PRODUCTIVE, RUN), IGNORE(CHECKPOINT, RUN), IGNORE(HANG, RUN),
    /* once is enough */
    IGNORE(CHECKPOINT, SAVE), IGNORE(HANG, HANG),
    /* they cannot */
    IGNORE(HANG, SAVE),
    /* the ranks have ended, or do */
    IGNORE(SHUTDOWN, RUN), IGNORE(SHUTDOWN, STEP), IGNORE(SHUTDOWN, SAVE), IGNORE(SHUTDOWN, HANG),
    IGNORE(SHUTDOWN, BREAK), IGNORE(SHUTDOWN, DONE), IGNORE(SHUTDOWN, END),
#undef IGNORE
};
#undef ROW
/* clang-format on */

static const struct co_machine_state states[] = {GOODPUT_STATES(CO_MACHINE_STATE)};
static action *const entries[] = {GOODPUT_STATES(CO_MACHINE_ENTRY)};
static const char *const event_names[] = {GOODPUT_EVENTS(CO_MACHINE_EVENT)};

const struct co_machine goodput_machine =
    CO_MACHINE("goodput", "launcher/supervisor/goodput.c", states, event_names, rows, ignored);

void goodput_begin(struct goodput *g, uint64_t now_ms)
{
    *g = (struct goodput){
        .state = GOODPUT_START, .begun_ms = now_ms, .booked_ms = now_ms, .entered_ms = now_ms};
}

/* The only place that writes the state. */
void goodput_step(struct goodput *g, const struct goodput_event *e)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        if (row->at.in != g->state || row->at.on != e->type || !row->only_if(g, e))
            continue;
        row->does(g, e);
        if (row->at.then != g->state) {
            g->state = row->at.then;
            entries[g->state](g, e);
        }
        break;
    }
    if (e->type == GOODPUT_EV_START || e->type == GOODPUT_EV_RECOVER)
        g->has_started = true;
}

void goodput_read(const struct goodput *g, uint64_t now_ms, struct goodput_sums *ret)
{
    struct goodput then = *g;
    const bool runs = g->run_ms != 0 && !g->is_counted;
    settle_until(&then, now_ms);
    book_until(&then, now_ms, g->state);
    *ret = (struct goodput_sums){.total_ms = then.booked_ms - g->begun_ms,
                                 .is_counted = g->is_counted,
                                 .now = runs ? GOODPUT_PRODUCTIVE : g->state};
    memcpy(ret->sum_ms, then.sum_ms, sizeof ret->sum_ms);
}

double goodput_ratio(const struct goodput_sums *s)
{
    return s->total_ms > 0 ? (double)s->sum_ms[GOODPUT_PRODUCTIVE] / (double)s->total_ms : 0;
}

const char *goodput_name(enum goodput_state cause)
{
    static const char *const names[] = {
        [GOODPUT_START] = "start",
        [GOODPUT_RENDEZVOUS] = "rendezvous",
        [GOODPUT_NODES] = "waiting_for_nodes",
        [GOODPUT_PRODUCTIVE] = "productive",
        [GOODPUT_CHECKPOINT] = "checkpoint",
        [GOODPUT_HANG] = "hang",
        [GOODPUT_RESTART] = "restart",
        [GOODPUT_RECOVERY] = "recovery",
        [GOODPUT_SHUTDOWN] = "shutdown",
    };
    return names[cause];
}
