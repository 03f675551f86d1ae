/* ddp_model with gradients on GPUs, beside the same model on CPUs: over the double. */
#include "gpu_ranks.h"

enum { N_TENSORS = 7, MOST = 70000, STEPS = 4, FAILED = 10 };

static const struct {
    size_t count;
    enum ddp_dtype dtype;
} shapes[N_TENSORS] = {{7, DDP_FLOAT32},     {30000, DDP_FLOAT32}, {0, DDP_FLOAT32},
                       {1000, DDP_BFLOAT16}, {MOST, DDP_FLOAT32},  {1, DDP_FLOAT64},
                       {20000, DDP_BFLOAT16}};

struct net { /* the same one twice */
    struct ddp_tensor cpu[N_TENSORS], gpu[N_TENSORS];
    struct ddp_model *cpu_model, *gpu_model;
    cudaStream_t stream;
};

static size_t bytes_of(int i)
{
    return shapes[i].count * ddp_dtype_size(shapes[i].dtype);
}

/* Bits that are numbers of about 1 in each type. */
static void fill(char *at, int i, int seed)
{
    for (size_t k = 0; k < shapes[i].count; k++) {
        const float f = 1 + (float)((k * 31 + (size_t)seed * 17) % 64) / 64;
        const double d = f;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        const uint16_t half = (uint16_t)(bits >> 16);
        if (shapes[i].dtype == DDP_FLOAT32)
            memcpy(at + k * 4, &f, 4);
        else if (shapes[i].dtype == DDP_FLOAT64)
            memcpy(at + k * 8, &d, 8);
        else
            memcpy(at + k * 2, &half, 2);
    }
}

static void *gpu_memory(int rank, size_t bytes)
{
    void *at;
    GPU_CHECK(rank, cudaMalloc(&at, bytes > 0 ? bytes : 1));
    return at;
}

/* `ours`: the library allocates gradients. */
static void open_net(int rank, struct ddp_group *g, struct net *n, bool ours,
                     struct ddp_model_opts opts)
{
    static char values[MOST * 8];
    opts.bucket_bytes = 64 << 10;
    GPU_CHECK(rank, cudaStreamCreate(&n->stream));
    for (int i = 0; i < N_TENSORS; i++) {
        const size_t bytes = bytes_of(i);
        n->cpu[i] =
            (struct ddp_tensor){"t", malloc(bytes + 1), NULL, shapes[i].count, shapes[i].dtype};
        n->gpu[i] = n->cpu[i];
        fill(n->cpu[i].param, i, rank);
        fill(values, i, rank);
        n->gpu[i].param = gpu_memory(rank, bytes);
        GPU_CHECK(rank, cudaMemcpyAsync(n->gpu[i].param, values, bytes, cudaMemcpyHostToDevice,
                                        n->stream));
        n->cpu[i].grad = ours ? NULL : malloc(bytes + 1);
        n->gpu[i].grad = ours ? NULL : gpu_memory(rank, bytes);
    }
    RANK_CHECK(rank, ddp_model_create(g, n->cpu, N_TENSORS, &opts, &n->cpu_model) == 0, "CPU");
    opts.stream = n->stream;
    RANK_CHECK(rank, ddp_model_create(g, n->gpu, N_TENSORS, &opts, &n->gpu_model) == 0, "GPU");
}

static void compare(int rank, struct ddp_group *g, struct net *n, const char *what)
{
    static char got[MOST * 8];
    if (ddp_world_size(g) > 1)
        RANK_CHECK(rank, ddp_stream_wait(g, n->stream, 0) == 0, "wait");
    else
        GPU_CHECK(rank, cudaStreamSynchronize(n->stream));
    for (int i = 0; i < N_TENSORS; i++) {
        GPU_CHECK(rank, cudaMemcpy(got, n->gpu[i].grad, bytes_of(i), cudaMemcpyDeviceToHost));
        RANK_CHECK(rank, memcmp(got, n->cpu[i].grad, bytes_of(i)) == 0, "%s: grad %d", what, i);
        GPU_CHECK(rank, cudaMemcpy(got, n->gpu[i].param, bytes_of(i), cudaMemcpyDeviceToHost));
        RANK_CHECK(rank, memcmp(got, n->cpu[i].param, bytes_of(i)) == 0, "%s: param %d", what, i);
    }
}

/* A backward pass: gradients are written one after the other, on the GPU by its stream. */
static void backward(int rank, struct net *n, int step, int but)
{
    static char values[MOST * 8];
    for (int k = N_TENSORS; k-- > 0;) {
        const int i = step % 2 == 0 ? k : (k + 3) % N_TENSORS; /* not always in the plan's order */
        if (i == but)
            continue;
        fill(values, i, rank * 7 + step);
        memcpy(n->cpu[i].grad, values, bytes_of(i));
        GPU_CHECK(rank, cudaMemcpyAsync(n->gpu[i].grad, values, bytes_of(i), cudaMemcpyHostToDevice,
                                        n->stream));
        RANK_CHECK(rank, ddp_model_ready(n->gpu_model, (size_t)i) == 0, "ready on the GPU");
    }
    for (int i = N_TENSORS; i-- > 0;)
        if (i != but)
            RANK_CHECK(rank, ddp_model_ready(n->cpu_model, (size_t)i) == 0, "ready");
}

struct way {
    bool ours;
    struct ddp_model_opts opts;
    int but; /* a gradient that this network does not use; -1: none */
};

/* The two take turns: the calls of one group stand in one order on all ranks. */
static int run_steps(int rank, void *arg)
{
    const struct way *way = arg;
    struct net n = {0};
    struct ddp_group *g = gpu_rank_init(rank);
    open_net(rank, g, &n, way->ours, way->opts);
    for (int step = 0; step < STEPS; step++) {
        static char values[MOST * 8];
        for (int k = N_TENSORS; k-- > 0;) {
            const int i = step % 2 == 0 ? k : (k + 3) % N_TENSORS;
            if (i == way->but)
                continue;
            fill(values, i, rank * 7 + step);
            GPU_CHECK(rank, cudaMemcpyAsync(n.gpu[i].grad, values, bytes_of(i),
                                            cudaMemcpyHostToDevice, n.stream));
            RANK_CHECK(rank, ddp_model_ready(n.gpu_model, (size_t)i) == 0, "ready on the GPU");
        }
        RANK_CHECK(rank, ddp_model_sync(n.gpu_model) == 0, "sync on the GPU");
        for (int i = N_TENSORS; i-- > 0;) {
            if (i == way->but)
                continue;
            fill(n.cpu[i].grad, i, rank * 7 + step);
            RANK_CHECK(rank, ddp_model_ready(n.cpu_model, (size_t)i) == 0, "ready");
        }
        RANK_CHECK(rank, ddp_model_sync(n.cpu_model) == 0, "sync");
        compare(rank, g, &n, "after a step");
    }
    ddp_finalize(g);
    return 0;
}

static void expect_steps(int n, struct way way)
{
    struct ranks r;
    ranks_start(&r, n, run_steps, &way);
    ranks_expect_success(&r);
    gpu_expect_no_report();
}

START_TEST(gradients_of_the_library_become_the_average_on_cpus)
{
    expect_steps(_i, (struct way){.ours = true, .but = -1});
}
END_TEST

START_TEST(gradients_here_and_there_are_averaged_where_they_are)
{
    expect_steps(_i, (struct way){.but = -1});
}
END_TEST

START_TEST(an_unused_gradient_counts_as_zeros)
{
    expect_steps(3, (struct way){.opts.allow_unused = true, .but = 4});
}
END_TEST

START_TEST(calls_in_progress_are_waited_for_between_buckets)
{
    setenv("NCCL_DOUBLE_FAULTS", "lazy", 1);
    expect_steps(2, (struct way){.ours = true, .but = -1});
}
END_TEST

/* --- join ------------------------------------------------------------------------------------- */

/* Rank r has r + 1 batches. */
static int run_join(int rank, void *arg)
{
    (void)arg;
    float value = 1, got;
    struct ddp_group *g = gpu_rank_init(rank);
    const int n = ddp_world_size(g);
    cudaStream_t stream;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    struct ddp_tensor t = {.name = "t",
                           .param = gpu_copy_of(rank, &value, sizeof value, stream),
                           .count = 1,
                           .dtype = DDP_FLOAT32};
    struct ddp_model_opts opts = {.stream = stream};
    struct ddp_model *m;
    RANK_CHECK(rank, ddp_model_create(g, &t, 1, &opts, &m) == 0, "create");
    for (int step = 0; step <= rank; step++) {
        value = (float)n;
        GPU_CHECK(rank,
                  cudaMemcpyAsync(t.grad, &value, sizeof value, cudaMemcpyHostToDevice, stream));
        RANK_CHECK(rank, ddp_model_sync(m) == 0, "sync");
        GPU_CHECK(rank, cudaMemcpy(&got, t.grad, sizeof got, cudaMemcpyDeviceToHost));
        RANK_CHECK(rank, got == (float)(n - step), "step %d: %g", step, (double)got);
    }
    RANK_CHECK(rank, ddp_join(m) == 0, "join");
    ddp_finalize(g);
    return 0;
}

START_TEST(who_has_no_more_batches_takes_part_with_zeros)
{
    struct ranks r;
    ranks_start(&r, 3, run_join, NULL);
    ranks_expect_success(&r);
    gpu_expect_no_report();
}
END_TEST

/* --- failures --------------------------------------------------------------------------------- */

static int run_until_death(int rank, void *arg)
{
    (void)arg;
    struct net n = {0};
    struct ddp_group *g = gpu_rank_init(rank);
    open_net(rank, g, &n, true, (struct ddp_model_opts){0});
    for (int step = 0; step < 1000; step++) {
        backward(rank, &n, 0, -1);
        int rc = ddp_model_sync(n.gpu_model);
        if (rc == 0)
            rc = ddp_model_sync(n.cpu_model);
        if (rc == 0)
            continue;
        RANK_CHECK(rank, rc == DDP_EPEER, "%d", rc);
        RANK_CHECK(rank, ddp_model_sync(n.gpu_model) == DDP_EPEER, "again");
        RANK_CHECK(rank, gpu_becomes_idle(n.stream), "the stream is busy");
        ddp_finalize(g);
        return FAILED;
    }
    return 0;
}

START_TEST(a_death_in_a_step_fails_it_on_all_others)
{
    struct ranks r;
    setenv("NCCL_DOUBLE_FAULTS", "r1g0:kill@20", 1);
    ranks_start(&r, 3, run_until_death, NULL);
    ranks_wait(&r);
    for (int i = 0; i < r.n; i++)
        ck_assert_msg(i == 1 ? WIFSIGNALED(r.status[i]) : WEXITSTATUS(r.status[i]) == FAILED,
                      "rank %d ended with status %#x", i, r.status[i]);
    gpu_expect_no_report();
}
END_TEST

static int hook(struct ddp_group *g, const struct ddp_bucket *b, void *arg)
{
    (void)g;
    (void)b;
    (void)arg;
    return 0;
}

static int run_refused(int rank, void *arg)
{
    (void)arg;
    float value = 1;
    struct ddp_group *g = gpu_rank_init(rank);
    cudaStream_t stream;
    struct ddp_model *m = NULL;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    void *gpu = gpu_copy_of(rank, &value, sizeof value, stream);
    struct ddp_tensor t = {"t", gpu, NULL, 1, DDP_FLOAT32},
                      plain = {"p", &value, NULL, 1, DDP_FLOAT32},
                      huge = {"h", gpu, NULL, (size_t)1 << 40, DDP_FLOAT32};
    const struct ddp_model_opts refused[] = {
        {.hook = hook},          {.compress = DDP_COMPRESS_FLOAT16},
        {.always_fp32 = true},   {.predivide_factor = 2},
        {.weighted = true},      {.check_finite = true},
        {.tell_nonfinite = true}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct ddp_model_opts opts = refused[i];
        opts.stream = stream;
        RANK_CHECK(rank, ddp_model_create(g, &t, 1, &opts, &m) == DDP_EUNSUPPORTED, "%zu", i);
    }
    struct ddp_model_opts opts = {.stream = stream};
    RANK_CHECK(rank, ddp_model_create(g, &plain, 1, &opts, &m) == DDP_EINVAL, "plain memory");
    RANK_CHECK(rank, strstr(ddp_last_error(), "'p': param") != NULL, "it is named");
    RANK_CHECK(rank, ddp_model_create(g, &huge, 1, &opts, &m) == DDP_ENOMEM, "too much memory");
    GPU_CHECK(rank, cudaGetLastError()); /* it was told, and not left behind */
    opts.stream = rank == 0 ? stream : NULL;
    RANK_CHECK(rank, ddp_model_create(g, rank == 0 ? &t : &plain, 1, &opts, &m) == DDP_EMISMATCH,
               "a stream on one rank only");
    opts.stream = stream;
    RANK_CHECK(rank, ddp_model_create(g, &t, 1, &opts, &m) == 0, "nothing of this broke the group");
    RANK_CHECK(rank, ddp_model_clip(m, 1, NULL) == DDP_EUNSUPPORTED, "clip");
    ddp_finalize(g);
    return 0;
}

START_TEST(what_a_model_on_gpus_cannot_do_is_refused)
{
    struct ranks r;
    ranks_start(&r, 2, run_refused, NULL);
    ranks_expect_success(&r);
    gpu_expect_no_report();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl_model");
    TCase *t = tcase_create("model");
    tcase_set_timeout(t, 240);
    tcase_add_checked_fixture(t, gpu_set_up, gpu_tear_down);
    tcase_add_loop_test(t, gradients_of_the_library_become_the_average_on_cpus, 1, 5);
    tcase_add_loop_test(t, gradients_here_and_there_are_averaged_where_they_are, 1, 5);
    tcase_add_test(t, an_unused_gradient_counts_as_zeros);
    tcase_add_test(t, calls_in_progress_are_waited_for_between_buckets);
    tcase_add_test(t, who_has_no_more_batches_takes_part_with_zeros);
    tcase_add_test(t, a_death_in_a_step_fails_it_on_all_others);
    tcase_add_test(t, what_a_model_on_gpus_cannot_do_is_refused);
    suite_add_tcase(s, t);
    return run_suite(s);
}
