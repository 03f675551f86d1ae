#include "poll_time.h"

void poll_time_expect(struct poll_time *p, enum poll_wait next, uint64_t now_ns)
{
    const bool is_fast = now_ns - p->since_ns <= POLL_TIME_FAST_NS;
    if (next != p->next)
        p->is_fast[p->next] = is_fast;
    else if (is_fast)
        return; /* another request, or another part of the reply: the first one counts */
    p->next = next;
    p->since_ns = now_ns;
}

bool poll_time_is_on(const struct poll_time *p, uint64_t now_ns)
{
    return p->is_fast[p->next] && now_ns - p->since_ns <= POLL_TIME_NS;
}
