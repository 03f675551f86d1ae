/* elector_ask.c - what etcd is asked, and when. Decides nothing. */
#include "elector_priv.h"

#include "common/clock.h"

enum {
    KEEPS_PER_LEASE = 4,
    RECORD_KEEPS_PER_LEASE = 3,
    MARGIN_DIVISOR = 10, /* of the lease: clocks run at different speeds */
};

uint64_t elector_lease_ms(const struct elector *e)
{
    uint64_t ms = (uint64_t)e->ttl_s * 1000;
    return ms - ms / MARGIN_DIVISOR;
}

bool elector_is_in_lease(const struct elector *e, uint64_t now_ms)
{
    return now_ms < e->kept_ms + elector_lease_ms(e);
}

static struct elector_request request_of(const struct elector *e, enum elector_request_type type)
{
    struct elector_request ask = {.type = type, .create_revision = e->create_revision};
    bool of_record = e->out_is_record || type == ELECTOR_WRITE || type == ELECTOR_GIVE_UP;
    ask.lease = of_record ? e->record_lease : e->lease;
    ask.ttl_s = of_record ? e->limits.record_ttl_s : e->limits.ttl_s;
    ask.has_record = type == ELECTOR_WRITE || (type == ELECTOR_GIVE_UP && e->leaves_record &&
                                               e->record_lease != 0); /* not forever */
    ask.record = e->written;
    ask.address = e->address;
    return ask;
}

void elector_ask(struct elector *e, enum elector_request_type type, uint64_t now_ms)
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
    elector_ask(e, type, now_ms);
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
        elector_ask(e, ELECTOR_WRITE, now_ms);
    } else if (now_ms >= keep_record_at_ms(e))
        ask_lease(e, ELECTOR_KEEP, true, now_ms);
}

void elector_ask_next(struct elector *e, uint64_t now_ms)
{
    e->out_is_record = false;
    switch (e->state) {
    case ELECTOR_LOOKING:
    case ELECTOR_FOLLOWING:
        elector_ask(e, ELECTOR_READ, now_ms);
        break;
    case ELECTOR_PREPARING:
        ask_lease(e, ELECTOR_GRANT, e->lease != 0, now_ms);
        break;
    case ELECTOR_CLAIMING:
        elector_ask(e, ELECTOR_CLAIM, now_ms);
        break;
    case ELECTOR_LEADING:
        ask_as_leader(e, now_ms);
        break;
    case ELECTOR_IN_DOUBT:
        elector_ask(e, e->is_ours ? ELECTOR_KEEP : ELECTOR_READ, now_ms);
        break;
    default:
        break;
    }
}

uint64_t elector_ask_at_ms(const struct elector *e)
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
