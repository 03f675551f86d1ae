/* recovery_rank - ranks that train a small model with ddp_run() and report each step, so that a
 * test can kill them and observe how they continue:
 *
 *     recovery_rank EPOCHS BATCHES MS [FLOATS [SAMPLES [FILE]]]
 *
 * EPOCHS of BATCHES steps of at least MS milliseconds each. The model has FLOATS parameters besides
 * those that count. Or, with SAMPLES, as many steps as it takes to see so many samples, whatever
 * the size of the world; or those of an IDX file, which are read ahead. A rank writes
 * "start pid P" at its start, "holds generation G pid P rank R after STEPS" when it has a
 * generation's state, and after each step "step NUMBER PARAMETER MOMENTUM generation G pid P rank R
 * world W took I,I,...". The numbers are bits, so that equal values have equal texts. Where
 * RECOVERY_UNTIL names a file, no epoch begins once that exists. On a request to save its state the
 * rank reports that it has saved: there is nothing to save. */
#include <ddp/ddp.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 3, WEIGHTS = 5, SCRATCH_BYTES = 1 << 20 };

struct job {
    int64_t n_epochs, n_batches, step_ms, n_samples;
    double weight[WEIGHTS], momentum[WEIGHTS];
    void *grad;    /* where the gradient was in the generation before; NULL: in the first one */
    void *scratch; /* of ddp_alloc(): freed in the next generation */
    float *ballast;
    size_t n_ballast;
    struct ddp_tensor tensors[2], buffer;
    double saved[WEIGHTS + 3]; /* the momentum, in as many numbers as the step asks for */
    struct ddp_dataset *file;  /* of samples, or NULL */
    bool has_touched;          /* the ballast's gradients, in this process */
    uint64_t step;
    uint64_t random;      /* the model's buffer: of a generator that no rank may draw from twice */
    bool is_within_epoch; /* this rank has begun an epoch and not ended it */
};

/* At once, and in one piece. */
static void put(const char *line, int n)
{
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        exit(3);
}

static uint64_t bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static void tell(const struct job *job, struct ddp_group *g, const int64_t *index, size_t n_index)
{
    char line[256];
    int n = snprintf(line, sizeof line,
                     "step %" PRIu64 " %016" PRIx64 " %016" PRIx64 " generation %" PRIu64
                     " pid %d rank %d world %d took ",
                     job->step, bits(job->weight[0]), bits(job->momentum[WEIGHTS - 1]),
                     ddp_generation(g), getpid(), ddp_rank(g), ddp_world_size(g));
    for (size_t i = 0; i < n_index; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, "%s%" PRId64, i > 0 ? "," : "", index[i]);
    put(line, n + snprintf(line + n, sizeof line - (size_t)n, "\n"));
}

static void tell_state(struct ddp_group *g)
{
    char line[128];
    put(line, snprintf(line, sizeof line,
                       "holds generation %" PRIu64 " pid %d rank %d after %" PRIu64 "\n",
                       ddp_generation(g), getpid(), ddp_rank(g), ddp_completed_steps(g)));
}

static void compute_gradients(struct job *job, const int64_t *index, size_t n)
{
    double *grad = job->tensors[0].grad;
    struct timespec t = {.tv_sec = job->step_ms / 1000, .tv_nsec = job->step_ms % 1000 * 1000000};
    nanosleep(&t, NULL); /* a step has a length, as others have one by what they compute */
    job->random = job->random * 6364136223846793005u + 1442695040888963407u;
    for (int i = 0; i < WEIGHTS; i++) {
        grad[i] = 1e-3 * (double)(job->random >> 40) / (1 << 24);
        for (size_t k = 0; k < n; k++)
            grad[i] += job->weight[i] - 1.0 / (double)(3 + i + index[k]);
    }
    /* Once is enough, since the mean of zeros is zero: then the memory is that of a program that
     * has written its gradients, and a step's own computation is not part of the recovery time. */
    if (job->n_ballast > 0 && !job->has_touched)
        memset(job->tensors[1].grad, 0, job->n_ballast * sizeof(float));
    job->has_touched = true;
}

static void step(struct job *job)
{
    const double *grad = job->tensors[0].grad;
    for (int i = 0; i < WEIGHTS; i++) {
        job->momentum[i] = 0.9 * job->momentum[i] + grad[i];
        job->weight[i] -= 0.01 * job->momentum[i];
    }
    job->step++;
}

static int answer(struct ddp_group *g)
{
    int pending;
    int rc = ddp_checkpoint_requested(g, &pending);
    return rc == 0 && pending ? ddp_checkpoint_done(g) : rc;
}

/* Not before the end of the epoch that a generation has left to the next one. A new rank learns of
 * such an epoch from the other ranks. */
static int look_for_end(const struct job *job, struct ddp_group *g, bool *ret_ends)
{
    const char *path = getenv("RECOVERY_UNTIL");
    int32_t seen[] = {path != NULL && access(path, F_OK) == 0, job->is_within_epoch};
    int rc = path != NULL ? ddp_all_reduce(g, seen, seen, 2, DDP_INT32, DDP_MAX, NULL) : 0;
    *ret_ends = seen[0] && !seen[1];
    return rc;
}

struct source { /* of samples */
    struct ddp_sampler *sampler;
    struct ddp_loader *loader; /* NULL: no file */
};

static int open_source(const struct job *job, struct ddp_group *g, struct source *ret)
{
    struct ddp_loader_opts ahead = {.n_datasets = 1, .batch = BATCH, .depth = 4};
    struct ddp_sampler_opts order = {
        .n = job->n_samples > 0 ? job->n_samples : BATCH * job->n_batches * ddp_world_size(g) - 1,
        .seed = 7,
        .shuffle = true};
    *ret = (struct source){0};
    if (job->file != NULL)
        order.n = ddp_dataset_count(job->file);
    int rc = ddp_sampler_create(g, &order, &ret->sampler);
    ahead.datasets[0] = job->file;
    if (rc == 0 && job->file != NULL)
        rc = ddp_loader_create(ret->sampler, &ahead, &ret->loader);
    return rc;
}

static int next_batch(struct source *s, const int64_t **ret_index, size_t *ret_n)
{
    struct ddp_batch batch;
    if (s->loader == NULL) {
        *ret_n = ddp_sampler_next(s->sampler, BATCH, ret_index);
        return 0;
    }
    int rc = ddp_loader_next(s->loader, &batch);
    *ret_index = batch.index;
    *ret_n = rc == 0 ? batch.n : 0;
    return rc;
}

static int train_epoch(struct job *job, struct ddp_group *g, struct ddp_model *m, struct source *s)
{
    const int64_t *index;
    size_t n;
    int rc;
    while ((rc = next_batch(s, &index, &n)) == 0 && n > 0) {
        compute_gradients(job, index, n);
        rc = ddp_model_sync(m);
        if (rc != 0)
            return rc;
        step(job);
        tell(job, g, index, n);
        if ((rc = answer(g)) != 0)
            return rc;
    }
    return rc;
}

static int train_epochs(struct job *job, struct ddp_group *g, struct ddp_model *m, struct source *s)
{
    bool ends;
    int rc;
    while ((rc = look_for_end(job, g, &ends)) == 0 && !ends &&
           ddp_sampler_next_epoch(s->sampler, job->n_epochs)) {
        job->is_within_epoch = true;
        if ((rc = train_epoch(job, g, m, s)) != 0)
            return rc;
        job->is_within_epoch = false;
    }
    return rc;
}

/* The momentum, as a state of which only the rank that gives it knows the size. */
static int save_momentum(void *arg, const void **ret_data, size_t *ret_bytes)
{
    struct job *job = arg;
    const size_t n_more = job->step % 4;
    memset(job->saved, 0, sizeof job->saved);
    memcpy(job->saved + n_more, job->momentum, sizeof job->momentum);
    *ret_data = job->saved;
    *ret_bytes = sizeof job->momentum + n_more * sizeof(double);
    return 0;
}

static int load_momentum(void *arg, const void *data, size_t bytes)
{
    struct job *job = arg;
    if (bytes < sizeof job->momentum)
        return ddp_fail("the momentum is too short");
    memcpy(job->momentum, (const char *)data + bytes - sizeof job->momentum, sizeof job->momentum);
    return 0;
}

/* Gradients of the library stay where they are, and are averaged there. */
static int check_gradients(struct job *job, const struct ddp_model *m)
{
    struct ddp_model_stats stats;
    ddp_model_get_stats(m, &stats);
    if (job->grad != NULL && job->tensors[0].grad != job->grad)
        return ddp_fail("the gradient has moved");
    if (stats.n_in_place != stats.n_buckets)
        return ddp_fail("a bucket is copied");
    job->grad = job->tensors[0].grad;
    return 0;
}

static int train(struct ddp_group *g, void *arg)
{
    struct job *job = arg;
    const struct ddp_model_opts opts = {
        .buffers = &job->buffer, .n_buffers = 1, .keep_buffers = true};
    struct ddp_model *m;
    struct source s = {0};
    int rc;
    ddp_free(g, job->scratch);
    job->scratch = NULL;
    if ((rc = ddp_alloc(g, SCRATCH_BYTES, &job->scratch)) != 0 ||
        (rc = ddp_state_add_callbacks(g, "momentum", save_momentum, load_momentum, job)) != 0 ||
        (rc = ddp_state_add(g, "step", &job->step, sizeof job->step)) != 0 ||
        (rc = ddp_model_create(g, job->tensors, job->n_ballast > 0 ? 2 : 1, &opts, &m)) != 0 ||
        (rc = check_gradients(job, m)) != 0)
        return rc;
    rc = open_source(job, g, &s);
    if (rc == 0) {
        tell_state(g);
        rc = train_epochs(job, g, m, &s);
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct job job = {.random = 1};
    if (argc < 4)
        return 2;
    job.n_epochs = strtoll(argv[1], NULL, 10);
    job.n_batches = strtoll(argv[2], NULL, 10);
    job.step_ms = strtoll(argv[3], NULL, 10);
    job.n_ballast = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
    job.n_samples = argc > 5 ? strtoll(argv[5], NULL, 10) : 0;
    if (argc > 6 && ddp_idx_open(argv[6], &job.file) != 0)
        ddp_fatal("recovery_rank");
    job.ballast = calloc(job.n_ballast + 1, sizeof *job.ballast);
    for (size_t i = 0; job.ballast != NULL && i < job.n_ballast; i++)
        job.ballast[i] = 1; /* as a program fills its weights before it trains */
    if (job.ballast == NULL)
        return 2;
    job.tensors[0] = (struct ddp_tensor){
        .name = "weight", .param = job.weight, .count = WEIGHTS, .dtype = DDP_FLOAT64};
    job.buffer = (struct ddp_tensor){
        .name = "random", .param = &job.random, .count = 1, .dtype = DDP_UINT64};
    job.tensors[1] = (struct ddp_tensor){
        .name = "ballast", .param = job.ballast, .count = job.n_ballast, .dtype = DDP_FLOAT32};
    char line[32];
    put(line, snprintf(line, sizeof line, "start pid %d\n", getpid()));
    if (ddp_run(train, &job) != 0)
        ddp_fatal("recovery_rank");
    ddp_dataset_close(job.file);
    free(job.ballast);
    return 0;
}
