/* faults.h - what goes wrong, and when: "r1g0:kill@5;r0g0:slow_init@1=200;lazy".
 *
 * A fault is of one rank of one generation (RANK and DDP_GENERATION as the process was started),
 * or, without "rNgM:", of all. @K: the K-th time, counted from 1 in the process; =V: a number for
 * it. */
#ifndef DDP_TESTS_NCCL_DOUBLE_FAULTS_H
#define DDP_TESTS_NCCL_DOUBLE_FAULTS_H

#include <stdbool.h>

enum fault_kind {
    FAULT_KILL,            /* op: SIGKILL, in the midst of a collective, after V ms */
    FAULT_ASYNC,           /* op: an asynchronous error; the kernel does not end by itself */
    FAULT_STALL,           /* op: the kernel does not end by itself, without an error */
    FAULT_CUDA,            /* op: the stream reports an error from then on, which is sticky */
    FAULT_SLOW_INIT,       /* init: V ms in ncclInProgress more than it would take */
    FAULT_HANG_INIT,       /* init: ncclInProgress until it is aborted */
    FAULT_FAIL_INIT,       /* init: an error */
    FAULT_USAGE_INIT,      /* init: the error that NCCL has for two ranks on one GPU */
    FAULT_KILL_INIT,       /* init: SIGKILL */
    FAULT_ABORT_ERROR,     /* abort: an error */
    FAULT_ABORT_HANG,      /* abort: never returns */
    FAULT_REVOKE_ERROR,    /* revoke: an error */
    FAULT_REVOKE_HANG,     /* revoke: ncclInProgress forever */
    FAULT_REVOKE_GRAPH,    /* a revoke does not end what launched graphs have not begun */
    FAULT_NO_MEMORY,       /* ncclMemAlloc has none */
    FAULT_NO_REGISTER,     /* ncclCommRegister: an error */
    FAULT_REGISTER_HANG,   /* register: never returns */
    FAULT_DEREGISTER_HANG, /* deregister: the same */
    FAULT_LAZY,            /* all calls return ncclInProgress first */
    FAULT_HANG_CALL,       /* call: the same, until the communicator is to end */
    FAULT_N_KINDS
};

enum fault_counter {
    FAULT_OPS,
    FAULT_CALLS,
    FAULT_INITS,
    FAULT_ABORTS,
    FAULT_REVOKES,
    FAULT_REGISTERS,
    FAULT_DEREGISTERS,
    FAULT_N_COUNTERS
};

/* Count one more. Then fault_is() returns which faults it has. Thread-safe.
 * returns   its number, from 1 on */
unsigned fault_count(enum fault_counter counter);

/* Whether the n-th has that fault.
 *
 * ret_value   NULL is fine */
bool fault_is(enum fault_kind kind, unsigned n, int *ret_value);

#endif
