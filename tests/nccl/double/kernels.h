/* kernels.h - what the double's collectives do, on the thread of a stream. */
#ifndef DDP_TESTS_NCCL_DOUBLE_KERNELS_H
#define DDP_TESTS_NCCL_DOUBLE_KERNELS_H

#include "comm.h"

enum kernel_kind {
    KERNEL_ALL_REDUCE,
    KERNEL_REDUCE,
    KERNEL_BROADCAST,
    KERNEL_ALL_GATHER,
    KERNEL_REDUCE_SCATTER,
    KERNEL_SEND,
    KERNEL_RECV
};

struct kernel_op { /* one call */
    enum kernel_kind kind;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t dtype;
    ncclRedOp_t op;
    int root; /* or the peer of a message */
    bool has_factor;
    double factor; /* that this rank's values are multiplied by first */
};

struct kernel_order { /* what one group put on one stream */
    struct ncclComm *comm;
    cudaStream_t stream;
    unsigned ticket;
    unsigned captured_as; /* its number among those that graphs have; 0: none has it. Each launch
                             takes a ticket of its own */
    bool is_forgotten;    /* before it has begun: by a revoke */
    size_t n_ops;
    struct kernel_op op[];
};

const char *kernel_op_name(const struct kernel_op *op);
const char *kernel_name(const struct kernel_order *o);
size_t kernel_in_bytes(const struct kernel_op *op, const struct ncclComm *c);
size_t kernel_out_bytes(const struct kernel_op *op, const struct ncclComm *c);

/* Do an order. */
void kernel_run(void *order);

#endif
