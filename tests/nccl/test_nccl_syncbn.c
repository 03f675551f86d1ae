/* ddp_syncbn on GPUs, compared with the same layer on CPUs: over the double.
 *
 * Covers: worker-runtime/nccl, worker-runtime/device */
#include "gpu_ranks.h"

#include <math.h>

enum { CHANNELS = 3, INNER = 700, MOST = 6, STEPS = 3, VALUES = MOST * CHANNELS * INNER };

struct net_options {
    enum ddp_dtype dtype;
    bool is_bare;     /* no weights, no running moments */
    bool is_in_place; /* y is x, dx is dy */
};

struct side { /* a layer and its memory, of the host or of the GPU */
    void *x, *y, *dy, *dx, *weight, *bias, *mean, *var, *dweight, *dbias;
    struct ddp_syncbn *bn;
};

static size_t size_of(const struct net_options *options)
{
    return ddp_dtype_size(options->dtype);
}

static void set(const struct net_options *options, void *at, size_t i, double x)
{
    if (options->dtype == DDP_FLOAT64)
        ((double *)at)[i] = x;
    else
        ((float *)at)[i] = (float)x;
}

static double get(const struct net_options *options, const void *at, size_t i)
{
    return options->dtype == DDP_FLOAT64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
}

static void fill(const struct net_options *options, struct side *s, int seed)
{
    for (size_t i = 0; i < VALUES; i++) {
        set(options, s->x, i, 100 + sin((double)i * 0.7 + seed));
        set(options, s->dy, i, cos((double)i * 1.3 + seed));
    }
    for (size_t c = 0; c < CHANNELS; c++) {
        set(options, s->weight, c, 0.5 + (double)c);
        set(options, s->bias, c, (double)c - 1);
    }
}

static void **parts_of(struct side *s, size_t *ret_counts)
{
    for (size_t i = 0; i < 10; i++)
        ret_counts[i] = i < 4 ? VALUES : CHANNELS;
    return &s->x;
}

static void open_host(const struct net_options *options, struct side *s)
{
    size_t counts[10];
    void **part = parts_of(s, counts);
    for (size_t i = 0; i < 10; i++)
        part[i] = calloc(counts[i], size_of(options));
    for (size_t c = 0; c < CHANNELS; c++)
        set(options, s->var, c, 1);
}

/* The host's bytes, in memory of the GPU. */
static void copy_to_gpu(int rank, const struct net_options *options, struct side *host,
                        struct side *gpu, cudaStream_t stream)
{
    size_t counts[10];
    void **from = parts_of(host, counts), **to = parts_of(gpu, counts);
    for (size_t i = 0; i < 10; i++) {
        if (to[i] == NULL)
            GPU_CHECK(rank, cudaMalloc(&to[i], counts[i] * size_of(options)));
        GPU_CHECK(rank, cudaMemcpyAsync(to[i], from[i], counts[i] * size_of(options),
                                        cudaMemcpyHostToDevice, stream));
    }
}

static void open_layer(int rank, struct ddp_group *g, const struct net_options *options,
                       struct side *s, cudaStream_t stream)
{
    struct ddp_syncbn_opts opts = {.channels = CHANNELS, .dtype = options->dtype, .stream = stream};
    if (!options->is_bare) {
        opts.weight = s->weight;
        opts.bias = s->bias;
        opts.running_mean = s->mean;
        opts.running_var = s->var;
    }
    RANK_CHECK(rank, ddp_syncbn_create(g, &opts, &s->bn) == 0, "create");
}

static void run_layer(int rank, const struct net_options *options, struct side *s, size_t outer)
{
    const struct ddp_syncbn_shape shape = {outer, INNER};
    void *y = options->is_in_place ? s->x : s->y, *dx = options->is_in_place ? s->dy : s->dx;
    RANK_CHECK(rank, options->is_bare || ddp_syncbn_infer(s->bn, &shape, s->x, s->y) == 0, "infer");
    RANK_CHECK(rank, ddp_syncbn_forward(s->bn, &shape, s->x, y) == 0, "forward");
    /* of a layer in place the output stands for what a program would have kept */
    RANK_CHECK(rank, ddp_syncbn_backward(s->bn, &shape, s->x, s->dy, dx, s->dweight, s->dbias) == 0,
               "backward");
}

/* A float32 value is the same or an adjacent one; float64 differs by the order of summation. */
static void compare(int rank, const struct net_options *options, struct side *host,
                    struct side *gpu)
{
    static const char *const names[] = {"x",    "y",    "dy",  "dx",      "weight",
                                        "bias", "mean", "var", "dweight", "dbias"};
    static char got[VALUES * 8];
    const double bound = options->dtype == DDP_FLOAT64 ? 1e-9 : 2e-5;
    size_t counts[10];
    void **want = parts_of(host, counts), **at = parts_of(gpu, counts);
    for (size_t i = 0; i < 10; i++) {
        GPU_CHECK(rank,
                  cudaMemcpy(got, at[i], counts[i] * size_of(options), cudaMemcpyDeviceToHost));
        for (size_t k = 0; k < counts[i]; k++) {
            const double a = get(options, got, k), b = get(options, want[i], k);
            RANK_CHECK(rank, fabs(a - b) <= bound * (1 + fabs(b)), "%s[%zu] is %.17g, not %.17g",
                       names[i], k, a, b);
        }
    }
}

/* Rank r has r samples; one alone has some. */
static int run_steps(int rank, void *arg)
{
    const struct net_options *options = arg;
    struct ddp_group *g = gpu_rank_init(rank);
    const int n = ddp_world_size(g);
    struct side host = {0}, gpu = {0};
    cudaStream_t stream;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    open_host(options, &host);
    copy_to_gpu(rank, options, &host, &gpu, stream);
    open_layer(rank, g, options, &host, NULL);
    open_layer(rank, g, options, &gpu, stream);
    for (int step = 0; step < STEPS; step++) {
        const size_t outer = n == 1 ? MOST : (size_t)((rank + step) % n) * 2;
        fill(options, &host, rank * 31 + step);
        copy_to_gpu(rank, options, &host, &gpu, stream);
        run_layer(rank, options, &host, outer);
        run_layer(rank, options, &gpu, outer);
        gpu_wait(rank, g, stream);
        compare(rank, options, &host, &gpu);
    }
    ddp_finalize(g);
    return 0;
}

static void expect_steps(int n, struct net_options options)
{
    gpu_expect_ranks(n, run_steps, &options);
}

START_TEST(a_layer_on_gpus_equals_the_layer_on_cpus)
{
    expect_steps(1 + _i / 2, (struct net_options){.dtype = _i % 2 ? DDP_FLOAT64 : DDP_FLOAT32});
}
END_TEST

START_TEST(a_layer_without_weights_and_running_moments_equals_it)
{
    expect_steps(2, (struct net_options){.dtype = DDP_FLOAT32, .is_bare = true});
}
END_TEST

START_TEST(it_works_in_place)
{
    expect_steps(2, (struct net_options){.dtype = DDP_FLOAT64, .is_in_place = true});
}
END_TEST

static int run_refused(int rank, void *arg)
{
    (void)arg;
    float value = 1;
    struct ddp_group *g = gpu_rank_init(rank);
    cudaStream_t stream;
    struct ddp_syncbn *bn;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    float *gpu = gpu_copy_of(rank, &value, sizeof value, stream);
    struct ddp_syncbn_opts opts = {.channels = 1, .dtype = DDP_FLOAT32, .stream = stream};
    const struct ddp_syncbn_shape one = {1, 1};
    opts.weight = &value;
    RANK_CHECK(rank, ddp_syncbn_create(g, &opts, &bn) == DDP_EINVAL, "memory of the host");
    RANK_CHECK(rank, strstr(ddp_last_error(), "weight") != NULL, "it is named");
    opts.weight = NULL;
    opts.channels = ((size_t)1 << 24) + 1;
    RANK_CHECK(rank, ddp_syncbn_create(g, &opts, &bn) == DDP_EINVAL, "channels");
    opts.channels = 1;
    RANK_CHECK(rank, ddp_syncbn_create(g, &opts, &bn) == 0, "create");
    RANK_CHECK(rank, ddp_syncbn_infer(bn, &one, gpu, gpu) == DDP_EINVAL, "no running moments");
    RANK_CHECK(rank, ddp_syncbn_backward(bn, &one, gpu, gpu, gpu, NULL, NULL) == DDP_EINVAL,
               "no forward before");
    ddp_finalize(g);
    return 0;
}

START_TEST(unsupported_options_of_a_gpu_layer_are_refused)
{
    gpu_expect_ranks(1, run_refused, NULL);
}
END_TEST

/* One value on all ranks together: no error, since no rank waits for the count. */
static int run_one_value(int rank, void *arg)
{
    (void)arg;
    const float values[4] = {7, 3, 0.5F, 2}; /* x, bias, running mean, running variance */
    float got[4];
    struct ddp_group *g = gpu_rank_init(rank);
    cudaStream_t stream;
    struct ddp_syncbn *bn;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    float *gpu = gpu_copy_of(rank, values, sizeof values, stream);
    const struct ddp_syncbn_opts opts = {.channels = 1,
                                         .dtype = DDP_FLOAT32,
                                         .stream = stream,
                                         .bias = gpu + 1,
                                         .running_mean = gpu + 2,
                                         .running_var = gpu + 3};
    const struct ddp_syncbn_shape shape = {rank == 0, 1};
    RANK_CHECK(rank, ddp_syncbn_create(g, &opts, &bn) == 0, "create");
    RANK_CHECK(rank, ddp_syncbn_forward(bn, &shape, gpu, gpu) == 0, "forward");
    RANK_CHECK(rank, ddp_stream_wait(g, stream, 0) == 0, "wait");
    GPU_CHECK(rank, cudaMemcpy(got, gpu, sizeof got, cudaMemcpyDeviceToHost));
    RANK_CHECK(rank, got[0] == (rank == 0 ? 3.0F : 7.0F), "y is %g", (double)got[0]);
    RANK_CHECK(rank, got[2] == 0.5F && got[3] == 2.0F, "running moments have moved");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_single_value_gives_the_bias_and_moves_no_moments)
{
    gpu_expect_ranks(2, run_one_value, NULL);
}
END_TEST

/* A collective is on the stream that never ends by itself, and kernels are to be loaded. */
static int run_behind_a_death(int rank, void *arg)
{
    (void)arg;
    float values[CHANNELS * INNER] = {0};
    const struct ddp_syncbn_shape shape = {1, INNER};
    struct ddp_group *g = gpu_rank_init(rank);
    struct ddp_syncbn *bn;
    cudaStream_t stream;
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    float *at = gpu_copy_of(rank, values, sizeof values, stream);
    const struct ddp_syncbn_opts layer = {.channels = CHANNELS, .stream = stream};
    int rc = ddp_all_reduce(g, at, at, INNER, DDP_FLOAT32, DDP_SUM, stream);
    RANK_CHECK(rank, rc == 0 || rc == DDP_EPEER, "%d", rc);
    rc = ddp_syncbn_create(g, &layer, &bn);
    if (rc == 0)
        rc = ddp_syncbn_forward(bn, &shape, at, at);
    RANK_CHECK(rank, rc == DDP_EPEER, "%d", rc);
    ddp_finalize(g);
    return 0;
}

START_TEST(kernels_load_before_a_wait_for_a_dead_peer)
{
    setenv("NCCL_DOUBLE_FAULTS", "r1g0:kill@1", 1);
    gpu_expect_death(2, run_behind_a_death, NULL, SIGKILL, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl_syncbn");
    TCase *t = tcase_create("syncbn");
    tcase_set_timeout(t, 240);
    tcase_add_checked_fixture(t, gpu_set_up, gpu_tear_down);
    tcase_add_loop_test(t, a_layer_on_gpus_equals_the_layer_on_cpus, 0, 6);
    tcase_add_test(t, a_layer_without_weights_and_running_moments_equals_it);
    tcase_add_test(t, it_works_in_place);
    tcase_add_test(t, unsupported_options_of_a_gpu_layer_are_refused);
    tcase_add_test(t, a_single_value_gives_the_bias_and_moves_no_moments);
    tcase_add_test(t, kernels_load_before_a_wait_for_a_dead_peer);
    suite_add_tcase(s, t);
    return run_suite(s);
}
