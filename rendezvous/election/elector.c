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
static bool may_continue(const struct elector *e, const struct elector_event *ev)
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

static void report_no_leader(struct elector *e, const struct elector_event *ev)
{
    (void)ev;
    e->orders.vacant = true;
    e->orders.asked_ms = e->out_ms;
}

/* A lease that an earlier claim has left is as good as a new one. */
static void prepare_lease(struct elector *e, const struct elector_event *ev)
{
    report_no_leader(e, ev);
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

static void report_certain(struct elector *e, const struct elector_event *ev)
{
    (void)ev;
    e->orders.certain = true;
    e->commit_waits |= e->has_written && !e->has_record; /* etcd has lost it */
}

static void continue_leading(struct elector *e, const struct elector_event *ev)
{
    note_key(e, ev);
    report_certain(e, ev);
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

static void report_doubt(struct elector *e, const struct elector_event *ev)
{
    (void)ev;
    e->orders.doubt = true;
}

static void write_last(struct elector *e, const struct elector_event *ev)
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
    /*  in         on           only if       does              then */
    ROW(LOOKING,   NO_LEADER,   may_claim,    prepare_lease,    PREPARING),
    ROW(LOOKING,   NO_LEADER,   always,       report_no_leader, LOOKING),
    ROW(LOOKING,   OTHER_LEADS, always,       follow,           FOLLOWING),
    ROW(LOOKING,   THIS_LEADS,  is_late,      nothing,          LOOKING),
    ROW(LOOKING,   THIS_LEADS,  always,       begin,            LEADING), /* lost answer */
    ROW(LOOKING,   FAILED,      always,       nothing,          LOOKING),
    ROW(LOOKING,   RESIGN,      always,       nothing,          ENDED),

    ROW(FOLLOWING, NO_LEADER,   may_claim,    prepare_lease,    PREPARING),
    ROW(FOLLOWING, NO_LEADER,   always,       report_no_leader, LOOKING),
    ROW(FOLLOWING, OTHER_LEADS, always,       follow,           FOLLOWING),
    ROW(FOLLOWING, THIS_LEADS,  is_late,      nothing,          LOOKING),
    ROW(FOLLOWING, THIS_LEADS,  always,       begin,            LEADING),
    ROW(FOLLOWING, FAILED,      always,       nothing,          FOLLOWING),
    ROW(FOLLOWING, RESIGN,      always,       nothing,          ENDED),

    ROW(PREPARING, GRANTED,     has_leases,   nothing,          CLAIMING),
    ROW(PREPARING, GRANTED,     always,       nothing,          PREPARING),
    ROW(PREPARING, FAILED,      has_roster,   nothing,          IN_DOUBT),
    ROW(PREPARING, FAILED,      always,       nothing,          LOOKING),
    ROW(PREPARING, RESIGN,      always,       nothing,          ENDED),

    ROW(CLAIMING,  THIS_LEADS,  is_late,      drop_roster,      LOOKING),
    ROW(CLAIMING,  THIS_LEADS,  may_continue, continue_leading, LEADING),
    ROW(CLAIMING,  THIS_LEADS,  always,       begin,            LEADING),
    ROW(CLAIMING,  OTHER_LEADS, always,       step_back,        FOLLOWING),
    ROW(CLAIMING,  FAILED,      has_roster,   nothing,          IN_DOUBT),
    ROW(CLAIMING,  FAILED,      always,       nothing,          LOOKING),
    ROW(CLAIMING,  RESIGN,      always,       nothing,          ENDED),

    ROW(LEADING,   RENEWED,     always,       nothing,          LEADING),
    ROW(LEADING,   EXPIRED,     always,       lose_lease,       IN_DOUBT),
    ROW(LEADING,   LAPSED,      always,       nothing,          IN_DOUBT),
    ROW(LEADING,   GRANTED,     always,       nothing,          LEADING), /* the record's */
    ROW(LEADING,   WRITTEN,     always,       note_written,     LEADING),
    ROW(LEADING,   DEPOSED,     always,       drop_roster,      LOOKING),
    ROW(LEADING,   FAILED,      always,       nothing,          LEADING),
    ROW(LEADING,   RESIGN,      always,       nothing,          RESIGNING),

    ROW(IN_DOUBT,  RENEWED,     is_in_time,   report_certain,   LEADING),
    ROW(IN_DOUBT,  RENEWED,     always,       nothing,          IN_DOUBT),
    ROW(IN_DOUBT,  EXPIRED,     always,       lose_lease,       IN_DOUBT),
    ROW(IN_DOUBT,  NO_LEADER,   may_claim,    prepare_again,    PREPARING),
    ROW(IN_DOUBT,  NO_LEADER,   always,       nothing,          IN_DOUBT),
    ROW(IN_DOUBT,  THIS_LEADS,  is_late,      nothing,          IN_DOUBT),
    ROW(IN_DOUBT,  THIS_LEADS,  may_continue, continue_leading, LEADING),
    ROW(IN_DOUBT,  THIS_LEADS,  always,       begin,            LEADING),
    ROW(IN_DOUBT,  OTHER_LEADS, always,       step_back,        FOLLOWING),
    ROW(IN_DOUBT,  GRANTED,     always,       nothing,          IN_DOUBT),
    ROW(IN_DOUBT,  WRITTEN,     always,       note_late_write,  IN_DOUBT),
    ROW(IN_DOUBT,  DEPOSED,     always,       drop_roster,      LOOKING),
    ROW(IN_DOUBT,  FAILED,      always,       nothing,          IN_DOUBT),
    ROW(IN_DOUBT,  RESIGN,      holds_key,    nothing,          RESIGNING),
    ROW(IN_DOUBT,  RESIGN,      always,       nothing,          ENDED),

    ROW(RESIGNING, RESIGNED,    always,       nothing,          ENDED),
};

/* Pairs that cannot happen, or that mean nothing when they do. */
static const struct co_machine_pair ignored[] = {
#define IGNORE(in, on) {ELECTOR_##in, ELECTOR_EV_##on}
    /* only what was asked is answered */
    IGNORE(LOOKING, GRANTED), IGNORE(LOOKING, RENEWED), IGNORE(LOOKING, EXPIRED),
    IGNORE(LOOKING, WRITTEN), IGNORE(LOOKING, DEPOSED), IGNORE(LOOKING, RESIGNED),
    IGNORE(FOLLOWING, GRANTED), IGNORE(FOLLOWING, RENEWED), IGNORE(FOLLOWING, EXPIRED),
    IGNORE(FOLLOWING, WRITTEN), IGNORE(FOLLOWING, DEPOSED), IGNORE(FOLLOWING, RESIGNED),
    IGNORE(PREPARING, NO_LEADER), IGNORE(PREPARING, OTHER_LEADS), IGNORE(PREPARING, THIS_LEADS),
    IGNORE(PREPARING, RENEWED), IGNORE(PREPARING, EXPIRED), IGNORE(PREPARING, WRITTEN),
    IGNORE(PREPARING, DEPOSED), IGNORE(PREPARING, RESIGNED), IGNORE(CLAIMING, NO_LEADER),
    IGNORE(CLAIMING, GRANTED), IGNORE(CLAIMING, RENEWED), IGNORE(CLAIMING, EXPIRED),
    IGNORE(CLAIMING, WRITTEN), IGNORE(CLAIMING, DEPOSED), IGNORE(CLAIMING, RESIGNED),
    IGNORE(LEADING, NO_LEADER), IGNORE(LEADING, OTHER_LEADS), IGNORE(LEADING, THIS_LEADS),
    IGNORE(LEADING, RESIGNED), IGNORE(IN_DOUBT, RESIGNED),
    /* only a leader can be late */
    IGNORE(LOOKING, LAPSED), IGNORE(FOLLOWING, LAPSED), IGNORE(PREPARING, LAPSED),
    IGNORE(CLAIMING, LAPSED), IGNORE(IN_DOUBT, LAPSED),
    /* only the answer to the last write counts */
    IGNORE(RESIGNING, NO_LEADER), IGNORE(RESIGNING, OTHER_LEADS), IGNORE(RESIGNING, THIS_LEADS),
    IGNORE(RESIGNING, GRANTED), IGNORE(RESIGNING, RENEWED), IGNORE(RESIGNING, EXPIRED),
    IGNORE(RESIGNING, WRITTEN), IGNORE(RESIGNING, DEPOSED), IGNORE(RESIGNING, FAILED),
    IGNORE(RESIGNING, LAPSED), IGNORE(RESIGNING, RESIGN), IGNORE(ENDED, NO_LEADER),
    IGNORE(ENDED, OTHER_LEADS), IGNORE(ENDED, THIS_LEADS), IGNORE(ENDED, GRANTED),
    IGNORE(ENDED, RENEWED), IGNORE(ENDED, EXPIRED), IGNORE(ENDED, WRITTEN), IGNORE(ENDED, DEPOSED),
    IGNORE(ENDED, FAILED), IGNORE(ENDED, LAPSED), IGNORE(ENDED, RESIGNED), IGNORE(ENDED, RESIGN),
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
