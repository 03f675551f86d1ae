/* straggler.h - which rank is to be blamed for a wait between nodes that exceeds its time.
 *
 * A rank that is waited for may itself wait for others: for a rank that was stopped, for instance.
 * So the one that waits asks, from half of its time on, and a rank that waits itself answers
 * (net_watch.h). When the time is up, only ranks that have not answered for a while are blamed:
 * long enough for a rank that lives to get a processor on a busy machine. If all answer, one of
 * them is about to find out which rank is late, and reports it; if it does not, because they wait
 * for each other, the wait still ends, and reports that.
 *
 * Times are those of co_now_ms(). */
#ifndef DDP_WORKER_RUNTIME_TCP_STRAGGLER_H
#define DDP_WORKER_RUNTIME_TCP_STRAGGLER_H

#include "worker-runtime/core/grace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct net_member;
struct net_watch;

struct straggler {
    uint64_t timeout_ms;
    uint64_t begun_ms; /* 0: no rank has waited since the last byte */
    uint64_t asked_ms; /* when the others were asked first, and last; 0: not yet */
    uint64_t asked_again_ms;
};

/* --- what decides: pure ----------------------------------------------------------------------- */

/* A wait begins, or begins again: something came. */
static inline void straggler_reset(struct straggler *l, uint64_t timeout_ms)
{
    *l = (struct straggler){.timeout_ms = timeout_ms};
}

/* Whether it is time to ask (again). */
static inline bool straggler_is_to_ask(const struct straggler *l, uint64_t now_ms)
{
    if (l->asked_ms == 0)
        return now_ms - l->begun_ms >= l->timeout_ms / 2;
    return now_ms - l->asked_again_ms >= grace_silence_ms(l->timeout_ms) / 8;
}

static inline bool straggler_is_over(const struct straggler *l, uint64_t now_ms)
{
    return now_ms - l->begun_ms >= l->timeout_ms;
}

/* heard_ms   when the rank answered last; 0: never */
static inline bool straggler_is_silent(const struct straggler *l, uint64_t heard_ms,
                                       uint64_t now_ms)
{
    const uint64_t since_ms = heard_ms > l->asked_ms ? heard_ms : l->asked_ms;
    return l->asked_ms != 0 && now_ms - since_ms >= grace_silence_ms(l->timeout_ms);
}

/* No rank is silent, and none reports. */
static inline bool straggler_is_hopeless(const struct straggler *l, uint64_t now_ms)
{
    return straggler_is_over(l, now_ms) &&
           now_ms - l->begun_ms - l->timeout_ms >= grace_ms(l->timeout_ms);
}

/* --- and what carries it out ------------------------------------------------------------------ */

/* Look at the clock in a wait.
 *
 * returns   whether there is something to do: straggler_judge() */
bool straggler_is_due(struct straggler *l);

/* Ask the n ranks that are waited for, once it is time to; find the ranks to blame, once it is
 * over. Not all that are missing need to be among them.
 *
 * returns   0 continue to wait; -ETIMEDOUT, and the text names them */
int straggler_judge(struct straggler *l, struct net_watch *w, const struct net_member *const *who,
                    unsigned n, struct co_error *err);

#endif
