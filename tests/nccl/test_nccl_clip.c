/* ddp_model_clip() with gradients on GPUs, compared with CPUs: over the double.
 *
 * Covers: worker-runtime/nccl, worker-runtime/device */
#include "gpu_values.h"

#include "double/double.h"

#include <math.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* More places than a launch takes, of all types, empty ones and large ones. */
enum { N_TENSORS = 150, N_TYPES = 4, LARGE = 40000, DEAD = 77 };

static const enum ddp_dtype types[N_TYPES] = {DDP_FLOAT32, DDP_BFLOAT16, DDP_FLOAT64, DDP_FLOAT16};

struct net { /* the same one twice */
    struct ddp_tensor cpu[N_TENSORS], gpu[N_TENSORS];
    struct ddp_model *cpu_model, *gpu_model;
    cudaStream_t stream;
};

static void describe(int rank, struct net *n, int i)
{
    const size_t count = i == 70 ? LARGE : i % 10 == 3 ? 0 : (size_t)(i * 37) % 3000 + 1;
    n->gpu[i] = (struct ddp_tensor){.name = "t", .count = count, .dtype = types[i * 7 / 3 % 4]};
    n->cpu[i] = n->gpu[i];
    n->cpu[i].param = calloc(count + 1, ddp_dtype_size(n->cpu[i].dtype));
    n->gpu[i].param = gpu_memory(rank, gpu_bytes_of(&n->gpu[i]));
    GPU_CHECK(rank, cudaMemsetAsync(n->gpu[i].param, 0, gpu_bytes_of(&n->gpu[i]), n->stream));
}

static void open_net(int rank, struct ddp_group *g, struct net *n)
{
    GPU_CHECK(rank, cudaStreamCreate(&n->stream));
    for (int i = 0; i < N_TENSORS; i++)
        describe(rank, n, i);
    struct ddp_model_opts opts = {.bucket_bytes = 100 << 10};
    RANK_CHECK(rank, ddp_model_create(g, n->cpu, N_TENSORS, &opts, &n->cpu_model) == 0, "CPU");
    opts.stream = n->stream;
    RANK_CHECK(rank, ddp_model_create(g, n->gpu, N_TENSORS, &opts, &n->gpu_model) == 0, "GPU");
}

/* The same gradients for both. returns their norm */
static double fill(int rank, struct net *n, double scale)
{
    long double sum = 0;
    for (int i = 0; i < N_TENSORS; i++) {
        struct ddp_tensor *t = &n->cpu[i];
        for (size_t k = 0; k < t->count; k++) {
            gpu_put(t->grad, t->dtype, k, scale * ((double)((k * 31 + (size_t)i * 17) % 97) - 48));
            const long double x = gpu_get(t->grad, t->dtype, k);
            sum += x * x;
        }
        GPU_CHECK(rank, cudaMemcpyAsync(n->gpu[i].grad, t->grad, gpu_bytes_of(t),
                                        cudaMemcpyHostToDevice, n->stream));
    }
    return (double)sqrtl(sum);
}

/* A step in which all ranks have the same: averages change nothing but bits. */
static void step(int rank, struct net *n)
{
    fill(rank, n, 1.0 / 64);
    RANK_CHECK(rank, ddp_model_sync(n->gpu_model) == 0, "GPU");
    RANK_CHECK(rank, ddp_model_sync(n->cpu_model) == 0, "CPU");
}

static const void *take(int rank, const struct ddp_tensor *t)
{
    static char got[LARGE * 8];
    GPU_CHECK(rank, cudaMemcpy(got, t->grad, gpu_bytes_of(t), cudaMemcpyDeviceToHost));
    return got;
}

/* Factors may differ by their last digits: of values of a type that is its rounding, once. */
static void expect_near(int rank, struct ddp_group *g, struct net *n, const char *what)
{
    static const double apart[] = {[DDP_FLOAT64] = 1e-12,
                                   [DDP_FLOAT32] = 0x1p-22,
                                   [DDP_FLOAT16] = 0x1p-10,
                                   [DDP_BFLOAT16] = 0x1p-7};
    gpu_wait(rank, g, n->stream);
    for (int i = 0; i < N_TENSORS; i++) {
        const struct ddp_tensor *t = &n->cpu[i];
        const void *got = take(rank, &n->gpu[i]);
        for (size_t k = 0; k < t->count; k++) {
            const double a = gpu_get(got, t->dtype, k), b = gpu_get(t->grad, t->dtype, k);
            const double least = t->dtype == DDP_FLOAT16 ? 0x1p-24 : 0;
            RANK_CHECK(rank, fabs(a - b) <= fmax(least, fabs(b) * apart[t->dtype]),
                       "%s: gradient %d, element %zu: %.17g, not %.17g", what, i, k, a, b);
        }
    }
}

/* The whole network has the same bits. */
static void expect_same(int rank, struct ddp_group *g, struct net *n, const char *what)
{
    gpu_wait(rank, g, n->stream);
    for (int i = 0; i < N_TENSORS; i++)
        RANK_CHECK(rank,
                   memcmp(take(rank, &n->gpu[i]), n->cpu[i].grad, gpu_bytes_of(&n->cpu[i])) == 0,
                   "%s: gradient %d", what, i);
}

/* --- what it does ----------------------------------------------------------------------------- */

static void expect_all_ranks_alike(int rank, struct ddp_group *g, struct net *n, double norm)
{
    uint64_t bits, least[2];
    memcpy(&bits, &norm, sizeof bits);
    for (int i = 0; i < N_TENSORS; i++) {
        const uint8_t *got = take(rank, &n->gpu[i]);
        for (size_t k = 0; k < gpu_bytes_of(&n->gpu[i]); k++)
            bits = bits * 31 + got[k];
    }
    least[0] = bits;
    least[1] = ~bits;
    RANK_CHECK(rank, ddp_all_reduce(g, least, least, 2, DDP_UINT64, DDP_MIN, NULL) == 0, "bits");
    RANK_CHECK(rank, least[0] == ~least[1], "ranks differ");
}

static int run_clip(int rank, void *arg)
{
    (void)arg;
    static struct net n;
    struct ddp_group *g = gpu_rank_init(rank);
    double cpu_norm, gpu_norm;
    open_net(rank, g, &n);
    for (int i = 0; i < 3; i++) {
        step(rank, &n);
        const double want = fill(rank, &n, 1.0 / (1 + i));
        const double most = i == 1 ? want * 2 : 0.37; /* in the second step it is not reached */
        RANK_CHECK(rank, ddp_model_clip(n.cpu_model, most, &cpu_norm) == 0, "CPU");
        gpu_norm = -1;
        RANK_CHECK(rank, ddp_model_clip(n.gpu_model, most, i == 2 ? NULL : &gpu_norm) == 0, "GPU");
        RANK_CHECK(rank, i == 2 || fabs(gpu_norm - want) <= want * 1e-12, "%.17g, not %.17g",
                   gpu_norm, want);
        expect_near(rank, g, &n, "clipped");
        if (i == 1)
            expect_same(rank, g, &n, "not clipped");
        expect_all_ranks_alike(rank, g, &n, gpu_norm);
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(gradients_are_clipped_as_on_cpus)
{
    gpu_expect_ranks(_i, run_clip, NULL);
}
END_TEST

static int run_nonfinite(int rank, void *arg)
{
    (void)arg;
    static struct net n;
    struct ddp_group *g = gpu_rank_init(rank);
    open_net(rank, g, &n);
    for (int i = 0; i < N_TYPES * 2; i++) {
        double norm = 0;
        const bool is_nan = i % 2 == 0;
        struct ddp_tensor *t = &n.cpu[10 + i];
        if (t->count == 0)
            t = &n.cpu[9];
        step(rank, &n);
        fill(rank, &n, 1);
        gpu_put(t->grad, t->dtype, t->count - 1, is_nan ? NAN : -INFINITY);
        GPU_CHECK(rank, cudaMemcpyAsync(n.gpu[t - n.cpu].grad, t->grad, gpu_bytes_of(t),
                                        cudaMemcpyHostToDevice, n.stream));
        RANK_CHECK(rank, ddp_model_clip(n.gpu_model, 0.5, &norm) == 0, "clip");
        RANK_CHECK(rank, is_nan ? isnan(norm) : isinf(norm), "%g", norm);
        expect_same(rank, g, &n, "what is not finite scales nothing");
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(a_norm_that_is_not_finite_scales_nothing)
{
    gpu_expect_ranks(2, run_nonfinite, NULL);
}
END_TEST

static int run_bad_arguments(int rank, void *arg)
{
    (void)arg;
    static struct net n;
    struct ddp_group *g = gpu_rank_init(rank);
    double norm = 7;
    open_net(rank, g, &n);
    step(rank, &n);
    RANK_CHECK(rank, ddp_model_clip(NULL, 1, &norm) == DDP_EINVAL, "no model");
    RANK_CHECK(rank, ddp_model_clip(n.gpu_model, 0, &norm) == DDP_EINVAL, "0");
    RANK_CHECK(rank, ddp_model_clip(n.gpu_model, -1, &norm) == DDP_EINVAL, "-1");
    RANK_CHECK(rank, ddp_model_clip(n.gpu_model, NAN, &norm) == DDP_EINVAL, "NaN");
    expect_same(rank, g, &n, "nothing was changed");
    fill(rank, &n, 1);
    RANK_CHECK(rank, ddp_model_ready_range(n.gpu_model, 1, N_TENSORS - 1) == 0, "ready");
    RANK_CHECK(rank, ddp_model_clip(n.gpu_model, 1, &norm) == DDP_EINVAL, "on their way");
    RANK_CHECK(rank, strstr(ddp_last_error(), "gradient buckets are still being averaged") != NULL,
               "it is told");
    RANK_CHECK(rank, norm == 7, "%g", norm);
    RANK_CHECK(rank, ddp_model_ready(n.gpu_model, 0) == 0, "ready");
    RANK_CHECK(rank, ddp_model_sync(n.gpu_model) == 0, "the step goes on");
    RANK_CHECK(rank, ddp_model_clip(n.gpu_model, 1, &norm) == 0, "behind it");
    ddp_finalize(g);
    return 0;
}

START_TEST(bad_arguments_and_pending_buckets_are_refused)
{
    gpu_expect_ranks(2, run_bad_arguments, NULL);
}
END_TEST

static int run_old_gpu(int rank, void *arg)
{
    (void)arg;
    static struct net n;
    struct ddp_group *g = gpu_rank_init(rank);
    open_net(rank, g, &n);
    step(rank, &n);
    RANK_CHECK(rank, ddp_model_clip(n.gpu_model, 1, NULL) == DDP_EUNSUPPORTED, "no kernels");
    RANK_CHECK(rank,
               strstr(ddp_last_error(),
                      "ddp_model_clip: cannot load the kernels of libddp-nccl.so") != NULL,
               "it is told");
    step(rank, &n);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_gpu_without_kernels_has_models_but_does_not_clip)
{
    setenv("NCCL_DOUBLE_OLD_GPU", "1", 1);
    gpu_expect_ranks(2, run_old_gpu, NULL);
    unsetenv("NCCL_DOUBLE_OLD_GPU");
}
END_TEST

/* --- graphs ----------------------------------------------------------------------------------- */

static int run_graph(int rank, void *arg)
{
    (void)arg;
    static struct net n;
    struct ddp_group *g = gpu_rank_init(rank);
    double norm = 7;
    open_net(rank, g, &n);
    step(rank, &n);
    gpu_wait(rank, g, n.stream);
    GPU_CHECK(rank, cudaStreamBeginCapture(n.stream, cudaStreamCaptureModeGlobal));
    RANK_CHECK(rank, ddp_model_clip(n.gpu_model, 0.37, &norm) == DDP_EUNSUPPORTED, "the norm");
    RANK_CHECK(rank, strstr(ddp_last_error(), "captures a graph") != NULL && norm == 7, "told");
    RANK_CHECK(rank, ddp_model_clip(n.gpu_model, 0.37, NULL) == 0, "captured");
    cudaGraphExec_t exec = gpu_end_capture(rank, n.stream);
    expect_same(rank, g, &n, "nothing was done yet");
    for (int i = 1; i < 4; i++) {
        fill(rank, &n, i == 2 ? 1e-5 : i); /* once with nothing to clip */
        GPU_CHECK(rank, cudaGraphLaunch(exec, n.stream));
        RANK_CHECK(rank, ddp_model_clip(n.cpu_model, 0.37, NULL) == 0, "CPU");
        expect_near(rank, g, &n, "by a graph");
    }
    GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    ddp_finalize(g);
    return 0;
}

START_TEST(a_graph_clips_the_gradients_at_its_launch)
{
    gpu_expect_ranks(1 + _i, run_graph, NULL);
}
END_TEST

/* --- a query of the norm waits ---------------------------------------------------------------- */

static atomic_int *gate; /* shared memory */

/* Until so many have come to it. */
static void stand_still(int n)
{
    const uint64_t deadline_ms = co_deadline_ms(60000);
    while (atomic_load(gate) < n && co_left_ms(deadline_ms) != 0)
        usleep(200); /* between two looks */
}

static void on_stream(void *arg)
{
    stand_still(*(int *)arg);
}

static void set_up(void)
{
    gpu_set_up();
    gate = mmap(NULL, sizeof *gate, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(gate, MAP_FAILED);
}

static void tear_down(void)
{
    munmap((void *)gate, sizeof *gate);
    gpu_tear_down();
}

static struct ddp_model *small_model(int rank, struct ddp_group *g, cudaStream_t stream)
{
    static struct ddp_tensor t;
    static const float value = 1;
    struct ddp_model *m;
    const struct ddp_model_opts opts = {.stream = stream};
    t = (struct ddp_tensor){"t", gpu_copy_of(rank, &value, sizeof value, stream), NULL, 1,
                            DDP_FLOAT32};
    RANK_CHECK(rank, ddp_model_create(g, &t, 1, &opts, &m) == 0, "create");
    return m;
}

/* Alone, without a communicator: the clock ends the wait. */
static int run_late(int rank, void *arg)
{
    (void)arg;
    double norm = 7;
    cudaStream_t stream;
    struct ddp_group *g = rank_init(rank, 300);
    int index, one = 1;
    RANK_CHECK(rank, ddp_device(g, &index) == 0, "GPU");
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    struct ddp_model *m = small_model(rank, g, stream);
    RANK_CHECK(rank, ddp_model_clip(m, 1, &norm) == 0 && norm == 0, "%g", norm);
    GPU_CHECK(rank, double_queue(stream, "a long kernel", on_stream, &one, sizeof one, NULL, 0));
    norm = 7;
    RANK_CHECK(rank, ddp_model_clip(m, 1, &norm) == DDP_ETIMEOUT && norm == 7, "%g", norm);
    atomic_fetch_add(gate, 1);
    GPU_CHECK(rank, cudaStreamSynchronize(stream));
    ddp_finalize(g);
    return 0;
}

START_TEST(on_a_single_rank_the_timeout_ends_the_wait_for_the_norm)
{
    gpu_expect_ranks(1, run_late, NULL);
}
END_TEST

static int run_failed_gpu(int rank, void *arg)
{
    (void)arg;
    double norm;
    cudaStream_t stream;
    struct ddp_group *g = gpu_rank_init(rank);
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    struct ddp_model *m = small_model(rank, g, stream);
    double_fail_stream(stream);
    RANK_CHECK(rank, ddp_model_clip(m, 1, NULL) == DDP_ESYSTEM, "a GPU that has failed");
    RANK_CHECK(rank, ddp_model_clip(m, 1, &norm) == DDP_ESYSTEM, "a GPU that has failed");
    return 0;
}

START_TEST(a_gpu_that_has_failed_takes_no_kernels)
{
    gpu_expect_ranks(1, run_failed_gpu, NULL);
}
END_TEST

/* Rank 1 dies when the others have put a sum on their streams, which waits for it. */
static void sum_up_or_die(int rank, struct ddp_group *g, float *own, cudaStream_t stream)
{
    if (rank == 1) {
        stand_still(ddp_world_size(g) - 1);
        _exit(DEAD);
    }
    RANK_CHECK(rank, ddp_all_reduce(g, own, own, 1, DDP_FLOAT32, DDP_SUM, stream) == 0, "sum");
    atomic_fetch_add(gate, 1);
}

/* Rank 1 dies in a collective that stands before the clipping. */
static int run_death(int rank, void *arg)
{
    (void)arg;
    double norm = 7;
    float value = 1;
    cudaStream_t stream;
    struct ddp_group *g = gpu_rank_init(rank);
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    float *own = gpu_copy_of(rank, &value, sizeof value, stream);
    struct ddp_model *m = small_model(rank, g, stream);
    RANK_CHECK(rank, ddp_model_sync(m) == 0, "sync");
    sum_up_or_die(rank, g, own, stream);
    RANK_CHECK(rank, ddp_model_clip(m, 1, &norm) == DDP_EPEER && norm == 7, "%g", norm);
    RANK_CHECK(rank, gpu_becomes_idle(stream), "the stream is busy");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_death_ends_the_wait_for_the_norm)
{
    gpu_expect_death(3, run_death, NULL, W_EXITCODE(DEAD, 0), 0);
}
END_TEST

/* To load kernels CUDA may wait for all that runs: of a peer that died the model hears before. */
static int run_death_before(int rank, void *arg)
{
    (void)arg;
    float value = 1;
    cudaStream_t stream;
    struct ddp_group *g = gpu_rank_init(rank);
    struct ddp_model *m;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    float *own = gpu_copy_of(rank, &value, sizeof value, stream);
    struct ddp_tensor t = {"t", own, NULL, 1, DDP_FLOAT32};
    const struct ddp_model_opts opts = {.stream = stream};
    RANK_CHECK(rank, ddp_all_reduce(g, own, own, 1, DDP_FLOAT32, DDP_SUM, stream) == 0, "sum");
    RANK_CHECK(rank, ddp_stream_wait(g, stream, 0) == 0, "all are here");
    sum_up_or_die(rank, g, own, stream);
    RANK_CHECK(rank, ddp_model_create(g, &t, 1, &opts, &m) == DDP_EPEER, "create");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_death_ends_the_wait_for_work_queued_before_the_kernels)
{
    gpu_expect_death(2, run_death_before, NULL, W_EXITCODE(DEAD, 0), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl_clip");
    TCase *t = tcase_create("clip");
    tcase_set_timeout(t, 240);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, gradients_are_clipped_as_on_cpus, 1, 5);
    tcase_add_test(t, a_norm_that_is_not_finite_scales_nothing);
    tcase_add_test(t, bad_arguments_and_pending_buckets_are_refused);
    tcase_add_test(t, a_gpu_without_kernels_has_models_but_does_not_clip);
    tcase_add_loop_test(t, a_graph_clips_the_gradients_at_its_launch, 0, 2);
    tcase_add_test(t, on_a_single_rank_the_timeout_ends_the_wait_for_the_norm);
    tcase_add_test(t, a_gpu_that_has_failed_takes_no_kernels);
    tcase_add_test(t, a_death_ends_the_wait_for_the_norm);
    tcase_add_test(t, a_death_ends_the_wait_for_work_queued_before_the_kernels);
    suite_add_tcase(s, t);
    return run_suite(s);
}
