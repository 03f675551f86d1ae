/* nccl_calls.c - collectives and messages of the double: checked and queued here, done in
 * nccl_kernels.c. */
#include "kernels.h"

#include "double.h"
#include "faults.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GROUP_MOST = 128 };

/* What the calling thread has between ncclGroupStart() and ncclGroupEnd(). */
static _Thread_local struct {
    int depth;
    size_t n;
    struct {
        ncclComm_t comm;
        cudaStream_t stream;
        struct kernel_op op;
    } at[GROUP_MOST];
} group;

/* --- queueing --------------------------------------------------------------------------------- */

static size_t list_ranges(const struct kernel_order *o, struct double_range *ret)
{
    size_t n = 0;
    for (size_t i = 0; i < o->n_ops; i++) {
        const struct kernel_op *op = &o->op[i];
        const size_t in = kernel_in_bytes(op, o->comm), out = kernel_out_bytes(op, o->comm);
        const uintptr_t in_at = (uintptr_t)op->in, out_at = (uintptr_t)op->out; /* 0: none */
        const bool is_in_place = in_at >= out_at && in_at + in <= out_at + out;
        if (out > 0)
            ret[n++] = (struct double_range){op->out, out, true};
        if (in > 0 && !(is_in_place && out > 0))
            ret[n++] = (struct double_range){op->in, in, false};
    }
    return n;
}

/* A graph is launched. */
static void launched(void *order)
{
    struct kernel_order *o = order;
    comm_check(o->comm, "cudaGraphLaunch", true);
    o->ticket = atomic_fetch_add(&o->comm->n_orders, 1);
    o->is_forgotten = fault_is(FAULT_REVOKE_GRAPH, 0, NULL);
    atomic_fetch_add(&o->comm->n_running, !o->is_forgotten);
}

static ncclResult_t queue_now(const struct kernel_order *o, cudaStream_t stream)
{
    struct double_range range[2 * GROUP_MOST];
    const size_t n = list_ranges(o, range);
    const size_t bytes = sizeof *o + o->n_ops * sizeof o->op[0];
    const unsigned running = o->captured_as == 0;
    atomic_fetch_add(&o->comm->n_running, running);
    if (double_queue_launched(stream, kernel_name(o), kernel_run, running ? NULL : launched, o,
                              bytes, range, n) == cudaSuccess)
        return ncclSuccess;
    atomic_fetch_sub(&o->comm->n_running, running);
    return ncclUnhandledCudaError;
}

struct late { /* a call that is in progress for a while */
    cudaStream_t stream;
    struct kernel_order *order;
};

static void *queue_by_thread(void *arg)
{
    const struct timespec t = {.tv_nsec = 200 * 1000};
    struct late *l = arg;
    struct ncclComm *c = l->order->comm;
    nanosleep(&t, NULL);
    double_hold(l->stream, -1);
    const ncclResult_t result = queue_now(l->order, l->stream);
    int was = ncclInProgress; /* an error, or a revoke, came first */
    atomic_compare_exchange_strong(&c->state, &was, result);
    atomic_fetch_sub(&c->n_threads, 1);
    free(l->order);
    free(l);
    return NULL;
}

static ncclResult_t queue_late(const struct kernel_order *o, cudaStream_t stream)
{
    const size_t bytes = sizeof *o + o->n_ops * sizeof o->op[0];
    struct late *l = malloc(sizeof *l);
    l->stream = stream;
    l->order = memcpy(malloc(bytes), o, bytes);
    double_hold(stream, 1);
    atomic_store(&o->comm->state, ncclInProgress);
    return comm_spawn(o->comm, queue_by_thread, l);
}

/* It connects to a peer that does not answer. */
static void *hang_by_thread(void *arg)
{
    struct ncclComm *c = arg;
    const struct shared_wait w = {&c->stop, NULL};
    for (unsigned n = 0; shared_nap(&w, &n);) {
    }
    atomic_fetch_sub(&c->n_threads, 1);
    return NULL;
}

static void let_go(void *arg)
{
    struct ncclComm *c = arg;
    if (atomic_load(&c->is_dead))
        double_report("a graph is destroyed after the communicator that it holds was freed");
    atomic_fetch_sub(&c->n_graphs, 1);
}

static ncclResult_t queue(struct kernel_order *o, cudaStream_t stream)
{
    const int state = atomic_load(&o->comm->state);
    if (!atomic_load(&o->comm->is_ready) || state == ncclInProgress) {
        double_report("%s is called while the communicator is in progress", kernel_name(o));
        return ncclInvalidUsage;
    }
    if (state != ncclSuccess)
        return (ncclResult_t)state;
    if (fault_is(FAULT_HANG_CALL, fault_count(FAULT_CALLS), NULL)) {
        atomic_store(&o->comm->state, ncclInProgress);
        return comm_spawn(o->comm, hang_by_thread, o->comm);
    }
    if (double_is_capturing(stream)) {
        o->captured_as = ++o->comm->n_captured;
        atomic_fetch_add(&o->comm->n_graphs, 1);
        double_graph_hold(stream, let_go, o->comm);
    } else {
        o->ticket = atomic_fetch_add(&o->comm->n_orders, 1);
    }
    const bool is_late = !o->comm->is_blocking && fault_is(FAULT_LAZY, 0, NULL);
    return is_late ? queue_late(o, stream) : queue_now(o, stream);
}

/* All calls of one communicator and stream in the group, as one order. */
static ncclResult_t queue_first(void)
{
    struct kernel_order *o = calloc(1, sizeof *o + group.n * sizeof o->op[0]);
    const cudaStream_t stream = group.at[0].stream;
    size_t kept = 0;
    o->comm = group.at[0].comm;
    o->stream = stream;
    for (size_t i = 0; i < group.n; i++)
        if (group.at[i].comm == o->comm && group.at[i].stream == stream)
            o->op[o->n_ops++] = group.at[i].op;
        else
            group.at[kept++] = group.at[i];
    group.n = kept;
    const ncclResult_t result = queue(o, stream);
    free(o);
    return result;
}

bool comm_is_grouped(void)
{
    return group.depth > 0;
}

ncclResult_t ncclGroupStart(void); /* nccl.h declares them without a prototype */
ncclResult_t ncclGroupEnd(void);

DOUBLE_EXPORT ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

DOUBLE_EXPORT ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t result = ncclSuccess;
    if (group.depth == 0) {
        double_report("ncclGroupEnd is called without ncclGroupStart");
        return ncclInvalidUsage;
    }
    if (--group.depth > 0)
        return ncclSuccess;
    while (group.n > 0) {
        const ncclResult_t one = queue_first();
        result = result == ncclSuccess || result == ncclInProgress ? one : result;
    }
    return result;
}

/* --- operations of the program ---------------------------------------------------------------- */

/* Float32 and float64 are enough: callers know that 16 bits would round a factor. */
DOUBLE_EXPORT ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *ret, void *factor,
                                                    ncclDataType_t dtype,
                                                    ncclScalarResidence_t residence,
                                                    ncclComm_t comm)
{
    const bool is_wide = dtype == ncclFloat64;
    if (!comm_check(comm, "ncclRedOpCreatePreMulSum", false))
        return ncclInvalidUsage;
    for (int i = 0; i < COMM_OPS; i++) {
        if (comm->ops[i].is_there)
            continue;
        if (residence != ncclScalarHostImmediate || (!is_wide && dtype != ncclFloat32))
            break;
        const double value = is_wide ? *(double *)factor : (double)*(float *)factor;
        comm->ops[i] = (struct comm_op){true, dtype, value};
        *ret = (ncclRedOp_t)(ncclNumOps + i);
        return ncclSuccess;
    }
    double_report("ncclRedOpCreatePreMulSum of type %d: or nobody destroys them", (int)dtype);
    return ncclInvalidArgument;
}

static struct comm_op *find_op(ncclComm_t comm, ncclRedOp_t op)
{
    const int i = (int)op - (int)ncclNumOps;
    struct comm_op *own = i >= 0 && i < COMM_OPS && comm->ops[i].is_there ? &comm->ops[i] : NULL;
    if (own == NULL)
        double_report("there is no operation %d", (int)op);
    return own;
}

DOUBLE_EXPORT ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    struct comm_op *own = comm_check(comm, "ncclRedOpDestroy", false) ? find_op(comm, op) : NULL;
    if (own == NULL)
        return ncclInvalidArgument;
    own->is_there = false;
    return ncclSuccess;
}

/* At the call, as NCCL does: the operation may be destroyed after it. */
static bool resolve(ncclComm_t comm, struct kernel_op *op)
{
    if ((int)op->op < (int)ncclNumOps)
        return true;
    const struct comm_op *own = find_op(comm, op->op);
    if (own == NULL || own->dtype != op->dtype)
        return false;
    op->op = ncclSum;
    op->has_factor = true;
    op->factor = own->factor;
    return true;
}

/* --- a call ----------------------------------------------------------------------------------- */

static ncclResult_t add(ncclComm_t comm, cudaStream_t stream, struct kernel_op op)
{
    if (!comm_check(comm, kernel_op_name(&op), false))
        return ncclInvalidUsage;
    if (!resolve(comm, &op))
        return ncclInvalidArgument;
    if (op.root < 0 || op.root >= comm->n || group.n == GROUP_MOST) {
        double_report("%s has rank %d", kernel_op_name(&op), op.root);
        return ncclInvalidArgument;
    }
    if (stream == cudaStreamPerThread && comm->n > 1) /* alone there is nothing to be late */
        double_report("%s is put on a thread's own stream, by a thread of NCCL's",
                      kernel_op_name(&op));
    const int device = double_device_of(stream);
    if (device >= 0 && device != comm->device)
        double_report("%s is put on a stream of another device", kernel_op_name(&op));
    group.at[group.n].comm = comm;
    group.at[group.n].stream = stream;
    group.at[group.n++].op = op;
    return group.depth > 0 ? ncclSuccess : queue_first();
}

/* --- the calls -------------------------------------------------------------------------------- */

DOUBLE_EXPORT ncclResult_t ncclAllReduce(const void *in, void *out, size_t count,
                                         ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t comm,
                                         cudaStream_t stream)
{
    return add(comm, stream, (struct kernel_op){KERNEL_ALL_REDUCE, in, out, count, dtype, op, 0});
}

DOUBLE_EXPORT ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t dtype,
                                      ncclRedOp_t op, int root, ncclComm_t comm,
                                      cudaStream_t stream)
{
    return add(comm, stream, (struct kernel_op){KERNEL_REDUCE, in, out, count, dtype, op, root});
}

DOUBLE_EXPORT ncclResult_t ncclBroadcast(const void *in, void *out, size_t count,
                                         ncclDataType_t dtype, int root, ncclComm_t comm,
                                         cudaStream_t stream)
{
    return add(comm, stream,
               (struct kernel_op){KERNEL_BROADCAST, in, out, count, dtype, ncclSum, root});
}

DOUBLE_EXPORT ncclResult_t ncclAllGather(const void *in, void *out, size_t count,
                                         ncclDataType_t dtype, ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream,
               (struct kernel_op){KERNEL_ALL_GATHER, in, out, count, dtype, ncclSum, 0});
}

DOUBLE_EXPORT ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count,
                                             ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t comm,
                                             cudaStream_t stream)
{
    return add(comm, stream,
               (struct kernel_op){KERNEL_REDUCE_SCATTER, in, out, count, dtype, op, 0});
}

DOUBLE_EXPORT ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t dtype, int peer,
                                    ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream,
               (struct kernel_op){KERNEL_SEND, in, NULL, count, dtype, ncclSum, peer});
}

DOUBLE_EXPORT ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t dtype, int peer,
                                    ncclComm_t comm, cudaStream_t stream)
{
    return add(comm, stream,
               (struct kernel_op){KERNEL_RECV, NULL, out, count, dtype, ncclSum, peer});
}
