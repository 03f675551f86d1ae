/* zero_memory.c - how much memory does AdamW's state take on a rank, whole and sharded over the
 * ranks?
 *
 *     zero_memory [RANKS [MIB]]     by default 1 to 4 ranks and parameters of 64 MiB
 *
 * Prints a row for each number of ranks: the growth of a rank's private memory (RssAnon) from
 * before the optimizer is created until after its first step, the largest of all ranks. With one
 * rank the gradients' row is also private memory. */
#include <ddp/ddp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct bench {
    size_t count;
    bool sharded;
    double grown_mib; /* shared with rank 0 */
};

static double private_mib(void)
{
    char line[256];
    double kib = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "RssAnon: %lf", &kib) == 1)
            break;
    if (status != NULL)
        fclose(status);
    return kib / 1024;
}

static int step_sharded(struct ddp_group *g, struct ddp_tensor *t)
{
    const struct ddp_zero_opts opts = {.optimizer = DDP_ADAMW, .lr = 1e-3};
    struct ddp_zero *z;
    int rc = ddp_zero_create(g, t, 1, &opts, &z);
    return rc == 0 ? ddp_zero_step(z, NULL, NULL) : rc;
}

/* AdamW without sharding: every rank holds the whole state. */
static int step_whole(struct ddp_group *g, struct ddp_tensor *t)
{
    struct ddp_model *m;
    float *param = t->param, *mean = calloc(t->count, sizeof *mean);
    float *square = calloc(t->count, sizeof *square);
    int rc = mean != NULL && square != NULL ? ddp_model_create(g, t, 1, NULL, &m) : DDP_ENOMEM;
    if (rc == 0)
        rc = ddp_model_sync(m);
    const float *grad = t->grad;
    for (size_t i = 0; rc == 0 && i < t->count; i++) {
        mean[i] = 0.1f * grad[i];
        square[i] = 0.001f * grad[i] * grad[i];
        param[i] -= 1e-3f * mean[i] / (sqrtf(square[i]) + 1e-8f);
    }
    return rc; /* the memory is measured, and exit frees it */
}

static int measure(struct ddp_group *g, void *arg)
{
    struct bench *b = arg;
    struct ddp_tensor t = {.name = "parameters", .count = b->count, .dtype = DDP_FLOAT32};
    void *grad;
    int rc = ddp_alloc(g, b->count * sizeof(float), &grad); /* shared memory, not private */
    t.param = malloc(b->count * sizeof(float));
    if (rc != 0 || t.param == NULL)
        return rc != 0 ? rc : DDP_ENOMEM;
    t.grad = grad;
    for (size_t i = 0; i < b->count; i++)
        ((float *)t.param)[i] = ((float *)t.grad)[i] = 1;
    const double before = private_mib();
    rc = b->sharded ? step_sharded(g, &t) : step_whole(g, &t);
    double grown = private_mib() - before;
    if (rc == 0)
        rc = ddp_all_reduce(g, &grown, &grown, 1, DDP_FLOAT64, DDP_MAX, NULL);
    if (ddp_rank(g) == 0)
        b->grown_mib = grown;
    return rc;
}

static double run(struct bench *b, int n, bool sharded)
{
    b->sharded = sharded;
    if (ddp_spawn(measure, n, b) != 0)
        ddp_fatal("zero_memory");
    return b->grown_mib;
}

int main(int argc, char **argv)
{
    const int most = argc > 1 ? atoi(argv[1]) : 4, mib = argc > 2 ? atoi(argv[2]) : 64;
    if (argc > 3 || most < 1 || most > 64 || mib < 1 || mib > 65536) {
        fprintf(stderr, "usage: zero_memory [RANKS [MIB]]\n");
        return 2;
    }
    struct bench *b =
        mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED)
        return 1;
    b->count = ((size_t)mib << 20) / sizeof(float);
    printf("AdamW's state of %d MiB of parameters, on each rank\n%6s %10s %10s %8s\n", mib, "ranks",
           "whole", "sharded", "ratio");
    for (int n = 1; n <= most; n++) {
        const double whole = run(b, n, false), sharded = run(b, n, true);
        printf("%6d %6.1f MiB %6.1f MiB %8.3f\n", n, whole, sharded, sharded / whole);
    }
    return 0;
}
