/* ddp_model with gradients on GPUs, compared with the same model on CPUs: over the double.
 *
 * Covers: worker-runtime/nccl, worker-runtime/device */
#include "gpu_ranks.h"

#include <math.h>

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
    struct ddp_model_opts on_cpus = opts;
    on_cpus.nccl_memory = false;
    RANK_CHECK(rank, ddp_model_create(g, n->cpu, N_TENSORS, &on_cpus, &n->cpu_model) == 0, "CPU");
    opts.stream = n->stream;
    RANK_CHECK(rank, ddp_model_create(g, n->gpu, N_TENSORS, &opts, &n->gpu_model) == 0, "GPU");
}

static void compare(int rank, struct ddp_group *g, struct net *n, const char *what)
{
    static char got[MOST * 8];
    gpu_wait(rank, g, n->stream);
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

struct net_options {
    bool ours;
    struct ddp_model_opts opts;
    int but;                /* a gradient that this network does not use; -1: none */
    int bad_step, bad_rank; /* where a gradient of that rank is not finite; steps from 1 on */
};

/* Gradients of this rank, on both; what is to be infinite is so. */
static void fill_for(const struct net_options *options, int rank, char *at, int i, int step)
{
    fill(at, i, rank * 7 + step);
    if (i == 4 && step + 1 == options->bad_step && rank == options->bad_rank)
        memcpy(at + 4 * (MOST - 3), &(float){HUGE_VALF}, 4);
}

static void set_weights(int rank, struct net *n, int step)
{
    const double weight = (rank + step) % 3; /* one of three ranks has none */
    RANK_CHECK(rank, ddp_model_weight(n->gpu_model, weight + (step == 0)) == 0, "weight");
    RANK_CHECK(rank, ddp_model_weight(n->cpu_model, weight + (step == 0)) == 0, "weight");
}

/* The same answer of both, with the same words. */
static void expect_alike(int rank, struct net *n, int gpu, const char *gpu_text, int cpu)
{
    RANK_CHECK(rank, gpu == cpu, "%d on the GPU, %d on the CPU", gpu, cpu);
    RANK_CHECK(rank, gpu == 0 || strcmp(gpu_text, ddp_last_error()) == 0, "%s", gpu_text);
    RANK_CHECK(rank, ddp_model_found_inf(n->gpu_model) == ddp_model_found_inf(n->cpu_model),
               "found_inf");
}

/* The two take turns: the calls of one group have one order on all ranks. */
static int run_steps(int rank, void *arg)
{
    const struct net_options *options = arg;
    struct net n = {0};
    struct ddp_group *g = gpu_rank_init(rank);
    open_net(rank, g, &n, options->ours, options->opts);
    for (int step = 0; step < STEPS; step++) {
        static char values[MOST * 8];
        char text[512];
        if (options->opts.weighted)
            set_weights(rank, &n, step);
        for (int k = N_TENSORS; k-- > 0;) {
            const int i = step % 2 == 0 ? k : (k + 3) % N_TENSORS;
            if (i == options->but)
                continue;
            fill_for(options, rank, values, i, step);
            GPU_CHECK(rank, cudaMemcpyAsync(n.gpu[i].grad, values, bytes_of(i),
                                            cudaMemcpyHostToDevice, n.stream));
            RANK_CHECK(rank, ddp_model_ready(n.gpu_model, (size_t)i) == 0, "ready on the GPU");
        }
        const int gpu = ddp_model_sync(n.gpu_model);
        snprintf(text, sizeof text, "%s", ddp_last_error());
        for (int i = N_TENSORS; i-- > 0;) {
            if (i == options->but)
                continue;
            fill_for(options, rank, n.cpu[i].grad, i, step);
            RANK_CHECK(rank, ddp_model_ready(n.cpu_model, (size_t)i) == 0, "ready");
        }
        expect_alike(rank, &n, gpu, text, ddp_model_sync(n.cpu_model));
        RANK_CHECK(rank,
                   (gpu == 0) == (!options->opts.check_finite || step + 1 != options->bad_step),
                   "step %d: %d [%s]", step, gpu, text);
        if (gpu == 0) /* else gradients are undefined */
            compare(rank, g, &n, "after a step");
    }
    ddp_finalize(g);
    return 0;
}

static void expect_steps(int n, struct net_options options)
{
    gpu_expect_ranks(n, run_steps, &options);
}

START_TEST(library_gradients_become_the_same_average_as_on_cpus)
{
    expect_steps(_i, (struct net_options){.ours = true, .but = -1});
}
END_TEST

START_TEST(scattered_gradients_are_averaged_in_place)
{
    expect_steps(_i, (struct net_options){.but = -1});
}
END_TEST

START_TEST(an_unused_gradient_counts_as_zeros)
{
    expect_steps(3, (struct net_options){.opts.allow_unused = true, .but = 4});
}
END_TEST

START_TEST(buckets_wait_for_calls_in_progress)
{
    setenv("NCCL_DOUBLE_FAULTS", "lazy", 1);
    expect_steps(2, (struct net_options){.ours = true, .but = -1});
}
END_TEST

/* --- what kernels do -------------------------------------------------------------------------- */

static const struct ddp_model_opts kernel_opts[] = {
    {.compress = DDP_COMPRESS_FLOAT16},
    {.compress = DDP_COMPRESS_BFLOAT16},
    {.always_fp32 = true},
    {.predivide_factor = 3},
    {.weighted = true},
    {.weighted = true, .compress = DDP_COMPRESS_FLOAT16},
    {.predivide_factor = 2, .always_fp32 = true},
};
enum { N_KERNEL_OPTS = sizeof kernel_opts / sizeof *kernel_opts };

START_TEST(other_types_and_factors_give_the_same_bits_as_on_cpus)
{
    const struct net_options options = {.ours = _i % 2, .opts = kernel_opts[_i / 2], .but = -1};
    expect_steps(3, options);
}
END_TEST

START_TEST(kernels_wait_for_calls_in_progress)
{
    setenv("NCCL_DOUBLE_FAULTS", "lazy", 1);
    expect_steps(2, (struct net_options){.opts = kernel_opts[5], .but = -1});
}
END_TEST

START_TEST(nonfinite_gradients_are_reported_as_on_cpus)
{
    struct net_options options = {.ours = _i % 2, .but = -1, .bad_step = 2, .bad_rank = 0};
    options.opts.check_finite = _i / 2 % 2;
    options.opts.tell_nonfinite = !options.opts.check_finite;
    options.opts.compress = _i / 4 % 2 ? DDP_COMPRESS_BFLOAT16 : DDP_COMPRESS_NONE;
    expect_steps(_i < 8 ? 1 : 3, options);
}
END_TEST

static int run_old_gpu(int rank, void *arg)
{
    (void)arg;
    float value = 1;
    struct ddp_group *g = gpu_rank_init(rank);
    cudaStream_t stream;
    struct ddp_model *m;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    void *gpu = gpu_copy_of(rank, &value, sizeof value, stream);
    struct ddp_tensor t = {"t", gpu, NULL, 1, DDP_FLOAT32};
    struct ddp_model_opts opts = {.stream = stream, .compress = DDP_COMPRESS_FLOAT16};
    RANK_CHECK(rank, ddp_model_create(g, &t, 1, &opts, &m) == DDP_EUNSUPPORTED, "compress");
    RANK_CHECK(rank, strstr(ddp_last_error(), "kernels of libddp-nccl.so") != NULL, "it is told");
    opts.compress = DDP_COMPRESS_NONE;
    RANK_CHECK(rank, ddp_model_create(g, &t, 1, &opts, &m) == 0, "what needs no kernels goes on");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_gpu_without_kernels_is_reported)
{
    setenv("NCCL_DOUBLE_OLD_GPU", "1", 1);
    gpu_expect_ranks(2, run_old_gpu, NULL);
    unsetenv("NCCL_DOUBLE_OLD_GPU");
}
END_TEST

/* --- memory that NCCL knows ------------------------------------------------------------------- */

START_TEST(registered_memory_gives_the_same_averages)
{
    struct net_options options = {.ours = true, .but = -1, .opts = {.nccl_memory = true}};
    options.opts.compress = _i % 2 ? DDP_COMPRESS_FLOAT16 : DDP_COMPRESS_NONE;
    options.opts.bucket_bytes = 64 << 10;
    expect_steps(3, options);
}
END_TEST

/* Two models one after the other, the first of which is destroyed; then the group ends. */
static int run_registered(int rank, void *arg)
{
    const char *why = arg; /* "": all is well */
    float value = 1;
    struct ddp_group *g = gpu_rank_init(rank);
    cudaStream_t stream;
    struct ddp_model_stats stats;
    struct ddp_model *m;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    void *gpu = gpu_copy_of(rank, &value, sizeof value, stream);
    struct ddp_tensor t = {"t", gpu, NULL, 1, DDP_FLOAT32};
    const struct ddp_model_opts opts = {
        .stream = stream, .nccl_memory = true, .compress = DDP_COMPRESS_BFLOAT16};
    for (int i = 0; i < 2; i++) {
        RANK_CHECK(rank, ddp_model_create(g, &t, 1, &opts, &m) == 0, "create");
        ddp_model_get_stats(m, &stats);
        RANK_CHECK(rank, stats.is_registered == (why[0] == '\0'), "registered");
        RANK_CHECK(rank, stats.is_registered || strstr(stats.unregistered, why) != NULL, "%s",
                   stats.unregistered);
        RANK_CHECK(rank, ddp_model_sync(m) == 0, "sync");
        if (i == 0)
            ddp_model_destroy(m);
    }
    GPU_CHECK(rank, cudaGetLastError());
    ddp_finalize(g);
    return 0;
}

static void expect_registered(const char *fault, const char *why)
{
    setenv("NCCL_DOUBLE_FAULTS", fault, 1);
    gpu_expect_ranks(2, run_registered, (void *)why);
}

START_TEST(memory_is_registered_while_it_exists)
{
    expect_registered("", "");
}
END_TEST

START_TEST(without_nccl_memory_averaging_continues_and_reports_why)
{
    expect_registered("no_memory", "ncclMemAlloc: NCCL reports");
}
END_TEST

START_TEST(memory_that_cannot_be_registered_is_still_averaged)
{
    expect_registered("no_register", "ncclCommRegister: NCCL reports");
}
END_TEST

START_TEST(a_single_rank_registers_nothing)
{
    gpu_expect_ranks(1, run_registered, (void *)"the group has only one rank");
}
END_TEST

/* Only rank 1 fails: rank 0 also does without, and does not know why. */
static int run_one_unregistered(int rank, void *arg)
{
    (void)arg;
    return run_registered(rank, rank == 1 ? "ncclCommRegister: NCCL reports" : "another rank");
}

START_TEST(if_one_rank_cannot_register_no_rank_does)
{
    setenv("NCCL_DOUBLE_FAULTS", "r1g0:no_register", 1);
    gpu_expect_ranks(2, run_one_unregistered, NULL);
}
END_TEST

static int run_own_memory(int rank, void *arg)
{
    (void)arg;
    float value = 1;
    struct ddp_group *g = gpu_rank_init(rank);
    cudaStream_t stream;
    struct ddp_model_stats stats;
    struct ddp_model *m;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    void *gpu = gpu_copy_of(rank, &value, sizeof value, stream);
    struct ddp_tensor t = {"t", gpu, gpu, 1, DDP_FLOAT32},
                      plain = {"p", &value, NULL, 1, DDP_FLOAT32};
    struct ddp_model_opts opts = {.stream = stream, .nccl_memory = true};
    RANK_CHECK(rank, ddp_model_create(g, &t, 1, &opts, &m) == 0, "create");
    ddp_model_get_stats(m, &stats);
    RANK_CHECK(rank, strstr(stats.unregistered, "in memory that the program allocated") != NULL,
               "it is told");
    opts.stream = NULL;
    RANK_CHECK(rank, ddp_model_create(g, &plain, 1, &opts, &m) == DDP_EINVAL, "on CPUs");
    ddp_finalize(g);
    return 0;
}

START_TEST(memory_of_the_program_is_not_registered)
{
    gpu_expect_ranks(2, run_own_memory, NULL);
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

START_TEST(a_rank_without_more_batches_contributes_zeros)
{
    gpu_expect_ranks(3, run_join, NULL);
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
    setenv("NCCL_DOUBLE_FAULTS", "r1g0:kill@20", 1);
    gpu_expect_death(3, run_until_death, NULL, SIGKILL, W_EXITCODE(FAILED, 0));
}
END_TEST

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
    struct ddp_model_opts opts = {.stream = stream};
    RANK_CHECK(rank, ddp_model_create(g, &plain, 1, &opts, &m) == DDP_EINVAL, "plain memory");
    RANK_CHECK(rank, strstr(ddp_last_error(), "'p': param") != NULL, "it is named");
    RANK_CHECK(rank, ddp_model_create(g, &huge, 1, &opts, &m) == DDP_ENOMEM, "too much memory");
    GPU_CHECK(rank, cudaGetLastError()); /* the error was reported and did not remain */
    opts.stream = rank == 0 ? stream : NULL;
    RANK_CHECK(rank, ddp_model_create(g, rank == 0 ? &t : &plain, 1, &opts, &m) == DDP_EMISMATCH,
               "a stream on one rank only");
    opts.stream = stream;
    RANK_CHECK(rank, ddp_model_create(g, &t, 1, &opts, &m) == 0, "nothing of this broke the group");
    ddp_finalize(g);
    return 0;
}

START_TEST(unsupported_options_of_a_gpu_model_are_refused)
{
    gpu_expect_ranks(2, run_refused, NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl_model");
    TCase *t = tcase_create("model");
    tcase_set_timeout(t, 240);
    tcase_add_checked_fixture(t, gpu_set_up, gpu_tear_down);
    tcase_add_loop_test(t, library_gradients_become_the_same_average_as_on_cpus, 1, 5);
    tcase_add_loop_test(t, scattered_gradients_are_averaged_in_place, 1, 5);
    tcase_add_test(t, an_unused_gradient_counts_as_zeros);
    tcase_add_test(t, buckets_wait_for_calls_in_progress);
    tcase_add_loop_test(t, other_types_and_factors_give_the_same_bits_as_on_cpus, 0,
                        2 * N_KERNEL_OPTS);
    tcase_add_test(t, kernels_wait_for_calls_in_progress);
    tcase_add_loop_test(t, nonfinite_gradients_are_reported_as_on_cpus, 0, 16);
    tcase_add_test(t, a_gpu_without_kernels_is_reported);
    tcase_add_loop_test(t, registered_memory_gives_the_same_averages, 0, 2);
    tcase_add_test(t, memory_is_registered_while_it_exists);
    tcase_add_test(t, a_single_rank_registers_nothing);
    tcase_add_test(t, without_nccl_memory_averaging_continues_and_reports_why);
    tcase_add_test(t, memory_that_cannot_be_registered_is_still_averaged);
    tcase_add_test(t, if_one_rank_cannot_register_no_rank_does);
    tcase_add_test(t, memory_of_the_program_is_not_registered);
    tcase_add_test(t, a_rank_without_more_batches_contributes_zeros);
    tcase_add_test(t, a_death_in_a_step_fails_it_on_all_others);
    tcase_add_test(t, unsupported_options_of_a_gpu_model_are_refused);
    suite_add_tcase(s, t);
    return run_suite(s);
}
