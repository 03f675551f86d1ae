/* gpu_capture.c - measurements for bench/gpu that need a GPU: collectives in a CUDA graph, and how
 * much memory each step of a start takes.
 *
 *     gpu_capture graph REPEATS     "CALLS STREAM_US GRAPH_US": medians for CALLS all_reduces of
 *                                   1 MiB, out of place, enqueued on a stream one by one, and
 *                                   replayed as a captured graph
 *     gpu_capture memory            a line "WHAT BYTES" for each step */
#include "gpu_timing.h"

#include <cuda_runtime_api.h>
#include <ddp/ddp.h>
#include <ddp/device.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 16, COUNT = 1 << 18, MODEL_COUNT = 25 << 20 };

/* --- a graph ---------------------------------------------------------------------------------- */

struct work {
    struct ddp_group *g;
    cudaStream_t stream;
    float *at[2]; /* COUNT each, on the GPU: a single rank has nothing to do in place */
    cudaGraphExec_t graph;
};

static void put_calls(struct work *w)
{
    for (int i = 0; i < CALLS; i++)
        check(ddp_all_reduce(w->g, w->at[i % 2], w->at[(i + 1) % 2], COUNT, DDP_FLOAT32, DDP_SUM,
                             w->stream),
              "ddp_all_reduce");
}

static void launch_graph(struct work *w)
{
    check_cuda(cudaGraphLaunch(w->graph, w->stream), "cudaGraphLaunch");
}

static void capture(struct work *w)
{
    cudaGraph_t graph;

    check_cuda(cudaStreamBeginCapture(w->stream, cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
    put_calls(w);
    check_cuda(cudaStreamEndCapture(w->stream, &graph), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&w->graph, graph, 0), "cudaGraphInstantiate");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

/* Ones, summed over n ranks CALLS times, are n to the power of CALLS. */
static void expect_sums(struct work *w)
{
    static float ones[COUNT], got[COUNT];
    float want = 1;

    for (int i = 0; i < CALLS; i++)
        want *= (float)ddp_world_size(w->g);
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1;
    check_cuda(cudaMemcpyAsync(w->at[0], ones, sizeof ones, cudaMemcpyHostToDevice, w->stream),
               "ones");
    check_cuda(cudaMemsetAsync(w->at[1], 0, sizeof ones, w->stream), "zeros");
    launch_graph(w);
    check(ddp_stream_wait(w->g, w->stream, 0), "ddp_stream_wait");
    check_cuda(cudaMemcpy(got, w->at[CALLS % 2], sizeof got, cudaMemcpyDeviceToHost), "sums");
    for (int i = 0; i < COUNT; i++)
        if (got[i] != want) {
            fprintf(stderr, "gpu_capture: a graph gives %g, not %g\n", (double)got[i],
                    (double)want);
            exit(EXIT_FAILURE);
        }
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median_us(struct work *w, void (*run)(struct work *w), int repeats)
{
    double *took = calloc((size_t)repeats, sizeof *took);

    if (took == NULL)
        exit(EXIT_FAILURE);
    for (int i = 0; i < repeats; i++) {
        const double began = now_us();
        run(w);
        check(ddp_stream_wait(w->g, w->stream, 0), "ddp_stream_wait");
        took[i] = now_us() - began;
    }
    qsort(took, (size_t)repeats, sizeof *took, compare);
    const double median = took[repeats / 2];
    free(took);
    return median;
}

static int graph(struct ddp_group *g, int repeats)
{
    struct work w = {.g = g};

    check_cuda(cudaStreamCreateWithFlags(&w.stream, cudaStreamNonBlocking), "a stream");
    for (int i = 0; i < 2; i++) {
        check_cuda(cudaMalloc((void **)&w.at[i], COUNT * sizeof *w.at[i]), "memory");
        check_cuda(cudaMemsetAsync(w.at[i], 0, COUNT * sizeof *w.at[i], w.stream), "memory");
    }
    put_calls(&w); /* NCCL connects its ranks now, not during the capture */
    check(ddp_stream_wait(g, w.stream, 0), "ddp_stream_wait");
    capture(&w);
    expect_sums(&w);
    const double one_by_one = median_us(&w, put_calls, repeats);
    ddp_log0(g, "%d %.2f %.2f\n", CALLS, one_by_one, median_us(&w, launch_graph, repeats));
    check_cuda(cudaGraphExecDestroy(w.graph), "cudaGraphExecDestroy"); /* NCCL waits for it */
    check_cuda(cudaFree(w.at[0]), "memory");
    check_cuda(cudaFree(w.at[1]), "memory");
    check_cuda(cudaStreamDestroy(w.stream), "a stream");
    return 0;
}

/* --- memory ----------------------------------------------------------------------------------- */

static void tell_memory(struct ddp_group *g, const char *what, size_t *before)
{
    size_t now, all;

    check_cuda(cudaMemGetInfo(&now, &all), "cudaMemGetInfo");
    if (what != NULL)
        ddp_log0(g, "%s %lld\n", what, (long long)*before - (long long)now);
    *before = now;
}

static int memory(struct ddp_group *g)
{
    size_t left;
    void *comm;
    cudaStream_t stream;
    struct ddp_model *m;
    struct ddp_tensor t = {.name = "t", .count = MODEL_COUNT, .dtype = DDP_FLOAT32};

    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    tell_memory(g, NULL, &left);
    check(ddp_nccl_comm(g, &comm), "ddp_nccl_comm");
    tell_memory(g, "communicator", &left);
    check_cuda(cudaMalloc(&t.param, MODEL_COUNT * sizeof(float)), "memory");
    check_cuda(cudaMemsetAsync(t.param, 0, MODEL_COUNT * sizeof(float), stream), "memory");
    tell_memory(g, "parameters", &left);
    const struct ddp_model_opts opts = {.stream = stream};
    check(ddp_model_create(g, &t, 1, &opts, &m), "ddp_model_create");
    tell_memory(g, "model", &left);
    check(ddp_model_sync(m), "ddp_model_sync");
    tell_memory(g, "first_step", &left);
    return 0;
}

int main(int argc, char **argv)
{
    const bool is_memory = argc == 2 && strcmp(argv[1], "memory") == 0;
    const bool is_graph = argc == 3 && strcmp(argv[1], "graph") == 0 && atoi(argv[2]) > 0;
    struct ddp_group *g;
    int index;

    if (!is_memory && !is_graph) {
        fputs("usage: gpu_capture graph REPEATS | memory\n", stderr);
        return 2;
    }
    check(ddp_init(NULL, &g), "ddp_init");
    check(ddp_device(g, &index), "ddp_device");
    const int rc = is_memory ? memory(g) : graph(g, atoi(argv[2]));
    ddp_finalize(g);
    return rc;
}
