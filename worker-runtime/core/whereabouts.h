/* whereabouts.h - saying in which call this rank is, and how far it has come, for ddprun to read
 * (segments/progress.h). A few stores into this rank's own memory: short enough for each call.
 *
 * A group without a control segment says nothing. */
#ifndef DDP_WORKER_RUNTIME_WHEREABOUTS_H
#define DDP_WORKER_RUNTIME_WHEREABOUTS_H

#include "backend.h"
#include "group.h"
#include "segments/control.h"
#include "worker-runtime/arithmetic/reduce.h"

/* Of a block, as this rank gave it. */
static inline uint64_t whereabouts_bytes(const struct ddp_group *g, const struct collective *what)
{
    const size_t count = what->counts != NULL ? what->counts[g->rank] : what->count;
    return (uint64_t)count * reduce_size(what->dtype);
}

/* A thread of the program waits for others, where there is no place to say in what. */
static inline void whereabouts_wait_untold(struct ddp_group *g, int change)
{
    if (g->line != NULL)
        atomic_fetch_add(&g->line->progress.n_untold, (uint32_t)change);
}

/* Enter a call, and count it. */
static inline void whereabouts_enter(struct ddp_group *g, const struct collective *what,
                                     enum progress_state state)
{
    g->n_calls++;
    if (g->place == NULL) {
        if (state == PROGRESS_WAITS)
            whereabouts_wait_untold(g, 1);
        return;
    }
    progress_enter(g->place, &(struct progress_call){.number = g->n_calls,
                                                     .group = g->mark,
                                                     .kind = (uint8_t)what->kind,
                                                     .dtype = (uint8_t)what->dtype,
                                                     .bytes = whereabouts_bytes(g, what),
                                                     .state = state});
}

/* Wait in the call that was begun. */
static inline void whereabouts_wait(struct ddp_group *g)
{
    if (g->place != NULL)
        progress_turn(g->place, PROGRESS_WAITS);
    else
        whereabouts_wait_untold(g, 1);
}

/* The call is over.
 *
 * waited    it was entered to wait in it, or went on so */
static inline void whereabouts_leave(struct ddp_group *g, bool waited)
{
    if (g->place != NULL)
        progress_turn(g->place, PROGRESS_OUTSIDE);
    else if (waited)
        whereabouts_wait_untold(g, -1);
}

#endif
