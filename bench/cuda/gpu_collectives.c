/* gpu_collectives.c - all collectives on GPUs against the same ones on CPUs, for bench/gpu.
 *
 *     ddprun -n N gpu_collectives     prints "KIND CASES VALUES" for each kind of call
 *
 * Values are small integers, which all types hold, so that the order in which ranks are added up
 * does not matter: results have to be the same bits. An average over a number of ranks that is not
 * a power of two is rounded in another order, and may be off by one unit in the last place.
 *
 * exit status   0; 3 a value differs, and a line on stderr; else as ddp_fatal() */
#include "gpu_timing.h"

#include <ddp/collective.h>
#include <ddp/device.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 8, MOST_COUNT = 40000, MOST_BYTES = MOST_RANKS * MOST_COUNT * 8, WRONG = 3 };

enum kind {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    ALL_GATHER,
    REDUCE_SCATTER,
    GATHER,
    SCATTER,
    ALL_TO_ALL,
    ALL_GATHER_V,
    REDUCE_SCATTER_V,
    MESSAGE,
    N_KINDS
};

static const char *const names[N_KINDS] = {
    "all_reduce", "reduce",     "broadcast",    "all_gather",       "reduce_scatter", "gather",
    "scatter",    "all_to_all", "all_gather_v", "reduce_scatter_v", "send_and_recv"};

static const enum ddp_dtype dtypes[] = {DDP_FLOAT32, DDP_FLOAT64,  DDP_INT32, DDP_INT64,
                                        DDP_FLOAT16, DDP_BFLOAT16, DDP_INT8,  DDP_UINT8,
                                        DDP_UINT32,  DDP_UINT64};
static const enum ddp_op ops[] = {DDP_SUM, DDP_AVG, DDP_MIN, DDP_MAX, DDP_PROD};
static const size_t counts[] = {1, 1000, MOST_COUNT};

struct call {
    struct ddp_group *g;
    enum kind kind;
    enum ddp_dtype dtype;
    enum ddp_op op;
    size_t count;
    int root;
};

static struct { /* memory, the same for all calls */
    unsigned char *in, *want, *got;
    void *gpu_in, *gpu_out;
    cudaStream_t stream;
} at;

static bool reduces(enum kind kind)
{
    return kind == ALL_REDUCE || kind == REDUCE || kind == REDUCE_SCATTER ||
           kind == REDUCE_SCATTER_V;
}

/* Blocks of the _v calls, which differ by rank. */
static size_t counts_of(const struct call *c, size_t each[MOST_RANKS])
{
    size_t all = 0;
    for (int r = 0; r < ddp_world_size(c->g); r++)
        all += each[r] = r % 2 == 0 ? c->count : c->count / 2;
    return all;
}

static int run(const struct call *c, const void *in, void *out, void *stream)
{
    const int n = ddp_world_size(c->g), rank = ddp_rank(c->g);
    size_t each[MOST_RANKS];
    counts_of(c, each);
    switch (c->kind) {
    case ALL_REDUCE:
        return ddp_all_reduce(c->g, in, out, c->count, c->dtype, c->op, stream);
    case REDUCE:
        return ddp_reduce(c->g, in, out, c->count, c->dtype, c->op, c->root, stream);
    case BROADCAST:
        return ddp_broadcast(c->g, in, out, c->count, c->dtype, c->root, stream);
    case ALL_GATHER:
        return ddp_all_gather(c->g, in, out, c->count, c->dtype, stream);
    case REDUCE_SCATTER:
        return ddp_reduce_scatter(c->g, in, out, c->count, c->dtype, c->op, stream);
    case GATHER:
        return ddp_gather(c->g, in, out, c->count, c->dtype, c->root, stream);
    case SCATTER:
        return ddp_scatter(c->g, in, out, c->count, c->dtype, c->root, stream);
    case ALL_TO_ALL:
        return ddp_all_to_all(c->g, in, out, c->count, c->dtype, stream);
    case ALL_GATHER_V:
        return ddp_all_gather_v(c->g, in, out, each, c->dtype, stream);
    case REDUCE_SCATTER_V:
        return ddp_reduce_scatter_v(c->g, in, out, each, c->dtype, c->op, stream);
    default: /* from each even rank to the next one */
        if (rank % 2 == 0)
            return rank + 1 < n ? ddp_send(c->g, in, c->count, c->dtype, rank + 1, 0, stream) : 0;
        return ddp_recv(c->g, out, c->count, c->dtype, rank - 1, 0, stream);
    }
}

/* --- values --- */

/* 1, 2 or 3: products over eight ranks fit the types but 8-bit ones, which wrap around on both. */
static void put_values(const struct call *c, size_t count)
{
    static int32_t small[MOST_RANKS * MOST_COUNT];
    const size_t size = ddp_dtype_size(c->dtype);
    for (size_t i = 0; i < count; i++)
        small[i] = 1 + (int32_t)((i * 7 + (size_t)ddp_rank(c->g) * 3 + i / 11) % 3);
    for (size_t i = 0; i < count; i++) {
        const float f = (float)small[i];
        const double d = small[i];
        const int64_t w = small[i];
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        const uint16_t half = c->dtype == DDP_BFLOAT16 ? (uint16_t)(bits >> 16)
                                                       : (uint16_t)((bits - (112u << 23)) >> 13);
        const void *from = c->dtype == DDP_FLOAT32   ? (const void *)&f
                           : c->dtype == DDP_FLOAT64 ? (const void *)&d
                           : size == 2               ? (const void *)&half
                                                     : (const void *)&w; /* little endian */
        memcpy(at.in + i * size, from, size);
    }
}

static bool is_near(const struct call *c, const unsigned char *a, const unsigned char *b)
{
    const int n = ddp_world_size(c->g);
    int64_t x = 0, y = 0;
    const size_t size = ddp_dtype_size(c->dtype);
    memcpy(&x, a, size);
    memcpy(&y, b, size);
    const bool is_exact = !reduces(c->kind) || c->op != DDP_AVG || (n & (n - 1)) == 0;
    return x == y || (!is_exact && llabs(x - y) <= 1);
}

/* Elements of this rank's result. */
static size_t count_out(const struct call *c)
{
    const size_t n = (size_t)ddp_world_size(c->g);
    size_t each[MOST_RANKS];
    const size_t all = counts_of(c, each);
    const bool is_root = ddp_rank(c->g) == c->root;
    switch (c->kind) {
    case REDUCE:
        return is_root ? c->count : 0;
    case ALL_GATHER:
    case ALL_TO_ALL:
        return n * c->count;
    case GATHER:
        return is_root ? n * c->count : 0;
    case ALL_GATHER_V:
        return all;
    case REDUCE_SCATTER_V:
        return each[ddp_rank(c->g)];
    case MESSAGE:
        return ddp_rank(c->g) % 2 == 1 ? c->count : 0;
    default:
        return c->count;
    }
}

static size_t compare(const struct call *c)
{
    const size_t size = ddp_dtype_size(c->dtype), n = count_out(c);
    const size_t all = (size_t)ddp_world_size(c->g) * c->count;
    put_values(c, all);
    memset(at.want, 0, all * size);
    check_cuda(cudaMemcpyAsync(at.gpu_in, at.in, all * size, cudaMemcpyHostToDevice, at.stream),
               "values");
    check_cuda(cudaMemsetAsync(at.gpu_out, 0, all * size, at.stream), "zeros");
    check(run(c, at.in, at.want, NULL), names[c->kind]);
    check(run(c, at.gpu_in, at.gpu_out, at.stream), names[c->kind]);
    check(ddp_stream_wait(c->g, at.stream, 0), "ddp_stream_wait");
    check_cuda(cudaMemcpy(at.got, at.gpu_out, all * size, cudaMemcpyDeviceToHost), "results");
    for (size_t i = 0; i < n; i++)
        if (!is_near(c, at.want + i * size, at.got + i * size)) {
            fprintf(stderr,
                    "gpu_collectives: rank %d: %s of type %d, operation %d, %zu elements: "
                    "value %zu differs\n",
                    ddp_rank(c->g), names[c->kind], (int)c->dtype, (int)c->op, c->count, i);
            _exit(WRONG);
        }
    return n;
}

/* --- all of them --- */

static void compare_kind(struct ddp_group *g, enum kind kind)
{
    const size_t n_ops = reduces(kind) ? sizeof ops / sizeof ops[0] : 1;
    size_t n_cases = 0, n_values = 0;
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
        for (size_t o = 0; o < n_ops; o++)
            for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
                const struct call c = {g,      kind,      dtypes[d],
                                       ops[o], counts[k], (int)k % ddp_world_size(g)};
                n_values += compare(&c);
                n_cases++;
            }
    int64_t all = (int64_t)n_values;
    check(ddp_all_reduce(g, &all, &all, 1, DDP_INT64, DDP_SUM, NULL), "ddp_all_reduce");
    ddp_log0(g, "%s %zu %lld\n", names[kind], n_cases, (long long)all);
}

int main(void)
{
    struct ddp_group *g;
    void *comm;
    int index;
    check(ddp_init(NULL, &g), "ddp_init");
    if (ddp_world_size(g) > MOST_RANKS) {
        fputs("gpu_collectives: more than 8 ranks\n", stderr);
        return 2;
    }
    check(ddp_device(g, &index), "ddp_device");
    check(ddp_nccl_comm(g, &comm), "ddp_nccl_comm");
    check_cuda(cudaStreamCreateWithFlags(&at.stream, cudaStreamNonBlocking), "a stream");
    check_cuda(cudaMalloc(&at.gpu_in, MOST_BYTES), "memory");
    check_cuda(cudaMalloc(&at.gpu_out, MOST_BYTES), "memory");
    at.in = malloc(MOST_BYTES);
    at.want = malloc(MOST_BYTES);
    at.got = malloc(MOST_BYTES);
    if (at.in == NULL || at.want == NULL || at.got == NULL)
        return EXIT_FAILURE;
    for (int k = 0; k < N_KINDS; k++)
        compare_kind(g, (enum kind)k);
    check_cuda(cudaFree(at.gpu_in), "memory");
    check_cuda(cudaFree(at.gpu_out), "memory");
    free(at.in);
    free(at.want);
    free(at.got);
    ddp_finalize(g);
    return 0;
}
