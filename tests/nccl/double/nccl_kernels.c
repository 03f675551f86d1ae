/* nccl_kernels.c - the double's collectives: every rank shows the others what it has, a piece at a
 * time, and takes what it needs. Sums are those of libddp's reference, in rank order. */
#include "kernels.h"

#include "common/hash.h"
#include "double.h"
#include "faults.h"
#include "worker-runtime/arithmetic/reduce.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- words ------------------------------------------------------------------------------------ */

static enum ddp_dtype dtype_of(ncclDataType_t dtype)
{
    static const enum ddp_dtype of[] = {
        [ncclInt8] = DDP_INT8,        [ncclUint8] = DDP_UINT8,     [ncclInt32] = DDP_INT32,
        [ncclUint32] = DDP_UINT32,    [ncclInt64] = DDP_INT64,     [ncclUint64] = DDP_UINT64,
        [ncclFloat16] = DDP_FLOAT16,  [ncclFloat32] = DDP_FLOAT32, [ncclFloat64] = DDP_FLOAT64,
        [ncclBfloat16] = DDP_BFLOAT16};
    return of[dtype];
}

static enum ddp_op op_of(ncclRedOp_t op)
{
    static const enum ddp_op of[] = {[ncclSum] = DDP_SUM,
                                     [ncclProd] = DDP_PROD,
                                     [ncclMax] = DDP_MAX,
                                     [ncclMin] = DDP_MIN,
                                     [ncclAvg] = DDP_AVG};
    return of[op];
}

static size_t bytes_of(const struct kernel_op *op)
{
    return op->count * reduce_size(dtype_of(op->dtype));
}

const char *kernel_op_name(const struct kernel_op *op)
{
    static const char *const names[] = {"ncclAllReduce", "ncclReduce",        "ncclBroadcast",
                                        "ncclAllGather", "ncclReduceScatter", "ncclSend",
                                        "ncclRecv"};
    return names[op->kind];
}

const char *kernel_name(const struct kernel_order *o)
{
    return kernel_op_name(&o->op[0]);
}

size_t kernel_in_bytes(const struct kernel_op *op, const struct ncclComm *c)
{
    const bool has_none =
        op->kind == KERNEL_RECV || (op->kind == KERNEL_BROADCAST && op->root != c->rank);
    const size_t blocks = op->kind == KERNEL_REDUCE_SCATTER ? (size_t)c->n : 1;
    return has_none ? 0 : blocks * bytes_of(op);
}

size_t kernel_out_bytes(const struct kernel_op *op, const struct ncclComm *c)
{
    const bool has_none =
        op->kind == KERNEL_SEND || (op->kind == KERNEL_REDUCE && op->root != c->rank);
    const size_t blocks = op->kind == KERNEL_ALL_GATHER ? (size_t)c->n : 1;
    return has_none ? 0 : blocks * bytes_of(op);
}

/* --- collectives ------------------------------------------------------------------------------ */

static struct shared_wait wait_of(const struct ncclComm *c)
{
    return (struct shared_wait){&c->stop, NULL};
}

/* A kernel that does not end by itself. */
static void stall(const struct ncclComm *c)
{
    const struct shared_wait w = wait_of(c);
    for (unsigned n = 0; shared_nap(&w, &n);) {
    }
}

static void multiply(void *values, ncclDataType_t dtype, size_t bytes, double factor)
{
    float *narrow = values;
    double *wide = values;
    for (size_t i = 0; dtype == ncclFloat32 && i < bytes / sizeof *narrow; i++)
        narrow[i] *= (float)factor;
    for (size_t i = 0; dtype == ncclFloat64 && i < bytes / sizeof *wide; i++)
        wide[i] *= factor;
}

/* Show `bytes` of `in` (none where it is NULL), and wait for all. */
static bool show(struct ncclComm *c, const struct kernel_op *op, const char *in, size_t bytes)
{
    const struct shared_wait w = wait_of(c);
    if (in != NULL)
        memcpy(shared_own(c->shared, c->rank), in, bytes);
    if (in != NULL && op->has_factor)
        multiply(shared_own(c->shared, c->rank), op->dtype, bytes, op->factor);
    return shared_meet(c->shared, c->rank, ++c->step, &w);
}

/* All have taken what they need. */
static bool shown(struct ncclComm *c)
{
    const struct shared_wait w = wait_of(c);
    return shared_meet(c->shared, c->rank, ++c->step, &w);
}

static void fold(const struct ncclComm *c, const struct kernel_op *op, char *out, size_t bytes)
{
    const enum ddp_dtype dtype = dtype_of(op->dtype);
    const void *in[SHARED_RANKS];
    void *to = out;
    for (int r = 0; r < c->n; r++)
        in[r] = shared_of(c->shared, r);
    reduce_scalar.fn[dtype][op_of(op->op)](in, (unsigned)c->n, &to, 1, bytes / reduce_size(dtype));
}

/* What this rank does with a piece that all have shown: of the block for rank `block`. */
static void take(const struct ncclComm *c, const struct kernel_op *op, int block, size_t at,
                 size_t bytes)
{
    char *out = op->out;
    switch (op->kind) {
    case KERNEL_ALL_REDUCE:
        fold(c, op, out + at, bytes);
        break;
    case KERNEL_REDUCE:
        if (op->root == c->rank)
            fold(c, op, out + at, bytes);
        break;
    case KERNEL_REDUCE_SCATTER:
        if (block == c->rank)
            fold(c, op, out + at, bytes);
        break;
    case KERNEL_BROADCAST:
        memcpy(out + at, shared_of(c->shared, op->root), bytes);
        break;
    case KERNEL_ALL_GATHER:
        for (int r = 0; r < c->n; r++)
            memcpy(out + (size_t)r * bytes_of(op) + at, shared_of(c->shared, r), bytes);
        break;
    case KERNEL_SEND:
    case KERNEL_RECV:
        break;
    }
}

/* Whether a call is captured, and which of the captured ones it is, is to be the same everywhere:
 * NCCL may have made other connections for it. */
static uint64_t signature_of(const struct kernel_op *op, unsigned captured_as)
{
    uint64_t hash = co_hash_number(CO_HASH_START, op->kind);
    hash = co_hash_number(hash, captured_as);
    hash = co_hash_number(hash, op->count);
    hash = co_hash_number(hash, op->dtype);
    hash = co_hash_number(hash, op->op);
    return co_hash_number(hash, (uint64_t)op->root);
}

static bool run_collective(struct ncclComm *c, const struct kernel_op *op, unsigned captured_as)
{
    const struct shared_wait w = wait_of(c);
    const int n_blocks = op->kind == KERNEL_REDUCE_SCATTER ? c->n : 1;
    const bool shows = kernel_in_bytes(op, c) > 0;
    bool is_same = true;
    if (!shared_compare(c->shared, c->rank, ++c->step, signature_of(op, captured_as), &w, &is_same))
        return false;
    if (!is_same) { /* NCCL does not look, and hangs as a rule */
        stall(c);
        return false;
    }
    for (int block = 0; block < n_blocks; block++) {
        const char *in = (const char *)op->in + (size_t)block * bytes_of(op);
        for (size_t at = 0; at < bytes_of(op); at += SHARED_CHUNK) {
            const size_t left = bytes_of(op) - at;
            const size_t bytes = left < SHARED_CHUNK ? left : SHARED_CHUNK;
            if (!show(c, op, shows ? in + at : NULL, bytes))
                return false;
            take(c, op, block, at, bytes);
            if (!shown(c))
                return false;
        }
    }
    return true;
}

/* --- messages --------------------------------------------------------------------------------- */

/* One more piece of a message, if that can be. returns whether the message is done */
static bool move_piece(const struct ncclComm *c, const struct kernel_op *op, size_t *at)
{
    const size_t left = bytes_of(op) - *at;
    const size_t bytes = left < SHARED_MAIL ? left : SHARED_MAIL;
    const bool moved =
        op->kind == KERNEL_SEND
            ? shared_put(c->shared, c->rank, op->root, (const char *)op->in + *at, bytes)
            : shared_take(c->shared, op->root, c->rank, (char *)op->out + *at, bytes);
    *at += moved ? bytes : 0;
    return *at == bytes_of(op);
}

/* Messages in one direction between two ranks are in the order of the calls. */
static bool is_next(const struct kernel_order *o, const size_t *at, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (o->op[k].kind == o->op[i].kind && o->op[k].root == o->op[i].root &&
            at[k] < bytes_of(&o->op[k]))
            return false;
    return true;
}

static bool is_message(const struct kernel_op *op)
{
    return op->kind == KERNEL_SEND || op->kind == KERNEL_RECV;
}

/* All messages of a group make progress together. */
static void run_messages(const struct kernel_order *o)
{
    const struct shared_wait w = wait_of(o->comm);
    size_t *at = calloc(o->n_ops, sizeof *at);
    bool is_done = at == NULL;
    for (unsigned n = 0; !is_done && shared_nap(&w, &n);) {
        is_done = true;
        for (size_t i = 0; i < o->n_ops; i++) {
            const struct kernel_op *op = &o->op[i];
            if (!is_message(op) || at[i] == bytes_of(op))
                continue;
            const size_t before = at[i];
            if (!is_next(o, at, i) || !move_piece(o->comm, op, &at[i]))
                is_done = false;
            n = at[i] != before ? 0 : n;
        }
    }
    free(at);
}

/* --- an order --------------------------------------------------------------------------------- */

/* returns whether the order has to be done anyway */
static bool suffer(const struct kernel_order *o)
{
    struct ncclComm *c = o->comm;
    const unsigned number = fault_count(FAULT_OPS);
    int ms;
    if (fault_is(FAULT_KILL, number, &ms)) {
        usleep((useconds_t)ms * 1000);
        kill(getpid(), SIGKILL);
    }
    if (fault_is(FAULT_ASYNC, number, NULL)) {
        atomic_store(&c->error, ncclRemoteError);
        atomic_store(&c->state, ncclRemoteError);
    }
    if (fault_is(FAULT_CUDA, number, NULL))
        double_fail_stream(o->stream);
    if (fault_is(FAULT_ASYNC, number, NULL) || fault_is(FAULT_STALL, number, NULL))
        stall(c);
    else
        return !fault_is(FAULT_CUDA, number, NULL); /* CUDA ends all kernels then */
    return false;
}

static void run_ops(const struct kernel_order *o)
{
    bool has_messages = false;
    for (size_t i = 0; i < o->n_ops; i++) {
        const struct kernel_op *op = &o->op[i];
        has_messages = has_messages || is_message(op);
        if (!is_message(op) && op->count > 0 && !run_collective(o->comm, op, o->captured_as))
            return;
    }
    if (has_messages)
        run_messages(o);
}

/* An order that a revoke has not ended waits for an abort. returns whether it has to be done */
static bool begin(const struct kernel_order *o)
{
    struct ncclComm *c = o->comm;
    const struct shared_wait w = wait_of(c), until_abort = {&c->is_aborted, NULL};
    unsigned n = 0;
    while (o->is_forgotten && atomic_load(&c->is_revoked) && shared_nap(&until_abort, &n)) {
    }
    if (o->is_forgotten)
        atomic_fetch_add(&c->n_running, 1);
    while (atomic_load(&c->turn) != o->ticket && shared_nap(&w, &n)) {
    }
    return !atomic_load(&c->stop) && !atomic_load(&c->is_revoked);
}

void kernel_run(void *order)
{
    const struct kernel_order *o = order;
    struct ncclComm *c = o->comm;
    if (begin(o) && suffer(o))
        run_ops(o);
    atomic_fetch_add(&c->turn, 1);
    atomic_fetch_sub(&c->n_running, 1);
}
