/* elector.c - the rules: the table of states, its conditions and actions.
 *
 * Read elector_step() (elector_input.c) first, then the table, then elector_apply(). An answer of
 * etcd becomes an event; the first row of the table that has the state and the event, and whose
 * condition holds, gives the action and the next state. elector_ask.c chooses the next request by
 * the state. No other code writes the state. */
#include "elector.h"

#include "elector_priv.h"

#include "common/clock.h"
#include "common/machine.h"

#include <stddef.h>

/* --- Conditions --- */

typedef bool condition(const struct elector *e, const struct elector_event *ev);

static bool always(const struct elector *e, const struct elector_event *ev)
{
    (void)e;
    (void)ev;
    return true;
}

/* A node that still has the roster claims first. A node that receives its answers waits for it; if
 * etcd has lost the record, every node does. */
static bool may_claim(const struct elector *e, const struct elector_event *ev)
{
    bool may_be_another = e->has_followed && !e->has_roster && (!e->hurries || !e->has_record);
    bool is_early = may_be_another && ev->now_ms < e->vacant_ms + e->limits.prefer_ms;
    return !e->limits.never_leads && e->has_address && !is_early;
}

static bool has_leases(const struct elector *e, const struct elector_event *ev)
{
    (void)ev;
    return e->lease != 0 && e->record_lease != 0;
}

static bool has_roster(const struct elector *e, const struct elector_event *ev)
{
    (void)ev;
    return e->has_roster;
}

/* No other node has led meanwhile: our roster knows everything that there is to know. */
static bool goes_on(const struct elector *e, const struct elector_event *ev)
{
    (void)ev;
    return e->has_roster && (!e->has_record || e->record_mod_revision == e->known_mod_revision);
}

static bool is_in_time(const struct elector *e, const struct elector_event *ev)
{
    return elector_is_in_lease(e, ev->now_ms);
}

/* An answer that arrives after the lease is over, for example because this process was stopped,
 * does not count: the present leader may have written a newer record. */
static bool is_late(const struct elector *e, const struct elector_event *ev)
{
    return !elector_is_in_lease(e, ev->now_ms);
}

static bool holds_key(const struct elector *e, const struct elector_event *ev)
{
    (void)ev;
    return e->is_ours;
}

/* --- What a row does, and what entering a state does --- */

typedef void action(struct elector *e, const struct elector_event *ev);

static void nothing(struct elector *e, const struct elector_event *ev)
{
    (void)e;
    (void)ev;
}

static void tell_vacant(struct elector *e, const struct elector_event *ev)
{
    (void)ev;
    e->orders.vacant = true;
    e->orders.asked_ms = e->out_ms;
}

/* A lease that an earlier claim has left is as good as a new one. */
static void prepare_lease(struct elector *e, const struct elector_event *ev)
{
    tell_vacant(e, ev);
    if (!elector_is_in_lease(e, ev->now_ms))
        e->lease = 0;
}

static void prepare_again(struct elector *e, const struct elector_event *ev)
{
    if (!elector_is_in_lease(e, ev->now_ms))
        e->lease = 0;
}

static void follow(struct elector *e, const struct elector_event *ev)
{
    (void)ev;
    e->has_followed = true;
    e->is_ours = false;
    e->orders.follow = true;
    e->orders.leader = e->leader;
}

static void drop_roster(struct elector *e, const struct elector_event *ev)
{
    (void)ev;
    e->orders.give_up = e->has_roster;
    e->has_roster = e->has_written = e->commit_waits = e->is_ours = false;
}

static void step_back(struct elector *e, const struct elector_event *ev)
{
    drop_roster(e, ev);
    follow(e, ev);
}

static void note_key(struct elector *e, const struct elector_event *ev)
{
    e->is_ours = true;
    e->create_revision = ev->answer->leader_create_revision;
}

static void begin(struct elector *e, const struct elector_event *ev)
{
    drop_roster(e, ev);
    note_key(e, ev);
    e->has_roster = true;
    e->known_mod_revision = e->has_record ? e->record_mod_revision : 0;
    e->orders.make = true;
    e->orders.has_past = e->has_record;
    e->orders.past = e->record;
    e->has_written = e->has_record; /* so that it is not lost with etcd's data */
    e->written = e->record;
}

static void tell_certain(struct elector *e, const struct elector_event *ev)
{
    (void)ev;
    e->orders.certain = true;
    e->commit_waits |= e->has_written && !e->has_record; /* etcd has lost it */
}

static void go_on(struct elector *e, const struct elector_event *ev)
{
    note_key(e, ev);
    tell_certain(e, ev);
}

static void note_written(struct elector *e, const struct elector_event *ev)
{
    e->known_mod_revision = ev->answer->revision;
    e->has_record = true;
    e->orders.committed = !e->commit_waits;
}

/* The leader's key was ours when etcd wrote. That may be long ago: another node may have begun
 * something since. The record is written once more when we are sure again. */
static void note_late_write(struct elector *e, const struct elector_event *ev)
{
    e->known_mod_revision = ev->answer->revision;
    e->commit_waits = true;
}

static void lose_lease(struct elector *e, const struct elector_event *ev)
{
    (void)ev;
    e->lease = 0;
    e->is_ours = false;
}

static void doubt(struct elector *e, const struct elector_event *ev)
{
    (void)ev;
    e->orders.doubt = true;
}

static void say_last_words(struct elector *e, const struct elector_event *ev)
{
    elector_ask(e, ELECTOR_GIVE_UP, ev->now_ms);
}

static void finish(struct elector *e, const struct elector_event *ev)
{
    (void)ev;
    e->is_out = false;
    e->orders.over = true;
}

/* --- The table: read from the top, the first row that fits is it --- */

struct row {
    struct co_machine_row at;
    condition *only_if;
    action *does;
};

#define ROW(in, on, only_if, does, then)                                                           \
    {                                                                                              \
        {ELECTOR_##in, ELECTOR_EV_##on, ELECTOR_##then, #only_if, #does}, only_if, does            \
    }

/* clang-format off */
static const struct row rows[] = {
    /*  in         on       only if     does            then      */
    ROW(SEEKING,   VACANT,  may_claim,  prepare_lease,  PREPARING),
    ROW(SEEKING,   VACANT,  always,     tell_vacant,    SEEKING),
    ROW(SEEKING,   OTHER,   always,     follow,         FOLLOWING),
    ROW(SEEKING,   OURS,    is_late,    nothing,        SEEKING),
    ROW(SEEKING,   OURS,    always,     begin,          LEADING), /* a claim's answer was lost */
    ROW(SEEKING,   FAILED,  always,     nothing,        SEEKING),
    ROW(SEEKING,   RESIGN,  always,     nothing,        OVER),

    ROW(FOLLOWING, VACANT,  may_claim,  prepare_lease,  PREPARING),
    ROW(FOLLOWING, VACANT,  always,     tell_vacant,    SEEKING),
    ROW(FOLLOWING, OTHER,   always,     follow,         FOLLOWING),
    ROW(FOLLOWING, OURS,    is_late,    nothing,        SEEKING),
    ROW(FOLLOWING, OURS,    always,     begin,          LEADING),
    ROW(FOLLOWING, FAILED,  always,     nothing,        FOLLOWING),
    ROW(FOLLOWING, RESIGN,  always,     nothing,        OVER),

    ROW(PREPARING, GRANTED, has_leases, nothing,        CLAIMING),
    ROW(PREPARING, GRANTED, always,     nothing,        PREPARING),
    ROW(PREPARING, FAILED,  has_roster, nothing,        DOUBTING),
    ROW(PREPARING, FAILED,  always,     nothing,        SEEKING),
    ROW(PREPARING, RESIGN,  always,     nothing,        OVER),

    ROW(CLAIMING,  OURS,    is_late,    drop_roster,    SEEKING),
    ROW(CLAIMING,  OURS,    goes_on,    go_on,          LEADING),
    ROW(CLAIMING,  OURS,    always,     begin,          LEADING),
    ROW(CLAIMING,  OTHER,   always,     step_back,      FOLLOWING),
    ROW(CLAIMING,  FAILED,  has_roster, nothing,        DOUBTING),
    ROW(CLAIMING,  FAILED,  always,     nothing,        SEEKING),
    ROW(CLAIMING,  RESIGN,  always,     nothing,        OVER),

    ROW(LEADING,   KEPT,    always,     nothing,        LEADING),
    ROW(LEADING,   EXPIRED, always,     lose_lease,     DOUBTING),
    ROW(LEADING,   LATE,    always,     nothing,        DOUBTING),
    ROW(LEADING,   GRANTED, always,     nothing,        LEADING), /* the record's */
    ROW(LEADING,   WRITTEN, always,     note_written,   LEADING),
    ROW(LEADING,   DEPOSED, always,     drop_roster,    SEEKING),
    ROW(LEADING,   FAILED,  always,     nothing,        LEADING),
    ROW(LEADING,   RESIGN,  always,     nothing,        RESIGNING),

    ROW(DOUBTING,  KEPT,    is_in_time, tell_certain,   LEADING),
    ROW(DOUBTING,  KEPT,    always,     nothing,        DOUBTING),
    ROW(DOUBTING,  EXPIRED, always,     lose_lease,     DOUBTING),
    ROW(DOUBTING,  VACANT,  may_claim,  prepare_again,  PREPARING),
    ROW(DOUBTING,  VACANT,  always,     nothing,        DOUBTING),
    ROW(DOUBTING,  OURS,    is_late,    nothing,        DOUBTING),
    ROW(DOUBTING,  OURS,    goes_on,    go_on,          LEADING),
    ROW(DOUBTING,  OURS,    always,     begin,          LEADING),
    ROW(DOUBTING,  OTHER,   always,     step_back,      FOLLOWING),
    ROW(DOUBTING,  GRANTED, always,     nothing,        DOUBTING),
    ROW(DOUBTING,  WRITTEN, always,     note_late_write, DOUBTING),
    ROW(DOUBTING,  DEPOSED, always,     drop_roster,    SEEKING),
    ROW(DOUBTING,  FAILED,  always,     nothing,        DOUBTING),
    ROW(DOUBTING,  RESIGN,  holds_key,  nothing,        RESIGNING),
    ROW(DOUBTING,  RESIGN,  always,     nothing,        OVER),

    ROW(RESIGNING, SAID,    always,     nothing,        OVER),
};

/* Pairs that cannot happen, or that mean nothing when they do. */
static const struct co_machine_pair ignored[] = {
#define IGNORE(in, on) {ELECTOR_##in, ELECTOR_EV_##on}
    /* only what was asked is answered */
    IGNORE(SEEKING, GRANTED), IGNORE(SEEKING, KEPT), IGNORE(SEEKING, EXPIRED),
    IGNORE(SEEKING, WRITTEN), IGNORE(SEEKING, DEPOSED), IGNORE(SEEKING, SAID),
    IGNORE(FOLLOWING, GRANTED), IGNORE(FOLLOWING, KEPT), IGNORE(FOLLOWING, EXPIRED),
    IGNORE(FOLLOWING, WRITTEN), IGNORE(FOLLOWING, DEPOSED), IGNORE(FOLLOWING, SAID),
    IGNORE(PREPARING, VACANT), IGNORE(PREPARING, OTHER), IGNORE(PREPARING, OURS),
    IGNORE(PREPARING, KEPT), IGNORE(PREPARING, EXPIRED), IGNORE(PREPARING, WRITTEN),
    IGNORE(PREPARING, DEPOSED), IGNORE(PREPARING, SAID),
    IGNORE(CLAIMING, VACANT), IGNORE(CLAIMING, GRANTED), IGNORE(CLAIMING, KEPT),
    IGNORE(CLAIMING, EXPIRED), IGNORE(CLAIMING, WRITTEN), IGNORE(CLAIMING, DEPOSED),
    IGNORE(CLAIMING, SAID),
    IGNORE(LEADING, VACANT), IGNORE(LEADING, OTHER), IGNORE(LEADING, OURS), IGNORE(LEADING, SAID),
    IGNORE(DOUBTING, SAID),
    /* only a leader can be late */
    IGNORE(SEEKING, LATE), IGNORE(FOLLOWING, LATE), IGNORE(PREPARING, LATE),
    IGNORE(CLAIMING, LATE), IGNORE(DOUBTING, LATE),
    /* nothing more is wanted than to have written the last words */
    IGNORE(RESIGNING, VACANT), IGNORE(RESIGNING, OTHER), IGNORE(RESIGNING, OURS),
    IGNORE(RESIGNING, GRANTED), IGNORE(RESIGNING, KEPT), IGNORE(RESIGNING, EXPIRED),
    IGNORE(RESIGNING, WRITTEN), IGNORE(RESIGNING, DEPOSED), IGNORE(RESIGNING, FAILED),
    IGNORE(RESIGNING, LATE), IGNORE(RESIGNING, RESIGN),
    IGNORE(OVER, VACANT), IGNORE(OVER, OTHER), IGNORE(OVER, OURS), IGNORE(OVER, GRANTED),
    IGNORE(OVER, KEPT), IGNORE(OVER, EXPIRED), IGNORE(OVER, WRITTEN), IGNORE(OVER, DEPOSED),
    IGNORE(OVER, FAILED), IGNORE(OVER, LATE), IGNORE(OVER, SAID), IGNORE(OVER, RESIGN),
#undef IGNORE
};
/* clang-format on */

static const struct co_machine_state states[] = {ELECTOR_STATES(CO_MACHINE_STATE)};
static action *const entries[] = {ELECTOR_STATES(CO_MACHINE_ENTRY)};
static const char *const event_names[] = {ELECTOR_EVENTS(CO_MACHINE_EVENT)};

const struct co_machine elector_machine =
    CO_MACHINE("elector", "rendezvous/election/elector.c", states, event_names, rows, ignored);

/* The only place that writes the state. */
static void state_enter(struct elector *e, enum elector_state state, const struct elector_event *ev)
{
    e->state = state;
    entries[state](e, ev);
}

void elector_apply(struct elector *e, const struct elector_event *ev)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        if (row->at.in != e->state || row->at.on != ev->type || !row->only_if(e, ev))
            continue;
        row->does(e, ev);
        if (row->at.then != e->state)
            state_enter(e, row->at.then, ev);
        return;
    }
}

const char *elector_state_name(enum elector_state state)
{
    return states[state].name;
}
