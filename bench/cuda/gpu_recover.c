/* gpu_recover.c - a training on GPUs of which ranks die, for bench/gpu: each step averages a
 * gradient whose result is known.
 *
 *     ddprun -n N gpu_recover STEPS [graph]
 *
 * With `graph` the steps after the first of a generation are replayed. Events go to GPU_LOG
 * (gpu_log.h): "begin" (generation), "step" (its number), once it counts. Rank 0 prints "done STEPS
 * RANKS GENERATION BYTES", where BYTES is GPU memory in use on the whole device.
 *
 * exit status   0; 3 a wrong average; else as ddp_fatal() */
#include "gpu_log.h"
#include "gpu_timing.h"

#include <ddp/device.h>
#include <math.h>
#include <string.h>

enum { COUNT = 1 << 18, WRONG = 3 };

struct training {
    int n_steps;
    bool uses_graph;
    cudaStream_t stream;
    float *host; /* pinned; COUNT: what this rank gives, then what it gets */
    float *param;
    float *grad; /* the library's; NULL until there is a model */
    cudaGraphExec_t graph;
    int32_t done;
};

static void open_gpu(struct ddp_group *g, struct training *t)
{
    int index;
    check(ddp_device(g, &index), "ddp_device");
    if (t->stream != NULL)
        return;
    check_cuda(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking), "a stream");
    check_cuda(cudaHostAlloc((void **)&t->host, COUNT * sizeof *t->host, cudaHostAllocDefault),
               "pinned memory");
    check_cuda(cudaMalloc((void **)&t->param, COUNT * sizeof *t->param), "memory");
    check_cuda(cudaMemsetAsync(t->param, 0, COUNT * sizeof *t->param, t->stream), "memory");
}

static void put_gradient(struct training *t)
{
    check_cuda(cudaMemcpyAsync(t->grad, t->host, COUNT * sizeof *t->grad, cudaMemcpyHostToDevice,
                               t->stream),
               "a gradient");
}

static int plain_step(struct training *t, struct ddp_model *m)
{
    put_gradient(t);
    const int rc = ddp_model_ready(m, 0);
    return rc == 0 ? ddp_model_sync(m) : rc;
}

static int capture(struct training *t, struct ddp_model *m)
{
    cudaGraph_t graph = NULL;
    check_cuda(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal), "a capture");
    const int rc = plain_step(t, m);
    const cudaError_t result = cudaStreamEndCapture(t->stream, &graph);
    if (rc == 0) {
        check_cuda(result, "a capture");
        check_cuda(cudaGraphInstantiate(&t->graph, graph, 0), "a graph");
    }
    if (graph != NULL)
        cudaGraphDestroy(graph);
    return rc;
}

static int replayed_step(struct training *t, struct ddp_model *m)
{
    check_cuda(cudaGraphLaunch(t->graph, t->stream), "a launch");
    return ddp_model_replayed(m);
}

static void expect_average(const struct ddp_group *g, struct training *t)
{
    const float want = (float)(ddp_world_size(g) + 1) / 2;
    check_cuda(cudaMemcpyAsync(t->host, t->grad, COUNT * sizeof *t->host, cudaMemcpyDeviceToHost,
                               t->stream),
               "averages");
    check_cuda(cudaStreamSynchronize(t->stream), "averages");
    for (int i = 0; i < COUNT; i++)
        if (!(fabsf(t->host[i] - want) <= want * 1e-6F)) {
            fprintf(stderr, "gpu_recover: step %d: value %d is %.9g, not %.9g\n", t->done, i,
                    (double)t->host[i], (double)want);
            _exit(WRONG);
        }
}

static int one_step(struct ddp_group *g, struct training *t, struct ddp_model *m)
{
    for (int i = 0; i < COUNT; i++)
        t->host[i] = (float)ddp_rank(g) + 1;
    const int rc = t->graph != NULL ? replayed_step(t, m) : plain_step(t, m);
    if (rc != 0)
        return rc;
    expect_average(g, t);
    t->done++;
    gpu_log("step", t->done);
    return t->uses_graph && t->graph == NULL ? capture(t, m) : 0;
}

static void report(const struct ddp_group *g, const struct training *t)
{
    size_t free_bytes = 0, all_bytes = 0;
    check_cuda(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
    ddp_log0(g, "done %d %d %llu %zu\n", t->done, ddp_world_size(g),
             (unsigned long long)ddp_generation(g), all_bytes - free_bytes);
}

static int train(struct ddp_group *g, void *arg)
{
    struct training *t = arg;
    struct ddp_model *m;
    gpu_log("begin", (long)ddp_generation(g));
    int rc = ddp_state_add(g, "done", &t->done, sizeof t->done);
    if (rc != 0)
        return rc;
    open_gpu(g, t);
    struct ddp_tensor tensor = {"param", t->param, t->grad, COUNT, DDP_FLOAT32};
    const struct ddp_model_opts opts = {.stream = t->stream};
    rc = ddp_model_create(g, &tensor, 1, &opts, &m);
    t->grad = tensor.grad;
    while (rc == 0 && t->done < t->n_steps)
        rc = one_step(g, t, m);
    if (t->graph != NULL)
        cudaGraphExecDestroy(t->graph); /* NCCL waits for it with the end of its communicator */
    t->graph = NULL;
    if (rc == 0)
        report(g, t);
    return rc;
}

int main(int argc, char **argv)
{
    struct training t = {.n_steps = argc > 1 ? atoi(argv[1]) : 0,
                         .uses_graph = argc == 3 && strcmp(argv[2], "graph") == 0};
    if (t.n_steps <= 0 || argc > 3 || (argc == 3 && !t.uses_graph)) {
        fputs("usage: gpu_recover STEPS [graph]\n", stderr);
        return 2;
    }
    if (ddp_run(train, &t) != 0)
        ddp_fatal("train");
    return 0;
}
