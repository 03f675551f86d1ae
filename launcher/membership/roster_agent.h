/* roster_agent.h - between the supervisor of this node's ranks and its member of the job's roster:
 * it translates the facts of the supervisor for the member, and the orders of the member for the
 * supervisor.
 *
 * Pure. Looks at states, not at events, so that nothing can be missed: roster_agent_hear() after
 * each step of either machine, until it returns nothing more. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_ROSTER_AGENT_H
#define DDP_LAUNCHER_MEMBERSHIP_ROSTER_AGENT_H

#include "launcher/supervisor/supervisor.h"
#include "rendezvous/membership/member.h"

#include <stdbool.h>
#include <stdint.h>

enum { ROSTER_AGENT_TEXT_BYTES = 512, ROSTER_AGENT_MAX_EVENTS = 2 };

/* Plain data. */
struct roster_agent {
    const char *name;   /* this node's; borrowed */
    const char *path;   /* what is executed; borrowed */
    const char *leaves; /* why, if the coming stop is not due to a signal; NULL: it is */
    bool is_alone;      /* no other node takes part; the caller sets it */
    bool ends_job;      /* a signal to us ends the whole job; else this node leaves */
    bool has_ranks;     /* they were ordered to start, and it was not reported since that nothing
                         * runs */
    bool owes_gone;     /* the member waits to hear that nothing runs, or that ranks are parked */
    bool holds_gone;    /* the caller's: not to be reported yet, because an answer of the roster may
                         * arrive */
    bool saved;         /* the caller's: after CHECKPOINT_REQUEST, each rank has saved its state */
    bool has_reported_done, has_reported_end, has_reported_saved;
    int reported_parked; /* so many for the next generation */
    int reported_rank;   /* local, whose failure was reported; -1: none */
    char text[ROSTER_AGENT_TEXT_BYTES];
};

/* Both texts are borrowed for good. */
void roster_agent_init(struct roster_agent *g, const char *name, const char *path, bool ends_job);

/* The next input for the member.
 *
 * ret       without the time; its text is lent until the next call. RANKS_STOPPED, RANKS_PARKED:
 *           the generation's store is to be closed before it is fed
 * returns   whether there is something */
bool roster_agent_hear(struct roster_agent *g, const struct supervisor *s, const struct member *m,
                       struct member_input *ret);

/* What the supervisor is to be fed, in order, because of the member's orders.
 *
 * ret       without the time
 * returns   how many, 0 .. ROSTER_AGENT_MAX_EVENTS */
int roster_agent_obey(struct roster_agent *g, const struct member *m, const struct member_orders *o,
                      struct supervisor_event ret[ROSTER_AGENT_MAX_EVENTS]);

#endif
