/* mnist.c - train a network to read digits, on as many ranks as it is started on.
 *
 *     mnist                     alone
 *     ddprun -n 2 mnist         on two workers
 *
 * Each rank has the whole network and a part of every batch. The library averages the gradients, so
 * that each rank makes the same step, and all of them stay the same network. */
#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../shared/accumulate.h"
#include "../shared/agree.h"
#include "../shared/failure.h"
#include "../shared/loss_file.h"
#include "amp.h"
#include "checkpoint.h"
#include "convnet.h"
#include "dataset.h"
#include "mnist_gpu.h"
#include "mnist_options.h"
#include "sgd.h"
#include "stages.h"

#define DATA_SEED 1 /* of drawn digits; apart from --seed, which is to change the training only */

/* What an epoch has seen, on this rank. */
struct epoch {
    int64_t number; /* -1: none yet */
    double loss_sum;
    int64_t n_steps, n_images;
};

struct job {
    struct mnist_options opts;
    struct convnet *net;
    struct sgd sgd;
    struct accumulator parts; /* with --accumulate only */
    struct amp amp;           /* with --amp only */
    struct stages stages;     /* with --pipeline, instead of a ddp_model */
    struct ddp_zero *zero;    /* with --zero1, instead of a ddp_model; else NULL */
    struct mnist_gpu gpu;     /* with --device only: computes instead of the network here */
    struct dataset data;
    struct loss_file losses; /* rank 0's */
    int64_t step;            /* steps made so far */
    struct epoch epoch;
    double epoch_began; /* seconds; here, where a rank has taken another's place */
    bool is_reported;   /* the user knows why we failed */
};

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* All ranks continue, or none does. */
static int all_or_none(struct ddp_group *g, struct job *job, int rc, const struct failure *why)
{
    return agree(g, "mnist", rc, why, &job->is_reported);
}

/* ---- before the first step ---- */

static int check_batch(struct ddp_group *g, struct job *job)
{
    const int64_t batch = job->opts.batch, ranks = ddp_world_size(g);
    struct failure why = {""};
    int rc = 0;

    if (job->opts.pipeline && ranks % STAGES != 0)
        rc = failure_set(&why, "--pipeline needs an even number of ranks, not %lld",
                         (long long)ranks);
    else if (batch % ranks != 0)
        rc =
            failure_set(&why, "--batch %lld is not divisible by %lld ranks: use a multiple of %lld",
                        (long long)batch, (long long)ranks, (long long)ranks);
    return all_or_none(g, job, rc, &why);
}

/* One rank of each node sees to it that there are files; then every rank reads them. */
static int load_data(struct ddp_group *g, struct job *job)
{
    const struct mnist_options *o = &job->opts;
    const double began = seconds();
    const bool loaded = job->data.train.n > 0; /* in an earlier group; others may have to */
    struct failure why = {""};
    bool drawn = false;
    int rc = 0;

    if (!loaded && ddp_local_rank(g) == 0)
        rc = dataset_prepare(o->data, (size_t)o->draw, (size_t)(o->draw + 4) / 5, DATA_SEED, &drawn,
                             &why);
    if ((rc = all_or_none(g, job, rc, &why)) != 0)
        return rc;
    if (drawn)
        ddp_log0(g, "drew digits into '%s' in %.1f s\n", o->data, seconds() - began);
    if (!loaded)
        rc = dataset_read(o->data, &job->data, &why);
    return all_or_none(g, job, rc, &why);
}

/* Another rank 0's losses stay. */
static int open_loss_file(struct ddp_group *g, struct job *job)
{
    const char *path = job->opts.loss_file;
    struct failure why = {""};
    int rc = 0;

    if (path == NULL)
        return 0;
    if (ddp_rank(g) == 0)
        rc = loss_file_open(&job->losses, path, job->step > 0, &why);
    return all_or_none(g, job, rc, &why);
}

/* With --device auto either all ranks compute on GPUs, or none does. A rank that has begun on its
 * CPU stays there. If a replacement lacks a GPU, all ranks leave theirs. */
static int agree_on_gpus(struct ddp_group *g, struct job *job, int rc, const struct failure *why)
{
    int32_t all = rc == 0;

    if ((rc = ddp_all_reduce(g, &all, &all, 1, DDP_INT32, DDP_MIN, NULL)) != 0 || all)
        return rc;
    if (why->text[0] != '\0')
        fprintf(stderr, "mnist: rank %d: %s\n", ddp_rank(g), why->text);
    if (mnist_gpu_is_on(&job->gpu))
        mnist_gpu_get_net(&job->gpu);
    mnist_gpu_close(&job->gpu);
    return 0;
}

/* Where a rank has died the others' velocity is on their GPUs, and is wanted here. */
static int take_gpu(struct ddp_group *g, struct job *job)
{
    const bool had_one = mnist_gpu_is_on(&job->gpu);
    struct failure why = {""};
    int rc = -1;

    if (job->opts.device == MNIST_CPU)
        return 0;
    if (had_one || job->step == 0)
        rc = mnist_gpu_open(&job->gpu, g, job->net, (size_t)job->opts.batch, &job->data, &why);
    if (had_one)
        mnist_gpu_get_optimizer(&job->gpu, job->sgd.velocity);
    return job->opts.device == MNIST_AUTO ? agree_on_gpus(g, job, rc, &why)
                                          : all_or_none(g, job, rc, &why);
}

static size_t n_samples(const struct job *job)
{
    size_t n = job->data.train.n, wanted = (size_t)job->opts.samples;

    return wanted > 0 && wanted < n ? wanted : n;
}

static void report_start(struct ddp_group *g, const struct job *job)
{
    const struct mnist_options *o = &job->opts;
    const int ranks = ddp_world_size(g);

    ddp_log0(g, "%d rank%s%s, %s, %s, %lld images a step; %zu images to train on, %zu to test\n",
             ranks, ranks > 1 ? "s" : "", mnist_gpu_is_on(&job->gpu) ? " on GPUs" : "",
             sizeof(real) == 4 ? "float32" : "float64",
             o->kind == CONVNET_LINEAR ? "linear classifier"
             : o->pipeline             ? "convolutional network on pairs of ranks"
             : o->sync_bn              ? "convolutional network, batch norm over all ranks"
             : o->batch_norm           ? "convolutional network, batch norm"
                                       : "convolutional network, no norm",
             (long long)o->batch, n_samples(job), job->data.test.n);
}

/* ---- reports, to which all ranks contribute ---- */

/* The mean of a value over the ranks, on rank 0. */
static int mean_on_rank0(struct ddp_group *g, double *value)
{
    return ddp_reduce(g, value, value, 1, DDP_FLOAT64, DDP_AVG, 0, NULL);
}

static int report_step(struct ddp_group *g, struct job *job, double loss)
{
    const int64_t every = job->opts.print_loss_every;
    const bool print = every > 0 && job->step % every == 0;
    int rc = 0;

    if (!print && job->opts.loss_file == NULL)
        return 0;
    if ((rc = mean_on_rank0(g, &loss)) != 0)
        return rc;
    if (print)
        ddp_log0(g, "step %lld  loss %.17g\n", (long long)job->step, loss);
    loss_file_add(&job->losses, loss);
    return 0;
}

/* The running averages of batch normalization differ, since each rank has seen other images: all
 * ranks continue with their mean. */
static int test_here(struct ddp_group *g, struct job *job, size_t first, size_t end,
                     int64_t *ret_right)
{
    const size_t batch = (size_t)job->opts.batch;
    int rc;

    *ret_right = 0;
    if (job->opts.pipeline && (rc = stages_exchange(&job->stages)) != 0)
        return rc;
    for (size_t i = 0; i < job->net->n_stats; i++) {
        const struct convnet_stat *s = &job->net->stats[i];
        rc = ddp_all_reduce(g, s->values, s->values, s->count, REAL_DTYPE, DDP_AVG, NULL);
        if (rc != 0)
            return rc;
    }
    for (size_t i = first; i < end; i += batch)
        *ret_right += (int64_t)convnet_count_right(job->net, &job->data.test.images, i,
                                                   end - i < batch ? end - i : batch);
    return 0;
}

/* Test the network on all ranks, each on its share of the images. */
static int test(struct ddp_group *g, struct job *job, double *ret_accuracy)
{
    int64_t first, end, n_right;
    int rc;

    ddp_shard_range(g, (int64_t)job->data.test.n, &first, &end);
    rc = mnist_gpu_is_on(&job->gpu) ? mnist_gpu_test(&job->gpu, g, (size_t)first, (size_t)end,
                                                     (size_t)job->opts.batch, &n_right)
                                    : test_here(g, job, (size_t)first, (size_t)end, &n_right);
    if (rc == 0)
        rc = ddp_all_reduce(g, &n_right, &n_right, 1, DDP_INT64, DDP_SUM, NULL);
    *ret_accuracy = 100 * (double)n_right / (double)job->data.test.n;
    return rc;
}

static int report_epoch(struct ddp_group *g, struct job *job)
{
    const struct epoch *e = &job->epoch;
    const double took = seconds() - job->epoch_began;
    double loss = e->loss_sum / (double)e->n_steps, accuracy;
    int rc;

    if ((rc = mean_on_rank0(g, &loss)) != 0 || (rc = test(g, job, &accuracy)) != 0)
        return rc;
    ddp_log0(g, "epoch %lld: loss %.4f, test accuracy %.2f %%, %.2f s, %.0f images/s\n",
             (long long)e->number + 1, loss, accuracy, took, (double)e->n_images / took);
    return 0;
}

static int write_checkpoint(struct ddp_group *g, struct job *job)
{
    struct failure why = {""};
    int rc = 0;

    if (job->opts.checkpoint == NULL)
        return 0;
    if (ddp_rank(g) == 0 && mnist_gpu_is_on(&job->gpu))
        mnist_gpu_get_net(&job->gpu);
    if (ddp_rank(g) == 0)
        rc = checkpoint_write(job->opts.checkpoint, job->net, &why);
    return all_or_none(g, job, rc, &why);
}

/* ---- training ---- */

static bool has_amp(const struct job *job)
{
    return job->opts.amp > 0;
}

/* The gradients of this rank are there: average them with those of the peers. A sharded optimizer
 * does it in its step. */
static int meet(struct job *job, struct ddp_model *m)
{
    int rc = convnet_norm_status(job->net);

    if (rc == 0 && has_amp(job))
        amp_give_gradients(&job->amp, job->net);
    return rc == 0 && m != NULL ? ddp_model_sync(m) : rc;
}

/* Forward, backward, and the average over the ranks. */
static int average_gradients(struct job *job, struct ddp_model *m, const int64_t *index, size_t n,
                             double *ret_loss)
{
    *ret_loss = convnet_forward(job->net, &job->data.train.images, index, n);
    convnet_backward(job->net, has_amp(job) ? NULL : m);
    return meet(job, m);
}

/* The same with a batch in parts, each of which counts by its images. The ranks exchange gradients
 * once, at the last part. */
static int average_parts(struct job *job, struct ddp_model *m, const int64_t *index, size_t n,
                         double *ret_loss)
{
    struct convnet *net = job->net;
    const size_t n_parts = (size_t)job->opts.accumulate;
    int rc = 0;

    *ret_loss = 0;
    for (size_t p = 0; rc == 0 && p < n_parts; p++) {
        const size_t first = n * p / n_parts, n_here = n * (p + 1) / n_parts - first;
        const double share = (double)n_here / (double)n;
        if (n_here > 0) {
            *ret_loss +=
                share * convnet_forward(net, &job->data.train.images, index + first, n_here);
            convnet_backward(net, NULL);
            accumulator_add(&job->parts, net->tensors, net->n_tensors, share);
        }
        if (p + 1 == n_parts)
            accumulator_take(&job->parts, net->tensors, net->n_tensors);
        if (m != NULL)
            rc = ddp_model_accumulate(m, p + 1 < n_parts);
        if (rc == 0)
            rc = meet(job, m);
    }
    return rc;
}

/* The averages are there: the step itself. */
static int update(struct job *job, const struct ddp_model *m)
{
    struct convnet *net = job->net;

    if (mnist_gpu_is_on(&job->gpu))
        return mnist_gpu_step(&job->gpu, m, job->opts.lr, job->opts.momentum);
    if (job->zero != NULL)
        return ddp_zero_step(job->zero, NULL, NULL);
    if (has_amp(job))
        return amp_step(&job->amp, m, &job->sgd, net);
    if (job->opts.pipeline) /* this stage's */
        sgd_step(&job->sgd, net->tensors + job->stages.first, job->stages.n_tensors);
    else
        sgd_step(&job->sgd, net->tensors, net->n_tensors);
    return 0;
}

/* Forward, backward, average, in the way that was asked for. */
static int compute_gradients(struct ddp_group *g, struct job *job, struct ddp_model *m,
                             const int64_t *index, size_t n, double *ret_loss)
{
    if (mnist_gpu_is_on(&job->gpu))
        return mnist_gpu_gradients(&job->gpu, g, m, index, n, (size_t)job->opts.accumulate,
                                   ret_loss);
    if (job->opts.pipeline)
        return stages_step(&job->stages, &job->data.train.images, index, n, ret_loss);
    return job->opts.accumulate > 1 ? average_parts(job, m, index, n, ret_loss)
                                    : average_gradients(job, m, index, n, ret_loss);
}

/* This rank's part of one step of all. */
static int train_step(struct ddp_group *g, struct job *job, struct ddp_model *m,
                      const int64_t *index, size_t n)
{
    struct epoch *e = &job->epoch;
    double loss;
    int rc = compute_gradients(g, job, m, index, n, &loss);

    if (rc == 0)
        rc = update(job, m);
    if (rc != 0)
        return rc;
    job->step++;
    e->loss_sum += loss;
    e->n_steps++;
    e->n_images += (int64_t)n * ddp_world_size(g) / (job->opts.pipeline ? STAGES : 1);
    return report_step(g, job, loss);
}

static bool is_last_step(const struct job *job)
{
    return job->opts.steps > 0 && job->step >= job->opts.steps;
}

/* What the replacement of a dead rank has to get in addition to the network. */
static int register_state(struct ddp_group *g, struct job *job)
{
    struct sgd *sgd = &job->sgd;
    int rc = ddp_state_add(g, "velocity", sgd->velocity, sgd->count * sizeof *sgd->velocity);

    if (rc == 0)
        rc = ddp_state_add(g, "step", &job->step, sizeof job->step);
    if (rc == 0)
        rc = ddp_state_add(g, "epoch", &job->epoch, sizeof job->epoch);
    if (rc == 0 && has_amp(job))
        rc = amp_register(&job->amp, g);
    return rc;
}

/* How many networks are trained side by side. */
static size_t pipelines(struct ddp_group *g, const struct job *job)
{
    return (size_t)ddp_world_size(g) / (job->opts.pipeline ? STAGES : 1);
}

/* Instead of a model and its optimizer. The next rank has a copy of each shard, so that a rank that
 * dies can be replaced. */
static int make_zero(struct ddp_group *g, struct job *job)
{
    const struct ddp_zero_opts opts = {
        .optimizer = DDP_SGD, .lr = job->opts.lr, .momentum = job->opts.momentum, .buddies = true};
    struct ddp_zero_stats stats;
    int rc = ddp_zero_create(g, job->net->tensors, job->net->n_tensors, &opts, &job->zero);

    if (rc != 0)
        return rc;
    ddp_zero_get_stats(job->zero, &stats);
    ddp_log0(g, "optimizer state: %zu of %zu bytes on each rank\n", stats.state_bytes,
             stats.whole_state_bytes);
    return 0;
}

/* What --amp, --sync-bn and --zero1 change. */
static int make_model(struct ddp_group *g, struct job *job, struct ddp_model **ret_model)
{
    const struct ddp_model_opts scaled = {.tell_nonfinite = true};
    struct convnet *net = job->net;
    struct ddp_group *norm_group = NULL;
    int rc = job->opts.sync_bn ? ddp_group_split(g, 0, 0, &norm_group) : 0;

    convnet_normalise_over(net, norm_group);
    if (rc != 0)
        return rc;
    *ret_model = NULL;
    if (job->opts.zero1 && (rc = make_zero(g, job)) != 0)
        return rc;
    if (job->opts.zero1)
        return mnist_gpu_is_on(&job->gpu) ? mnist_gpu_zero(&job->gpu, g, norm_group, job->zero) : 0;
    if (mnist_gpu_is_on(&job->gpu))
        return mnist_gpu_model(&job->gpu, g, norm_group, job->sgd.velocity, ret_model);
    if (job->opts.pipeline)
        return stages_init(&job->stages, g, net, (size_t)job->opts.batch / pipelines(g, job));
    if (!has_amp(job))
        return ddp_model_create(g, net->tensors, net->n_tensors, NULL, ret_model);
    rc = ddp_model_create(g, ddp_mixed_tensors(job->amp.mixed), net->n_tensors, &scaled, ret_model);
    if (rc == 0)
        amp_show(&job->amp, net);
    return rc;
}

/* An epoch begins, or continues where its peers were when a rank died. */
static void enter_epoch(struct job *job, int64_t number)
{
    if (job->epoch.number != number)
        job->epoch = (struct epoch){.number = number};
    job->epoch_began = seconds();
}

static int train_on(struct ddp_group *g, struct job *job)
{
    const struct mnist_options *o = &job->opts;
    struct ddp_model *m;
    struct ddp_sampler *s;
    const int64_t *index;
    int rc;

    if ((rc = check_batch(g, job)) != 0 || (rc = load_data(g, job)) != 0 ||
        (rc = take_gpu(g, job)) != 0 || (rc = register_state(g, job)) != 0)
        return rc;
    struct ddp_sampler_opts order = {
        .n = (int64_t)n_samples(job), .seed = o->seed, .shuffle = true};
    if ((rc = make_model(g, job, &m)) != 0 ||
        (rc = ddp_sampler_create(job->opts.pipeline ? job->stages.replicas : g, &order, &s)) != 0 ||
        (rc = open_loss_file(g, job)) != 0)
        return rc;
    const size_t batch = (size_t)o->batch / pipelines(g, job);
    report_start(g, job);

    while (!is_last_step(job) && ddp_sampler_next_epoch(s, o->epochs)) {
        enter_epoch(job, ddp_sampler_epoch(s));
        for (size_t n; !is_last_step(job) && (n = ddp_sampler_next(s, batch, &index)) > 0;)
            if ((rc = train_step(g, job, m, index, n)) != 0)
                return rc;
        if ((rc = report_epoch(g, job)) != 0)
            return rc;
    }
    if (has_amp(job))
        ddp_log0(g, "%lld steps skipped, loss scale %g\n", (long long)job->amp.n_skipped,
                 (double)job->amp.scaler.scale);
    return write_checkpoint(g, job);
}

static int train(struct ddp_group *g, void *arg)
{
    struct job *job = arg;
    int rc = train_on(g, job);

    mnist_gpu_drop_graph(&job->gpu);
    return rc;
}

/* Steps of a pipeline are not those of the whole world, so that a rank alone cannot be replaced:
 * all are started again. */
static int run_once(struct job *job)
{
    struct ddp_group *g;
    int rc = ddp_init(NULL, &g);

    if (rc != 0)
        return rc;
    rc = train(g, job);
    if (rc != 0 && !job->is_reported)
        ddp_fatal("train");
    ddp_finalize(g);
    return rc;
}

int main(int argc, char **argv)
{
    struct job job = {.epoch.number = -1};
    struct failure why = {""};

    if (mnist_options_parse(argc, argv, &job.opts, &why) < 0) {
        fprintf(stderr, "mnist: %s\n", why.text);
        return 2;
    }
    if (job.opts.help) {
        fputs(mnist_options_help, stdout);
        return 0;
    }
    job.gpu.uses_graph = job.opts.graph;
    job.gpu.amp = has_amp(&job) ? &job.amp : NULL;
    struct convnet_opts shape = {.kind = job.opts.kind,
                                 .batch_norm = job.opts.batch_norm,
                                 .max_batch = (size_t)job.opts.batch,
                                 .seed = (uint64_t)job.opts.seed};
    if (convnet_create(&shape, &job.net) < 0 ||
        (!job.opts.zero1 && sgd_init(&job.sgd, job.opts.lr, job.opts.momentum, job.net->tensors,
                                     job.net->n_tensors) < 0) ||
        (has_amp(&job) &&
         amp_init(&job.amp, (enum ddp_opt_level)job.opts.amp, job.opts.amp_type, job.net) < 0) ||
        (job.opts.accumulate > 1 &&
         accumulator_init(&job.parts, job.net->tensors, job.net->n_tensors) < 0)) {
        fprintf(stderr, "mnist: out of memory for batches of %lld images: use a smaller --batch\n",
                (long long)job.opts.batch);
        return 1;
    }
    int rc = job.opts.pipeline ? run_once(&job) : ddp_run(train, &job);
    if (rc != 0 && !job.is_reported)
        ddp_fatal("train");
    if (loss_file_close(&job.losses, &why) < 0) {
        fprintf(stderr, "mnist: %s\n", why.text);
        rc = -1;
    }
    mnist_gpu_close(&job.gpu);
    dataset_fini(&job.data);
    accumulator_fini(&job.parts);
    sgd_fini(&job.sgd);
    amp_fini(&job.amp, job.net);
    stages_fini(&job.stages);
    convnet_destroy(job.net);
    return rc != 0;
}
