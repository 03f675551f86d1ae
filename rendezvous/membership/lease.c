#include "lease.h"

#include "message.h"

#include "common/clock.h"
#include "common/error.h"

#include <errno.h>
#include <inttypes.h>

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

int lease_begin(struct lease *l, uint64_t hello_ms, uint64_t keep_alive_ms, uint64_t lease_ms,
                struct co_error *err)
{
    if (keep_alive_ms == 0 || keep_alive_ms >= lease_ms || lease_ms > MESSAGE_MAX_MS)
        return co_fail(err, -EPROTO,
                       "a keep-alive interval of %" PRIu64 " ms is too long for a lease of %" PRIu64
                       " ms",
                       keep_alive_ms, lease_ms);
    int rc = lease_answered(l, hello_ms, err);
    if (rc < 0)
        return rc;
    l->keep_alive_ms = keep_alive_ms;
    l->lease_ms = later(l->lease_ms, lease_ms);
    return 0;
}

void lease_sent(struct lease *l, uint64_t now_ms)
{
    l->last_sent_ms = now_ms;
}

int lease_answered(struct lease *l, uint64_t sent_ms, struct co_error *err)
{
    if (sent_ms > l->last_sent_ms)
        return co_fail(err, -EPROTO, "unexpected answer to a keep-alive that was not sent");
    l->from_ms = later(l->from_ms, sent_ms);
    return 0;
}

void lease_extend(struct lease *l, uint64_t until_ms)
{
    l->extended_ms = later(l->extended_ms, until_ms);
}

uint64_t lease_next_ms(const struct lease *l)
{
    return l->keep_alive_ms == 0 ? CO_NEVER_MS : l->last_sent_ms + l->keep_alive_ms;
}

uint64_t lease_end_ms(const struct lease *l)
{
    return l->keep_alive_ms == 0 ? CO_NEVER_MS : later(l->from_ms + l->lease_ms, l->extended_ms);
}

uint64_t lease_silence_ms(uint64_t lease_ms, uint64_t margin_ms)
{
    return lease_ms + margin_ms;
}
