/* dataparallel.c - one process, several devices: what PyTorch's DataParallel is for.
 *
 *     dataparallel [DEVICES]            default: 2
 *
 * Here a device is a thread; where each had a GPU nothing else would change. For each device there
 * is a copy of the network (replicate). Each batch is dealt out (scatter), each device computes
 * gradients of its part, and the average makes the same step on all. In the end the test images are
 * dealt out, and the answers brought together (gather). */
#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convnet.h"
#include "digits.h"
#include "sgd.h"

enum { N_TRAIN = 2400, N_TEST = 800, BATCH = 80, EPOCHS = 3, MOST_DEVICES = 16 };

struct part {
    uint8_t *pixels, *labels; /* owned */
};

struct job { /* seen by all devices: one memory */
    struct part train, test;
    uint8_t is_right[N_TEST];
};

static int draw(struct part *p, uint64_t seed, size_t n)
{
    p->pixels = malloc(n * CONVNET_PIXELS);
    p->labels = malloc(n);
    for (size_t i = 0; p->pixels != NULL && p->labels != NULL && i < n; i++)
        p->labels[i] = digits_draw(seed, i, p->pixels + i * CONVNET_PIXELS);
    return p->pixels != NULL && p->labels != NULL ? 0 : -1;
}

static struct convnet_images images_of(const struct part *p)
{
    return (struct convnet_images){.pixels = p->pixels, .labels = p->labels};
}

static int train_epochs(struct ddp_group *g, const struct job *job, struct convnet *net,
                        struct ddp_model *m, struct sgd *sgd)
{
    const struct convnet_images images = images_of(&job->train);
    const struct ddp_sampler_opts order = {.n = N_TRAIN, .seed = 1, .shuffle = true};
    const size_t share = (size_t)(BATCH / ddp_world_size(g));
    struct ddp_sampler *s;
    const int64_t *index;
    int rc = ddp_sampler_create(g, &order, &s);

    while (rc == 0 && ddp_sampler_next_epoch(s, EPOCHS)) {
        double loss = 0;
        int n_steps = 0;
        for (size_t n; (n = ddp_sampler_next(s, share, &index)) > 0; n_steps++) { /* scatter */
            loss += convnet_forward(net, &images, index, n);
            convnet_backward(net, m);
            if ((rc = ddp_model_sync(m)) != 0)
                return rc;
            sgd_step(sgd, net->tensors, net->n_tensors);
        }
        loss /= n_steps;
        if ((rc = ddp_mean(g, &loss, 1)) == 0)
            ddp_log0(g, "epoch %lld: loss %.4f\n", (long long)ddp_sampler_epoch(s) + 1, loss);
    }
    return rc;
}

/* Each device takes its share of the images, and the first one gets all answers. */
static int infer(struct ddp_group *g, struct job *job, struct convnet *net)
{
    const struct convnet_images images = images_of(&job->test);
    size_t counts[MOST_DEVICES];
    uint8_t own[N_TEST];

    for (int r = 0; r < ddp_world_size(g); r++) { /* even shares */
        const int64_t n = ddp_world_size(g);
        counts[r] = (size_t)(N_TEST * (r + 1) / n - N_TEST * r / n);
    }
    size_t first = 0;
    for (int r = 0; r < ddp_rank(g); r++)
        first += counts[r];
    for (size_t i = 0; i < counts[ddp_rank(g)]; i++)
        own[i] = (uint8_t)convnet_count_right(net, &images, first + i, 1);
    return ddp_gather_v(g, own, job->is_right, counts, DDP_UINT8, 0, NULL);
}

static int work(struct ddp_group *g, void *arg)
{
    const struct convnet_opts shape = {.batch_norm = true, .max_batch = BATCH, .seed = 1};
    struct job *job = arg;
    struct convnet *net = NULL;
    struct ddp_model *m;
    struct sgd sgd = {0};
    int rc = DDP_ENOMEM;

    if (convnet_create(&shape, &net) == 0 &&
        sgd_init(&sgd, 0.01, 0.9, net->tensors, net->n_tensors) == 0)
        rc = ddp_model_create(g, net->tensors, net->n_tensors, NULL, &m); /* replicate */
    if (rc == 0)
        rc = train_epochs(g, job, net, m, &sgd);
    if (rc == 0)
        rc = infer(g, job, net);
    sgd_fini(&sgd);
    convnet_destroy(net);
    return rc;
}

static void report(const struct job *job, int n)
{
    size_t n_right = 0;

    for (size_t i = 0; i < N_TEST; i++)
        n_right += job->is_right[i];
    printf("%d device%s: %.2f %% of %d test images are right\n", n, n > 1 ? "s" : "",
           100.0 * (double)n_right / N_TEST, N_TEST);
}

int main(int argc, char **argv)
{
    static struct job job;
    const int n = argc > 1 ? atoi(argv[1]) : 2;

    if (argc > 2 || n < 1 || n > MOST_DEVICES || BATCH % n != 0) {
        fprintf(stderr, "usage: dataparallel [DEVICES]: up to %d that divide %d\n", MOST_DEVICES,
                BATCH);
        return 2;
    }
    if (draw(&job.train, 1, N_TRAIN) < 0 || draw(&job.test, 2, N_TEST) < 0) {
        fprintf(stderr, "dataparallel: out of memory\n");
        return 1;
    }
    if (ddp_spawn_threads(work, n, &job) != 0)
        ddp_fatal("dataparallel");
    report(&job, n);
    free(job.train.pixels);
    free(job.train.labels);
    free(job.test.pixels);
    free(job.test.labels);
    return 0;
}
