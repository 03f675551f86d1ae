/* gpu_steps.c - what libddp costs on a GPU compared with NCCL alone, for bench/gpu.
 *
 *     gpu_steps probe                the number of GPUs; without one, exit status 69 and one line
 *     ddprun -n N gpu_steps overhead REPEATS [BYTES]    of buffers up to BYTES
 *     ddprun -n N gpu_steps graph REPEATS    a model's step in a CUDA graph, and without a graph
 *     gpu_steps loader FILE BATCH    FILE is in IDX format
 *     gpu_steps clip BYTES REPEATS   "CLIP_US COPY_US": medians of ddp_model_clip() that scales
 *                                    BYTES of gradients, and of a copy of as many on the GPU
 *
 * Times are rank 0's in microseconds, fastest and median of REPEATS. A time begins with the call
 * and ends when the host knows that the GPU is done. The variants take turns. */
#include "gpu_timing.h"

#include <cuda_runtime_api.h>
#include <ddp/ddp.h>
#include <ddp/device.h>
#include <ddp/loader.h>
#include <math.h>
#include <nccl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { N_WAYS = 4, WARM_UP = 20, MOST_REPEATS = 100000, PATTERN = 0x3c };

struct steps { /* steps with buffers of one size */
    struct ddp_group *g;
    ncclComm_t comm;     /* the group's */
    ncclComm_t blocking; /* one of this program's own; NULL: not wanted */
    cudaStream_t stream;
    struct ddp_model *model;
    struct ddp_tensor tensor; /* whose gradient is averaged */
    double called_us;         /* when the call had returned, and its work was on the stream */
};

/* --- probe ------------------------------------------------------------------------------------ */

static int probe(void)
{
    struct ddp_group *g;
    int index, n = 0;

    check(ddp_init(NULL, &g), "ddp_init");
    if (ddp_device(g, &index) != 0) {
        fprintf(stderr, "%s\n", ddp_last_error());
        ddp_finalize(g);
        return EX_UNAVAILABLE;
    }
    check_cuda(cudaGetDeviceCount(&n), "counting GPUs");
    printf("%d\n", n);
    ddp_finalize(g);
    return 0;
}

/* --- overhead --------------------------------------------------------------------------------- */

static void check_nccl(ncclResult_t result, const char *what)
{
    if (result == ncclSuccess)
        return;
    fprintf(stderr, "gpu_steps: %s: %s\n", what, ncclGetErrorString(result));
    exit(EXIT_FAILURE);
}

/* NCCL alone. On the group's communicator, which is non-blocking, the call may return while it is
 * still in progress. */
static void reduce_on(struct steps *s, ncclComm_t comm)
{
    ncclResult_t state = ncclAllReduce(s->tensor.grad, s->tensor.grad, s->tensor.count, ncclFloat32,
                                       ncclAvg, comm, s->stream);
    while (state == ncclInProgress)
        if (ncclCommGetAsyncError(comm, &state) != ncclSuccess)
            break;
    check_nccl(state, "ncclAllReduce");
    s->called_us = now_us();
    check_cuda(cudaStreamSynchronize(s->stream), "ncclAllReduce");
}

static void bare(struct steps *s)
{
    reduce_on(s, s->comm);
}

static void bare_blocking(struct steps *s)
{
    reduce_on(s, s->blocking);
}

/* As other programs have it: NCCL's calls return when their work is on the stream. */
static ncclComm_t make_blocking(struct ddp_group *g)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t comm;

    config.blocking = 1;
    if (ddp_rank(g) == 0)
        check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    check(ddp_broadcast_bytes(g, &id, sizeof id, 0), "ddp_broadcast_bytes");
    check_nccl(ncclCommInitRankConfig(&comm, ddp_world_size(g), id, ddp_rank(g), &config),
               "ncclCommInitRankConfig");
    return comm;
}

static void collective(struct steps *s)
{
    check(ddp_all_reduce(s->g, s->tensor.grad, s->tensor.grad, s->tensor.count, DDP_FLOAT32,
                         DDP_AVG, s->stream),
          "ddp_all_reduce");
    s->called_us = now_us();
    check(ddp_stream_wait(s->g, s->stream, 0), "ddp_stream_wait");
}

static void step(struct steps *s)
{
    check(ddp_model_ready(s->model, 0), "ddp_model_ready");
    s->called_us = now_us();
    check(ddp_model_sync(s->model), "ddp_model_sync");
}

static void *gpu_memory(size_t bytes, cudaStream_t stream)
{
    void *at;

    check_cuda(cudaMalloc(&at, bytes), "memory");
    check_cuda(cudaMemsetAsync(at, 0, bytes, stream), "memory");
    return at;
}

static void open_steps(struct steps *s, struct ddp_group *g, size_t bytes)
{
    void *comm;

    *s = (struct steps){.g = g};
    check_cuda(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking), "a stream");
    check(ddp_nccl_comm(g, &comm), "ddp_nccl_comm");
    s->comm = comm;
    s->tensor = (struct ddp_tensor){.name = "t",
                                    .param = gpu_memory(bytes, s->stream),
                                    .count = bytes / sizeof(float),
                                    .dtype = DDP_FLOAT32};
    const struct ddp_model_opts opts = {.stream = s->stream};
    check(ddp_model_create(g, &s->tensor, 1, &opts, &s->model), "ddp_model_create");
    check(ddp_stream_wait(g, s->stream, 0), "ddp_stream_wait");
}

static void close_steps(const struct steps *s)
{
    ddp_model_destroy(s->model);
    check_cuda(cudaFree(s->tensor.param), "memory");
    check_cuda(cudaStreamDestroy(s->stream), "a stream");
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Prints "BYTES WAY FASTEST MEDIAN HOST" for each variant: HOST is the median until the call has
 * returned. */
static void measure(struct ddp_group *g, ncclComm_t blocking, size_t bytes, int repeats)
{
    static const struct {
        const char *name;
        void (*run)(struct steps *s);
    } ways[N_WAYS] = {{"ncclAllReduce", bare},
                      {"blocking", bare_blocking},
                      {"ddp_all_reduce", collective},
                      {"ddp_model_sync", step}};
    struct steps s;
    double *took[N_WAYS], *host[N_WAYS];

    open_steps(&s, g, bytes);
    s.blocking = blocking;
    for (int w = 0; w < N_WAYS; w++)
        if ((took[w] = calloc((size_t)repeats, sizeof(double))) == NULL ||
            (host[w] = calloc((size_t)repeats, sizeof(double))) == NULL)
            exit(EXIT_FAILURE);
    for (int i = -WARM_UP; i < repeats; i++)
        for (int w = 0; w < N_WAYS; w++) {
            const double began = now_us();
            ways[w].run(&s);
            if (i >= 0) {
                took[w][i] = now_us() - began;
                host[w][i] = s.called_us - began;
            }
        }
    for (int w = 0; w < N_WAYS; w++) {
        qsort(took[w], (size_t)repeats, sizeof(double), compare);
        qsort(host[w], (size_t)repeats, sizeof(double), compare);
        ddp_log0(g, "%zu %s %.2f %.2f %.2f\n", bytes, ways[w].name, took[w][0],
                 took[w][repeats / 2], host[w][repeats / 2]);
        free(took[w]);
        free(host[w]);
    }
    close_steps(&s);
}

static int overhead(int repeats, size_t most_bytes)
{
    static const size_t sizes[] = {4 << 10, 1 << 20, 25 << 20, 256 << 20};
    struct ddp_group *g;
    int index;

    check(ddp_init(NULL, &g), "ddp_init");
    check(ddp_device(g, &index), "ddp_device");
    const ncclComm_t blocking = make_blocking(g);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] <= most_bytes; i++)
        measure(g, blocking, sizes[i], repeats);
    ncclCommAbort(blocking);
    ddp_finalize(g);
    return 0;
}

/* --- steps in a graph ------------------------------------------------------------------------- */

enum { GRAPH_TENSORS = 64, GRAPH_COUNT = 64 << 10 }; /* floats each: 16 MiB of gradients */

struct graph_steps {
    struct steps s;
    struct ddp_tensor tensors[GRAPH_TENSORS];
    cudaGraphExec_t exec;
};

/* Launches a small kernel for each gradient, as a network of many layers does. */
static void plain_step(struct graph_steps *b)
{
    for (size_t i = GRAPH_TENSORS; i-- > 0;) {
        check_cuda(cudaMemsetAsync(b->tensors[i].grad, 0, GRAPH_COUNT * sizeof(float), b->s.stream),
                   "a gradient");
        check(ddp_model_ready(b->s.model, i), "ddp_model_ready");
    }
    check(ddp_model_sync(b->s.model), "ddp_model_sync");
}

static void replayed_step(struct graph_steps *b)
{
    check_cuda(cudaGraphLaunch(b->exec, b->s.stream), "cudaGraphLaunch");
    check(ddp_model_replayed(b->s.model), "ddp_model_replayed");
}

static void open_graph_steps(struct graph_steps *b, struct ddp_group *g)
{
    cudaGraph_t graph;

    *b = (struct graph_steps){.s.g = g};
    check_cuda(cudaStreamCreateWithFlags(&b->s.stream, cudaStreamNonBlocking), "a stream");
    for (size_t i = 0; i < GRAPH_TENSORS; i++)
        b->tensors[i] =
            (struct ddp_tensor){.name = "t",
                                .param = gpu_memory(GRAPH_COUNT * sizeof(float), b->s.stream),
                                .count = GRAPH_COUNT,
                                .dtype = DDP_FLOAT32};
    const struct ddp_model_opts opts = {.stream = b->s.stream, .bucket_bytes = 4 << 20};
    check(ddp_model_create(g, b->tensors, GRAPH_TENSORS, &opts, &b->s.model), "ddp_model_create");
    plain_step(b); /* the first step is not captured */
    check_cuda(cudaStreamBeginCapture(b->s.stream, cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
    plain_step(b);
    check_cuda(cudaStreamEndCapture(b->s.stream, &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&b->exec, graph, 0), "cudaGraphInstantiate");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

/* Prints "TENSORS BYTES PLAIN_US GRAPH_US", the medians. */
static int graph(int repeats)
{
    static void (*const ways[])(struct graph_steps * b) = {plain_step, replayed_step};
    static struct graph_steps b;
    struct ddp_group *g;
    double *took[2];
    int index;

    check(ddp_init(NULL, &g), "ddp_init");
    check(ddp_device(g, &index), "ddp_device");
    open_graph_steps(&b, g);
    for (int w = 0; w < 2; w++)
        if ((took[w] = calloc((size_t)repeats, sizeof(double))) == NULL)
            exit(EXIT_FAILURE);
    for (int i = -WARM_UP; i < repeats; i++)
        for (int w = 0; w < 2; w++) {
            const double began = now_us();
            ways[w](&b);
            check_cuda(cudaStreamSynchronize(b.s.stream), "a step"); /* one rank does not wait */
            if (i >= 0)
                took[w][i] = now_us() - began;
        }
    for (int w = 0; w < 2; w++)
        qsort(took[w], (size_t)repeats, sizeof(double), compare);
    ddp_log0(g, "%d %zu %.2f %.2f\n", GRAPH_TENSORS, GRAPH_TENSORS * GRAPH_COUNT * sizeof(float),
             took[0][repeats / 2], took[1][repeats / 2]);
    for (int w = 0; w < 2; w++)
        free(took[w]);
    check_cuda(cudaGraphExecDestroy(b.exec), "cudaGraphExecDestroy"); /* NCCL waits for it */
    ddp_finalize(g);
    return 0;
}

/* --- loader ----------------------------------------------------------------------------------- */

/* Prints "BATCHES BYTES SECONDS": the copy of all batches of an epoch to the GPU, until the last
 * has arrived. Nothing uses them. */
static int load(const char *path, size_t batch)
{
    struct ddp_group *g;
    struct ddp_dataset *d;
    struct ddp_sampler *s;
    struct ddp_loader *l;
    struct ddp_batch b;
    cudaStream_t stream;
    size_t n_batches = 0, n_bytes = 0;
    int index;

    check(ddp_init(NULL, &g), "ddp_init");
    check(ddp_device(g, &index), "ddp_device");
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    check(ddp_idx_open(path, &d), path);
    const struct ddp_sampler_opts order = {.n = ddp_dataset_count(d), .shuffle = true};
    check(ddp_sampler_create(g, &order, &s), "ddp_sampler_create");
    const struct ddp_loader_opts opts = {
        .datasets = {d}, .n_datasets = 1, .batch = batch, .depth = 4, .stream = stream};
    check(ddp_loader_create(s, &opts, &l), "ddp_loader_create");
    const double began = now_us();
    ddp_sampler_set_epoch(s, 0);
    for (check(ddp_loader_next(l, &b), "ddp_loader_next"); b.n > 0;
         check(ddp_loader_next(l, &b), "ddp_loader_next")) {
        n_batches++;
        n_bytes += b.n * ddp_dataset_sample_bytes(d);
    }
    check_cuda(cudaStreamSynchronize(stream), "the last batch");
    printf("%zu %zu %.6f\n", n_batches, n_bytes, (now_us() - began) * 1e-6);
    ddp_loader_destroy(l);
    ddp_dataset_close(d);
    ddp_finalize(g);
    return 0;
}

/* --- clip ------------------------------------------------------------------------------------- */

/* Clips to a smaller norm than the last time, so that the call always scales. */
static void clip(struct steps *s, int i)
{
    check(ddp_model_clip(s->model, 1.0 / (i + WARM_UP + 1), NULL), "ddp_model_clip");
}

/* Clips equal values to a norm of 1 and checks the norm and the values. */
static void expect_clipped(struct steps *s)
{
    const size_t count = s->tensor.count;
    float value, got[2];
    double norm;

    memset(&value, PATTERN, sizeof value);
    check(ddp_model_clip(s->model, 1, &norm), "ddp_model_clip");
    const float *at = s->tensor.grad;
    check_cuda(cudaMemcpy(&got[0], at, sizeof got[0], cudaMemcpyDeviceToHost), "the first value");
    check_cuda(cudaMemcpy(&got[1], at + count - 1, sizeof got[1], cudaMemcpyDeviceToHost),
               "the last value");
    const double want = sqrt((double)count) * (double)value;
    const double scaled = want > 1 ? (double)value / (want + 1e-6) : (double)value;
    if (fabs(norm - want) <= want * 1e-12 && fabs((double)got[0] - scaled) <= scaled * 1e-6 &&
        got[0] == got[1])
        return;
    fprintf(stderr, "gpu_steps: a norm of %.17g, not %.17g; values of %g and %g, not %g\n", norm,
            want, (double)got[0], (double)got[1], scaled);
    exit(EXIT_FAILURE);
}

static void copy(struct steps *s, int i)
{
    (void)i;
    check_cuda(cudaMemcpyAsync(s->tensor.param, s->tensor.grad, s->tensor.count * sizeof(float),
                               cudaMemcpyDeviceToDevice, s->stream),
               "a copy");
}

static double time_one(struct steps *s, void (*run)(struct steps *s, int i), int i)
{
    const double began = now_us();

    run(s, i);
    check(ddp_stream_wait(s->g, s->stream, 0), "ddp_stream_wait");
    return now_us() - began;
}

static int clip_and_copy(size_t bytes, int repeats)
{
    struct steps s;
    struct ddp_group *g;
    int index;
    double *clips = calloc((size_t)repeats, sizeof(double));
    double *copies = calloc((size_t)repeats, sizeof(double));

    if (clips == NULL || copies == NULL)
        return EXIT_FAILURE;
    check(ddp_init(NULL, &g), "ddp_init");
    check(ddp_device(g, &index), "ddp_device");
    open_steps(&s, g, bytes);
    check_cuda(cudaMemsetAsync(s.tensor.grad, PATTERN, bytes, s.stream), "gradients");
    expect_clipped(&s);
    for (int i = -WARM_UP; i < repeats; i++) {
        const double clip_us = time_one(&s, clip, i), copy_us = time_one(&s, copy, i);
        if (i < 0)
            continue;
        clips[i] = clip_us;
        copies[i] = copy_us;
    }
    qsort(clips, (size_t)repeats, sizeof(double), compare);
    qsort(copies, (size_t)repeats, sizeof(double), compare);
    printf("%.2f %.2f\n", clips[repeats / 2], copies[repeats / 2]);
    free(clips);
    free(copies);
    close_steps(&s);
    ddp_finalize(g);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const int number = argc > 2 ? atoi(argv[argc - 1]) : 0;

    if (argc == 2 && strcmp(what, "probe") == 0)
        return probe();
    const int repeats = argc > 2 ? atoi(argv[2]) : 0;
    if ((argc == 3 || argc == 4) && strcmp(what, "overhead") == 0 && repeats > 0 &&
        repeats <= MOST_REPEATS)
        return overhead(repeats, argc == 4 ? (size_t)atoll(argv[3]) : SIZE_MAX);
    if (argc == 3 && strcmp(what, "graph") == 0 && number > 0 && number <= MOST_REPEATS)
        return graph(number);
    if (argc == 4 && strcmp(what, "loader") == 0 && number > 0)
        return load(argv[2], (size_t)number);
    if (argc == 4 && strcmp(what, "clip") == 0 && number > 0 && number <= MOST_REPEATS &&
        atoll(argv[2]) >= (long long)sizeof(float))
        return clip_and_copy((size_t)atoll(argv[2]), number);
    fputs("usage: gpu_steps probe | overhead REPEATS [BYTES] | graph REPEATS | loader FILE BATCH | "
          "clip BYTES REPEATS\n",
          stderr);
    return 2;
}
