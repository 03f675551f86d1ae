/* All collectives on memory of GPUs, compared with CPUs: over the double, whose sums are those of
 * the reference, so that all bits are the same.
 *
 * Covers: worker-runtime/nccl, worker-runtime/device */
#include "gpu_ranks.h"

enum { MOST_RANKS = 8, ROOM = 96 * 1024 }; /* bytes; more than a piece of the double */

struct buffers { /* twice: of the CPU, and of the GPU with the same bytes */
    char *in, *out;
    char *gpu_in, *gpu_out;
    cudaStream_t stream;
};

/* Values that are exact in all types, and different for each rank and place. */
static void fill(char *at, size_t bytes, enum ddp_dtype dtype, int rank)
{
    const size_t size = ddp_dtype_size(dtype);
    for (size_t i = 0; i < bytes / size; i++) {
        const int value = (int)(i * 7 + (size_t)rank * 3) % 5 - 1;
        const float f = (float)value;
        uint32_t bits;
        uint16_t half = (uint16_t)(value <= 0 ? value == 0 ? 0 : 0xbc00 : 0);
        static const uint16_t halves[] = {0, 0x3c00, 0x4000, 0x4200};
        memcpy(&bits, &f, sizeof bits);
        if (value > 0)
            half = halves[value];
        switch (dtype) {
        case DDP_FLOAT32:
            ((float *)(void *)at)[i] = f;
            break;
        case DDP_FLOAT64:
            ((double *)(void *)at)[i] = value;
            break;
        case DDP_FLOAT16:
            ((uint16_t *)(void *)at)[i] = half;
            break;
        case DDP_BFLOAT16:
            ((uint16_t *)(void *)at)[i] = (uint16_t)(bits >> 16);
            break;
        default: /* integers wrap around: small ones in the low bytes */
            memset(at + i * size, 0, size);
            at[i * size] = (char)(value + 1);
        }
    }
}

static void begin(int rank, struct buffers *b, size_t bytes, enum ddp_dtype dtype)
{
    fill(b->in, bytes, dtype, rank);
    memset(b->out, 0x11, bytes);
    GPU_CHECK(rank, cudaMemcpyAsync(b->gpu_in, b->in, bytes, cudaMemcpyDefault, b->stream));
    GPU_CHECK(rank, cudaMemcpyAsync(b->gpu_out, b->out, bytes, cudaMemcpyDefault, b->stream));
}

/* What the GPU has now is what the CPU has. */
static void compare(int rank, struct ddp_group *g, struct buffers *b, size_t bytes,
                    const char *what)
{
    static char got[2][MOST_RANKS * ROOM];
    RANK_CHECK(rank, ddp_stream_wait(g, b->stream, 0) == 0, "%s", what);
    GPU_CHECK(rank, cudaMemcpy(got[0], b->gpu_out, bytes, cudaMemcpyDefault));
    GPU_CHECK(rank, cudaMemcpy(got[1], b->gpu_in, bytes, cudaMemcpyDefault));
    RANK_CHECK(rank, memcmp(got[0], b->out, bytes) == 0, "%s: out differs", what);
    RANK_CHECK(rank, memcmp(got[1], b->in, bytes) == 0, "%s: in differs", what);
}

/* Make the call twice, and compare. */
#define BOTH(call_name, bytes, dtype, ...)                                                         \
    do {                                                                                           \
        const char *in_ = b->in, *gpu_in_ = b->gpu_in;                                             \
        begin(rank, b, (bytes), dtype);                                                            \
        for (int on_gpu_ = 0; on_gpu_ < 2; on_gpu_++) {                                            \
            const char *in = on_gpu_ ? gpu_in_ : in_;                                              \
            char *out = on_gpu_ ? b->gpu_out : b->out;                                             \
            void *stream = on_gpu_ ? b->stream : NULL;                                             \
            RANK_CHECK(rank, call_name(__VA_ARGS__) == 0, #call_name);                             \
        }                                                                                          \
        compare(rank, g, b, (bytes), #call_name);                                                  \
    } while (0)

static void check_reductions(int rank, struct ddp_group *g, struct buffers *b, size_t count)
{
    const int n = ddp_world_size(g);
    const size_t blocks = (size_t)n;
    for (int t = 0; t <= DDP_UINT64; t++)
        for (int o = 0; o <= DDP_PROD; o++) {
            const enum ddp_dtype type = (enum ddp_dtype)t;
            const enum ddp_op op = (enum ddp_op)o;
            const size_t bytes = count * ddp_dtype_size(type);
            BOTH(ddp_all_reduce, bytes, type, g, in, out, count, type, op, stream);
            BOTH(ddp_reduce, bytes, type, g, in, out, count, type, op, n - 1, stream);
            BOTH(ddp_reduce_scatter, blocks * bytes, type, g, in, out, count, type, op, stream);
        }
}

static void check_copies(int rank, struct ddp_group *g, struct buffers *b, size_t count)
{
    const int n = ddp_world_size(g);
    const size_t all = (size_t)n * count;
    const enum ddp_dtype type = DDP_INT8;
    for (int root = 0; root<n; root += n> 1 ? n - 1 : 1) {
        BOTH(ddp_broadcast, count, type, g, in, out, count, type, root, stream);
        BOTH(ddp_gather, all, type, g, in, out, count, type, root, stream);
        BOTH(ddp_scatter, all, type, g, in, out, count, type, root, stream);
    }
    BOTH(ddp_all_gather, all, type, g, in, out, count, type, stream);
    BOTH(ddp_all_to_all, all, type, g, in, out, count, type, stream);
}

/* Rank r has 3 r + k elements, rank 1 none. */
static void check_counts(int rank, struct ddp_group *g, struct buffers *b, size_t k)
{
    size_t counts[MOST_RANKS], to[MOST_RANKS], from[MOST_RANKS], all = 0;
    const int n = ddp_world_size(g), root = n / 2;
    const enum ddp_dtype type = DDP_INT32;
    for (int r = 0; r < n; r++) {
        counts[r] = r == 1 ? 0 : (size_t)r * 3 + k;
        to[r] = (size_t)(rank + 2 * r) % 4 * k;
        from[r] = (size_t)(r + 2 * rank) % 4 * k;
        all += counts[r] + from[r] + to[r];
    }
    all *= ddp_dtype_size(type);
    BOTH(ddp_all_gather_v, all, type, g, in, out, counts, type, stream);
    BOTH(ddp_gather_v, all, type, g, in, out, counts, type, root, stream);
    BOTH(ddp_scatter_v, all, type, g, in, out, counts, type, root, stream);
    BOTH(ddp_reduce_scatter_v, all, type, g, in, out, counts, type, DDP_SUM, stream);
    BOTH(ddp_all_to_all_v, all, type, g, in, to, out, from, type, stream);
}

struct buffer_options {
    cudaStream_t stream; /* NULL: one of its own */
    bool is_of_host;     /* memory of the host that CUDA knows stands for the GPU's */
};

static void get_memory(int rank, bool is_of_host, char **ret, size_t bytes)
{
    if (is_of_host)
        GPU_CHECK(rank, cudaHostAlloc((void **)ret, bytes, cudaHostAllocDefault));
    else
        GPU_CHECK(rank, cudaMalloc((void **)ret, bytes));
}

static void open_buffers(int rank, const struct buffer_options *options, struct buffers *b)
{
    const size_t bytes = (size_t)MOST_RANKS * ROOM;
    b->in = malloc(bytes);
    b->out = malloc(bytes);
    RANK_CHECK(rank, b->in != NULL && b->out != NULL, "memory");
    get_memory(rank, options->is_of_host, &b->gpu_in, bytes);
    get_memory(rank, options->is_of_host, &b->gpu_out, bytes);
    b->stream = options->stream;
    if (b->stream == NULL)
        GPU_CHECK(rank, cudaStreamCreate(&b->stream));
}

static void close_buffers(int rank, const struct buffer_options *options, struct buffers *b)
{
    GPU_CHECK(rank, options->is_of_host ? cudaFreeHost(b->gpu_in) : cudaFree(b->gpu_in));
    GPU_CHECK(rank, options->is_of_host ? cudaFreeHost(b->gpu_out) : cudaFree(b->gpu_out));
    if (options->stream == NULL)
        GPU_CHECK(rank, cudaStreamDestroy(b->stream));
    free(b->in);
    free(b->out);
}

static int run_all(int rank, void *arg)
{
    static const struct buffer_options usual = {NULL, false};
    const struct buffer_options *options = arg != NULL ? arg : &usual;
    struct buffers b;
    struct ddp_group *g = gpu_rank_init(rank);
    open_buffers(rank, options, &b);
    check_reductions(rank, g, &b, 0);
    check_reductions(rank, g, &b, 1);
    check_reductions(rank, g, &b, 1021);
    check_copies(rank, g, &b, 1);
    check_copies(rank, g, &b, 5003);
    check_copies(rank, g, &b, ROOM - 1);
    check_counts(rank, g, &b, 1);
    check_counts(rank, g, &b, 1111);
    close_buffers(rank, options, &b);
    ddp_finalize(g);
    return 0;
}

START_TEST(all_collectives_give_the_same_bits_as_on_cpus)
{
    gpu_expect_ranks(_i, run_all, NULL);
}
END_TEST

START_TEST(calls_wait_for_earlier_calls_in_progress)
{
    setenv("NCCL_DOUBLE_FAULTS", "lazy", 1);
    gpu_expect_ranks(3, run_all, NULL);
}
END_TEST

START_TEST(a_per_thread_default_stream_works_like_any_stream)
{
    setenv("NCCL_DOUBLE_FAULTS", _i == 0 ? "" : "lazy", 1);
    struct buffer_options options = {cudaStreamPerThread, false};
    gpu_expect_ranks(3, run_all, &options);
}
END_TEST

START_TEST(registered_host_memory_works_like_gpu_memory)
{
    struct buffer_options options = {NULL, true};
    gpu_expect_ranks(3, run_all, &options);
}
END_TEST

/* --- in place --------------------------------------------------------------------------------- */

enum { COUNT = 700 };

static void expect_ints(int rank, struct ddp_group *g, cudaStream_t stream, const int32_t *gpu,
                        const int32_t *want, size_t n)
{
    int32_t got[MOST_RANKS * COUNT];
    RANK_CHECK(rank, ddp_stream_wait(g, stream, 0) == 0, "wait");
    GPU_CHECK(rank, cudaMemcpy(got, gpu, n * sizeof *got, cudaMemcpyDeviceToHost));
    RANK_CHECK(rank, memcmp(got, want, n * sizeof *got) == 0, "differs");
}

static int run_in_place(int rank, void *arg)
{
    (void)arg;
    int32_t all[MOST_RANKS * COUNT], want[MOST_RANKS * COUNT];
    struct ddp_group *g = gpu_rank_init(rank);
    const int n = ddp_world_size(g);
    cudaStream_t stream;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    for (int i = 0; i < n * COUNT; i++) {
        all[i] = rank * 100000 + i;
        want[i] = i / COUNT * 100000 + rank * COUNT + i % COUNT;
    }
    int32_t *gpu = gpu_copy_of(rank, all, sizeof *all * (size_t)n * COUNT, stream);
    RANK_CHECK(rank, ddp_all_to_all(g, gpu, gpu, COUNT, DDP_INT32, stream) == 0, "all_to_all");
    expect_ints(rank, g, stream, gpu, want, (size_t)n * COUNT);
    RANK_CHECK(rank, ddp_all_reduce(g, gpu, gpu, COUNT, DDP_INT32, DDP_MAX, stream) == 0, "max");
    for (int i = 0; i < COUNT; i++)
        want[i] = (n - 1) * COUNT + i;
    expect_ints(rank, g, stream, gpu, want, COUNT);
    GPU_CHECK(rank, cudaFree(gpu));
    ddp_finalize(g);
    return 0;
}

START_TEST(collectives_work_in_place)
{
    gpu_expect_ranks(_i, run_in_place, NULL);
}
END_TEST

/* --- requests, messages, groups --------------------------------------------------------------- */

static int run_messages(int rank, void *arg)
{
    struct ddp_request *request;
    struct ddp_group *g = gpu_rank_init(rank);
    const int n = ddp_world_size(g);
    int32_t own[COUNT], want[COUNT];
    void *comm = NULL;
    cudaStream_t stream = arg;
    if (stream == NULL)
        GPU_CHECK(rank, cudaStreamCreate(&stream));
    for (int i = 0; i < COUNT; i++) {
        own[i] = rank * 1000 + i;
        want[i] = (rank + n - 1) % n * 1000 + i;
    }
    int32_t *from = gpu_copy_of(rank, own, sizeof own, stream);
    int32_t *to = gpu_copy_of(rank, own, sizeof own, stream);
    RANK_CHECK(rank, ddp_nccl_comm(g, &comm) == 0 && comm != NULL, "comm");
    RANK_CHECK(rank, ddp_send(g, from, 1, DDP_INT32, (rank + 1) % n, 3, stream) == DDP_EINVAL,
               "a tag");
    if (rank == 0)
        RANK_CHECK(rank, ddp_send(g, from, COUNT, DDP_INT32, 1, 0, stream) == 0, "send");
    RANK_CHECK(rank,
               ddp_irecv(g, to, COUNT, DDP_INT32, (rank + n - 1) % n, 0, stream, &request) == 0,
               "irecv");
    RANK_CHECK(rank, ddp_wait(request) == 0, "a request of a stream is done at once");
    if (rank != 0)
        RANK_CHECK(rank, ddp_send(g, from, COUNT, DDP_INT32, (rank + 1) % n, 0, stream) == 0,
                   "send");
    expect_ints(rank, g, stream, to, want, COUNT);
    ddp_finalize(g);
    return 0;
}

START_TEST(messages_go_round_in_the_order_of_streams)
{
    gpu_expect_ranks(4, run_messages, _i == 0 ? NULL : cudaStreamPerThread);
}
END_TEST

enum { SPLIT_RANKS = 6 };

/* Each rank sends each its number in the group: from that and from the group's size, calls that
 * consist of messages know where a block goes. */
static void exchange_numbers(int rank, struct ddp_group *sub, cudaStream_t stream)
{
    int32_t own[SPLIT_RANKS], want[SPLIT_RANKS];
    const int n = ddp_world_size(sub);
    for (int r = 0; r < n; r++) {
        own[r] = ddp_rank(sub);
        want[r] = r;
    }
    int32_t *in = gpu_copy_of(rank, own, (size_t)n * sizeof *own, stream);
    int32_t *out = gpu_copy_of(rank, own, (size_t)n * sizeof *own, stream);
    RANK_CHECK(rank, ddp_all_to_all(sub, in, out, 1, DDP_INT32, stream) == 0, "all_to_all");
    expect_ints(rank, sub, stream, out, want, (size_t)n);
    GPU_CHECK(rank, cudaFree(in));
    GPU_CHECK(rank, cudaFree(out));
}

/* Even and odd ranks, the last rank in none; `first` makes the world's communicator before. */
static int run_groups(int rank, void *arg)
{
    const bool first = *(bool *)arg;
    int32_t one = 1, want;
    struct ddp_group *g = gpu_rank_init(rank), *sub;
    const int n = ddp_world_size(g), color = rank == n - 1 ? DDP_NO_COLOR : rank % 2;
    cudaStream_t stream;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    int32_t *gpu = gpu_copy_of(rank, &one, sizeof one, stream);
    if (first)
        RANK_CHECK(rank, ddp_all_reduce(g, gpu, gpu, 1, DDP_INT32, DDP_MAX, stream) == 0, "world");
    RANK_CHECK(rank, ddp_group_split(g, color, -rank, &sub) == 0, "split");
    if (sub != NULL) {
        want = ddp_world_size(sub);
        RANK_CHECK(rank, ddp_all_reduce(sub, gpu, gpu, 1, DDP_INT32, DDP_SUM, stream) == 0, "sub");
        expect_ints(rank, sub, stream, gpu, &want, 1);
        exchange_numbers(rank, sub, stream);
        ddp_group_destroy(sub);
    }
    RANK_CHECK(rank, ddp_barrier(g) == 0, "barrier");
    GPU_CHECK(rank, cudaFree(gpu));
    ddp_finalize(g);
    return 0;
}

START_TEST(groups_are_split_with_or_without_an_existing_communicator)
{
    bool first = _i == 1;
    gpu_expect_ranks(SPLIT_RANKS, run_groups, &first);
}
END_TEST

/* --- threads of other devices ----------------------------------------------------------------- */

/* A default stream has one name on all devices: a wait for it uses the rank's device. */
static int run_elsewhere(int rank, void *arg)
{
    const cudaStream_t stream = *(cudaStream_t *)arg;
    float one = 1;
    int device = -1;
    struct ddp_group *g = gpu_rank_init(rank);
    float *gpu = gpu_copy_of(rank, &one, sizeof one, stream);
    RANK_CHECK(rank, ddp_all_reduce(g, gpu, gpu, 1, DDP_FLOAT32, DDP_SUM, stream) == 0, "sum");
    GPU_CHECK(rank, cudaSetDevice(7));
    RANK_CHECK(rank, ddp_stream_wait(g, stream, 0) == 0, "wait");
    GPU_CHECK(rank, cudaGetDevice(&device));
    RANK_CHECK(rank, device == rank, "device %d", device);
    GPU_CHECK(rank, cudaFree(gpu));
    ddp_finalize(g);
    return 0;
}

START_TEST(a_thread_of_another_device_waits_for_the_ranks_default_stream)
{
    cudaStream_t stream = _i == 0 ? cudaStreamLegacy : cudaStreamPerThread;
    gpu_expect_ranks(2, run_elsewhere, &stream);
}
END_TEST

/* --- what is refused -------------------------------------------------------------------------- */

static void expect(int rank, int got, int want, const char *text)
{
    RANK_CHECK(rank, got == want, "%d", got);
    RANK_CHECK(rank, strstr(ddp_last_error(), text) != NULL, "no '%s'", text);
}

static int run_refused(int rank, void *arg)
{
    (void)arg;
    float plain[4] = {0};
    int found;
    struct ddp_group *g = gpu_rank_init(rank);
    cudaStream_t stream;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    float *gpu = gpu_copy_of(rank, plain, sizeof plain, stream);
    expect(rank, ddp_all_reduce(g, plain, plain, 4, DDP_FLOAT32, DDP_SUM, stream), DDP_EINVAL,
           "is not GPU memory and not known to CUDA");
    expect(rank, ddp_all_reduce(g, gpu, gpu, 1, DDP_INT32, DDP_BAND, stream), DDP_EUNSUPPORTED,
           "NCCL does not support DDP_BAND and DDP_BOR");
    expect(rank, ddp_all_reduce_checked(g, gpu, gpu, 4, DDP_FLOAT32, DDP_SUM, stream, &found),
           DDP_EUNSUPPORTED, "the check for non-finite values is not supported with a stream");
    expect(rank, ddp_all_reduce(g, gpu, gpu, 4, (enum ddp_dtype)99, DDP_SUM, stream), DDP_EINVAL,
           "invalid value 99 for dtype");
    GPU_CHECK(rank, cudaSetDevice(7));
    float *elsewhere = gpu_copy_of(rank, plain, sizeof plain, stream);
    expect(rank, ddp_all_reduce(g, gpu, elsewhere, 4, DDP_FLOAT32, DDP_SUM, stream), DDP_EINVAL,
           "is memory of GPU 7");
    RANK_CHECK(rank, ddp_all_reduce(g, gpu, gpu, 4, DDP_FLOAT32, DDP_SUM, stream) == 0,
               "nothing of this broke the group");
    RANK_CHECK(rank, ddp_stream_wait(g, stream, 0) == 0, "wait");
    GPU_CHECK(rank, cudaGetLastError()); /* no call leaves an error for the program's own */
    ddp_finalize(g);
    return 0;
}

START_TEST(unsupported_calls_are_refused_and_break_nothing)
{
    gpu_expect_ranks(2, run_refused, NULL);
}
END_TEST

static int run_too_few(int rank, void *arg)
{
    (void)arg;
    float x = 0;
    struct ddp_group *g = rank_init(rank, 60000);
    expect(rank, ddp_all_reduce(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, &x), DDP_EUNSUPPORTED,
           "rank 2 has no GPU for this group: this process sees 2 GPUs");
    ddp_finalize(g);
    return 0;
}

START_TEST(all_ranks_report_fewer_gpus_than_ranks)
{
    struct ranks r;
    setenv("NCCL_DOUBLE_DEVICES", "2", 1);
    ranks_start(&r, 3, run_too_few, NULL);
    ranks_expect_success(&r);
    unsetenv("NCCL_DOUBLE_DEVICES");
}
END_TEST

static int run_no_driver(int rank, void *arg)
{
    (void)arg;
    float x = 1;
    struct ddp_group *g = rank_init(rank, 60000);
    expect(rank, ddp_all_reduce(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, &x), DDP_EUNSUPPORTED,
           "cannot load the CUDA driver (libcuda.so.1)");
    RANK_CHECK(rank, ddp_all_reduce(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, NULL) == 0, "on CPUs");
    ddp_finalize(g);
    return 0;
}

START_TEST(without_a_driver_the_cpu_back_end_is_used)
{
    struct ranks r;
    setenv("NCCL_DOUBLE_DEVICES", "no driver", 1);
    ranks_start(&r, 2, run_no_driver, NULL);
    ranks_expect_success(&r);
    unsetenv("NCCL_DOUBLE_DEVICES");
}
END_TEST

/* --- graphs ----------------------------------------------------------------------------------- */

enum { LAUNCHES = 5 };

/* Sums and an exchange in place are captured once and launched some times: the double reports calls
 * that CUDA does not allow while a graph is captured. */
static int run_graph(int rank, void *arg)
{
    const bool leaves_it = *(bool *)arg;
    float values[8];
    struct ddp_group *g = gpu_rank_init(rank);
    const int n = ddp_world_size(g);
    cudaStream_t stream;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    for (int i = 0; i < 8; i++)
        values[i] = 1;
    float *gpu = gpu_copy_of(rank, values, sizeof values, stream);
    RANK_CHECK(rank, ddp_barrier(g) == 0, "barrier");
    RANK_CHECK(rank, ddp_all_reduce(g, gpu, gpu, 8, DDP_FLOAT32, DDP_AVG, stream) == 0, "warm up");
    RANK_CHECK(rank, ddp_stream_wait(g, stream, 0) == 0, "wait");
    GPU_CHECK(rank, cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    RANK_CHECK(rank, ddp_all_reduce(g, gpu, gpu, 8, DDP_FLOAT32, DDP_SUM, stream) == 0, "sum");
    RANK_CHECK(rank, ddp_broadcast(g, gpu, gpu, 8, DDP_FLOAT32, n - 1, stream) == 0, "broadcast");
    cudaGraphExec_t exec = gpu_end_capture(rank, stream);
    float want = 1;
    for (int i = 0; i < LAUNCHES; i++) {
        GPU_CHECK(rank, cudaGraphLaunch(exec, stream));
        want *= (float)n;
    }
    RANK_CHECK(rank, ddp_stream_wait(g, stream, 0) == 0, "wait");
    GPU_CHECK(rank, cudaMemcpy(values, gpu, sizeof values, cudaMemcpyDeviceToHost));
    RANK_CHECK(rank, values[0] == want && values[7] == want, "%g", (double)values[0]);
    if (!leaves_it)
        GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    ddp_finalize(g);
    if (leaves_it)
        GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    return 0;
}

START_TEST(collectives_may_be_captured_in_a_graph)
{
    bool leaves_it = false;
    gpu_expect_ranks(3, run_graph, &leaves_it);
}
END_TEST

START_TEST(the_double_finds_a_graph_that_outlives_its_group)
{
    bool leaves_it = true;
    gpu_expect_report(2, run_graph, &leaves_it, "ncclCommFinalize is called while a graph holds");
}
END_TEST

/* --- order ------------------------------------------------------------------------------------ */

/* One stream writes what another one's collective reads; `ordered` by an event in between. */
static int run_two_streams(int rank, void *arg)
{
    const bool ordered = *(bool *)arg;
    struct ddp_group *g = gpu_rank_init(rank);
    cudaStream_t compute, comm;
    cudaEvent_t written;
    float *gpu;
    GPU_CHECK(rank, cudaMalloc((void **)&gpu, 64));
    GPU_CHECK(rank, cudaStreamCreate(&compute));
    GPU_CHECK(rank, cudaStreamCreate(&comm));
    GPU_CHECK(rank, cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
    GPU_CHECK(rank, cudaMemsetAsync(gpu, 0, 64, compute));
    if (ordered) {
        GPU_CHECK(rank, cudaEventRecord(written, compute));
        GPU_CHECK(rank, cudaStreamWaitEvent(comm, written, 0));
    }
    RANK_CHECK(rank, ddp_all_reduce(g, gpu, gpu, 16, DDP_FLOAT32, DDP_SUM, comm) == 0, "sum");
    RANK_CHECK(rank, ddp_stream_wait(g, comm, 0) == 0, "wait");
    ddp_finalize(g);
    return 0;
}

START_TEST(the_double_finds_a_program_that_forgets_an_event)
{
    struct ranks r;
    bool ordered = _i == 1;
    ranks_start(&r, 2, run_two_streams, &ordered);
    ranks_expect_success(&r);
    ck_assert_msg((strstr(gpu_first_report(), "race: ncclAllReduce") != NULL) == !ordered, "%s",
                  gpu_first_report());
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl_collectives");
    TCase *t = tcase_create("collectives");
    tcase_set_timeout(t, 240);
    tcase_add_checked_fixture(t, gpu_set_up, gpu_tear_down);
    tcase_add_loop_test(t, all_collectives_give_the_same_bits_as_on_cpus, 1, MOST_RANKS + 1);
    tcase_add_test(t, calls_wait_for_earlier_calls_in_progress);
    tcase_add_loop_test(t, a_per_thread_default_stream_works_like_any_stream, 0, 2);
    tcase_add_test(t, registered_host_memory_works_like_gpu_memory);
    tcase_add_loop_test(t, collectives_work_in_place, 1, 5);
    tcase_add_loop_test(t, messages_go_round_in_the_order_of_streams, 0, 2);
    tcase_add_loop_test(t, groups_are_split_with_or_without_an_existing_communicator, 0, 2);
    tcase_add_loop_test(t, a_thread_of_another_device_waits_for_the_ranks_default_stream, 0, 2);
    tcase_add_test(t, unsupported_calls_are_refused_and_break_nothing);
    tcase_add_test(t, all_ranks_report_fewer_gpus_than_ranks);
    tcase_add_test(t, without_a_driver_the_cpu_back_end_is_used);
    tcase_add_test(t, collectives_may_be_captured_in_a_graph);
    tcase_add_test(t, the_double_finds_a_graph_that_outlives_its_group);
    tcase_add_loop_test(t, the_double_finds_a_program_that_forgets_an_event, 0, 2);
    suite_add_tcase(s, t);
    return run_suite(s);
}
