/* bench_1_vs_n.c - what do more workers bring? The table of the tutorials, for this machine.
 *
 *     bench_1_vs_n [WORKERS [STEPS]]     default: up to 2 workers, 60 steps
 *
 * The same training, with the same batch, on 1, 2, ... processes (DistributedDataParallel's way);
 * then the same images looked at by 1, 2, ... threads (DataParallel's). Times are those of the
 * slowest worker, without its start; memory is the most that a worker has had. */
#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "convnet.h"
#include "digits.h"
#include "sgd.h"

enum { BATCH = 96, N_IMAGES = 960, MOST_WORKERS = 64 };

struct bench { /* shared by all processes */
    int n_steps;
    double seconds, memory_mb; /* written by rank 0 */
    uint8_t pixels[N_IMAGES * CONVNET_PIXELS], labels[N_IMAGES];
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double memory_mb(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)used.ru_maxrss / 1024;
}

static struct convnet_images images_of(const struct bench *b)
{
    return (struct convnet_images){.pixels = b->pixels, .labels = b->labels};
}

/* What the worst of the workers needed. */
static int report(struct ddp_group *g, struct bench *b, double seconds)
{
    double most[2] = {seconds, memory_mb()};
    int rc = ddp_all_reduce(g, most, most, 2, DDP_FLOAT64, DDP_MAX, NULL);

    if (rc == 0 && ddp_rank(g) == 0) {
        b->seconds = most[0];
        b->memory_mb = most[1];
    }
    return rc;
}

static int make_net(struct convnet **ret_net)
{
    const struct convnet_opts shape = {.batch_norm = true, .max_batch = BATCH, .seed = 1};

    return convnet_create(&shape, ret_net) < 0 ? DDP_ENOMEM : 0;
}

/* Image i of the batch of a step; each worker takes every n-th. */
static size_t take_batch(const struct ddp_group *g, int step, int64_t *index)
{
    size_t n = 0;

    for (int i = ddp_rank(g); i < BATCH; i += ddp_world_size(g))
        index[n++] = ((int64_t)step * BATCH + i) % N_IMAGES;
    return n;
}

static int train_steps(struct ddp_group *g, struct bench *b, struct convnet *net, struct sgd *sgd)
{
    const struct convnet_images images = images_of(b);
    struct ddp_model *m;
    int64_t index[BATCH];
    double began = 0;
    int rc = ddp_model_create(g, net->tensors, net->n_tensors, NULL, &m);

    for (int step = -2; rc == 0 && step < b->n_steps; step++) { /* two to warm up */
        if (step == 0)
            began = now();
        convnet_forward(net, &images, index, take_batch(g, step + 2, index));
        convnet_backward(net, m);
        if ((rc = ddp_model_sync(m)) == 0)
            sgd_step(sgd, net->tensors, net->n_tensors);
    }
    return rc == 0 ? report(g, b, now() - began) : rc;
}

static int train(struct ddp_group *g, void *arg)
{
    struct convnet *net;
    struct sgd sgd = {0};
    int rc = make_net(&net);

    if (rc != 0)
        return rc;
    rc = sgd_init(&sgd, 0.01, 0.9, net->tensors, net->n_tensors) < 0 ? DDP_ENOMEM : 0;
    if (rc == 0)
        rc = train_steps(g, arg, net, &sgd);
    sgd_fini(&sgd);
    convnet_destroy(net);
    return rc;
}

static int infer(struct ddp_group *g, void *arg)
{
    struct bench *b = arg;
    const struct convnet_images images = images_of(b);
    struct convnet *net;
    int64_t first, end;
    int rc = make_net(&net);

    if (rc != 0)
        return rc;
    ddp_shard_range(g, BATCH, &first, &end);
    rc = ddp_barrier(g);
    const double began = now();
    for (int step = 0; step < b->n_steps; step++)
        convnet_count_right(net, &images, (size_t)first, (size_t)(end - first));
    if (rc == 0)
        rc = report(g, b, now() - began);
    convnet_destroy(net);
    return rc;
}

static void print_table(struct bench *b, const char *title, int most, bool threads)
{
    double alone = 0;

    printf("%s\n%8s %10s %10s %9s %12s\n", title, "workers", "time", "images/s", "speed-up",
           threads ? "memory" : "memory each");
    for (int n = 1; n <= most; n++) {
        int rc = threads ? ddp_spawn_threads(infer, n, b) : ddp_spawn(train, n, b);
        if (rc != 0)
            ddp_fatal(title);
        alone = n == 1 ? b->seconds : alone;
        printf("%8d %8.2f s %10.0f %8.2fx %9.0f MB\n", n, b->seconds,
               (double)b->n_steps * BATCH / b->seconds, alone / b->seconds, b->memory_mb);
    }
}

int main(int argc, char **argv)
{
    const int most = argc > 1 ? atoi(argv[1]) : 2, n_steps = argc > 2 ? atoi(argv[2]) : 60;

    if (argc > 3 || most < 1 || most > MOST_WORKERS || n_steps < 1) {
        fprintf(stderr, "usage: bench_1_vs_n [WORKERS [STEPS]], 1 to %d workers\n", MOST_WORKERS);
        return 2;
    }
    struct bench *b =
        mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED) {
        fprintf(stderr, "bench_1_vs_n: out of memory\n");
        return 1;
    }
    b->n_steps = n_steps;
    for (size_t i = 0; i < N_IMAGES; i++)
        b->labels[i] = digits_draw(1, i, b->pixels + i * CONVNET_PIXELS);
    print_table(b, "training, a process for each worker", most, false);
    print_table(b, "inference, a thread for each worker", most, true);
    munmap(b, sizeof(*b));
    return 0;
}
