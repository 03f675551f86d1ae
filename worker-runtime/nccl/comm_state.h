/* comm_state.h - the life of one communicator: which call of NCCL comes next, and what its failure
 * leads to.
 *
 * Pure: no NCCL, no clock. Who holds the communicator feeds events in, and does what the answer
 * says; the end of that is the next event. docs/nccl.md has the table in words, docs/nccl.dot its
 * drawing.
 *
 * Words:
 *   abort    frees the communicator whatever it does; the only call that ends kernels for good
 *   revoke   ends its kernels and leaves it whole, so that another can be made of it by shrinking
 *   end      frees it in good order: what was begun is finished first */
#ifndef DDP_WORKER_RUNTIME_NCCL_COMM_STATE_H
#define DDP_WORKER_RUNTIME_NCCL_COMM_STATE_H

#include <stdbool.h>

struct co_machine;

enum comm_state {
    COMM_NEW,      /* there is no communicator yet */
    COMM_MAKING,   /* it is being made, with all ranks that will be in it */
    COMM_READY,    /* work may be put on streams */
    COMM_ENDING,   /* it is being freed in good order */
    COMM_REVOKING, /* the job is broken: its kernels are being ended */
    COMM_REVOKED,  /* nothing runs on it: good for being shrunk, and for nothing else */
    COMM_ABORTING, /* it is being freed, whatever it does */
    COMM_GONE,     /* there is none any more */
    COMM_STUCK,    /* it cannot be freed: this process is lost to its device */
    COMM_N_STATES
};

enum comm_event {
    COMM_MAKE,   /* it is to be made */
    COMM_DONE,   /* what was begun is done */
    COMM_FAILED, /* NCCL or CUDA reported an error */
    COMM_LATE,   /* what was begun did not end in its time */
    COMM_BROKEN, /* the job is broken: a rank died, say */
    COMM_CLOSE,  /* its group is given back */
    COMM_N_EVENTS
};

enum comm_action { COMM_NOTHING, COMM_BEGIN, COMM_END, COMM_REVOKE, COMM_ABORT };

struct comm_life {
    enum comm_state state;
    bool can_revoke; /* this NCCL has ncclCommRevoke() and ncclCommShrink() */
};

/* Take one step.
 *
 * returns   what is to be done now. Nothing, too, where the event means nothing in that state */
enum comm_action comm_state_step(struct comm_life *l, enum comm_event e);

/* Whether something was begun whose end is the next event. */
bool comm_state_is_busy(enum comm_state s);

const char *comm_state_name(enum comm_state s); /* "READY" */

/* The table, for its drawing and its tests. */
extern const struct co_machine comm_state_machine;

#endif
