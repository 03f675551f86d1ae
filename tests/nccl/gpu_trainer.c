/* gpu_trainer - a training program on GPUs, for schedules.py: ddp_run(), so many steps, and in each
 * an all_reduce on the GPU whose result is known. Its ranks die, hang and fail as the double's
 * faults say; whoever comes to the end says which steps it counted, and that all sums were right.
 *
 *   gpu_trainer STEPS
 *
 * exit status   0; 3 a wrong sum; else as ddp_fatal() */
#include <cuda_runtime_api.h>
#include <ddp/ddp.h>
#include <ddp/device.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 3000, WRONG = 3 };

struct training {
    int n_steps;
    cudaStream_t stream;
    int32_t *gpu, *host;
    float param, grad;
    int32_t done; /* steps: registered, so that all ranks know it after a recovery */
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
    t->host = malloc(COUNT * sizeof *t->host);
    return result == cudaSuccess && t->host != NULL ? 0 : cuda_failed("memory", result);
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

static int step(struct ddp_group *g, struct training *t, struct ddp_model *m)
{
    int rc = put_values(g, t);
    if (rc == 0)
        rc = ddp_all_reduce(g, t->gpu, t->gpu, COUNT, DDP_INT32, DDP_SUM, t->stream);
    if (rc == 0)
        rc = ddp_stream_wait(g, t->stream, 0);
    if (rc == 0)
        rc = check_values(g, t);
    t->grad = 1;
    return rc == 0 ? ddp_model_sync(m) : rc;
}

static int train(struct ddp_group *g, void *arg)
{
    struct training *t = arg;
    struct ddp_tensor tensor = {"param", &t->param, &t->grad, 1, DDP_FLOAT32};
    struct ddp_model *m;
    int rc = ddp_state_add(g, "done", &t->done, sizeof t->done);
    if (rc == 0)
        rc = ddp_model_create(g, &tensor, 1, NULL, &m);
    if (rc == 0)
        rc = open_gpu(g, t);
    while (rc == 0 && t->done < t->n_steps) {
        rc = step(g, t, m);
        if (rc == 0) {
            t->param += t->grad;
            t->done++;
        }
    }
    if (rc == 0 && t->param != (float)t->n_steps) {
        printf("WRONG: %g steps were counted\n", (double)t->param);
        exit(WRONG);
    }
    if (rc == 0)
        ddp_log0(g, "done: %d steps, %d ranks, generation %llu\n", t->done, ddp_world_size(g),
                 (unsigned long long)ddp_generation(g));
    return rc;
}

int main(int argc, char **argv)
{
    struct training t = {.n_steps = argc > 1 ? atoi(argv[1]) : 10};
    if (ddp_run(train, &t) != 0)
        ddp_fatal("train");
    return EXIT_SUCCESS;
}
