/* resume.c - a training that continues: from the last step when a rank dies, from the last
 * checkpoint when the job was ended.
 *
 *     resume DIRECTORY STEPS
 *
 * A line through made-up points, by gradient descent with momentum. Under ddprun --max-restarts a
 * rank may die at any time, and the job may be ended and started again: the same number of ranks
 * gives the same result, bit by bit. */
#include <ddp/ddp.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { INPUTS = 8, SAMPLES = 1000, BATCH = 10, SAVE_EVERY = 100 };

struct job {
    const char *directory;
    int64_t n_steps;
    double weight[INPUTS], momentum[INPUTS];
    int64_t step, epoch, consumed; /* steps so far; position of the sampler after them */
};

/* What a checkpoint holds. Numbers are tensors without dimensions. */
static int save_or_load(struct ddp_checkpoint *c, struct job *job, int64_t step, bool loads)
{
    const struct ddp_checkpoint_item items[] = {
        {.name = "weight",
         .dtype = DDP_FLOAT64,
         .n_dims = 1,
         .shape = {INPUTS},
         .data = job->weight},
        {.name = "momentum",
         .dtype = DDP_FLOAT64,
         .n_dims = 1,
         .shape = {INPUTS},
         .data = job->momentum},
        {.name = "step", .dtype = DDP_INT64, .data = &job->step},
        {.name = "epoch", .dtype = DDP_INT64, .data = &job->epoch},
        {.name = "consumed", .dtype = DDP_INT64, .data = &job->consumed},
    };
    const size_t n = sizeof items / sizeof items[0];

    return loads ? ddp_checkpoint_load(c, step, items, n) : ddp_checkpoint_save(c, step, items, n);
}

/* From the disk, if the state does not come from ranks that live: that one is later. */
static int load_latest(struct ddp_group *g, struct ddp_checkpoint *c, struct ddp_sampler *s,
                       struct job *job)
{
    int64_t latest;
    int rc;

    if (ddp_completed_steps(g) > 0)
        return 0;
    if ((rc = ddp_checkpoint_latest(c, &latest)) != 0 || latest < 0 ||
        (rc = save_or_load(c, job, latest, true)) != 0)
        return rc;
    ddp_log0(g, "continues after step %" PRId64 "\n", job->step);
    return ddp_sampler_resume(s, job->epoch, job->consumed);
}

/* The points: y = 0 x_0 + 1 x_1 + 2 x_2 + ... */
static double input(int64_t sample, int i)
{
    return (double)((sample + 1) * (i + 3) * 2654435761 % 1000) / 1000 - 0.5;
}

static double backward(const struct job *job, const int64_t *index, size_t n, double *grad)
{
    double loss = 0;

    for (int i = 0; i < INPUTS; i++)
        grad[i] = 0;
    for (size_t k = 0; k < n; k++) {
        double error = 0;
        for (int i = 0; i < INPUTS; i++)
            error += (job->weight[i] - i) * input(index[k], i);
        for (int i = 0; i < INPUTS; i++)
            grad[i] += 2 * error * input(index[k], i) / (double)n;
        loss += error * error / (double)n;
    }
    return loss;
}

/* The state changes only after ddp_model_sync(): when that returns DDP_RETRY it is as after the
 * last completed step. */
static int make_step(struct job *job, struct ddp_model *m, const struct ddp_sampler *s,
                     const double *grad)
{
    int rc = ddp_model_sync(m);

    if (rc != 0)
        return rc;
    for (int i = 0; i < INPUTS; i++) {
        job->momentum[i] = 0.9 * job->momentum[i] + grad[i];
        job->weight[i] -= 0.02 * job->momentum[i];
    }
    job->step++;
    job->epoch = ddp_sampler_epoch(s);
    job->consumed = ddp_sampler_consumed(s);
    return 0;
}

static int run(struct ddp_group *g, struct job *job, struct ddp_model *m, double *grad,
               struct ddp_sampler *s, struct ddp_checkpoint *c)
{
    const int64_t *index;
    int rc;

    while (job->step < job->n_steps && ddp_sampler_next_epoch(s, INT64_MAX))
        for (size_t n; job->step < job->n_steps && (n = ddp_sampler_next(s, BATCH, &index)) > 0;) {
            double loss = backward(job, index, n, grad);
            if ((rc = make_step(job, m, s, grad)) != 0)
                return rc;
            if (job->step % SAVE_EVERY != 0)
                continue;
            if ((rc = ddp_mean(g, &loss, 1)) != 0 ||
                (rc = save_or_load(c, job, job->step, false)) != 0)
                return rc;
            ddp_log0(g, "step %" PRId64 ": loss %.3g\n", job->step, loss);
        }
    ddp_log0(g, "%" PRId64 " steps, weights", job->step);
    for (int i = 0; i < INPUTS; i++)
        ddp_log0(g, "%s%.17g", i > 0 ? ", " : " ", job->weight[i]);
    ddp_log0(g, "\n");
    return 0;
}

/* Called once, and again whenever ranks have died or come. */
static int train(struct ddp_group *g, void *arg)
{
    struct job *job = arg;
    struct ddp_tensor tensor = {
        .name = "weight", .param = job->weight, .count = INPUTS, .dtype = DDP_FLOAT64};
    const struct ddp_sampler_opts order = {
        .n = SAMPLES, .seed = 1, .shuffle = true, .drop_last = true};
    const struct ddp_checkpoint_opts where = {.directory = job->directory, .keep_last = 2};
    struct ddp_checkpoint *c;
    struct ddp_sampler *s;
    struct ddp_model *m;
    int rc;

    /* What a step changes in addition to the model's parameters; before the model is made. */
    if ((rc = ddp_state_add(g, "momentum", job->momentum, sizeof job->momentum)) != 0 ||
        (rc = ddp_state_add(g, "step", &job->step, sizeof job->step)) != 0 ||
        (rc = ddp_model_create(g, &tensor, 1, NULL, &m)) != 0 ||
        (rc = ddp_sampler_create(g, &order, &s)) != 0 ||
        (rc = ddp_checkpoint_open(g, &where, &c)) != 0 || (rc = load_latest(g, c, s, job)) != 0)
        return rc;
    return run(g, job, m, tensor.grad, s, c);
}

int main(int argc, char **argv)
{
    struct job job = {0};

    if (argc != 3 || (job.n_steps = strtoll(argv[2], NULL, 10)) <= 0) {
        fprintf(stderr, "usage: resume DIRECTORY STEPS\n");
        return 2;
    }
    job.directory = argv[1];
    if (ddp_run(train, &job) != 0)
        ddp_fatal("resume");
    return 0;
}
