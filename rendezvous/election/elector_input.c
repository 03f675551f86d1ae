/* elector_input.c - what the caller feeds: etcd's answers and the time, made into events of the
 * table. */
#include "elector_priv.h"

#include "common/clock.h"

#include <stdio.h>
#include <stdlib.h>

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
        return e->out == ELECTOR_READ ? ELECTOR_EV_NO_LEADER : ELECTOR_EV_FAILED;
    return e->lease != 0 && a->leader_lease == e->lease ? ELECTOR_EV_THIS_LEADS
                                                        : ELECTOR_EV_OTHER_LEADS;
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
    return ELECTOR_EV_RENEWED;
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
        return ELECTOR_EV_RESIGNED;
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
    if (type == ELECTOR_EV_FAILED || e->state == ELECTOR_LOOKING || e->state == ELECTOR_IN_DOUBT)
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
    elector_apply(
        e, &(struct elector_event){.type = type, .now_ms = in->now_ms, .answer = in->answer});
    e->next_ms = in->now_ms + pause_ms(e, type);
}

/* --- What the caller feeds --- */

static void take_hurry(struct elector *e, const struct elector_input *in)
{
    bool begins = in->hurries && !e->hurries;
    e->hurries = in->hurries;
    if (begins && (e->state == ELECTOR_FOLLOWING || e->state == ELECTOR_LOOKING))
        e->next_ms = in->now_ms;
}

static void take_stop(struct elector *e, const struct elector_input *in)
{
    e->leaves_record = in->record != NULL;
    if (in->record != NULL)
        e->written = *in->record;
    elector_apply(e, &(struct elector_event){.type = ELECTOR_EV_RESIGN, .now_ms = in->now_ms});
}

static void input_take(struct elector *e, const struct elector_input *in)
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

/* A leader whose lease is over stops leading before the input counts, and again after it. The
 * exception is the answer to a keep-alive, which may renew a lease that has just run out. At most
 * one request is out at a time. */
void elector_step(struct elector *e, const struct elector_input *in, struct elector_orders *ret)
{
    e->orders = (struct elector_orders){0};
    bool may_renew = in->type == ELECTOR_ANSWER && e->out == ELECTOR_KEEP;
    if (e->state == ELECTOR_LEADING && !elector_is_in_lease(e, in->now_ms) && !may_renew)
        elector_apply(e, &(struct elector_event){.type = ELECTOR_EV_LAPSED, .now_ms = in->now_ms});
    input_take(e, in);
    if (e->state == ELECTOR_LEADING && !elector_is_in_lease(e, in->now_ms))
        elector_apply(e, &(struct elector_event){.type = ELECTOR_EV_LAPSED, .now_ms = in->now_ms});
    if (!e->is_out && in->now_ms >= elector_ask_at_ms(e))
        elector_ask_next(e, in->now_ms);
    *ret = e->orders;
}

uint64_t elector_deadline_ms(const struct elector *e)
{
    uint64_t late_ms = e->state == ELECTOR_LEADING ? e->kept_ms + elector_lease_ms(e) : CO_NEVER_MS;
    uint64_t at_ms = e->is_out ? CO_NEVER_MS : elector_ask_at_ms(e);
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
