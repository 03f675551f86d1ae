/* call_marker.h - records in which call this rank is, and how far it has come, for ddprun to read
 * (segments/rank_status.h). A few stores into this rank's own memory: short enough for each call.
 *
 * A group without a control segment records nothing. */
#ifndef DDP_WORKER_RUNTIME_CORE_CALL_MARKER_H
#define DDP_WORKER_RUNTIME_CORE_CALL_MARKER_H

#include "backend.h"
#include "group.h"
#include "segments/control.h"
#include "worker-runtime/arithmetic/reduce.h"

/* A thread of the program waits for peers, and has no place to record in which call. */
static inline void call_marker_wait_unplaced(struct ddp_group *g, int change)
{
    if (g->world->line != NULL)
        atomic_fetch_add(&g->world->line->progress.n_unplaced, (uint32_t)change);
}

/* Enter a call, and count it. */
static inline void call_marker_enter(struct ddp_group *g, const struct collective *what,
                                     enum rank_status_state state)
{
    g->n_calls++;
    if (g->place == NULL) {
        if (state == RANK_STATUS_WAITS)
            call_marker_wait_unplaced(g, 1);
        return;
    }
    const size_t count = what->counts != NULL ? what->counts[g->rank] : what->count;
    rank_status_enter(g->place,
                      &(struct rank_status_call){.number = g->n_calls,
                                                 .group = g->mark,
                                                 .kind = (uint8_t)what->kind,
                                                 .dtype = (uint8_t)what->dtype,
                                                 .bytes = count * reduce_size(what->dtype),
                                                 .state = state});
}

/* Wait in the call that was begun. */
static inline void call_marker_wait(struct ddp_group *g)
{
    if (g->place != NULL)
        rank_status_turn(g->place, RANK_STATUS_WAITS);
    else
        call_marker_wait_unplaced(g, 1);
}

/* The call is over.
 *
 * waited    it was entered in order to wait in it, or continued so */
static inline void call_marker_leave(struct ddp_group *g, bool waited)
{
    if (g->place != NULL)
        rank_status_turn(g->place, RANK_STATUS_OUTSIDE);
    else if (waited)
        call_marker_wait_unplaced(g, -1);
}

#endif
