#include "elector.h"

#include "common/clock.h"
#include "common/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEEPS_PER_LEASE = 4,
    RECORD_KEEPS_PER_LEASE = 3,
    MARGIN_DIVISOR = 10, /* of the lease: clocks run at different speeds */
};

struct elector {
    struct elector_limits limits;
    enum elector_state state;
    struct elector_address address;
    bool has_address;

    /* what is being asked */
    bool is_out;
    enum elector_request_type out;
    bool out_is_record; /* GRANT, KEEP: of the record's lease */
    uint64_t out_ms;
    uint64_t next_ms; /* nothing is asked before */
    bool hurries;
    char trouble[ELECTOR_TEXT_BYTES];

    /* what etcd has said of others */
    struct elector_address leader;
    bool has_followed;
    uint64_t vacant_ms; /* since when nobody leads; CO_NEVER_MS: somebody does */
    bool has_record;
    struct elector_record record;
    int64_t record_mod_revision;

    /* what is ours */
    int64_t lease; /* 0: none */
    uint32_t ttl_s;
    uint64_t kept_ms; /* when the newest answered GRANT or KEEP was sent */
    int64_t record_lease;
    uint64_t record_kept_ms;
    bool is_ours; /* the leader's key, when last heard of */
    int64_t create_revision;
    bool has_roster;            /* the caller was told to make one, and not to give it up */
    int64_t known_mod_revision; /* of the record that our roster knows; 0: there was none */
    bool has_written, commit_waits;
    struct elector_record written; /* what our roster has said last */
    bool leaves_record;            /* OVER: `written` is for the next leader */

    struct elector_orders orders;
};

struct event {
    enum elector_event_type type;
    uint64_t now_ms;
    const struct elector_answer *answer; /* NULL: LATE, RESIGN */
};

static uint64_t lease_ms(const struct elector *e)
{
    uint64_t ms = (uint64_t)e->ttl_s * 1000;
    return ms - ms / MARGIN_DIVISOR;
}

static bool is_in_lease(const struct elector *e, uint64_t now_ms)
{
    return now_ms < e->kept_ms + lease_ms(e);
}

/* --- Conditions --- */

typedef bool condition(const struct elector *e, const struct event *ev);

static bool always(const struct elector *e, const struct event *ev)
{
    (void)e;
    (void)ev;
    return true;
}

/* Who has the roster yet goes first: a node that hears it well waits for it, and so does each where
 * etcd has lost the record, too. */
static bool may_claim(const struct elector *e, const struct event *ev)
{
    bool may_be_another = e->has_followed && !e->has_roster && (!e->hurries || !e->has_record);
    bool is_early = may_be_another && ev->now_ms < e->vacant_ms + e->limits.prefer_ms;
    return !e->limits.never_leads && e->has_address && !is_early;
}

static bool has_leases(const struct elector *e, const struct event *ev)
{
    (void)ev;
    return e->lease != 0 && e->record_lease != 0;
}

static bool has_roster(const struct elector *e, const struct event *ev)
{
    (void)ev;
    return e->has_roster;
}

/* Nobody else has led meanwhile: our roster knows all that there is to know. */
static bool goes_on(const struct elector *e, const struct event *ev)
{
    (void)ev;
    return e->has_roster && (!e->has_record || e->record_mod_revision == e->known_mod_revision);
}

static bool is_in_time(const struct elector *e, const struct event *ev)
{
    return is_in_lease(e, ev->now_ms);
}

/* An answer that comes when the lease is over, since this process was stopped, say, is none:
 * whoever leads by now may have written a newer record. */
static bool is_late(const struct elector *e, const struct event *ev)
{
    return !is_in_lease(e, ev->now_ms);
}

static bool holds_key(const struct elector *e, const struct event *ev)
{
    (void)ev;
    return e->is_ours;
}

/* --- Deeds --- */

typedef void deed(struct elector *e, const struct event *ev);

static void nothing(struct elector *e, const struct event *ev)
{
    (void)e;
    (void)ev;
}

static void tell_vacant(struct elector *e, const struct event *ev)
{
    (void)ev;
    e->orders.vacant = true;
    e->orders.asked_ms = e->out_ms;
}

/* A lease that an earlier claim has left is as good as a new one. */
static void prepare(struct elector *e, const struct event *ev)
{
    tell_vacant(e, ev);
    if (!is_in_lease(e, ev->now_ms))
        e->lease = 0;
}

static void prepare_again(struct elector *e, const struct event *ev)
{
    if (!is_in_lease(e, ev->now_ms))
        e->lease = 0;
}

static void follow(struct elector *e, const struct event *ev)
{
    (void)ev;
    e->has_followed = true;
    e->is_ours = false;
    e->orders.follow = true;
    e->orders.leader = e->leader;
}

static void drop_roster(struct elector *e, const struct event *ev)
{
    (void)ev;
    e->orders.give_up = e->has_roster;
    e->has_roster = e->has_written = e->commit_waits = e->is_ours = false;
}

static void step_back(struct elector *e, const struct event *ev)
{
    drop_roster(e, ev);
    follow(e, ev);
}

static void note_key(struct elector *e, const struct event *ev)
{
    e->is_ours = true;
    e->create_revision = ev->answer->leader_create_revision;
}

static void begin(struct elector *e, const struct event *ev)
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

static void tell_certain(struct elector *e, const struct event *ev)
{
    (void)ev;
    e->orders.certain = true;
    e->commit_waits |= e->has_written && !e->has_record; /* etcd has lost it */
}

static void go_on(struct elector *e, const struct event *ev)
{
    note_key(e, ev);
    tell_certain(e, ev);
}

static void note_written(struct elector *e, const struct event *ev)
{
    e->known_mod_revision = ev->answer->revision;
    e->has_record = true;
    e->orders.committed = !e->commit_waits;
}

/* It was ours when etcd wrote. That may be long ago: somebody else may have begun something since.
 * It is written once more when we are sure again. */
static void note_late_write(struct elector *e, const struct event *ev)
{
    e->known_mod_revision = ev->answer->revision;
    e->commit_waits = true;
}

static void lose_lease(struct elector *e, const struct event *ev)
{
    (void)ev;
    e->lease = 0;
    e->is_ours = false;
}

static void doubt(struct elector *e, const struct event *ev)
{
    (void)ev;
    e->orders.doubt = true;
}

static void ask(struct elector *e, enum elector_request_type type, uint64_t now_ms);

static void say_last_words(struct elector *e, const struct event *ev)
{
    ask(e, ELECTOR_GIVE_UP, ev->now_ms);
}

static void finish(struct elector *e, const struct event *ev)
{
    (void)ev;
    e->is_out = false;
    e->orders.over = true;
}

/* --- The table: read from the top, the first row that fits is it --- */

struct row {
    struct co_machine_row at;
    condition *only_if;
    deed *does;
};

#define ROW(in, on, only_if, does, then)                                                           \
    {                                                                                              \
        {ELECTOR_##in, ELECTOR_EV_##on, ELECTOR_##then, #only_if, #does}, only_if, does            \
    }

/* clang-format off */
static const struct row rows[] = {
    /*  in         on       only if     does            then      */
    ROW(SEEKING,   VACANT,  may_claim,  prepare,        PREPARING),
    ROW(SEEKING,   VACANT,  always,     tell_vacant,    SEEKING),
    ROW(SEEKING,   OTHER,   always,     follow,         FOLLOWING),
    ROW(SEEKING,   OURS,    is_late,    nothing,        SEEKING),
    ROW(SEEKING,   OURS,    always,     begin,          LEADING), /* a claim's answer was lost */
    ROW(SEEKING,   FAILED,  always,     nothing,        SEEKING),
    ROW(SEEKING,   RESIGN,  always,     nothing,        OVER),

    ROW(FOLLOWING, VACANT,  may_claim,  prepare,        PREPARING),
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
    /* only who leads can be late */
    IGNORE(SEEKING, LATE), IGNORE(FOLLOWING, LATE), IGNORE(PREPARING, LATE),
    IGNORE(CLAIMING, LATE), IGNORE(DOUBTING, LATE),
    /* nothing more is wanted than to have said it */
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
static deed *const entries[] = {ELECTOR_STATES(CO_MACHINE_ENTRY)};
static const char *const event_names[] = {ELECTOR_EVENTS(CO_MACHINE_EVENT)};

const struct co_machine elector_machine =
    CO_MACHINE("elector", "etcd/elector.c", states, event_names, rows, ignored);

/* The only place that writes the state. */
static void enter(struct elector *e, enum elector_state state, const struct event *ev)
{
    e->state = state;
    entries[state](e, ev);
}

static void apply(struct elector *e, const struct event *ev)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        if (row->at.in != e->state || row->at.on != ev->type || !row->only_if(e, ev))
            continue;
        row->does(e, ev);
        if (row->at.then != e->state)
            enter(e, row->at.then, ev);
        return;
    }
}

/* --- Asking --- */

static struct elector_request request_of(const struct elector *e, enum elector_request_type type)
{
    struct elector_request ask = {.type = type, .create_revision = e->create_revision};
    bool of_record = e->out_is_record || type == ELECTOR_WRITE || type == ELECTOR_GIVE_UP;
    ask.lease = of_record ? e->record_lease : e->lease;
    ask.ttl_s = of_record ? e->limits.record_ttl_s : e->limits.ttl_s;
    ask.has_record = type == ELECTOR_WRITE || (type == ELECTOR_GIVE_UP && e->leaves_record &&
                                               e->record_lease != 0); /* not for ever */
    ask.record = e->written;
    ask.address = e->address;
    return ask;
}

static void ask(struct elector *e, enum elector_request_type type, uint64_t now_ms)
{
    e->is_out = true;
    e->out = type;
    e->out_ms = now_ms;
    e->orders.request = true;
    e->orders.ask = request_of(e, type);
}

static void ask_lease(struct elector *e, enum elector_request_type type, bool of_record,
                      uint64_t now_ms)
{
    e->out_is_record = of_record;
    ask(e, type, now_ms);
}

static uint64_t keep_at_ms(const struct elector *e)
{
    return e->kept_ms + (uint64_t)e->ttl_s * 1000 / KEEPS_PER_LEASE;
}

static uint64_t keep_record_at_ms(const struct elector *e)
{
    return e->record_kept_ms + (uint64_t)e->limits.record_ttl_s * 1000 / RECORD_KEEPS_PER_LEASE;
}

/* What keeps us leader goes first. */
static void ask_as_leader(struct elector *e, uint64_t now_ms)
{
    if (now_ms >= keep_at_ms(e))
        ask_lease(e, ELECTOR_KEEP, false, now_ms);
    else if (e->record_lease == 0)
        ask_lease(e, ELECTOR_GRANT, true, now_ms);
    else if (e->commit_waits) {
        e->commit_waits = false;
        ask(e, ELECTOR_WRITE, now_ms);
    } else if (now_ms >= keep_record_at_ms(e))
        ask_lease(e, ELECTOR_KEEP, true, now_ms);
}

static void ask_next(struct elector *e, uint64_t now_ms)
{
    e->out_is_record = false;
    switch (e->state) {
    case ELECTOR_SEEKING:
    case ELECTOR_FOLLOWING:
        ask(e, ELECTOR_READ, now_ms);
        break;
    case ELECTOR_PREPARING:
        ask_lease(e, ELECTOR_GRANT, e->lease != 0, now_ms);
        break;
    case ELECTOR_CLAIMING:
        ask(e, ELECTOR_CLAIM, now_ms);
        break;
    case ELECTOR_LEADING:
        ask_as_leader(e, now_ms);
        break;
    case ELECTOR_DOUBTING:
        ask(e, e->is_ours ? ELECTOR_KEEP : ELECTOR_READ, now_ms);
        break;
    default:
        break;
    }
}

/* When something is to be asked, if nothing is out. */
static uint64_t ask_at_ms(const struct elector *e)
{
    uint64_t at_ms = e->next_ms;
    if (e->state >= ELECTOR_RESIGNING)
        return CO_NEVER_MS;
    if (e->state == ELECTOR_LEADING && e->record_lease != 0 && !e->commit_waits) {
        uint64_t keep_ms = keep_at_ms(e), record_ms = keep_record_at_ms(e);
        uint64_t due_ms = keep_ms < record_ms ? keep_ms : record_ms;
        at_ms = due_ms > at_ms ? due_ms : at_ms;
    }
    return at_ms;
}

/* --- Answers --- */

static void note_keys(struct elector *e, const struct elector_answer *a, uint64_t now_ms)
{
    e->leader = a->leader;
    e->has_record = a->has_record;
    e->record = a->record;
    e->record_mod_revision = a->record_mod_revision;
    if (a->has_record && !e->is_ours)
        e->record_lease = a->record_lease;
    if (a->has_leader)
        e->vacant_ms = CO_NEVER_MS;
    else if (e->vacant_ms == CO_NEVER_MS)
        e->vacant_ms = now_ms;
}

static enum elector_event_type event_of_keys(struct elector *e, const struct elector_answer *a,
                                             uint64_t now_ms)
{
    note_keys(e, a, now_ms);
    if (!a->has_leader)
        return e->out == ELECTOR_READ ? ELECTOR_EV_VACANT : ELECTOR_EV_FAILED;
    return e->lease != 0 && a->leader_lease == e->lease ? ELECTOR_EV_OURS : ELECTOR_EV_OTHER;
}

static enum elector_event_type note_grant(struct elector *e, const struct elector_answer *a)
{
    if (a->lease == 0 || a->ttl_s == 0)
        return ELECTOR_EV_FAILED;
    if (e->out_is_record) {
        e->record_lease = a->lease;
        e->record_kept_ms = e->out_ms;
        e->commit_waits |= e->has_written && e->state == ELECTOR_LEADING;
    } else {
        e->lease = a->lease;
        e->ttl_s = a->ttl_s;
        e->kept_ms = e->out_ms;
    }
    return ELECTOR_EV_GRANTED;
}

/* The record's lease is nothing that the table knows. */
static enum elector_event_type note_keep(struct elector *e, const struct elector_answer *a)
{
    if (e->out_is_record) {
        e->record_kept_ms = e->out_ms;
        if (a->ttl_s == 0)
            e->record_lease = 0; /* another one is asked for, and the record written again */
        return ELECTOR_EV_GRANTED;
    }
    if (a->ttl_s == 0)
        return ELECTOR_EV_EXPIRED;
    e->kept_ms = e->out_ms;
    return ELECTOR_EV_KEPT;
}

static enum elector_event_type note_failure(struct elector *e, const struct elector_answer *a)
{
    snprintf(e->trouble, sizeof e->trouble, "%s", a->text);
    if (e->out == ELECTOR_WRITE) {
        e->commit_waits = true;
        if (a->lacks_lease)
            e->record_lease = 0;
    }
    if (e->out == ELECTOR_CLAIM && a->lacks_lease)
        e->lease = 0;
    return ELECTOR_EV_FAILED;
}

static enum elector_event_type event_of(struct elector *e, const struct elector_answer *a,
                                        uint64_t now_ms)
{
    if (e->out == ELECTOR_GIVE_UP)
        return ELECTOR_EV_SAID;
    if (a->failed)
        return note_failure(e, a);
    e->trouble[0] = '\0';
    switch (e->out) {
    case ELECTOR_READ:
    case ELECTOR_CLAIM:
        return event_of_keys(e, a, now_ms);
    case ELECTOR_GRANT:
        return note_grant(e, a);
    case ELECTOR_KEEP:
        return note_keep(e, a);
    default:
        return a->succeeded ? ELECTOR_EV_WRITTEN : ELECTOR_EV_DEPOSED;
    }
}

static uint64_t pause_ms(const struct elector *e, enum elector_event_type type)
{
    if (type == ELECTOR_EV_FAILED || e->state == ELECTOR_SEEKING || e->state == ELECTOR_DOUBTING)
        return e->limits.hurry_ms;
    if (e->state == ELECTOR_FOLLOWING)
        return e->hurries ? e->limits.hurry_ms : e->limits.ask_ms;
    return 0;
}

static void take_answer(struct elector *e, const struct elector_input *in)
{
    if (!e->is_out)
        return;
    e->is_out = false;
    enum elector_event_type type = event_of(e, in->answer, in->now_ms);
    apply(e, &(struct event){.type = type, .now_ms = in->now_ms, .answer = in->answer});
    e->next_ms = in->now_ms + pause_ms(e, type);
}

/* --- What the caller feeds --- */

static void take_hurry(struct elector *e, const struct elector_input *in)
{
    bool begins = in->hurries && !e->hurries;
    e->hurries = in->hurries;
    if (begins && (e->state == ELECTOR_FOLLOWING || e->state == ELECTOR_SEEKING))
        e->next_ms = in->now_ms;
}

static void take_stop(struct elector *e, const struct elector_input *in)
{
    e->leaves_record = in->record != NULL;
    if (in->record != NULL)
        e->written = *in->record;
    apply(e, &(struct event){.type = ELECTOR_EV_RESIGN, .now_ms = in->now_ms});
}

static void take(struct elector *e, const struct elector_input *in)
{
    switch (in->type) {
    case ELECTOR_ANSWER:
        take_answer(e, in);
        break;
    case ELECTOR_HURRY:
        take_hurry(e, in);
        break;
    case ELECTOR_COMMIT:
        e->written = *in->record;
        e->has_written = e->commit_waits = true;
        break;
    case ELECTOR_STOP:
        take_stop(e, in);
        break;
    case ELECTOR_TIME:
        break;
    }
}

void elector_step(struct elector *e, const struct elector_input *in, struct elector_orders *ret)
{
    e->orders = (struct elector_orders){0};
    bool may_renew = in->type == ELECTOR_ANSWER && e->out == ELECTOR_KEEP;
    if (e->state == ELECTOR_LEADING && !is_in_lease(e, in->now_ms) && !may_renew)
        apply(e, &(struct event){.type = ELECTOR_EV_LATE, .now_ms = in->now_ms});
    take(e, in);
    if (e->state == ELECTOR_LEADING && !is_in_lease(e, in->now_ms))
        apply(e, &(struct event){.type = ELECTOR_EV_LATE, .now_ms = in->now_ms});
    if (!e->is_out && in->now_ms >= ask_at_ms(e))
        ask_next(e, in->now_ms);
    *ret = e->orders;
}

uint64_t elector_deadline_ms(const struct elector *e)
{
    uint64_t late_ms = e->state == ELECTOR_LEADING ? e->kept_ms + lease_ms(e) : CO_NEVER_MS;
    uint64_t at_ms = e->is_out ? CO_NEVER_MS : ask_at_ms(e);
    return at_ms < late_ms ? at_ms : late_ms;
}

/* --- What the caller wants to know --- */

enum elector_state elector_get_state(const struct elector *e)
{
    return e->state;
}

uint32_t elector_ttl_s(const struct elector *e)
{
    return e->ttl_s;
}

const char *elector_trouble(const struct elector *e)
{
    return e->trouble;
}

const char *elector_state_name(enum elector_state state)
{
    return states[state].name;
}

/* --- Beginning and end --- */

struct elector *elector_create(const struct elector_limits *limits)
{
    struct elector *e = calloc(1, sizeof *e);
    if (e == NULL)
        return NULL;
    e->limits = *limits;
    e->vacant_ms = CO_NEVER_MS;
    return e;
}

void elector_destroy(struct elector *e)
{
    free(e);
}

void elector_set_address(struct elector *e, const struct elector_address *address)
{
    e->address = *address;
    e->has_address = true;
}
