/* life.h - the life of one communicator: which call of NCCL comes next, and what its failure leads
 * to.
 *
 * Pure: no NCCL, no clock. Who holds the communicator feeds events in, and does what the answer
 * says; the end of that is the next event. docs/nccl.md has the table in words, docs/nccl.dot its
 * drawing.
 *
 * Words:
 *   abort    frees the communicator whatever it does; the only call that ends kernels for good
 *   revoke   ends its kernels and leaves it whole, so that another can be made of it by shrinking
 *   end      frees it in good order: what was begun is finished first */
#ifndef DDP_NCCL_LIFE_H
#define DDP_NCCL_LIFE_H

#include <stdbool.h>

struct co_machine;

enum life_state {
    LIFE_NEW,      /* there is no communicator yet */
    LIFE_MAKING,   /* it is being made, with all ranks that will be in it */
    LIFE_READY,    /* work may be put on streams */
    LIFE_ENDING,   /* it is being freed in good order */
    LIFE_REVOKING, /* the job is broken: its kernels are being ended */
    LIFE_REVOKED,  /* nothing runs on it: good for being shrunk, and for nothing else */
    LIFE_ABORTING, /* it is being freed, whatever it does */
    LIFE_GONE,     /* there is none any more */
    LIFE_STUCK,    /* it cannot be freed: this process is lost to its device */
    LIFE_N_STATES
};

enum life_event {
    LIFE_MAKE,   /* it is to be made */
    LIFE_DONE,   /* what was begun is done */
    LIFE_FAILED, /* NCCL or CUDA reported an error */
    LIFE_LATE,   /* what was begun did not end in its time */
    LIFE_BROKEN, /* the job is broken: a rank died, say */
    LIFE_CLOSE,  /* its group is given back */
    LIFE_N_EVENTS
};

enum life_action { LIFE_NOTHING, LIFE_BEGIN, LIFE_END, LIFE_REVOKE, LIFE_ABORT };

struct life {
    enum life_state state;
    bool can_revoke; /* this NCCL has ncclCommRevoke() and ncclCommShrink() */
};

/* Take one step.
 *
 * returns   what is to be done now. Nothing, too, where the event means nothing in that state */
enum life_action life_step(struct life *l, enum life_event e);

/* Whether something was begun whose end is the next event. */
bool life_is_busy(enum life_state s);

const char *life_state_name(enum life_state s); /* "READY" */

/* The table, for its drawing and its tests. */
extern const struct co_machine life_machine;

#endif
