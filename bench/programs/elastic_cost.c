/* elastic_cost - the time of a training step, for bench/elastic_cost.py.
 *
 *     ddprun -n 2 elastic_cost init|run FLOATS STEPS
 *
 * A step: a batch of the sampler, gradients of FLOATS parameters, ddp_model_sync(), momentum. With
 * `init` the program ends when it loses a peer, with `run` it survives the loss. Rank 0 prints the
 * shortest and the median step, in microseconds. */
#include "timing.h"

#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_STEPS = 20, BATCH = 4 };

struct job {
    size_t n;
    int n_steps; /* number of timed steps */
    float *param, *momentum;
    double *us;
};

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int step(struct job *job, const struct ddp_tensor *t, struct ddp_model *m,
                struct ddp_sampler *s)
{
    const int64_t *index;
    float *grad = t->grad;
    const size_t n_batch = ddp_sampler_next(s, BATCH, &index);

    for (size_t i = 0; i < job->n; i++)
        grad[i] = job->param[i] - 1e-6f * (float)index[i % n_batch];
    int rc = ddp_model_sync(m);
    for (size_t i = 0; rc == 0 && i < job->n; i++) {
        job->momentum[i] = 0.9f * job->momentum[i] + grad[i];
        job->param[i] -= 0.01f * job->momentum[i];
    }
    return rc;
}

static int train(struct ddp_group *g, void *arg)
{
    struct job *job = arg;
    struct ddp_tensor t = {.name = "w", .param = job->param, .count = job->n};
    const struct ddp_sampler_opts order = {
        .n = (int64_t)BATCH * (WARM_STEPS + job->n_steps) * ddp_world_size(g), .shuffle = true};
    struct ddp_model *m;
    struct ddp_sampler *s;
    int rc = ddp_state_add(g, "momentum", job->momentum, job->n * sizeof(float));

    if (rc != 0 || (rc = ddp_model_create(g, &t, 1, NULL, &m)) != 0 ||
        (rc = ddp_sampler_create(g, &order, &s)) != 0)
        return rc;
    ddp_sampler_next_epoch(s, 1);
    for (int i = -WARM_STEPS; rc == 0 && i < job->n_steps; i++) {
        const double began_us = now_us();
        rc = step(job, &t, m, s);
        if (i >= 0)
            job->us[i] = now_us() - began_us;
    }
    qsort(job->us, (size_t)job->n_steps, sizeof(*job->us), compare);
    if (rc == 0)
        ddp_log0(g, "%.3f %.3f\n", job->us[0], job->us[job->n_steps / 2]);
    return rc;
}

static int train_once(struct job *job)
{
    struct ddp_group *g;
    int rc = ddp_init(NULL, &g);

    if (rc == 0) {
        rc = train(g, job);
        ddp_finalize(g);
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct job job = {0};

    if (argc == 4) {
        job.n = strtoull(argv[2], NULL, 10);
        job.n_steps = atoi(argv[3]);
    }
    if (job.n < 1 || job.n_steps < 1) {
        fputs("usage: elastic_cost init|run FLOATS STEPS\n", stderr);
        return 2;
    }
    job.param = calloc(job.n, sizeof(float));
    job.momentum = calloc(job.n, sizeof(float));
    job.us = calloc((size_t)job.n_steps, sizeof(*job.us));
    if (job.param == NULL || job.momentum == NULL || job.us == NULL)
        return 1;
    if ((strcmp(argv[1], "run") == 0 ? ddp_run(train, &job) : train_once(&job)) != 0)
        ddp_fatal("elastic_cost");
    free(job.param);
    free(job.momentum);
    free(job.us);
    return 0;
}
