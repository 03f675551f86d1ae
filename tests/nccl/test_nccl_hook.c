/* ddp_model_opts.hook with gradients on GPUs, compared with the same hook on CPUs: over the double.
 *
 * Covers: worker-runtime/nccl, worker-runtime/device */
#include "gpu_values.h"

#include "double/double.h"

#include <math.h>

enum { N_TENSORS = 12, STEPS = 4, MARK = 0x3c, DEAD = 77 };

/* Buckets of one gradient, of adjacent ones, of scattered ones; an empty one. */
static const struct {
    size_t count;
    enum ddp_dtype dtype;
} shapes[N_TENSORS] = {{700, DDP_FLOAT32},  {3001, DDP_BFLOAT16}, {5, DDP_FLOAT32},
                       {2000, DDP_FLOAT64}, {0, DDP_FLOAT32},     {9001, DDP_FLOAT16},
                       {1, DDP_FLOAT64},    {40000, DDP_FLOAT32}, {31, DDP_BFLOAT16},
                       {17, DDP_FLOAT16},   {900, DDP_FLOAT32},   {64, DDP_FLOAT64}};

struct hook_log { /* the input of a hook, and what it has seen */
    bool on_gpu;
    cudaStream_t program; /* the program's stream */
    size_t n_calls, n_elements, fails_at, bad_at;
};

struct net { /* the same one twice */
    struct ddp_tensor cpu[N_TENSORS], gpu[N_TENSORS];
    struct ddp_model *cpu_model, *gpu_model;
    struct hook_log cpu_log, gpu_log;
    cudaStream_t stream;
};

/* --- hooks ------------------------------------------------------------------------------------ */

/* The hook itself writes the first value of a bucket, after the sum. */
static int set_first(int rank, const struct ddp_bucket *b, int byte)
{
    const size_t size = ddp_dtype_size(b->dtype);
    if (b->count == 0)
        return 0;
    if (b->stream != NULL)
        GPU_CHECK(rank, cudaMemsetAsync(b->data, byte, size, b->stream));
    else
        memset(b->data, byte, size);
    return 0;
}

static int sum_up(struct ddp_group *g, const struct ddp_bucket *b, void *arg)
{
    struct hook_log *log = arg;
    const int rank = ddp_rank(g);
    RANK_CHECK(rank, b->index == log->n_calls++ % b->n_buckets, "bucket %zu", b->index);
    RANK_CHECK(rank, (b->stream != NULL) == log->on_gpu, "a stream");
    RANK_CHECK(rank, b->stream == NULL || b->stream != log->program, "the program's");
    log->n_elements += b->count;
    int rc = ddp_all_reduce(g, b->data, b->data, b->count, b->dtype, DDP_SUM, b->stream);
    if (rc == 0 && log->n_calls == log->fails_at && rank == 1)
        return DDP_ENOMEM;
    return rc != 0 ? rc : set_first(rank, b, log->n_calls == log->bad_at ? 0xff : MARK);
}

/* It waits on the host, and averages there. */
static int sum_up_on_host(struct ddp_group *g, const struct ddp_bucket *b, void *arg)
{
    struct hook_log *log = arg;
    const int rank = ddp_rank(g);
    const size_t bytes = b->count * ddp_dtype_size(b->dtype);
    char *copy = malloc(bytes + 1);
    log->n_calls++;
    if (b->stream == NULL || copy == NULL)
        return ddp_all_reduce(g, b->data, b->data, b->count, b->dtype, DDP_SUM, NULL);
    GPU_CHECK(rank, cudaMemcpyAsync(copy, b->data, bytes, cudaMemcpyDeviceToHost, b->stream));
    GPU_CHECK(rank, cudaStreamSynchronize(b->stream));
    int rc = ddp_all_reduce(g, copy, copy, b->count, b->dtype, DDP_SUM, NULL);
    GPU_CHECK(rank, cudaMemcpyAsync(b->data, copy, bytes, cudaMemcpyHostToDevice, b->stream));
    free(copy);
    return rc;
}

/* --- a network -------------------------------------------------------------------------------- */

static void describe(int rank, struct net *n, int i, bool ours)
{
    n->cpu[i] =
        (struct ddp_tensor){.name = "t", .count = shapes[i].count, .dtype = shapes[i].dtype};
    n->gpu[i] = n->cpu[i];
    const size_t bytes = gpu_bytes_of(&n->cpu[i]);
    n->cpu[i].param = calloc(bytes + 1, 1);
    n->cpu[i].grad = ours ? NULL : malloc(bytes + 1);
    n->gpu[i].param = gpu_memory(rank, bytes);
    n->gpu[i].grad = ours ? NULL : gpu_memory(rank, bytes);
    GPU_CHECK(rank, cudaMemsetAsync(n->gpu[i].param, 0, bytes, n->stream));
}

static void open_net(int rank, struct ddp_group *g, struct net *n, bool ours,
                     struct ddp_model_opts opts)
{
    GPU_CHECK(rank, cudaStreamCreate(&n->stream));
    for (int i = 0; i < N_TENSORS; i++)
        describe(rank, n, i, ours);
    struct ddp_model_opts on_cpus = opts;
    on_cpus.nccl_memory = false;
    on_cpus.hook_arg = &n->cpu_log;
    RANK_CHECK(rank, ddp_model_create(g, n->cpu, N_TENSORS, &on_cpus, &n->cpu_model) == 0, "CPU");
    opts.stream = n->stream;
    opts.hook_arg = &n->gpu_log;
    n->gpu_log.on_gpu = true;
    n->gpu_log.program = n->stream;
    RANK_CHECK(rank, ddp_model_create(g, n->gpu, N_TENSORS, &opts, &n->gpu_model) == 0, "GPU");
}

static void fill(struct ddp_tensor *t, int rank, int step, int i)
{
    for (size_t k = 0; k < t->count; k++)
        gpu_put(t->grad, t->dtype, k, (double)((k * 31 + (size_t)(rank * 7 + step + i)) % 61) / 8);
}

/* The two take turns: the calls of one group have one order on all ranks. */
static void backward_cpu(int rank, struct net *n, int step)
{
    for (int k = N_TENSORS; k-- > 0;) {
        fill(&n->cpu[k], rank, step, k);
        RANK_CHECK(rank, ddp_model_ready(n->cpu_model, (size_t)k) == 0, "ready");
    }
}

static void backward_gpu(int rank, struct net *n, int step)
{
    static double values[40000];
    for (int k = N_TENSORS; k-- > 0;) {
        const int i = step % 2 == 0 ? k : (k + 5) % N_TENSORS; /* not always in the plan's order */
        struct ddp_tensor t = n->gpu[i];
        t.grad = values;
        fill(&t, rank, step, i);
        GPU_CHECK(rank, cudaMemcpyAsync(n->gpu[i].grad, values, gpu_bytes_of(&t),
                                        cudaMemcpyHostToDevice, n->stream));
        RANK_CHECK(rank, ddp_model_ready(n->gpu_model, (size_t)i) == 0, "ready on the GPU");
    }
}

static void compare(int rank, const struct net *n, int step)
{
    static char got[40000 * 8];
    for (int i = 0; i < N_TENSORS; i++) {
        const size_t bytes = gpu_bytes_of(&n->cpu[i]);
        GPU_CHECK(rank, cudaMemcpy(got, n->gpu[i].grad, bytes, cudaMemcpyDeviceToHost));
        RANK_CHECK(rank, memcmp(got, n->cpu[i].grad, bytes) == 0, "step %d: gradient %d", step, i);
    }
}

/* --- sums ------------------------------------------------------------------------------------- */

struct net_options {
    bool ours;
    struct ddp_model_opts opts;
};

static int run_steps(int rank, void *arg)
{
    const struct net_options *options = arg;
    static struct net n;
    struct ddp_group *g = gpu_rank_init(rank);
    struct ddp_model_stats stats;
    size_t n_calls = 0;
    open_net(rank, g, &n, options->ours, options->opts);
    for (int step = 0; step < STEPS; step++) {
        backward_gpu(rank, &n, step);
        ddp_model_get_stats(n.gpu_model, &stats);
        n_calls += stats.n_buckets;
        RANK_CHECK(rank, ddp_model_sync(n.gpu_model) == 0, "sync on the GPU");
        RANK_CHECK(rank, n.gpu_log.n_calls == n_calls, "%zu calls", n.gpu_log.n_calls);
        backward_cpu(rank, &n, step);
        RANK_CHECK(rank, ddp_model_sync(n.cpu_model) == 0, "sync");
        RANK_CHECK(rank, n.cpu_log.n_calls == n_calls, "%zu calls", n.cpu_log.n_calls);
        compare(rank, &n, step);
    }
    RANK_CHECK(rank, stats.n_buckets > 3, "%zu buckets", stats.n_buckets);
    RANK_CHECK(rank, !options->opts.nccl_memory || stats.is_registered == (ddp_world_size(g) > 1),
               "%s", stats.unregistered);
    ddp_finalize(g);
    return 0;
}

static void expect_steps(int n, bool ours, struct ddp_model_opts opts)
{
    struct net_options options = {ours, opts};
    options.opts.hook = opts.hook != NULL ? opts.hook : sum_up;
    options.opts.bucket_bytes = 8000;
    gpu_expect_ranks(n, run_steps, &options);
}

START_TEST(a_hook_gives_the_same_bits_as_on_cpus)
{
    expect_steps(1 + _i / 2, _i % 2, (struct ddp_model_opts){0});
}
END_TEST

START_TEST(a_hook_runs_after_calls_in_progress)
{
    setenv("NCCL_DOUBLE_FAULTS", "lazy", 1);
    expect_steps(2, _i, (struct ddp_model_opts){0});
}
END_TEST

START_TEST(a_hook_may_wait_on_the_host)
{
    expect_steps(3, _i, (struct ddp_model_opts){.hook = sum_up_on_host});
}
END_TEST

START_TEST(a_hook_sees_memory_that_nccl_knows)
{
    expect_steps(1 + _i, true, (struct ddp_model_opts){.nccl_memory = true});
}
END_TEST

/* --- where its data is ------------------------------------------------------------------------ */

struct places {
    size_t n_calls, count;
    void *data;
    int returns;
};

static int look(struct ddp_group *g, const struct ddp_bucket *b, void *arg)
{
    struct places *p = arg;
    RANK_CHECK(ddp_rank(g), b->stream != NULL, "no stream");
    p->n_calls++;
    p->data = b->data;
    p->count = b->count;
    return p->returns;
}

/* Two gradients in one array, or with something between them. */
static int run_places(int rank, void *arg)
{
    const size_t gap = *(size_t *)arg;
    static const float zeros[8];
    struct places seen = {0};
    struct ddp_group *g = gpu_rank_init(rank);
    cudaStream_t stream;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    float *param = gpu_copy_of(rank, zeros, sizeof zeros, stream);
    float *grad = gpu_copy_of(rank, zeros, sizeof zeros, stream);
    struct ddp_tensor t[] = {{"a", param, grad, 2, DDP_FLOAT32},
                             {"b", param + 2, grad + 2 + gap, 3, DDP_FLOAT32}};
    const struct ddp_model_opts opts = {.stream = stream, .hook = look, .hook_arg = &seen};
    struct ddp_model *m;
    RANK_CHECK(rank, ddp_model_create(g, t, 2, &opts, &m) == 0, "create");
    RANK_CHECK(rank, ddp_model_sync(m) == 0, "sync");
    RANK_CHECK(rank, seen.n_calls == 1 && seen.count == 5, "%zu calls", seen.n_calls);
    RANK_CHECK(rank, (seen.data == grad) == (gap == 0), "a copy, or none");
    ddp_finalize(g);
    return 0;
}

START_TEST(adjacent_gradients_are_not_copied)
{
    size_t gap = (size_t)_i;
    gpu_expect_ranks(2, run_places, &gap);
}
END_TEST

static int run_empty(int rank, void *arg)
{
    (void)arg;
    struct places seen = {0};
    struct ddp_group *g = gpu_rank_init(rank);
    cudaStream_t stream;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    struct ddp_tensor t = {"nothing", NULL, NULL, 0, DDP_FLOAT32};
    const struct ddp_model_opts opts = {.stream = stream, .hook = look, .hook_arg = &seen};
    struct ddp_model *m;
    RANK_CHECK(rank, ddp_model_create(g, &t, 1, &opts, &m) == 0, "create");
    RANK_CHECK(rank, ddp_model_sync(m) == 0, "sync");
    RANK_CHECK(rank, seen.n_calls == 1 && seen.count == 0 && seen.data == NULL, "%zu calls",
               seen.n_calls);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_hook_is_called_for_an_empty_bucket)
{
    gpu_expect_ranks(2, run_empty, NULL);
}
END_TEST

/* --- failures --------------------------------------------------------------------------------- */

/* As on CPUs: this step fails on all ranks, and the next one counts. */
static int run_failing(int rank, void *arg)
{
    (void)arg;
    static struct net n;
    struct ddp_group *g = gpu_rank_init(rank);
    open_net(rank, g, &n, true, (struct ddp_model_opts){.hook = sum_up});
    struct ddp_model_stats stats;
    ddp_model_get_stats(n.gpu_model, &stats);
    n.cpu_log.fails_at = n.gpu_log.fails_at = stats.n_buckets + 2; /* in the second step */
    for (int step = 0; step < 3; step++) {
        const int want = step != 1 ? 0 : rank == 1 ? DDP_ENOMEM : DDP_EMISMATCH;
        backward_gpu(rank, &n, step);
        const int rc = ddp_model_sync(n.gpu_model);
        RANK_CHECK(rank, rc == want, "step %d: %d", step, rc);
        RANK_CHECK(rank,
                   want == 0 || strstr(ddp_last_error(),
                                       rank == 1 ? "hook of gradient bucket 2 of" : "rank 1 could"),
                   "it is told");
        backward_cpu(rank, &n, step);
        RANK_CHECK(rank, ddp_model_sync(n.cpu_model) == want, "step %d on CPUs", step);
        if (want == 0)
            compare(rank, &n, step);
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(a_hook_that_fails_on_one_rank_fails_the_step_on_all)
{
    gpu_expect_ranks(3, run_failing, NULL);
}
END_TEST

/* The model then returns what a collective returns for a broken group. */
static int run_broken(int rank, void *arg)
{
    static const float zeros[8];
    struct places seen = {.returns = *(const int *)arg};
    struct ddp_group *g = gpu_rank_init(rank);
    cudaStream_t stream;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    float *at = gpu_copy_of(rank, zeros, sizeof zeros, stream);
    struct ddp_tensor t[] = {{"a", at, NULL, 2, DDP_FLOAT32}, {"b", at + 2, NULL, 3, DDP_FLOAT32}};
    const struct ddp_model_opts opts = {
        .stream = stream, .bucket_bytes = 4, .hook = look, .hook_arg = &seen};
    struct ddp_model *m;
    RANK_CHECK(rank, ddp_model_create(g, t, 2, &opts, &m) == 0, "create");
    for (int i = 0; i < 2; i++)
        RANK_CHECK(rank, ddp_model_sync(m) == seen.returns, "sync");
    RANK_CHECK(rank, seen.n_calls == 1, "%zu calls", seen.n_calls);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_hook_in_a_broken_group_is_not_called_again)
{
    static const int statuses[] = {DDP_RETRY, DDP_EPEER, DDP_ERESPAWN};
    gpu_expect_ranks(2, run_broken, (void *)&statuses[_i]);
}
END_TEST

/* Rank 0's gradient, or what the hook of the second step leaves on all ranks. */
static int run_nonfinite(int rank, void *arg)
{
    struct ddp_model_opts opts = *(const struct ddp_model_opts *)arg;
    static struct net n;
    static const float inf = HUGE_VALF;
    struct ddp_model_stats stats;
    struct ddp_group *g = gpu_rank_init(rank);
    opts.hook = sum_up;
    open_net(rank, g, &n, true, opts);
    ddp_model_get_stats(n.gpu_model, &stats);
    n.gpu_log.bad_at = stats.n_buckets + 1;
    for (int step = 0; step < 4; step++) {
        backward_gpu(rank, &n, 0);
        if (step == 2 && rank == 0 && opts.delay_allreduce)
            GPU_CHECK(rank, cudaMemcpyAsync(n.gpu[7].grad, &inf, sizeof inf, cudaMemcpyHostToDevice,
                                            n.stream));
        const bool is_bad = step == 1 || step == 2;
        const int rc = ddp_model_sync(n.gpu_model);
        RANK_CHECK(rank, rc == (is_bad && opts.check_finite ? DDP_ENOTFINITE : 0), "step %d: %d",
                   step, rc);
        RANK_CHECK(rank, !opts.tell_nonfinite || ddp_model_found_inf(n.gpu_model) == is_bad,
                   "step %d", step);
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(nonfinite_values_are_found_before_and_after_a_hook)
{
    struct ddp_model_opts opts = {.check_finite = _i % 2, .tell_nonfinite = _i % 2 == 0};
    opts.delay_allreduce = true; /* gradients may be written until then */
    gpu_expect_ranks(1 + _i, run_nonfinite, &opts);
}
END_TEST

/* Rank 1 dies while the others are in a hook's sum. */
static int run_death(int rank, void *arg)
{
    (void)arg;
    static struct net n;
    struct ddp_group *g = gpu_rank_init(rank);
    open_net(rank, g, &n, false, (struct ddp_model_opts){.hook = sum_up});
    backward_gpu(rank, &n, 0);
    RANK_CHECK(rank, ddp_model_sync(n.gpu_model) == 0, "the first step");
    if (rank == 1)
        _exit(DEAD);
    int rc = 0;
    for (int i = N_TENSORS; i-- > 0 && rc == 0;)
        rc = ddp_model_ready(n.gpu_model, (size_t)i);
    rc = ddp_model_sync(n.gpu_model);
    RANK_CHECK(rank, rc == DDP_EPEER, "%d", rc);
    RANK_CHECK(rank, ddp_model_sync(n.gpu_model) == DDP_EPEER, "again");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_death_ends_a_hooks_sum)
{
    gpu_expect_death(3, run_death, NULL, W_EXITCODE(DEAD, 0), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl_hook");
    TCase *t = tcase_create("hook");
    tcase_set_timeout(t, 240);
    tcase_add_checked_fixture(t, gpu_set_up, gpu_tear_down);
    tcase_add_loop_test(t, a_hook_gives_the_same_bits_as_on_cpus, 0, 8);
    tcase_add_loop_test(t, a_hook_runs_after_calls_in_progress, 0, 2);
    tcase_add_loop_test(t, a_hook_may_wait_on_the_host, 0, 2);
    tcase_add_loop_test(t, a_hook_sees_memory_that_nccl_knows, 0, 2);
    tcase_add_loop_test(t, adjacent_gradients_are_not_copied, 0, 2);
    tcase_add_test(t, a_hook_is_called_for_an_empty_bucket);
    tcase_add_loop_test(t, a_hook_in_a_broken_group_is_not_called_again, 0, 3);
    tcase_add_test(t, a_hook_that_fails_on_one_rank_fails_the_step_on_all);
    tcase_add_loop_test(t, nonfinite_values_are_found_before_and_after_a_hook, 0, 3);
    tcase_add_test(t, a_death_ends_a_hooks_sum);
    suite_add_tcase(s, t);
    return run_suite(s);
}
