/* gpu_questions.c - what only a GPU answers about NCCL and CUDA, for bench/gpu.
 *
 *     ddprun -n N gpu_questions capture global|thread|relaxed
 *         Captures two all-reduces in that capture mode, and replays them. Prints "works"
 *     ddprun -n N gpu_questions memory    "CALL IDLE_MS BUSY_MS" of calls of CUDA on rank 0, the
 *         second time while a kernel of NCCL waits 2 s for the others: do they wait for the device?
 *     ddprun -n N gpu_questions end       "RANK MS" of each rank's ddp_finalize(), when rank 1
 *         calls it 5 s late
 *     ddprun -n N gpu_questions grow REPEATS    "WAY N FASTEST_MS MEDIAN_MS" on rank 0, until a
 *         communicator of N ranks is ready: a new one, or one of N - 1 ranks that the last one
 *         joins (ncclCommGrow(), since 2.29.2; without it that line is missing)
 *     gpu_questions hold BYTES PORT       takes BYTES of GPU memory, connects to PORT on this host,
 *         sends a byte, keeps a kernel busy, and waits to be killed
 *
 * exit status   0; else as ddp_fatal() */
#include "gpu_timing.h"

#include <arpa/inet.h>
#include <ddp/device.h>
#include <dlfcn.h>
#include <nccl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { COUNT = 1 << 18, LATE_S = 2, END_S = 5, SMALL = 1 << 20, LARGE = 1 << 26 };

static struct ddp_group *group;
static cudaStream_t stream;
static float *values;

static void open_all(void)
{
    int index;
    check(ddp_init(NULL, &group), "ddp_init");
    check(ddp_device(group, &index), "ddp_device");
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    check_cuda(cudaMalloc((void **)&values, COUNT * sizeof *values), "memory");
    check_cuda(cudaMemsetAsync(values, 0, COUNT * sizeof *values, stream), "memory");
}

static void reduce(void)
{
    check(ddp_all_reduce(group, values, values, COUNT, DDP_FLOAT32, DDP_SUM, stream),
          "ddp_all_reduce");
}

static void wait_for_stream(void)
{
    check(ddp_stream_wait(group, stream, 0), "ddp_stream_wait");
}

/* --- capture --- */

static int capture(enum cudaStreamCaptureMode mode)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    open_all();
    reduce();
    wait_for_stream();
    check_cuda(cudaStreamBeginCapture(stream, mode), "cudaStreamBeginCapture");
    reduce();
    reduce();
    check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check_cuda(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
    wait_for_stream();
    check_cuda(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
    ddp_log0(group, "works\n");
    ddp_finalize(group);
    return 0;
}

/* --- memory --- */

static cudaError_t pin(void **at, size_t bytes)
{
    return cudaHostAlloc(at, bytes, cudaHostAllocDefault);
}

static cudaError_t allocate(void **at, size_t bytes)
{
    return cudaMalloc(at, bytes);
}

static const struct {
    const char *name;
    cudaError_t (*call)(void **at, size_t bytes);
    size_t bytes;
} calls[] = {{"cudaMalloc_1MiB", allocate, SMALL},
             {"cudaMalloc_64MiB", allocate, LARGE},
             {"cudaHostAlloc_1MiB", pin, SMALL},
             {"cudaHostAlloc_64MiB", pin, LARGE}};

enum { N_CALLS = sizeof calls / sizeof calls[0] };

static void time_calls(double ret_ms[N_CALLS])
{
    for (int i = 0; i < N_CALLS; i++) {
        void *at = NULL;
        const double began = now_us();
        check_cuda(calls[i].call(&at, calls[i].bytes), calls[i].name);
        ret_ms[i] = (now_us() - began) * 1e-3;
    }
}

static int memory(void)
{
    double idle_ms[N_CALLS], busy_ms[N_CALLS];
    open_all();
    reduce();
    wait_for_stream();
    if (ddp_rank(group) == 0)
        time_calls(idle_ms);
    check(ddp_barrier(group), "ddp_barrier");
    if (ddp_rank(group) != 0)
        sleep(LATE_S); /* rank 0 waits in its kernel */
    reduce();
    if (ddp_rank(group) == 0)
        time_calls(busy_ms);
    wait_for_stream();
    for (int i = 0; ddp_rank(group) == 0 && i < N_CALLS; i++)
        printf("%s %.2f %.2f\n", calls[i].name, idle_ms[i], busy_ms[i]);
    ddp_finalize(group);
    return 0;
}

/* --- end --- */

static int end(void)
{
    open_all();
    reduce();
    wait_for_stream();
    const int rank = ddp_rank(group);
    check(ddp_barrier(group), "ddp_barrier");
    if (rank == 1)
        sleep(END_S);
    const double began = now_us();
    ddp_finalize(group);
    printf("%d %.1f\n", rank, (now_us() - began) * 1e-3);
    return 0;
}

/* --- grow --- */

/* By hand: the headers may be older. */
typedef ncclResult_t make_id_fn(ncclComm_t comm, ncclUniqueId *ret);
typedef ncclResult_t grow_fn(ncclComm_t comm, int n, const ncclUniqueId *id, int rank,
                             ncclComm_t *ret, ncclConfig_t *config);

static void check_nccl(ncclResult_t result, const char *what)
{
    if (result == ncclSuccess || result == ncclInProgress)
        return;
    fprintf(stderr, "gpu_questions: %s: %s\n", what, ncclGetErrorString(result));
    exit(EXIT_FAILURE);
}

static void wait_until_ready(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        check_nccl(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError");
        if (state == ncclInProgress)
            usleep(100);
    }
    check_nccl(state, "a communicator");
}

/* Of the first n ranks; the others only take part in the broadcast. NULL: not in it */
static ncclComm_t make_new(int n)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    config.blocking = 0;
    if (ddp_rank(group) == 0)
        check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    check(ddp_broadcast_bytes(group, &id, sizeof id, 0), "ddp_broadcast_bytes");
    if (ddp_rank(group) >= n)
        return NULL;
    check_nccl(ncclCommInitRankConfig(&comm, n, id, ddp_rank(group), &config),
               "ncclCommInitRankConfig");
    wait_until_ready(comm);
    return comm;
}

static ncclComm_t make_grown(ncclComm_t parent, make_id_fn *make_id, grow_fn *grow)
{
    const int rank = ddp_rank(group), n = ddp_world_size(group);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    config.blocking = 0;
    if (rank == 0)
        check_nccl(make_id(parent, &id), "ncclCommGetUniqueId");
    check(ddp_broadcast_bytes(group, &id, sizeof id, 0), "ddp_broadcast_bytes");
    const bool needs_id = parent == NULL || rank == 0;
    check_nccl(grow(parent, n, needs_id ? &id : NULL, parent == NULL ? rank : -1, &comm, &config),
               "ncclCommGrow");
    wait_until_ready(comm);
    return comm;
}

/* A collective works on it; then it goes. */
static void try_and_end(ncclComm_t comm)
{
    if (comm == NULL)
        return;
    check_nccl(ncclAllReduce(values, values, COUNT, ncclFloat32, ncclSum, comm, stream),
               "ncclAllReduce");
    wait_until_ready(comm);
    check_cuda(cudaStreamSynchronize(stream), "ncclAllReduce");
    check(ddp_barrier(group), "ddp_barrier");
    check_nccl(ncclCommAbort(comm), "ncclCommAbort");
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *way, double *took_ms, int n)
{
    qsort(took_ms, (size_t)n, sizeof *took_ms, compare);
    ddp_log0(group, "%s %d %.2f %.2f\n", way, n, took_ms[0], took_ms[n / 2]);
}

static int time_growth(int repeats)
{
    make_id_fn *make_id = (make_id_fn *)dlsym(RTLD_DEFAULT, "ncclCommGetUniqueId");
    grow_fn *grow = (grow_fn *)dlsym(RTLD_DEFAULT, "ncclCommGrow");
    double *took[2] = {calloc((size_t)repeats, sizeof(double)),
                       calloc((size_t)repeats, sizeof(double))};
    if (took[0] == NULL || took[1] == NULL)
        return EXIT_FAILURE;
    open_all();
    const int n = ddp_world_size(group);
    for (int i = 0; i < repeats; i++) {
        check(ddp_barrier(group), "ddp_barrier");
        double began = now_us();
        ncclComm_t made = make_new(n);
        took[0][i] = (now_us() - began) * 1e-3;
        try_and_end(made);
        if (make_id == NULL || grow == NULL)
            continue;
        ncclComm_t parent = make_new(n - 1);
        check(ddp_barrier(group), "ddp_barrier");
        began = now_us();
        made = make_grown(parent, make_id, grow);
        took[1][i] = (now_us() - began) * 1e-3;
        try_and_end(made);
        if (parent != NULL)
            check_nccl(ncclCommAbort(parent), "ncclCommAbort");
    }
    print_times("new", took[0], repeats);
    if (make_id != NULL && grow != NULL)
        print_times("grown", took[1], repeats);
    free(took[0]);
    free(took[1]);
    ddp_finalize(group);
    return 0;
}

/* --- hold --- */

static int hold(size_t bytes, int port)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    void *at;
    check_cuda(cudaMalloc(&at, bytes), "memory");
    check_cuda(cudaMemsetAsync(at, 1, bytes, NULL), "memory");
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) != 0 ||
        write(fd, "x", 1) != 1) {
        perror("gpu_questions");
        return EXIT_FAILURE;
    }
    for (;;) {
        check_cuda(cudaMemsetAsync(at, 2, bytes, NULL), "a kernel");
        check_cuda(cudaStreamSynchronize(NULL), "a kernel");
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum cudaStreamCaptureMode mode;
    } modes[] = {{"global", cudaStreamCaptureModeGlobal},
                 {"thread", cudaStreamCaptureModeThreadLocal},
                 {"relaxed", cudaStreamCaptureModeRelaxed}};
    const char *what = argc > 1 ? argv[1] : "";
    for (size_t i = 0; argc == 3 && i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(what, "capture") == 0 && strcmp(argv[2], modes[i].name) == 0)
            return capture(modes[i].mode);
    if (argc == 2 && strcmp(what, "memory") == 0)
        return memory();
    if (argc == 2 && strcmp(what, "end") == 0)
        return end();
    if (argc == 3 && strcmp(what, "grow") == 0 && atoi(argv[2]) > 0 && atoi(argv[2]) <= 1000)
        return time_growth(atoi(argv[2]));
    if (argc == 4 && strcmp(what, "hold") == 0 && atoll(argv[2]) > 0 && atoi(argv[3]) > 0)
        return hold((size_t)atoll(argv[2]), atoi(argv[3]));
    fputs("usage: gpu_questions capture MODE | memory | end | grow REPEATS | hold BYTES PORT\n",
          stderr);
    return 2;
}
