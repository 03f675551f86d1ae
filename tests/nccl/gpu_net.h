/* gpu_net.h - a network on a GPU whose steps may be replayed from a CUDA graph, and the same one on
 * the CPU for comparison. */
#ifndef DDP_TESTS_NCCL_GPU_NET_H
#define DDP_TESTS_NCCL_GPU_NET_H

#include "gpu_values.h"

#include <math.h>

enum { N_TENSORS = 4, MOST = 20000 };

static const struct {
    size_t count;
    enum ddp_dtype dtype;
} shapes[N_TENSORS] = {
    {700, DDP_FLOAT32}, {5000, DDP_BFLOAT16}, {MOST, DDP_FLOAT32}, {9, DDP_FLOAT64}};

struct net { /* the same one twice. A "backward pass" copies gradients from `in`, on the GPU */
    struct ddp_group *g;
    int rank;
    struct ddp_tensor cpu[N_TENSORS], gpu[N_TENSORS];
    void *in[N_TENSORS];
    struct ddp_model *cpu_model, *gpu_model;
    cudaStream_t stream;
    int but; /* a gradient that this network does not use; -1: none */
};

struct net_options {
    struct ddp_model_opts opts;
    bool owns;              /* gradients are the program's */
    int but;                /* see struct net */
    int bad_step, bad_rank; /* where a gradient of that rank is not finite; steps from 1 on */
    int plain_step;         /* made without the graph, in the midst of the others */
};

static inline size_t bytes_of(int i)
{
    return shapes[i].count * ddp_dtype_size(shapes[i].dtype);
}

/* Numbers of about 1, the same in each type. */
static inline void fill(void *at, int i, int seed)
{
    for (size_t k = 0; k < shapes[i].count; k++)
        gpu_put(at, shapes[i].dtype, k, 1 + (double)((k * 31 + (size_t)seed * 17) % 64) / 64);
}

static inline void open_net(struct net *n, int rank, const struct net_options *options)
{
    static char values[MOST * 8];
    struct ddp_model_opts opts = options->opts;
    *n = (struct net){.g = gpu_rank_init(rank), .rank = rank, .but = options->but};
    opts.bucket_bytes = 16 << 10;
    GPU_CHECK(rank, cudaStreamCreate(&n->stream));
    for (int i = 0; i < N_TENSORS; i++) {
        const size_t bytes = bytes_of(i);
        void *param = malloc(bytes);
        fill(param, i, rank);
        fill(values, i, rank);
        n->cpu[i] = (struct ddp_tensor){"t", param, NULL, shapes[i].count, shapes[i].dtype};
        n->gpu[i] = n->cpu[i];
        n->gpu[i].param = gpu_copy_of(rank, values, bytes, n->stream);
        n->in[i] = gpu_memory(rank, bytes);
        n->cpu[i].grad = options->owns ? malloc(bytes) : NULL;
        n->gpu[i].grad = options->owns ? gpu_memory(rank, bytes) : NULL;
    }
    struct ddp_model_opts on_cpus = opts;
    on_cpus.nccl_memory = false;
    RANK_CHECK(rank, ddp_model_create(n->g, n->cpu, N_TENSORS, &on_cpus, &n->cpu_model) == 0,
               "CPU");
    opts.stream = n->stream;
    RANK_CHECK(rank, ddp_model_create(n->g, n->gpu, N_TENSORS, &opts, &n->gpu_model) == 0, "GPU");
}

/* The input of a step; on the GPU after the queued work. */
static inline void put_batch(struct net *n, const struct net_options *options, int step)
{
    static char values[MOST * 8];
    for (int i = 0; i < N_TENSORS; i++) {
        fill(values, i, n->rank * 7 + step);
        if (i == 2 && step == options->bad_step && n->rank == options->bad_rank)
            memcpy(values + 4 * (MOST - 3), &(float){HUGE_VALF}, 4);
        GPU_CHECK(n->rank, cudaMemcpyAsync(n->in[i], values, bytes_of(i), cudaMemcpyHostToDevice,
                                           n->stream));
        if (i != n->but)
            memcpy(n->cpu[i].grad, values, bytes_of(i));
    }
}

static inline void run_backward(struct net *n)
{
    for (int i = N_TENSORS; i-- > 0;) {
        if (i == n->but)
            continue;
        GPU_CHECK(n->rank, cudaMemcpyAsync(n->gpu[i].grad, n->in[i], bytes_of(i),
                                           cudaMemcpyDeviceToDevice, n->stream));
        RANK_CHECK(n->rank, ddp_model_ready(n->gpu_model, (size_t)i) == 0, "ready on the GPU");
    }
}

static inline int run_cpu_step(struct net *n)
{
    for (int i = N_TENSORS; i-- > 0;)
        if (i != n->but)
            RANK_CHECK(n->rank, ddp_model_ready(n->cpu_model, (size_t)i) == 0, "ready");
    return ddp_model_sync(n->cpu_model);
}

static inline void begin_capture(const struct net *n)
{
    GPU_CHECK(n->rank, cudaStreamBeginCapture(n->stream, cudaStreamCaptureModeGlobal));
}

static inline cudaGraphExec_t end_capture(const struct net *n)
{
    return gpu_end_capture(n->rank, n->stream);
}

static inline cudaGraphExec_t capture(struct net *n)
{
    struct ddp_model_stats before, after;
    ddp_model_get_stats(n->gpu_model, &before);
    begin_capture(n);
    run_backward(n);
    RANK_CHECK(n->rank, ddp_model_sync(n->gpu_model) == 0, "%s", ddp_last_error());
    cudaGraphExec_t exec = end_capture(n);
    ddp_model_get_stats(n->gpu_model, &after);
    RANK_CHECK(n->rank, before.n_steps == after.n_steps, "a capture is no step");
    return exec;
}

static inline int replay(struct net *n, cudaGraphExec_t exec)
{
    GPU_CHECK(n->rank, cudaGraphLaunch(exec, n->stream));
    return ddp_model_replayed(n->gpu_model);
}

static inline int run_plain(struct net *n)
{
    run_backward(n);
    return ddp_model_sync(n->gpu_model);
}

static inline void compare(const struct net *n, const char *what)
{
    static char got[MOST * 8];
    gpu_wait(n->rank, n->g, n->stream);
    for (int i = 0; i < N_TENSORS; i++) {
        GPU_CHECK(n->rank, cudaMemcpy(got, n->gpu[i].grad, bytes_of(i), cudaMemcpyDeviceToHost));
        RANK_CHECK(n->rank, memcmp(got, n->cpu[i].grad, bytes_of(i)) == 0, "%s: %d", what, i);
    }
}

/* The same answer of both, with the same words. */
static inline void expect_alike(const struct net *n, int gpu, const char *gpu_text, int cpu)
{
    RANK_CHECK(n->rank, gpu == cpu, "%d on the GPU [%s], %d on the CPU", gpu, gpu_text, cpu);
    RANK_CHECK(n->rank, gpu == 0 || strcmp(gpu_text, ddp_last_error()) == 0, "%s", gpu_text);
    RANK_CHECK(n->rank, ddp_model_found_inf(n->gpu_model) == ddp_model_found_inf(n->cpu_model),
               "found_inf");
    for (size_t i = 0; i < N_TENSORS; i++)
        RANK_CHECK(n->rank,
                   ddp_model_is_used(n->gpu_model, i) == ddp_model_is_used(n->cpu_model, i),
                   "is %zu used?", i);
}

static inline void run_both(struct net *n, const struct net_options *options, int step,
                            cudaGraphExec_t exec)
{
    char text[512];
    n->but = step == options->plain_step ? -1 : options->but;
    put_batch(n, options, step);
    const int gpu = exec != NULL && step != options->plain_step ? replay(n, exec) : run_plain(n);
    snprintf(text, sizeof text, "%s", ddp_last_error());
    expect_alike(n, gpu, text, run_cpu_step(n));
    RANK_CHECK(n->rank, (gpu == 0) == (!options->opts.check_finite || step != options->bad_step),
               "step %d: %d [%s]", step, gpu, text);
    if (gpu == 0) /* else gradients are undefined */
        compare(n, exec != NULL ? "a replay" : "a plain step");
}

#endif
