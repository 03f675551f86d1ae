/* gpu_trainer - a training program on GPUs, for schedules.py: ddp_run(), so many steps, and in each
 * a batch, an all_reduce and a model on the GPU whose results are known. Its ranks die, hang and
 * fail as the double's faults specify; a rank that reaches the end reports which steps it counted
 * and that all sums were right.
 *
 *   gpu_trainer STEPS [graph|late-graph]
 *
 *   graph   the model's steps but the first of each generation are replayed from a CUDA graph
 *   late-graph   the same, and a graph is destroyed too late: in the next generation
 *
 * exit status   0; 3 a wrong sum; else as ddp_fatal() */
#include <cuda_runtime_api.h>
#include <ddp/ddp.h>
#include <ddp/device.h>
#include <ddp/loader.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 3000, WRONG = 3, SAMPLES = 1000, BATCH = 5 };

struct training {
    int n_steps;
    cudaStream_t stream;
    int32_t *gpu, *host;
    float *param; /* on the GPU: how many steps were counted */
    float *grad;  /* of the library's: for the life of the process */
    bool uses_graph, keeps_graph;
    float *own;            /* of the host, pinned: what a graph takes as this rank's gradient */
    cudaGraphExec_t graph; /* of the generation; NULL */
    cudaGraphExec_t kept;  /* of the one before; NULL */
    struct ddp_dataset *samples; /* each is its own number, as a byte */
    struct ddp_loader *loader;   /* the group's */
    struct ddp_batch batch;      /* on the GPU */
    int32_t done;                /* steps: registered, so that all ranks know it after a recovery */
};

static int cuda_failed(const char *what, cudaError_t result)
{
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
    return DDP_ESYSTEM;
}

static int open_gpu(struct ddp_group *g, struct training *t)
{
    int index;
    int rc = ddp_device(g, &index);
    if (rc != 0 || t->stream != NULL)
        return rc;
    cudaError_t result = cudaStreamCreate(&t->stream);
    if (result == cudaSuccess)
        result = cudaMalloc((void **)&t->gpu, COUNT * sizeof *t->gpu);
    if (result == cudaSuccess)
        result = cudaMalloc((void **)&t->param, sizeof *t->param);
    if (result == cudaSuccess)
        result = cudaHostAlloc((void **)&t->own, sizeof *t->own, cudaHostAllocDefault);
    if (result == cudaSuccess)
        result = cudaMemsetAsync(t->param, 0, sizeof *t->param, t->stream);
    t->host = malloc(COUNT * sizeof *t->host);
    return result == cudaSuccess && t->host != NULL ? 0 : cuda_failed("memory", result);
}

/* A file that has gone when it is open. */
static int open_samples(struct training *t)
{
    static const unsigned char head[] = {0, 0, 8, 1, 0, 0, SAMPLES >> 8, SAMPLES & 255};
    char path[] = "/tmp/gpu_trainer.XXXXXX";
    const int fd = mkstemp(path);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (f == NULL)
        return DDP_ESYSTEM;
    fwrite(head, 1, sizeof head, f);
    for (int i = 0; i < SAMPLES; i++)
        fputc(i & 255, f);
    fclose(f);
    int rc = ddp_idx_open(path, &t->samples);
    unlink(path);
    return rc;
}

/* The sampler knows the way back into the epoch, wherever a rank died. */
static int open_loader(struct ddp_group *g, struct training *t)
{
    const struct ddp_sampler_opts order = {.n = SAMPLES, .seed = 1, .shuffle = true};
    struct ddp_sampler *s;
    int rc = t->samples == NULL ? open_samples(t) : 0;
    const struct ddp_loader_opts opts = {
        .datasets = {t->samples}, .n_datasets = 1, .batch = BATCH, .stream = t->stream};
    if (rc == 0)
        rc = ddp_sampler_create(g, &order, &s);
    if (rc == 0)
        rc = ddp_loader_create(s, &opts, &t->loader);
    if (rc == 0)
        ddp_sampler_next_epoch(s, 1);
    return rc;
}

/* Each rank gives its number + 1 everywhere, in the stream's order. */
static int put_values(struct ddp_group *g, struct training *t)
{
    for (int i = 0; i < COUNT; i++)
        t->host[i] = ddp_rank(g) + 1;
    const cudaError_t result =
        cudaMemcpyAsync(t->gpu, t->host, COUNT * sizeof *t->gpu, cudaMemcpyHostToDevice, t->stream);
    return result == cudaSuccess ? 0 : cuda_failed("copy to the GPU", result);
}

/* The batch is the file's. Nothing of NCCL is on the stream: CUDA's own waits end. */
static int check_batch(struct training *t)
{
    unsigned char got[BATCH];
    const cudaError_t result =
        cudaMemcpy(got, t->batch.data[0], t->batch.n, cudaMemcpyDeviceToHost);
    if (result != cudaSuccess)
        return cuda_failed("a batch from the GPU", result);
    for (size_t i = 0; i < t->batch.n; i++)
        if (got[i] != (t->batch.index[i] & 255)) {
            printf("WRONG: step %d, sample %lld is %d\n", t->done, (long long)t->batch.index[i],
                   got[i]);
            exit(WRONG);
        }
    return 0;
}

static int check_values(struct ddp_group *g, struct training *t)
{
    const int n = ddp_world_size(g);
    const cudaError_t result =
        cudaMemcpy(t->host, t->gpu, COUNT * sizeof *t->gpu, cudaMemcpyDeviceToHost);
    if (result != cudaSuccess)
        return cuda_failed("copy from the GPU", result);
    for (int i = 0; i < COUNT; i++)
        if (t->host[i] != n * (n + 1) / 2) {
            printf("WRONG: step %d, rank %d of %d: %d\n", t->done, ddp_rank(g), n, t->host[i]);
            exit(WRONG);
        }
    return 0;
}

static int put(struct training *t, float *at, float value)
{
    const cudaError_t result =
        cudaMemcpyAsync(at, &value, sizeof value, cudaMemcpyHostToDevice, t->stream);
    return result == cudaSuccess ? 0 : cuda_failed("copy to the GPU", result);
}

/* Nothing of NCCL is on the stream by then. */
static int get(struct training *t, const float *at, float *ret)
{
    cudaError_t result = cudaMemcpyAsync(ret, at, sizeof *ret, cudaMemcpyDeviceToHost, t->stream);
    if (result == cudaSuccess)
        result = cudaStreamSynchronize(t->stream);
    return result == cudaSuccess ? 0 : cuda_failed("copy from the GPU", result);
}

static int sum(struct ddp_group *g, struct training *t)
{
    int rc = put_values(g, t);
    if (rc == 0)
        rc = ddp_all_reduce(g, t->gpu, t->gpu, COUNT, DDP_INT32, DDP_SUM, t->stream);
    if (rc == 0)
        rc = ddp_stream_wait(g, t->stream, 0);
    return rc == 0 ? check_values(g, t) : rc;
}

/* A backward pass, plain or into a graph. */
static int put_gradient(struct training *t, struct ddp_model *m)
{
    const cudaError_t result =
        cudaMemcpyAsync(t->grad, t->own, sizeof *t->own, cudaMemcpyHostToDevice, t->stream);
    if (result != cudaSuccess)
        return cuda_failed("copy to the GPU", result);
    int rc = ddp_model_ready(m, 0);
    return rc == 0 ? ddp_model_sync(m) : rc;
}

/* What was begun is ended, whatever failed in it: this may be the end of the generation. */
static int capture(struct training *t, struct ddp_model *m)
{
    cudaGraph_t graph = NULL;
    cudaError_t result = cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal);
    if (result != cudaSuccess)
        return cuda_failed("a capture", result);
    int rc = put_gradient(t, m);
    result = cudaStreamEndCapture(t->stream, &graph);
    if (rc == 0 && result == cudaSuccess)
        result = cudaGraphInstantiate(&t->graph, graph, 0);
    if (graph != NULL)
        cudaGraphDestroy(graph);
    if (rc != 0)
        cudaGetLastError();
    return rc != 0 || result == cudaSuccess ? rc : cuda_failed("a graph", result);
}

static int replay(struct training *t, struct ddp_model *m)
{
    const cudaError_t result = cudaGraphLaunch(t->graph, t->stream);
    return result == cudaSuccess ? ddp_model_replayed(m) : cuda_failed("a launch", result);
}

/* The average of rank + 1 over all ranks shows how many there are. */
static int average(struct ddp_group *g, struct training *t, struct ddp_model *m)
{
    const float want = (float)(ddp_world_size(g) + 1) / 2;
    float got = want;
    *t->own = (float)ddp_rank(g) + 1; /* the step before is over */
    int rc = t->graph != NULL ? replay(t, m) : put_gradient(t, m);
    if (rc == 0)
        rc = get(t, t->grad, &got);
    if (got < want - 0.01F || got > want + 0.01F) {
        printf("WRONG: an average of %g where %g was to be\n", (double)got, (double)want);
        exit(WRONG);
    }
    return rc;
}

static int step(struct ddp_group *g, struct training *t, struct ddp_model *m)
{
    float param;
    int rc = ddp_loader_next(t->loader, &t->batch);
    if (rc == 0)
        rc = sum(g, t);
    if (rc == 0)
        rc = check_batch(t);
    if (rc == 0)
        rc = average(g, t, m);
    if (rc == 0) /* the step counts: parameters may be changed */
        rc = get(t, t->param, &param);
    return rc == 0 ? put(t, t->param, param + 1) : rc;
}

/* By the program and by the library, plain steps and replays. */
static int check_count(struct ddp_group *g, struct training *t)
{
    float param;
    const int counted = (int)ddp_completed_steps(g);
    int rc = get(t, t->param, &param);
    if (rc == 0 && (param != (float)t->n_steps || counted != t->n_steps)) {
        printf("WRONG: %g steps were made, %d were counted\n", (double)param, counted);
        exit(WRONG);
    }
    return rc;
}

static void check_registered(const struct ddp_model *m)
{
    struct ddp_model_stats stats;
    ddp_model_get_stats(m, &stats);
    if (stats.is_registered)
        return;
    printf("WRONG: gradients are not registered: %s\n", stats.unregistered);
    exit(WRONG);
}

static int train(struct ddp_group *g, void *arg)
{
    struct training *t = arg;
    struct ddp_model *m;
    int rc = ddp_state_add(g, "done", &t->done, sizeof t->done);
    if (rc == 0)
        rc = open_gpu(g, t);
    if (rc == 0)
        rc = open_loader(g, t);
    /* of the generation before, if this process was there: another communicator gets to know it */
    struct ddp_tensor tensor = {"param", t->param, t->grad, 1, DDP_FLOAT32};
    const struct ddp_model_opts opts = {.stream = t->stream, .nccl_memory = true};
    if (rc == 0)
        rc = ddp_model_create(g, &tensor, 1, &opts, &m);
    t->grad = tensor.grad;
    if (t->kept != NULL)
        cudaGraphExecDestroy(t->kept);
    t->kept = NULL;
    if (rc == 0 && ddp_world_size(g) > 1)
        check_registered(m);
    while (rc == 0 && t->done < t->n_steps) {
        rc = step(g, t, m);
        t->done += rc == 0;
        if (rc == 0 && t->uses_graph && t->graph == NULL)
            rc = capture(t, m);
    }
    if (t->keeps_graph && rc != 0)
        t->kept = t->graph;
    else if (t->graph != NULL) /* NCCL waits for it with the end of its communicator */
        cudaGraphExecDestroy(t->graph);
    t->graph = NULL;
    if (rc == 0)
        rc = check_count(g, t);
    if (rc == 0)
        ddp_log0(g, "done: %d steps, %d ranks, generation %llu\n", t->done, ddp_world_size(g),
                 (unsigned long long)ddp_generation(g));
    return rc;
}

int main(int argc, char **argv)
{
    struct training t = {.n_steps = argc > 1 ? atoi(argv[1]) : 10,
                         .uses_graph = argc > 2,
                         .keeps_graph = argc > 2 && strcmp(argv[2], "late-graph") == 0};
    if (ddp_run(train, &t) != 0)
        ddp_fatal("train");
    ddp_dataset_close(t.samples);
    return EXIT_SUCCESS;
}
