/* comm_state.h - the life of one communicator: which call of NCCL comes next, and what its failure
 * leads to.
 *
 * Pure: no NCCL, no clock. The owner of the communicator feeds events in, and does what the answer
 * requests; the end of that is the next event. docs/design/nccl.md has the table in words,
 * docs/design/nccl.dot its drawing.
 *
 * Words:
 *   abort    frees the communicator whatever it does; the only call that ends kernels for good
 *   revoke   ends its kernels and leaves it whole, so that another can be made of it by shrinking
 *   end      frees it in good order: what was begun is finished first */
#ifndef DDP_WORKER_RUNTIME_NCCL_COMM_STATE_H
#define DDP_WORKER_RUNTIME_NCCL_COMM_STATE_H

#include <stdbool.h>

struct co_machine;

#define COMM_STATES(X) /* name, meaning */                                                         \
    X(NEW, "there is no communicator yet")                                                         \
    X(MAKING, "it is being made, with all its ranks")                                              \
    X(READY, "work may be put on streams")                                                         \
    X(ENDING, "it is being freed in good order")                                                   \
    X(REVOKING, "its kernels are being ended")                                                     \
    X(REVOKED, "nothing runs on it; it may be shrunk")                                             \
    X(ABORTING, "it is being freed, whatever it does")                                             \
    X(GONE, "it does not exist any more")                                                          \
    X(STUCK, "it cannot be freed; the process is lost to its device")

enum comm_state {
#define COMM_STATE(name, meaning) COMM_##name,
    COMM_STATES(COMM_STATE)
#undef COMM_STATE
        COMM_N_STATES
};

enum comm_event {
    COMM_MAKE,   /* it is to be made */
    COMM_DONE,   /* what was begun is done */
    COMM_FAILED, /* NCCL or CUDA reported an error */
    COMM_LATE,   /* what was begun did not end in its time */
    COMM_BROKEN, /* the job is broken: for example, a rank died */
    COMM_CLOSE,  /* its group is given back */
    COMM_N_EVENTS
};

enum comm_action { COMM_NOTHING, COMM_BEGIN, COMM_END, COMM_REVOKE, COMM_ABORT };

struct comm_life {
    enum comm_state state;
    /* this NCCL has ncclCommRevoke() and ncclCommShrink(); when the job breaks also: no call on the
     * communicator is in progress, and it has no error */
    bool can_revoke;
};

/* Take one step.
 *
 * returns   what is to be done now. Also nothing, if the event means nothing in that state */
enum comm_action comm_state_step(struct comm_life *l, enum comm_event e);

/* The table, for its drawing and its tests. */
extern const struct co_machine comm_state_machine;

#endif
