/* chargpt.c - train a small GPT to predict the next character of a text, on as many ranks as it is
 * started on; stop it, and continue with another number of ranks.
 *
 *     chargpt                                          alone
 *     ddprun -n 2 chargpt --checkpoint DIR             on two workers
 *     ddprun -n 3 chargpt --checkpoint DIR --resume    three continue where the two stopped
 *
 * Each rank has the whole network and a part of every batch. All gradients lie in one stretch of
 * memory that the ranks of a node share, so that they are averaged where they lie, while the
 * backward pass continues. */
#include <ddp/ddp.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../shared/adamw.h"
#include "../shared/agree.h"
#include "../shared/failure.h"
#include "bigram.h"
#include "chargpt_options.h"
#include "chargpt_state.h"
#include "gpt.h"
#include "text.h"

/* What the ranks send each other after a step. */
enum { LOSS, IS_OVER, N_NEWS };

#define WARM_UP_STEPS 50
#define LAST_LR       0.1 /* as a share of the highest rate; at the end */
#define MOST_NORM     1.0 /* of the gradients; longer ones are cut */

struct job {
    struct chargpt_options opts;
    struct text text;
    struct gpt *net;
    struct adamw adam;
    struct chargpt_position at;
    uint8_t *inputs;  /* of this rank's part of a batch; owned */
    int *targets;     /* the same */
    FILE *loss_file;  /* rank 0's; NULL: none */
    double began;     /* seconds */
    bool is_reported; /* the user knows why we failed */
};

struct run { /* what belongs to one group */
    struct ddp_group *g;
    struct job *job;
    struct ddp_tensor *tensors; /* of the network; owned */
    struct ddp_model *model;    /* NULL with --zero1 */
    struct ddp_zero *zero;      /* NULL without */
    struct ddp_sampler *sampler;
    struct ddp_checkpoint *checkpoint; /* NULL: none */
    size_t batch;                      /* of this rank */
    double news[N_NEWS];               /* of the last steps: the mean of all ranks */
    double losses;                     /* of the steps since then: the sum of this rank's */
    int64_t n_losses;
    bool is_over;
    int64_t reported_step; /* step of the last line, and the time that steps took since */
    double stepping;
};

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int all_or_none(struct run *r, int rc, const struct failure *why)
{
    return agree(r->g, "chargpt", rc, why, &r->job->is_reported);
}

/* ---- before the first step ---- */

/* It has space for the whole batch, which this rank takes alone if all other ranks are lost. */
static int make_network(struct job *job, struct failure *why)
{
    const struct chargpt_options *o = &job->opts;
    const size_t batch = (size_t)o->batch;
    const struct gpt_shape shape = {(size_t)o->layers, (size_t)o->width, (size_t)o->heads,
                                    (size_t)o->context};

    if (gpt_create(&shape, batch, (uint64_t)o->seed, &job->net, why) < 0)
        return -1;
    job->inputs = calloc(batch * shape.context, sizeof(*job->inputs));
    job->targets = calloc(batch * shape.context, sizeof(*job->targets));
    if ((!o->zero1 && adamw_init(&job->adam, job->net->n_params) < 0) || job->inputs == NULL ||
        job->targets == NULL)
        return failure_set(why, "out of memory for %zu parameters: use smaller --layers or --width",
                           job->net->n_params);
    return 0;
}

/* What this rank can look at for itself. */
static int prepare(struct run *r, struct failure *why)
{
    struct job *job = r->job;
    const struct chargpt_options *o = &job->opts;
    const int ranks = ddp_world_size(r->g);

    if (o->batch % ranks != 0)
        return failure_set(why, "--batch %lld is not divisible by %d ranks: use a multiple of %d",
                           (long long)o->batch, ranks, ranks);
    r->batch = (size_t)(o->batch / ranks);
    if (job->net != NULL) /* of an earlier group */
        return 0;
    if (text_read(o->texts, (size_t)o->n_texts, &job->text, why) < 0)
        return -1;
    if (text_count_held_out(&job->text) == 0 ||
        text_count(&job->text, (size_t)o->context + 1) < (size_t)o->batch)
        return failure_set(why, "%zu bytes of text are too few: pass 10 KiB or more", job->text.n);
    return make_network(job, why);
}

/* What the replacement of a dead rank has to get in addition to the network. The library recovers
 * the shards of an optimizer. */
static int register_state(struct run *r)
{
    struct job *job = r->job;
    struct adamw *adam = &job->adam;
    int rc = ddp_state_add(r->g, "position", &job->at, sizeof(job->at));

    if (rc == 0 && !job->opts.zero1)
        rc = ddp_state_add(r->g, "mean", adam->mean, adam->n * sizeof(*adam->mean));
    if (rc == 0 && !job->opts.zero1)
        rc = ddp_state_add(r->g, "square", adam->square, adam->n * sizeof(*adam->square));
    return rc;
}

/* Instead of a model and its optimizer: each rank keeps a shard of AdamW's state, and a copy of
 * another rank's, so that a rank that dies can be replaced. */
static int make_zero(struct run *r)
{
    const struct job *job = r->job;
    const struct gpt *net = job->net;
    struct ddp_zero_opts opts = {.optimizer = DDP_ADAMW,
                                 .lr = job->opts.lr,
                                 .beta1 = 0.9,
                                 .beta2 = 0.99,
                                 .weight_decay = 0.1,
                                 .max_norm = MOST_NORM,
                                 .buddies = true};
    struct ddp_zero_stats stats;
    bool *keeps_size = calloc(net->n_tensors, sizeof(*keeps_size));
    int rc = DDP_ENOMEM;

    for (size_t i = 0; keeps_size != NULL && i < net->n_tensors; i++)
        keeps_size[i] = net->tensors[i].n_dims != 2;
    opts.keeps_size = keeps_size;
    if (keeps_size != NULL)
        rc = ddp_zero_create(r->g, r->tensors, net->n_tensors, &opts, &r->zero);
    free(keeps_size);
    if (rc != 0)
        return rc;
    ddp_zero_get_stats(r->zero, &stats);
    ddp_log0(r->g, "optimizer state: %zu of %zu bytes on each rank\n", stats.state_bytes,
             stats.whole_state_bytes);
    return 0;
}

/* Gradients in memory that the ranks share, and the model that averages them. */
static int make_model(struct run *r)
{
    struct gpt *net = r->job->net;
    void *memory;
    int rc = ddp_alloc(r->g, net->n_params * sizeof(real), &memory);

    r->tensors = calloc(net->n_tensors, sizeof(*r->tensors));
    if (rc == 0 && r->tensors == NULL)
        rc = DDP_ENOMEM;
    if (rc != 0)
        return rc;
    net->grads = memory;
    for (size_t i = 0; i < net->n_tensors; i++) {
        const struct gpt_tensor *t = &net->tensors[i];
        r->tensors[i] = (struct ddp_tensor){.name = t->name,
                                            .param = net->params + t->first,
                                            .grad = net->grads + t->first,
                                            .count = t->count,
                                            .dtype = REAL_DTYPE};
    }
    if (r->job->opts.zero1)
        return make_zero(r);
    const struct chargpt_options *o = &r->job->opts;
    const struct ddp_model_opts opts = {.local_steps = (size_t)o->local_steps,
                                        .local_fragments = o->fragments,
                                        .outer_lr = o->outer_lr,
                                        .compress = (enum ddp_compress)chargpt_options_compress(o)};
    return ddp_model_create(r->g, r->tensors, net->n_tensors, &opts, &r->model);
}

static struct chargpt_optimiser optimiser_of(const struct run *r)
{
    return (struct chargpt_optimiser){.whole = r->zero == NULL ? &r->job->adam : NULL,
                                      .sharded = r->zero,
                                      .outer = r->job->opts.local_steps > 0 ? r->model : NULL};
}

static int resume(struct run *r)
{
    const struct chargpt_optimiser by = optimiser_of(r);
    struct job *job = r->job;
    struct failure why = {""};
    bool found = false;
    int rc = 0;

    if (job->opts.resume && ddp_completed_steps(r->g) == 0) /* else others have what is later */
        rc = chargpt_state_load(r->checkpoint, job->net, &by, &job->at, &found);
    if (rc != 0 || !found)
        return rc;
    if (job->at.seed != job->opts.seed)
        rc = failure_set(&why,
                         "the checkpoint was made with --seed %lld: use the same --seed, or "
                         "another --checkpoint directory",
                         (long long)job->at.seed);
    if ((rc = all_or_none(r, rc, &why)) != 0)
        return rc;
    ddp_log0(r->g, "resuming after step %lld\n", (long long)job->at.step);
    return ddp_sampler_resume(r->sampler, job->at.epoch, job->at.consumed);
}

/* Of another rank 0 the losses stay. */
static int open_loss_file(struct run *r)
{
    struct job *job = r->job;
    const char *path = job->opts.loss_file;
    struct failure why = {""};
    int rc = 0;

    if (path == NULL)
        return 0;
    if (ddp_rank(r->g) == 0 && job->loss_file == NULL) {
        job->loss_file = fopen(path, job->at.step > 0 ? "ae" : "we");
        if (job->loss_file == NULL)
            rc = failure_set(&why, "cannot write the loss file '%s': %m", path);
        else
            setvbuf(job->loss_file, NULL, _IOLBF, 0); /* what was written outlives this rank */
    }
    return all_or_none(r, rc, &why);
}

static int set_up(struct run *r)
{
    struct job *job = r->job;
    const struct chargpt_options *o = &job->opts;
    struct failure why = {""};
    int rc = all_or_none(r, prepare(r, &why), &why);

    if (rc != 0 || (rc = register_state(r)) != 0 || (rc = make_model(r)) != 0 ||
        (rc = open_loss_file(r)) != 0)
        return rc;
    const struct ddp_sampler_opts order = {
        .n = (int64_t)text_count(&job->text, (size_t)o->context + 1),
        .seed = o->seed,
        .shuffle = true,
        .drop_last = true};
    if ((rc = ddp_sampler_create(r->g, &order, &r->sampler)) != 0)
        return rc;
    ddp_sampler_set_epoch(r->sampler, job->at.epoch);
    const struct ddp_checkpoint_opts where = {
        .directory = o->checkpoint, .keep_last = (int)o->keep, .async = true};
    if (o->checkpoint != NULL && (rc = ddp_checkpoint_open(r->g, &where, &r->checkpoint)) != 0)
        return rc;
    job->at.seed = o->seed;
    return resume(r);
}

static void report_start(struct run *r, double bigram)
{
    const struct job *job = r->job;
    const struct gpt_shape *s = &job->net->shape;
    const int ranks = ddp_world_size(r->g);

    ddp_log0(r->g,
             "%d rank%s, %s, %zu layers of width %zu, %zu heads, %.2f M parameters; %zu characters "
             "of %zu files\n",
             ranks, ranks > 1 ? "s" : "", sizeof(real) == 4 ? "float32" : "float64", s->layers,
             s->width, s->heads, (double)job->net->n_params * 1e-6, job->text.n, job->text.n_files);
    ddp_log0(r->g, "to beat: %.4f nats a character of the held-out text, by counting pairs\n",
             bigram);
}

/* ---- a step ---- */

/* The next batch of all ranks; the rest of an epoch that is too short for one is left. */
static void next_batch(struct run *r)
{
    struct job *job = r->job;
    const size_t context = job->net->shape.context;
    const int64_t n = (int64_t)text_count(&job->text, context + 1);
    const int64_t *index;

    if (n - ddp_sampler_consumed(r->sampler) < job->opts.batch)
        ddp_sampler_set_epoch(r->sampler, ddp_sampler_epoch(r->sampler) + 1);
    ddp_sampler_next(r->sampler, r->batch, &index);
    for (size_t i = 0; i < r->batch; i++) {
        const uint8_t *from = text_at(&job->text, context + 1, (size_t)index[i]);
        memcpy(job->inputs + i * context, from, context);
        for (size_t k = 0; k < context; k++)
            job->targets[i * context + k] = from[k + 1];
    }
}

static double learning_rate(const struct job *job)
{
    const double step = (double)job->at.step, steps = (double)job->opts.steps;

    if (step < WARM_UP_STEPS)
        return job->opts.lr * (step + 1) / WARM_UP_STEPS;
    return job->opts.lr * (LAST_LR + (1 - LAST_LR) * 0.5 * (1 + cos(M_PI * step / steps)));
}

static int optimise(struct run *r)
{
    struct job *job = r->job;
    struct gpt *net = job->net;
    const struct adamw_step how = {.step = job->at.step + 1, .lr = learning_rate(job)};

    if (r->zero != NULL) { /* it also averages */
        ddp_zero_set_lr(r->zero, how.lr);
        return ddp_zero_step(r->zero, NULL, NULL);
    }
    for (size_t i = 0; i < net->n_tensors; i++) {
        const struct gpt_tensor *t = &net->tensors[i];
        adamw_step(&job->adam, &how, net->params, net->grads, t->first, t->count, t->n_dims == 2);
    }
    return 0;
}

static int64_t last_step(const struct job *job)
{
    const int64_t stop = job->opts.stop_at, steps = job->opts.steps;

    return stop > 0 && stop < steps ? stop : steps;
}

static bool is_due(const struct run *r, int64_t every)
{
    return every > 0 && r->job->at.step % every == 0;
}

/* Forward, backward, and the average over all ranks. */
static int find_gradients(struct run *r)
{
    struct job *job = r->job;
    struct gpt *net = job->net;
    const double count = (double)(r->batch * net->shape.context);
    int rc;

    r->losses += gpt_forward(net, job->inputs, job->targets, r->batch) / count;
    r->n_losses++;
    gpt_backward(net, job->inputs, job->targets, r->batch, (real)(1 / count), r->model);
    if (r->model == NULL)
        return 0;
    if ((rc = ddp_model_sync(r->model)) != 0)
        return rc;
    return ddp_model_clip(r->model, MOST_NORM, NULL);
}

/* Whether the ranks communicate after this step; with `now` because the network has to be the same
 * on all of them. */
static bool is_shared(const struct run *r, bool *ret_now)
{
    const struct job *job = r->job;
    const int64_t step = job->at.step, alone = job->opts.local_steps;

    *ret_now = step >= last_step(job) || is_due(r, job->opts.save_every);
    return *ret_now || alone == 0 || step % alone == 0;
}

static int train_step(struct run *r)
{
    struct job *job = r->job;
    const double began = seconds(), limit = job->opts.minutes * 60;
    bool now;
    int rc;

    next_batch(r);
    if ((rc = find_gradients(r)) != 0 || (rc = optimise(r)) != 0)
        return rc;
    job->at.step++;
    job->at.epoch = ddp_sampler_epoch(r->sampler);
    job->at.consumed = ddp_sampler_consumed(r->sampler);
    const bool shared = is_shared(r, &now);
    if (r->model != NULL && (rc = ddp_model_outer_step(r->model, now)) != 0)
        return rc;
    r->stepping += seconds() - began;
    if (!shared)
        return 0;
    r->news[LOSS] = r->losses / (double)r->n_losses;
    r->news[IS_OVER] = ddp_rank(r->g) == 0 && limit > 0 && seconds() - job->began > limit;
    r->losses = 0;
    r->n_losses = 0;
    /* after the step: if this finds a rank dead, the step still counts */
    rc = ddp_all_reduce(r->g, r->news, r->news, N_NEWS, DDP_FLOAT64, DDP_AVG, NULL);
    if (rc != 0)
        return rc;
    r->is_over = r->news[IS_OVER] > 0 || job->at.step >= last_step(job);
    if (job->loss_file != NULL)
        fprintf(job->loss_file, "%" PRId64 " %.17g\n", job->at.step, r->news[LOSS]);
    return 0;
}

/* ---- looking at it ---- */

static void report_step(struct run *r)
{
    struct job *job = r->job;
    const int64_t steps = job->at.step - r->reported_step;

    ddp_log0(r->g, "step %" PRId64 ": loss %.4f, %.0f characters/s\n", job->at.step, r->news[LOSS],
             (double)(steps * job->opts.batch * job->opts.context) / r->stepping);
    r->reported_step = job->at.step;
    r->stepping = 0;
}

/* Stretch number i of the held-out text. What would foretell beyond the end of its block does not
 * count. */
static void held_out_stretch(const struct job *job, size_t i, size_t each, uint8_t *inputs,
                             int *targets)
{
    const size_t context = job->net->shape.context, first = i % each * context;
    const uint8_t *block = text_held_out(&job->text, i / each);

    for (size_t k = 0; k < context; k++) {
        const size_t at = first + k;
        inputs[k] = at < TEXT_BLOCK ? block[at] : 0;
        targets[k] = at + 1 < TEXT_BLOCK ? block[at + 1] : -1;
    }
}

/* The mean surprise at the held-out text, each rank looking at its share. */
static int test(struct run *r, double *ret_nats)
{
    struct job *job = r->job;
    const size_t context = job->net->shape.context, blocks = text_count_held_out(&job->text);
    const size_t each = (TEXT_BLOCK - 1 + context - 1) / context;
    double sum = 0;
    int64_t first, end;
    int rc;

    ddp_shard_range(r->g, (int64_t)(blocks * each), &first, &end);
    while (first < end) {
        size_t n = 0;
        for (; n < r->batch && first < end; n++, first++)
            held_out_stretch(job, (size_t)first, each, job->inputs + n * context,
                             job->targets + n * context);
        sum += gpt_forward(job->net, job->inputs, job->targets, n);
    }
    rc = ddp_all_reduce(r->g, &sum, &sum, 1, DDP_FLOAT64, DDP_SUM, NULL);
    *ret_nats = sum / (double)(blocks * (TEXT_BLOCK - 1));
    return rc;
}

static int report_test(struct run *r, double bigram)
{
    double nats;
    int rc = test(r, &nats);

    if (rc == 0)
        ddp_log0(r->g,
                 "step %" PRId64 ", %.0f s: held-out text %.4f nats a character, %.4f better than "
                 "counting pairs\n",
                 r->job->at.step, seconds() - r->job->began, nats, bigram - nats);
    return rc;
}

/* Which stretches did the ranks take? The digests of two runs are the same if their ranks took the
 * same ones. */
static int report_data(struct run *r)
{
    const int ranks = ddp_world_size(r->g);
    struct ddp_sampler_report report;
    uint64_t *digests = calloc((size_t)ranks, sizeof(*digests));
    int rc = digests != NULL ? ddp_sampler_verify(r->sampler, &report) : DDP_ENOMEM;

    if (rc == 0)
        rc = ddp_all_gather(r->g, &report.digest, digests, 1, DDP_UINT64, NULL);
    if (rc == 0) {
        ddp_log0(r->g,
                 "epoch %" PRId64 ": the ranks took %" PRId64 " stretches, %" PRId64 " different\n",
                 ddp_sampler_epoch(r->sampler), report.n_taken, report.n_distinct);
        for (int k = 0; k < ranks; k++)
            ddp_log0(r->g, "rank %d: digest %016" PRIx64 "\n", k, digests[k]);
    }
    free(digests);
    return rc;
}

static int save(struct run *r)
{
    const struct job *job = r->job;
    const struct chargpt_optimiser by = optimiser_of(r);

    return chargpt_state_save(r->checkpoint, job->net, &by, &job->at);
}

/* ---- the whole ---- */

static int finish(struct run *r, double bigram)
{
    int rc = 0;

    if (r->reported_step != r->job->at.step)
        report_step(r);
    rc = report_test(r, bigram);
    if (rc == 0 && r->checkpoint != NULL && !is_due(r, r->job->opts.save_every))
        rc = save(r);
    if (rc == 0 && r->checkpoint != NULL)
        rc = ddp_checkpoint_wait(r->checkpoint);
    if (rc == 0 && r->job->opts.verify)
        rc = report_data(r);
    return rc;
}

static int run_all(struct run *r)
{
    struct job *job = r->job;
    const struct chargpt_options *o = &job->opts;
    int rc = set_up(r);

    if (rc != 0)
        return rc;
    const double bigram = bigram_held_out(&job->text);
    report_start(r, bigram);
    r->reported_step = job->at.step;
    r->is_over = job->at.step >= last_step(job);
    while (!r->is_over) {
        if ((rc = train_step(r)) != 0)
            return rc;
        if (is_due(r, o->print_every))
            report_step(r);
        if (is_due(r, o->test_every) && !r->is_over && (rc = report_test(r, bigram)) != 0)
            return rc;
        if (is_due(r, o->save_every) && (rc = save(r)) != 0)
            return rc;
    }
    return finish(r, bigram);
}

static int train(struct ddp_group *g, void *arg)
{
    struct job *job = arg;
    struct run r = {.g = g, .job = job};

    if (job->began == 0) /* not if it continues after a failure */
        job->began = seconds();
    int rc = run_all(&r);
    ddp_model_destroy(r.model); /* it borrows the tensors */
    free(r.tensors);
    if (job->net != NULL) {
        ddp_free(g, job->net->grads);
        job->net->grads = NULL;
    }
    return rc;
}

/* A loss file that could not be written completely is not a loss file. */
static int close_loss_file(struct job *job)
{
    if (job->loss_file == NULL)
        return 0;
    int failed = ferror(job->loss_file);
    if (fclose(job->loss_file) == 0 && !failed)
        return 0;
    fprintf(stderr, "chargpt: cannot write all of the loss file '%s'\n", job->opts.loss_file);
    return -1;
}

int main(int argc, char **argv)
{
    struct job job = {0};
    struct failure why = {""};

    if (chargpt_options_parse(argc, argv, &job.opts, &why) < 0) {
        fprintf(stderr, "chargpt: %s\n", why.text);
        return 2;
    }
    if (job.opts.help) {
        fputs(chargpt_options_help, stdout);
        return 0;
    }
    int rc = ddp_run(train, &job);
    if (rc != 0 && !job.is_reported)
        ddp_fatal("train");
    if (close_loss_file(&job) < 0)
        rc = -1;
    text_fini(&job.text);
    adamw_fini(&job.adam);
    gpt_destroy(job.net);
    free(job.inputs);
    free(job.targets);
    return rc != 0;
}
