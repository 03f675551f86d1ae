/* straggler.c - what a wait that takes too long does: it asks the ranks that are missing, and at
 * the end names those that did not answer. */
#include "straggler.h"

#include "common/clock.h"
#include "common/error.h"
#include "net_watch.h"

#include <ddp/env.h>
#include <errno.h>

bool straggler_is_due(struct straggler *l)
{
    const uint64_t now_ms = co_now_ms();
    if (l->begun_ms == 0)
        l->begun_ms = now_ms;
    return straggler_is_to_ask(l, now_ms) || straggler_is_over(l, now_ms);
}

int straggler_judge(struct straggler *l, struct net_watch *w, const struct net_member *const *who,
                    unsigned n, struct co_error *err)
{
    const uint64_t now_ms = co_now_ms();
    struct net_members_text names = {0};
    if (straggler_is_to_ask(l, now_ms)) {
        for (unsigned i = 0; i < n; i++)
            net_watch_ask(w, who[i]->rank);
        l->asked_again_ms = now_ms;
        if (l->asked_ms == 0)
            l->asked_ms = now_ms;
    }
    if (!straggler_is_over(l, now_ms))
        return 0;
    for (unsigned i = 0; i < n; i++)
        if (straggler_is_silent(l, net_watch_of(w, who[i]->rank).heard_ms, now_ms))
            net_members_add(&names, who[i]);
    const bool is_silent = names.n > 0;
    if (!is_silent && !straggler_is_hopeless(l, now_ms))
        return 0;
    for (unsigned i = 0; i < n && !is_silent; i++)
        net_members_add(&names, who[i]);
    return co_fail(err, -ETIMEDOUT,
                   "timed out after %.3g s waiting for %s%s; raise " DDP_ENV_TIMEOUT
                   " if this is expected",
                   (double)l->timeout_ms / 1e3, names.text,
                   is_silent ? "" : ", which itself waits for other ranks");
}
