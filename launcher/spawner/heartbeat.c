#include "heartbeat.h"

#include "common/clock.h"

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void heartbeat_begin(struct heartbeat *h, uint64_t from_ms, uint64_t limit_ms)
{
    const bool was_suspended = h->is_suspended;
    *h = (struct heartbeat){.limit_ms = limit_ms,
                            .from_ms = from_ms,
                            .next_ms = from_ms,
                            .is_on = true,
                            .has_link = true,
                            .is_suspended = was_suspended};
}

void heartbeat_state(struct heartbeat *h, uint64_t end_ms)
{
    h->is_on = true;
    h->has_link = false;
    h->limit_ms = 0;
    h->end_ms = end_ms;
}

void heartbeat_lose_link(struct heartbeat *h)
{
    h->has_link = false;
}

static uint64_t interval_ms(const struct heartbeat *h)
{
    return h->limit_ms > HEARTBEATS_IN_LIMIT ? h->limit_ms / HEARTBEATS_IN_LIMIT : 1;
}

bool heartbeat_is_due(const struct heartbeat *h, uint64_t now_ms)
{
    return h->has_link && now_ms >= h->next_ms && h->n_sent - h->n_acked < HEARTBEAT_MAX_UNACKED;
}

void heartbeat_sent(struct heartbeat *h, uint64_t now_ms, bool was_taken)
{
    if (was_taken)
        h->sent_ms[h->n_sent++ % HEARTBEAT_MAX_UNACKED] = now_ms;
    h->next_ms = now_ms + interval_ms(h);
}

void heartbeat_acked(struct heartbeat *h, uint64_t n_unacked)
{
    if (!h->has_link || n_unacked > h->n_sent || h->n_sent - n_unacked <= h->n_acked)
        return;
    h->n_acked = h->n_sent - n_unacked;
    const uint64_t sent_ms = h->sent_ms[(h->n_acked - 1) % HEARTBEAT_MAX_UNACKED];
    if (sent_ms > h->from_ms)
        h->from_ms = sent_ms;
}

static uint64_t run_until_ms(const struct heartbeat *h)
{
    if (!h->is_on)
        return CO_NEVER_MS;
    return h->limit_ms == 0 ? h->end_ms : h->from_ms + h->limit_ms;
}

uint64_t heartbeat_end_ms(const struct heartbeat *h)
{
    return h->is_suspended ? CO_NEVER_MS : run_until_ms(h);
}

uint64_t heartbeat_deadline_ms(const struct heartbeat *h)
{
    const bool may_send = h->has_link && h->n_sent - h->n_acked < HEARTBEAT_MAX_UNACKED;
    return sooner(may_send ? h->next_ms : CO_NEVER_MS, heartbeat_end_ms(h));
}

bool heartbeat_lapse(struct heartbeat *h, uint64_t now_ms)
{
    if (heartbeat_end_ms(h) > now_ms)
        return false;
    h->is_suspended = true;
    return true;
}

bool heartbeat_resume(struct heartbeat *h, uint64_t from_ms, uint64_t now_ms)
{
    if (h->limit_ms != 0 && from_ms + h->limit_ms <= now_ms)
        return false; /* too old: what was acknowledged since proves nothing */
    if (h->limit_ms != 0 && !h->has_link)
        h->is_on = false;
    if (h->limit_ms != 0 && from_ms > h->from_ms)
        h->from_ms = from_ms;
    if (!h->is_suspended || run_until_ms(h) <= now_ms)
        return false;
    h->is_suspended = false;
    return true;
}
