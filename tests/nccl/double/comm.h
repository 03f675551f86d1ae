/* comm.h - inside of the double of libnccl: what its files share. */
#ifndef DDP_TESTS_NCCL_DOUBLE_COMM_H
#define DDP_TESTS_NCCL_DOUBLE_COMM_H

#include "shared.h"

#include <nccl.h>

enum { COMM_OPS = 8 };

struct comm_op { /* of ncclRedOpCreatePreMulSum() */
    bool is_there;
    ncclDataType_t dtype;
    double factor;
};

struct ncclComm {
    struct ncclComm *next; /* of all that were ever made */
    int rank, n;
    int device; /* current when it was made */
    uint64_t id;
    struct shared *shared;
    _Atomic int state; /* ncclResult_t: the result of ncclCommGetAsyncError() */
    _Atomic int error; /* ncclResult_t of its network, forever; ncclSuccess: none */
    atomic_bool stop;  /* its kernels and its making are to end */
    atomic_bool is_ready, is_revoked, is_aborted, is_dead, is_finished;
    bool is_blocking;      /* a program's own */
    atomic_uint n_running; /* orders that are queued or run */
    atomic_uint n_threads; /* that make it, or a child of it, or a call in progress */
    atomic_uint turn;      /* of the orders, which run one after the other */
    atomic_uint n_orders;
    atomic_uint n_graphs; /* calls that graphs hold */
    atomic_uint n_inside; /* threads that register memory with it, or end that */
    unsigned n_captured;
    unsigned n_children, n_splits;
    uint64_t step;
    struct comm_op ops[COMM_OPS]; /* used by one thread at a time, as the communicator is */
};

/* Whether calls may be made on it; a broken rule is reported. */
bool comm_check(ncclComm_t comm, const char *call, bool may_be_revoked);

/* Whether the calling thread is between ncclGroupStart() and ncclGroupEnd(). */
bool comm_is_grouped(void);

/* What is registered with it is so no more. returns how many blocks were */
unsigned comm_forget_memory(ncclComm_t comm);

/* Have work(arg) done by a thread of its own, counted in comm->n_threads. */
ncclResult_t comm_spawn(ncclComm_t comm, void *(*work)(void *arg), void *arg);

#endif
