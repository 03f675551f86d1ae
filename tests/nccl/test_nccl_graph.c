/* Steps of ddp_model in CUDA graphs, beside the same model on CPUs: over the double. */
#include "gpu_values.h"

#include <math.h>

enum { N_TENSORS = 4, MOST = 20000, STEPS = 6, FAILED = 10 };

static const struct {
    size_t count;
    enum ddp_dtype dtype;
} shapes[N_TENSORS] = {
    {700, DDP_FLOAT32}, {5000, DDP_BFLOAT16}, {MOST, DDP_FLOAT32}, {9, DDP_FLOAT64}};

struct net { /* the same one twice. A "backward pass" copies gradients from `in`, on the GPU */
    struct ddp_group *g;
    int rank;
    struct ddp_tensor cpu[N_TENSORS], gpu[N_TENSORS];
    void *in[N_TENSORS];
    struct ddp_model *cpu_model, *gpu_model;
    cudaStream_t stream;
    int but; /* a gradient that this network does not use; -1: none */
};

struct way {
    struct ddp_model_opts opts;
    bool owns;              /* gradients are the program's */
    int but;                /* see struct net */
    int bad_step, bad_rank; /* where a gradient of that rank is not finite; steps from 1 on */
    int plain_step;         /* made without the graph, in the midst of the others */
};

static size_t bytes_of(int i)
{
    return shapes[i].count * ddp_dtype_size(shapes[i].dtype);
}

/* Numbers of about 1, the same in each type. */
static void fill(void *at, int i, int seed)
{
    for (size_t k = 0; k < shapes[i].count; k++)
        gpu_put(at, shapes[i].dtype, k, 1 + (double)((k * 31 + (size_t)seed * 17) % 64) / 64);
}

static void open_net(struct net *n, int rank, const struct way *way)
{
    static char values[MOST * 8];
    struct ddp_model_opts opts = way->opts;
    *n = (struct net){.g = gpu_rank_init(rank), .rank = rank, .but = way->but};
    opts.bucket_bytes = 16 << 10;
    GPU_CHECK(rank, cudaStreamCreate(&n->stream));
    for (int i = 0; i < N_TENSORS; i++) {
        const size_t bytes = bytes_of(i);
        void *param = malloc(bytes);
        fill(param, i, rank);
        fill(values, i, rank);
        n->cpu[i] = (struct ddp_tensor){"t", param, NULL, shapes[i].count, shapes[i].dtype};
        n->gpu[i] = n->cpu[i];
        n->gpu[i].param = gpu_copy_of(rank, values, bytes, n->stream);
        n->in[i] = gpu_memory(rank, bytes);
        n->cpu[i].grad = way->owns ? malloc(bytes) : NULL;
        n->gpu[i].grad = way->owns ? gpu_memory(rank, bytes) : NULL;
    }
    struct ddp_model_opts on_cpus = opts;
    on_cpus.nccl_memory = false;
    RANK_CHECK(rank, ddp_model_create(n->g, n->cpu, N_TENSORS, &on_cpus, &n->cpu_model) == 0,
               "CPU");
    opts.stream = n->stream;
    RANK_CHECK(rank, ddp_model_create(n->g, n->gpu, N_TENSORS, &opts, &n->gpu_model) == 0, "GPU");
}

/* What a step begins with; on the GPU behind what is there. */
static void put_batch(struct net *n, const struct way *way, int step)
{
    static char values[MOST * 8];
    for (int i = 0; i < N_TENSORS; i++) {
        fill(values, i, n->rank * 7 + step);
        if (i == 2 && step == way->bad_step && n->rank == way->bad_rank)
            memcpy(values + 4 * (MOST - 3), &(float){HUGE_VALF}, 4);
        GPU_CHECK(n->rank, cudaMemcpyAsync(n->in[i], values, bytes_of(i), cudaMemcpyHostToDevice,
                                           n->stream));
        if (i != n->but)
            memcpy(n->cpu[i].grad, values, bytes_of(i));
    }
}

static void run_backward(struct net *n)
{
    for (int i = N_TENSORS; i-- > 0;) {
        if (i == n->but)
            continue;
        GPU_CHECK(n->rank, cudaMemcpyAsync(n->gpu[i].grad, n->in[i], bytes_of(i),
                                           cudaMemcpyDeviceToDevice, n->stream));
        RANK_CHECK(n->rank, ddp_model_ready(n->gpu_model, (size_t)i) == 0, "ready on the GPU");
    }
}

static int run_cpu_step(struct net *n)
{
    for (int i = N_TENSORS; i-- > 0;)
        if (i != n->but)
            RANK_CHECK(n->rank, ddp_model_ready(n->cpu_model, (size_t)i) == 0, "ready");
    return ddp_model_sync(n->cpu_model);
}

static void begin_capture(const struct net *n)
{
    GPU_CHECK(n->rank, cudaStreamBeginCapture(n->stream, cudaStreamCaptureModeGlobal));
}

static cudaGraphExec_t end_capture(const struct net *n)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    GPU_CHECK(n->rank, cudaStreamEndCapture(n->stream, &graph));
    GPU_CHECK(n->rank, cudaGraphInstantiate(&exec, graph, 0));
    GPU_CHECK(n->rank, cudaGraphDestroy(graph));
    return exec;
}

static cudaGraphExec_t capture(struct net *n)
{
    struct ddp_model_stats before, after;
    ddp_model_get_stats(n->gpu_model, &before);
    begin_capture(n);
    run_backward(n);
    RANK_CHECK(n->rank, ddp_model_sync(n->gpu_model) == 0, "%s", ddp_last_error());
    cudaGraphExec_t exec = end_capture(n);
    ddp_model_get_stats(n->gpu_model, &after);
    RANK_CHECK(n->rank, before.n_steps == after.n_steps, "a capture is no step");
    return exec;
}

static int replay(struct net *n, cudaGraphExec_t exec)
{
    GPU_CHECK(n->rank, cudaGraphLaunch(exec, n->stream));
    return ddp_model_replayed(n->gpu_model);
}

static int run_plain(struct net *n)
{
    run_backward(n);
    return ddp_model_sync(n->gpu_model);
}

/* In a world of 1 there may be no communicator, and nobody to wait for. */
static void wait_for_stream(const struct net *n)
{
    if (ddp_world_size(n->g) > 1)
        RANK_CHECK(n->rank, ddp_stream_wait(n->g, n->stream, 0) == 0, "wait");
    else
        GPU_CHECK(n->rank, cudaStreamSynchronize(n->stream));
}

static void compare(const struct net *n, const char *what)
{
    static char got[MOST * 8];
    wait_for_stream(n);
    for (int i = 0; i < N_TENSORS; i++) {
        GPU_CHECK(n->rank, cudaMemcpy(got, n->gpu[i].grad, bytes_of(i), cudaMemcpyDeviceToHost));
        RANK_CHECK(n->rank, memcmp(got, n->cpu[i].grad, bytes_of(i)) == 0, "%s: %d", what, i);
    }
}

/* The same answer of both, with the same words. */
static void expect_alike(const struct net *n, int gpu, const char *gpu_text, int cpu)
{
    RANK_CHECK(n->rank, gpu == cpu, "%d on the GPU [%s], %d on the CPU", gpu, gpu_text, cpu);
    RANK_CHECK(n->rank, gpu == 0 || strcmp(gpu_text, ddp_last_error()) == 0, "%s", gpu_text);
    RANK_CHECK(n->rank, ddp_model_found_inf(n->gpu_model) == ddp_model_found_inf(n->cpu_model),
               "found_inf");
    for (size_t i = 0; i < N_TENSORS; i++)
        RANK_CHECK(n->rank,
                   ddp_model_is_used(n->gpu_model, i) == ddp_model_is_used(n->cpu_model, i),
                   "is %zu used?", i);
}

static void run_both(struct net *n, const struct way *way, int step, cudaGraphExec_t exec)
{
    char text[512];
    n->but = step == way->plain_step ? -1 : way->but;
    put_batch(n, way, step);
    const int gpu = exec != NULL && step != way->plain_step ? replay(n, exec) : run_plain(n);
    snprintf(text, sizeof text, "%s", ddp_last_error());
    expect_alike(n, gpu, text, run_cpu_step(n));
    RANK_CHECK(n->rank, (gpu == 0) == (!way->opts.check_finite || step != way->bad_step),
               "step %d: %d [%s]", step, gpu, text);
    if (gpu == 0) /* else gradients are undefined */
        compare(n, exec != NULL ? "a replay" : "a plain step");
}

static int run_replays(int rank, void *arg)
{
    const struct way *way = arg;
    struct ddp_model_stats stats;
    struct net n;
    open_net(&n, rank, way);
    run_both(&n, way, 1, NULL);
    cudaGraphExec_t exec = capture(&n);
    for (int step = 2; step <= STEPS; step++)
        run_both(&n, way, step, exec);
    ddp_model_get_stats(n.gpu_model, &stats);
    RANK_CHECK(rank,
               stats.n_steps == (uint64_t)(STEPS - (way->opts.check_finite && way->bad_step > 0)),
               "%d steps are counted", (int)stats.n_steps);
    GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    GPU_CHECK(rank, cudaGetLastError()); /* no call leaves one behind for the program's own */
    ddp_finalize(n.g);
    return 0;
}

/* --- replays ---------------------------------------------------------------------------------- */

START_TEST(replays_give_the_bits_of_plain_steps)
{
    struct way way = {.but = -1, .owns = _i % 2, .plain_step = 4};
    gpu_expect_ranks(1 + _i / 2, run_replays, &way);
}
END_TEST

/* In a capture it is called once; what it puts on the stream is in the graph. */
static int average_by_hook(struct ddp_group *g, const struct ddp_bucket *b, void *arg)
{
    (void)arg;
    return ddp_all_reduce(g, b->data, b->data, b->count, b->dtype, DDP_AVG, b->stream);
}

static const struct ddp_model_opts all_opts[] = {
    {.hook = average_by_hook},
    {.compress = DDP_COMPRESS_FLOAT16},
    {.compress = DDP_COMPRESS_BFLOAT16},
    {.always_fp32 = true},
    {.predivide_factor = 3},
    {.predivide_factor = 2, .always_fp32 = true},
    {.delay_allreduce = true},
    {.keep_order = true},
    {.nccl_memory = true},
    {.nccl_memory = true, .compress = DDP_COMPRESS_BFLOAT16},
};
enum { N_OPTS = sizeof all_opts / sizeof *all_opts };

START_TEST(all_options_hold_in_replays)
{
    struct way way = {.opts = all_opts[_i], .but = -1, .plain_step = 3};
    gpu_expect_ranks(3, run_replays, &way);
}
END_TEST

START_TEST(what_was_not_used_in_the_capture_counts_as_zeros)
{
    struct way way = {.opts.allow_unused = true, .but = 2, .plain_step = 4}; /* with all of them */
    gpu_expect_ranks(_i, run_replays, &way);
}
END_TEST

START_TEST(what_is_not_finite_in_one_replay_is_not_in_the_next)
{
    struct way way = {.but = -1, .bad_step = 3, .bad_rank = 0};
    way.opts.check_finite = _i % 2;
    way.opts.tell_nonfinite = !way.opts.check_finite;
    way.opts.compress = _i / 2 % 2 ? DDP_COMPRESS_BFLOAT16 : DDP_COMPRESS_NONE;
    gpu_expect_ranks(_i < 4 ? 1 : 3, run_replays, &way);
}
END_TEST

START_TEST(calls_in_progress_are_waited_for_in_a_capture)
{
    struct way way = {.opts.compress = DDP_COMPRESS_FLOAT16, .but = -1};
    setenv("NCCL_DOUBLE_FAULTS", "lazy", 1);
    gpu_expect_ranks(2, run_replays, &way);
}
END_TEST

/* A pass without averages is a graph of its own, and so is the last one. */
static int run_accumulate(int rank, void *arg)
{
    const struct way way = {.but = -1};
    struct net n;
    (void)arg;
    open_net(&n, rank, &way);
    run_both(&n, &way, 1, NULL);
    RANK_CHECK(rank, ddp_model_accumulate(n.gpu_model, true) == 0, "on");
    begin_capture(&n);
    run_backward(&n);
    RANK_CHECK(rank, ddp_model_sync(n.gpu_model) == 0, "nothing is averaged");
    cudaGraphExec_t pass = end_capture(&n);
    RANK_CHECK(rank, ddp_model_accumulate(n.gpu_model, false) == 0, "off");
    begin_capture(&n);
    RANK_CHECK(rank, ddp_model_sync(n.gpu_model) == 0, "the average alone");
    cudaGraphExec_t last = end_capture(&n);
    for (int step = 2; step < 5; step++) {
        put_batch(&n, &way, step);
        GPU_CHECK(rank, cudaGraphLaunch(pass, n.stream));
        RANK_CHECK(rank, replay(&n, last) == 0, "%s", ddp_last_error());
        RANK_CHECK(rank, run_cpu_step(&n) == 0, "on CPUs");
        compare(&n, "passes");
    }
    GPU_CHECK(rank, cudaGraphExecDestroy(pass));
    GPU_CHECK(rank, cudaGraphExecDestroy(last));
    ddp_finalize(n.g);
    return 0;
}

START_TEST(passes_that_add_up_are_captured_as_they_are)
{
    gpu_expect_ranks(2, run_accumulate, NULL);
}
END_TEST

static int run_two_graphs(int rank, void *arg)
{
    const struct way way = {.but = -1};
    struct net n;
    (void)arg;
    open_net(&n, rank, &way);
    run_both(&n, &way, 1, NULL);
    cudaGraphExec_t exec[] = {capture(&n), capture(&n)};
    for (int step = 2; step < 8; step++)
        run_both(&n, &way, step, exec[step / 2 % 2]);
    GPU_CHECK(rank, cudaGraphExecDestroy(exec[0]));
    GPU_CHECK(rank, cudaGraphExecDestroy(exec[1]));
    ddp_finalize(n.g);
    return 0;
}

START_TEST(a_model_may_have_several_graphs)
{
    gpu_expect_ranks(2, run_two_graphs, NULL);
}
END_TEST

/* Each replay ends with rank 0's buffer on all ranks. */
static int run_buffers(int rank, void *arg)
{
    float value = (float)rank, got;
    struct net n;
    (void)arg;
    open_net(&n, rank, &(struct way){.but = -1});
    void *grad = gpu_copy_of(rank, &value, sizeof value, n.stream);
    struct ddp_tensor buffer = {"b", gpu_copy_of(rank, &value, sizeof value, n.stream), NULL, 1,
                                DDP_FLOAT32},
                      t = {"t", grad, grad, 1, DDP_FLOAT32};
    const struct ddp_model_opts opts = {.stream = n.stream, .buffers = &buffer, .n_buffers = 1};
    struct ddp_model *m;
    RANK_CHECK(rank, ddp_model_create(n.g, &t, 1, &opts, &m) == 0, "create");
    RANK_CHECK(rank, ddp_model_sync(m) == 0, "a plain step");
    begin_capture(&n);
    RANK_CHECK(rank, ddp_model_sync(m) == 0, "capture");
    cudaGraphExec_t exec = end_capture(&n);
    for (int step = 0; step < 3; step++) {
        value = (float)(10 * step + rank + 5);
        GPU_CHECK(rank, cudaMemcpyAsync(buffer.param, &value, sizeof value, cudaMemcpyHostToDevice,
                                        n.stream));
        GPU_CHECK(rank, cudaGraphLaunch(exec, n.stream));
        RANK_CHECK(rank, ddp_model_replayed(m) == 0, "%s", ddp_last_error());
        wait_for_stream(&n);
        GPU_CHECK(rank, cudaMemcpy(&got, buffer.param, sizeof got, cudaMemcpyDeviceToHost));
        RANK_CHECK(rank, got == (float)(10 * step + 5), "%g", (double)got);
    }
    GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    ddp_finalize(n.g);
    return 0;
}

START_TEST(buffers_become_those_of_rank_0_behind_each_replay)
{
    gpu_expect_ranks(2, run_buffers, NULL);
}
END_TEST

/* Gradients are clipped in the graph, too, behind their averages. */
static int run_clip(int rank, void *arg)
{
    static char got[MOST * 8];
    const struct way way = {.but = -1};
    struct net n;
    (void)arg;
    open_net(&n, rank, &way);
    run_both(&n, &way, 1, NULL);
    begin_capture(&n);
    run_backward(&n);
    RANK_CHECK(rank, ddp_model_sync(n.gpu_model) == 0, "%s", ddp_last_error());
    RANK_CHECK(rank, ddp_model_clip(n.gpu_model, 1, NULL) == 0, "%s", ddp_last_error());
    cudaGraphExec_t exec = end_capture(&n);
    for (int step = 2; step < 5; step++) {
        double sum = 0;
        put_batch(&n, &way, step);
        RANK_CHECK(rank, replay(&n, exec) == 0, "%s", ddp_last_error());
        wait_for_stream(&n);
        for (int i = 0; i < N_TENSORS; i++) {
            GPU_CHECK(rank, cudaMemcpy(got, n.gpu[i].grad, bytes_of(i), cudaMemcpyDeviceToHost));
            for (size_t k = 0; k < shapes[i].count; k++)
                sum += pow(gpu_get(got, shapes[i].dtype, k), 2);
        }
        RANK_CHECK(rank, fabs(sqrt(sum) - 1) < 0.01, "the norm is %g", sqrt(sum));
    }
    GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    ddp_finalize(n.g);
    return 0;
}

START_TEST(gradients_are_clipped_in_the_graph)
{
    gpu_expect_ranks(_i, run_clip, NULL);
}
END_TEST

/* --- ranks that differ ------------------------------------------------------------------------ */

/* All come to their ends together, or do so in plain steps. */
static int run_join(int rank, void *arg)
{
    const struct way way = {.but = -1};
    const int n_plain = arg != NULL ? rank : 0;
    struct net n;
    open_net(&n, rank, &way);
    run_both(&n, &way, 1, NULL);
    cudaGraphExec_t exec = capture(&n);
    run_both(&n, &way, 2, exec);
    for (int step = 0; step < n_plain; step++) {
        put_batch(&n, &way, 3 + step);
        RANK_CHECK(rank, run_plain(&n) == 0, "%s", ddp_last_error());
    }
    RANK_CHECK(rank, ddp_join(n.gpu_model) == 0, "%s", ddp_last_error());
    GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    ddp_finalize(n.g);
    return 0;
}

START_TEST(ranks_join_behind_replays_together_or_in_plain_steps)
{
    gpu_expect_ranks(3, run_join, _i == 1 ? "plain" : NULL);
}
END_TEST

/* NCCL would hang, for it wants the same of all ranks: all of them are told. */
static int run_apart(int rank, void *arg)
{
    const bool joins = *(bool *)arg;
    const struct way way = {.but = -1};
    struct net n;
    open_net(&n, rank, &way);
    run_both(&n, &way, 1, NULL);
    cudaGraphExec_t exec = capture(&n);
    run_both(&n, &way, 2, exec);
    put_batch(&n, &way, 3);
    int rc;
    if (rank != 1)
        rc = replay(&n, exec);
    else if (joins)
        rc = ddp_join(n.gpu_model);
    else
        rc = ddp_model_sync(n.gpu_model);
    RANK_CHECK(rank, rc == DDP_EMISMATCH, "%d", rc);
    RANK_CHECK(rank,
               strstr(ddp_last_error(), "replays this step from a graph, and rank 1 does not"),
               "%s", ddp_last_error());
    RANK_CHECK(rank, ddp_model_replayed(n.gpu_model) == DDP_EMISMATCH, "it is broken");
    RANK_CHECK(rank, gpu_becomes_idle(n.stream), "the stream is busy");
    GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    ddp_finalize(n.g);
    return 0;
}

START_TEST(a_rank_that_does_not_replay_is_told_by_all)
{
    bool joins = _i == 1;
    gpu_expect_ranks(3, run_apart, &joins);
}
END_TEST

/* --- failures --------------------------------------------------------------------------------- */

static int run_until_death(int rank, void *arg)
{
    const int want = *(int *)arg;
    const struct way way = {.but = -1};
    struct net n;
    open_net(&n, rank, &way);
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    cudaGraphExec_t exec = capture(&n);
    for (int step = 0; step < 1000; step++) {
        put_batch(&n, &way, step);
        const int rc = replay(&n, exec);
        if (rc == 0)
            continue;
        RANK_CHECK(rank, rc == want, "%d", rc);
        RANK_CHECK(rank, strstr(ddp_last_error(), "rank 1 died") != NULL, "%s", ddp_last_error());
        RANK_CHECK(rank, ddp_model_replayed(n.gpu_model) == want, "again");
        GPU_CHECK(rank, cudaGraphExecDestroy(exec));
        ddp_finalize(n.g);
        if (rc == DDP_EPEER) /* what may use the gradients next finds nothing at work on them */
            RANK_CHECK(rank, cudaStreamQuery(n.stream) == cudaSuccess, "the stream is busy");
        return FAILED;
    }
    return 0;
}

static void expect_death(const char *faults, int want)
{
    struct ranks r;
    setenv("NCCL_DOUBLE_FAULTS", faults, 1);
    ranks_start(&r, 3, run_until_death, &want);
    ranks_wait(&r);
    for (int i = 0; i < r.n; i++)
        ck_assert_msg(i == 1 ? WIFSIGNALED(r.status[i]) : WEXITSTATUS(r.status[i]) == FAILED,
                      "rank %d ended with status %#x", i, r.status[i]);
    gpu_expect_no_report();
}

START_TEST(a_death_in_a_replay_fails_it_on_all_others)
{
    char faults[64];
    snprintf(faults, sizeof faults, "r1g0:kill@%d", 13 + _i); /* in each bucket of the second */
    expect_death(faults, DDP_EPEER);
}
END_TEST

START_TEST(what_a_revoke_does_not_end_an_abort_does)
{
    setenv("DDP_NCCL_ABORT_TIMEOUT", "0.5", 1);
    expect_death("r1g0:kill@13;revoke_graph", DDP_EPEER);
    unsetenv("DDP_NCCL_ABORT_TIMEOUT");
}
END_TEST

/* An abort waits for the program's graphs, and is given up. */
START_TEST(where_nccl_cannot_revoke_a_death_costs_a_process_that_has_a_graph)
{
    setenv("DDP_NCCL_ABORT_TIMEOUT", "0.5", 1);
    expect_death("r1g0:kill@13;revoke_error", DDP_ERESPAWN);
    unsetenv("DDP_NCCL_ABORT_TIMEOUT");
}
END_TEST

/* --- what is refused -------------------------------------------------------------------------- */

static void expect(int rank, int got, int want, const char *text)
{
    RANK_CHECK(rank, got == want, "%d: %s", got, ddp_last_error());
    RANK_CHECK(rank, strstr(ddp_last_error(), text) != NULL, "no '%s' in '%s'", text,
               ddp_last_error());
}

/* A capture that was refused is ended well: its graph is that of the rest. */
static void drop_capture(const struct net *n)
{
    GPU_CHECK(n->rank, cudaGraphExecDestroy(end_capture(n)));
}

/* Behind all that was refused steps go on. */
static void expect_whole(struct net *n)
{
    const struct way way = {.but = -1};
    run_both(n, &way, 1, NULL);
    cudaGraphExec_t exec = capture(n);
    run_both(n, &way, 2, exec);
    GPU_CHECK(n->rank, cudaGraphExecDestroy(exec));
    GPU_CHECK(n->rank, cudaGetLastError());
    ddp_finalize(n->g);
}

static int run_too_early(int rank, void *arg)
{
    struct net n;
    (void)arg;
    open_net(&n, rank, &(struct way){.but = -1});
    begin_capture(&n);
    expect(rank, ddp_model_ready(n.gpu_model, 3), DDP_EINVAL, "first step");
    expect(rank, ddp_model_ready(n.gpu_model, 2), DDP_EINVAL, "first step");
    expect(rank, ddp_model_sync(n.gpu_model), DDP_EINVAL,
           "first step of a model cannot be captured");
    drop_capture(&n);
    expect(rank, ddp_model_replayed(n.gpu_model), DDP_EINVAL, "no step of the model was captured");
    expect(rank, ddp_model_replayed(n.cpu_model), DDP_EINVAL, "no stream");
    expect_whole(&n);
    return 0;
}

START_TEST(the_first_step_is_not_captured)
{
    gpu_expect_ranks(_i, run_too_early, NULL);
}
END_TEST

static int run_weighted(int rank, void *arg)
{
    struct net n;
    (void)arg;
    open_net(&n, rank, &(struct way){.but = -1, .opts.weighted = true});
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    begin_capture(&n);
    expect(rank, ddp_model_sync(n.gpu_model), DDP_EUNSUPPORTED, "weighted");
    drop_capture(&n);
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    ddp_finalize(n.g);
    return 0;
}

START_TEST(steps_with_weights_are_not_captured)
{
    gpu_expect_ranks(2, run_weighted, NULL);
}
END_TEST

/* Gradients are said in the capture, which ends without ddp_model_sync(). */
static int run_ended_early(int rank, void *arg)
{
    const bool is_launched = *(bool *)arg; /* a bucket went into the graph */
    cudaGraph_t graph;
    struct net n;
    open_net(&n, rank, &(struct way){.but = -1});
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    begin_capture(&n);
    for (size_t i = is_launched ? 4 : 1; i-- > 0;)
        RANK_CHECK(rank, ddp_model_ready(n.gpu_model, i) == 0, "ready");
    const cudaError_t ended = cudaStreamEndCapture(n.stream, &graph);
    RANK_CHECK(rank, ended == (is_launched ? cudaErrorStreamCaptureUnjoined : cudaSuccess), "%d",
               (int)ended);
    cudaGetLastError();
    if (graph != NULL)
        GPU_CHECK(rank, cudaGraphDestroy(graph));
    expect(rank, ddp_model_replayed(n.gpu_model), DDP_EINVAL, "in the capture of a graph");
    expect(rank, ddp_model_sync(n.gpu_model), DDP_EINVAL, "ended before ddp_model_sync()");
    expect_whole(&n);
    return 0;
}

START_TEST(a_step_that_begins_in_a_capture_ends_there)
{
    bool is_launched = _i == 1;
    gpu_expect_ranks(2, run_ended_early, &is_launched);
}
END_TEST

/* A plain step is in the midst of its buckets when the stream begins to capture: it comes to its
 * end behind that, on all ranks, and fails. */
static int run_begun_plain(int rank, void *arg)
{
    struct net n;
    (void)arg;
    open_net(&n, rank, &(struct way){.but = -1});
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    RANK_CHECK(rank, ddp_model_ready(n.gpu_model, 3) == 0, "ready");
    RANK_CHECK(rank, ddp_model_ready(n.gpu_model, 2) == 0, "ready");
    expect(rank, ddp_model_replayed(n.gpu_model), DDP_EINVAL, "no step of the model was captured");
    if (rank == 0) {
        begin_capture(&n);
        expect(rank, ddp_model_ready(n.gpu_model, 1), DDP_EINVAL, "before its stream captured");
        expect(rank, ddp_model_sync(n.gpu_model), DDP_EINVAL, "before its stream captured");
        drop_capture(&n);
    } else {
        RANK_CHECK(rank, ddp_model_ready(n.gpu_model, 1) == 0, "ready");
    }
    ddp_model_ready(n.gpu_model, 0);
    expect(rank, ddp_model_sync(n.gpu_model), rank == 0 ? DDP_EINVAL : DDP_EMISMATCH,
           rank == 0 ? "before its stream captured" : "rank 0 could not finish this step");
    expect_whole(&n);
    return 0;
}

START_TEST(a_step_that_begins_outside_ends_there)
{
    gpu_expect_ranks(2, run_begun_plain, NULL);
}
END_TEST

static int run_misplaced(int rank, void *arg)
{
    struct net n;
    (void)arg;
    open_net(&n, rank, &(struct way){.but = -1, .opts.check_finite = true});
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    cudaGraphExec_t exec = capture(&n);
    expect(rank, ddp_model_replayed(n.gpu_model), DDP_EINVAL, "no graph with a step of the model");
    RANK_CHECK(rank, ddp_model_ready(n.gpu_model, 3) == 0, "ready");
    expect(rank, ddp_model_replayed(n.gpu_model), DDP_EINVAL, "a plain step has begun");
    for (size_t i = 0; i < 3; i++)
        RANK_CHECK(rank, ddp_model_ready(n.gpu_model, i) == 0, "ready");
    RANK_CHECK(rank, ddp_model_sync(n.gpu_model) == 0, "that step goes on");
    expect(rank, ddp_model_replayed(n.gpu_model), DDP_EINVAL, "no graph with a step of the model");
    begin_capture(&n);
    expect(rank, ddp_model_replayed(n.gpu_model), DDP_EINVAL, "in the capture of a graph");
    expect(rank, ddp_join(n.gpu_model), DDP_EINVAL, "in the capture of a graph");
    drop_capture(&n);
    RANK_CHECK(rank, replay(&n, exec) == 0, "%s", ddp_last_error());
    GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    expect_whole(&n);
    return 0;
}

START_TEST(calls_at_the_wrong_time_are_refused_and_break_nothing)
{
    gpu_expect_ranks(2, run_misplaced, NULL);
}
END_TEST

/* A gradient is missing: the graph has the rest, and its streams are joined, but it is no step. */
static int run_incomplete(int rank, void *arg)
{
    struct net n;
    (void)arg;
    open_net(&n, rank, &(struct way){.but = -1});
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    begin_capture(&n);
    RANK_CHECK(rank, ddp_model_ready(n.gpu_model, 3) == 0, "ready");
    RANK_CHECK(rank, ddp_model_ready(n.gpu_model, 2) == 0, "ready");
    expect(rank, ddp_model_ready(n.gpu_model, 2), DDP_EINVAL, "was said to be ready before");
    expect(rank, ddp_model_sync(n.gpu_model), DDP_EINVAL, "was said to be ready before");
    drop_capture(&n);
    expect(rank, ddp_model_replayed(n.gpu_model), DDP_EINVAL, "no step of the model was captured");
    expect_whole(&n);
    return 0;
}

START_TEST(a_step_with_a_mistake_is_not_captured)
{
    gpu_expect_ranks(2, run_incomplete, NULL);
}
END_TEST

/* CUDA gives a capture up, for a call of the program's. */
static int run_spoiled(int rank, void *arg)
{
    const bool in_a_step = *(bool *)arg;
    cudaGraph_t graph;
    struct net n;
    open_net(&n, rank, &(struct way){.but = -1});
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    begin_capture(&n);
    if (in_a_step) /* its bucket is in the graph */
        for (size_t i = 4; i-- > 1;)
            RANK_CHECK(rank, ddp_model_ready(n.gpu_model, i) == 0, "ready");
    RANK_CHECK(rank, cudaStreamQuery(n.stream) == cudaErrorStreamCaptureUnsupported, "query");
    ddp_model_ready(n.gpu_model, 0);
    expect(rank, ddp_model_sync(n.gpu_model), DDP_EINVAL, "CUDA has given up the capture");
    RANK_CHECK(rank, cudaStreamEndCapture(n.stream, &graph) == cudaErrorStreamCaptureInvalidated,
               "the end");
    RANK_CHECK(rank, graph == NULL, "no graph");
    cudaGetLastError();
    expect_whole(&n);
    return 0;
}

START_TEST(a_capture_that_cuda_gives_up_has_no_step_and_breaks_nothing)
{
    struct ranks r;
    bool in_a_step = _i == 1;
    ranks_start(&r, 2, run_spoiled, &in_a_step);
    ranks_expect_success(&r);
    ck_assert_msg(strstr(gpu_first_report(), "while a graph is captured") != NULL, "%s",
                  gpu_first_report());
}
END_TEST

static int average_and_spoil(struct ddp_group *g, const struct ddp_bucket *b, void *arg)
{
    bool *spoils = arg;
    int rc = average_by_hook(g, b, NULL);
    if (b->stream != NULL && *spoils)
        cudaStreamQuery(b->stream);
    return rc;
}

/* The kernel behind the hook finds the capture gone. */
static int run_spoiled_by_hook(int rank, void *arg)
{
    bool spoils = false;
    cudaGraph_t graph;
    struct net n;
    (void)arg;
    open_net(&n, rank,
             &(struct way){
                 .but = -1,
                 .opts = {.hook = average_and_spoil, .hook_arg = &spoils, .tell_nonfinite = true}});
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    spoils = true;
    begin_capture(&n);
    ddp_model_ready_range(n.gpu_model, 0, N_TENSORS);
    expect(rank, ddp_model_sync(n.gpu_model), DDP_EINVAL, "cudaErrorStreamCaptureInvalidated");
    RANK_CHECK(rank, cudaStreamEndCapture(n.stream, &graph) == cudaErrorStreamCaptureInvalidated,
               "the end");
    cudaGetLastError();
    spoils = false;
    expect_whole(&n);
    return 0;
}

START_TEST(a_hook_that_spoils_a_capture_breaks_nothing)
{
    struct ranks r;
    ranks_start(&r, 2, run_spoiled_by_hook, NULL);
    ranks_expect_success(&r);
    ck_assert_msg(strstr(gpu_first_report(), "while a graph is captured") != NULL, "%s",
                  gpu_first_report());
}
END_TEST

/* The model's stream is not the one that captures: its step is a plain one, which cannot end. */
static int run_beside(int rank, void *arg)
{
    struct net n;
    cudaStream_t other;
    cudaGraph_t graph;
    (void)arg;
    open_net(&n, rank, &(struct way){.but = -1});
    GPU_CHECK(rank, cudaStreamCreate(&other));
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    GPU_CHECK(rank, cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal));
    expect(rank, ddp_stream_wait(n.g, n.stream, 0), DDP_EINVAL, "in the capture of a graph");
    expect(rank, ddp_model_sync(n.gpu_model), DDP_EINVAL, "on this stream or another");
    cudaStreamEndCapture(other, &graph);
    cudaGetLastError();
    ddp_finalize(n.g);
    return 0;
}

START_TEST(a_capture_of_another_stream_is_told)
{
    struct ranks r;
    ranks_start(&r, 2, run_beside, NULL);
    ranks_expect_success(&r);
    ck_assert_msg(strstr(gpu_first_report(), "while a graph is captured") != NULL, "%s",
                  gpu_first_report());
}
END_TEST

/* Another stream captures, which the model's has joined: it is part of that graph. */
static int run_joined(int rank, void *arg)
{
    const struct way way = {.but = -1};
    struct net n;
    cudaStream_t origin;
    cudaEvent_t event;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    (void)arg;
    open_net(&n, rank, &way);
    GPU_CHECK(rank, cudaStreamCreate(&origin));
    GPU_CHECK(rank, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    run_both(&n, &way, 1, NULL);
    GPU_CHECK(rank, cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal));
    GPU_CHECK(rank, cudaEventRecord(event, origin));
    GPU_CHECK(rank, cudaStreamWaitEvent(n.stream, event, 0));
    run_backward(&n);
    RANK_CHECK(rank, ddp_model_sync(n.gpu_model) == 0, "%s", ddp_last_error());
    GPU_CHECK(rank, cudaEventRecord(event, n.stream));
    GPU_CHECK(rank, cudaStreamWaitEvent(origin, event, 0));
    GPU_CHECK(rank, cudaStreamEndCapture(origin, &graph));
    GPU_CHECK(rank, cudaGraphInstantiate(&exec, graph, 0));
    GPU_CHECK(rank, cudaGraphDestroy(graph));
    run_both(&n, &way, 2, exec);
    run_both(&n, &way, 3, exec);
    GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    ddp_finalize(n.g);
    return 0;
}

START_TEST(a_model_may_be_part_of_the_capture_of_another_stream)
{
    gpu_expect_ranks(2, run_joined, NULL);
}
END_TEST

/* --- the double ------------------------------------------------------------------------------- */

struct streams { /* of a capture */
    int rank;
    cudaStream_t origin, other;
    cudaEvent_t event;
    float *at;
};

static void open_streams(struct streams *s, int rank)
{
    int index;
    struct ddp_group *g = rank_init(rank, 60000);
    RANK_CHECK(rank, ddp_device(g, &index) == 0, "a GPU");
    s->rank = rank;
    GPU_CHECK(rank, cudaStreamCreate(&s->origin));
    GPU_CHECK(rank, cudaStreamCreateWithFlags(&s->other, cudaStreamNonBlocking));
    GPU_CHECK(rank, cudaEventCreateWithFlags(&s->event, cudaEventDisableTiming));
    GPU_CHECK(rank, cudaMalloc((void **)&s->at, 64));
}

static void go_over(const struct streams *s, cudaStream_t from, cudaStream_t to)
{
    GPU_CHECK(s->rank, cudaEventRecord(s->event, from));
    GPU_CHECK(s->rank, cudaStreamWaitEvent(to, s->event, 0));
}

static cudaError_t end(const struct streams *s)
{
    cudaGraph_t graph;
    const cudaError_t result = cudaStreamEndCapture(s->origin, &graph);
    RANK_CHECK(s->rank, (result == cudaSuccess) == (graph != NULL), "a graph");
    if (graph != NULL)
        GPU_CHECK(s->rank, cudaGraphDestroy(graph));
    return result;
}

static void fork_off(const struct streams *s)
{
    GPU_CHECK(s->rank, cudaStreamBeginCapture(s->origin, cudaStreamCaptureModeGlobal));
    go_over(s, s->origin, s->other);
    GPU_CHECK(s->rank, cudaMemsetAsync(s->at, 0, 64, s->other));
}

static cudaError_t break_rule(const struct streams *s, int which)
{
    cudaEvent_t outside;
    void *at;
    switch (which) {
    case 0: /* not joined */
        return end(s);
    case 1: /* asked */
        cudaStreamQuery(s->other);
        break;
    case 2: /* an event from outside */
        cudaStreamEndCapture(s->other, &(cudaGraph_t){0});
        end(s);
        GPU_CHECK(s->rank, cudaEventCreateWithFlags(&outside, cudaEventDisableTiming));
        GPU_CHECK(s->rank, cudaEventRecord(outside, s->other));
        fork_off(s);
        RANK_CHECK(s->rank,
                   cudaStreamWaitEvent(s->origin, outside, 0) == cudaErrorStreamCaptureIsolation,
                   "outside");
        break;
    case 3: /* memory */
        RANK_CHECK(s->rank, cudaMalloc(&at, 64) == cudaErrorStreamCaptureUnsupported, "memory");
        break;
    case 4: /* the legacy stream */
        RANK_CHECK(s->rank,
                   cudaMemsetAsync(s->at, 0, 64, cudaStreamLegacy) ==
                       cudaErrorStreamCaptureImplicit,
                   "legacy");
        break;
    case 5: /* an event of the capture is asked */
        cudaEventQuery(s->event);
        break;
    case 6: /* no event between two that write the same */
        GPU_CHECK(s->rank, cudaMemsetAsync(s->at, 0, 64, s->origin));
        break;
    default: /* none is broken */
        break;
    }
    cudaEventRecord(s->event, s->other);
    cudaStreamWaitEvent(s->origin, s->event, 0);
    return end(s);
}

static const cudaError_t broken[] = {cudaErrorStreamCaptureUnjoined,
                                     cudaErrorStreamCaptureInvalidated,
                                     cudaErrorStreamCaptureInvalidated,
                                     cudaErrorStreamCaptureInvalidated,
                                     cudaErrorStreamCaptureInvalidated,
                                     cudaErrorStreamCaptureInvalidated,
                                     cudaSuccess,
                                     cudaSuccess};
enum { N_BROKEN = sizeof broken / sizeof *broken };

static int run_rules(int rank, void *arg)
{
    const int which = *(int *)arg;
    struct streams s;
    open_streams(&s, rank);
    fork_off(&s);
    const cudaError_t got = break_rule(&s, which);
    RANK_CHECK(rank, got == broken[which], "%d", (int)got);
    cudaGetLastError();
    fork_off(&s); /* another one */
    go_over(&s, s.other, s.origin);
    RANK_CHECK(rank, end(&s) == cudaSuccess, "behind it");
    GPU_CHECK(rank, cudaStreamSynchronize(s.origin));
    return 0;
}

START_TEST(the_double_finds_what_a_capture_forbids)
{
    struct ranks r;
    int which = _i;
    ranks_start(&r, 1, run_rules, &which);
    ranks_expect_success(&r);
    const bool is_told = _i > 0 && _i < 7; /* what is not joined CUDA itself tells */
    ck_assert_msg((gpu_first_report()[0] != '\0') == is_told, "%s", gpu_first_report());
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl_graph");
    TCase *t = tcase_create("graph");
    tcase_set_timeout(t, 240);
    tcase_add_checked_fixture(t, gpu_set_up, gpu_tear_down);
    tcase_add_loop_test(t, replays_give_the_bits_of_plain_steps, 0, 8);
    tcase_add_loop_test(t, all_options_hold_in_replays, 0, N_OPTS);
    tcase_add_loop_test(t, what_was_not_used_in_the_capture_counts_as_zeros, 1, 4);
    tcase_add_loop_test(t, what_is_not_finite_in_one_replay_is_not_in_the_next, 0, 8);
    tcase_add_test(t, calls_in_progress_are_waited_for_in_a_capture);
    tcase_add_test(t, passes_that_add_up_are_captured_as_they_are);
    tcase_add_test(t, a_model_may_have_several_graphs);
    tcase_add_test(t, buffers_become_those_of_rank_0_behind_each_replay);
    tcase_add_loop_test(t, gradients_are_clipped_in_the_graph, 1, 3);
    tcase_add_loop_test(t, ranks_join_behind_replays_together_or_in_plain_steps, 0, 2);
    tcase_add_loop_test(t, a_rank_that_does_not_replay_is_told_by_all, 0, 2);
    tcase_add_loop_test(t, a_death_in_a_replay_fails_it_on_all_others, 0, 4);
    tcase_add_test(t, what_a_revoke_does_not_end_an_abort_does);
    tcase_add_test(t, where_nccl_cannot_revoke_a_death_costs_a_process_that_has_a_graph);
    tcase_add_loop_test(t, the_first_step_is_not_captured, 1, 3);
    tcase_add_test(t, steps_with_weights_are_not_captured);
    tcase_add_loop_test(t, a_step_that_begins_in_a_capture_ends_there, 0, 2);
    tcase_add_test(t, a_step_that_begins_outside_ends_there);
    tcase_add_test(t, calls_at_the_wrong_time_are_refused_and_break_nothing);
    tcase_add_test(t, a_step_with_a_mistake_is_not_captured);
    tcase_add_loop_test(t, a_capture_that_cuda_gives_up_has_no_step_and_breaks_nothing, 0, 2);
    tcase_add_test(t, a_hook_that_spoils_a_capture_breaks_nothing);
    tcase_add_test(t, a_capture_of_another_stream_is_told);
    tcase_add_test(t, a_model_may_be_part_of_the_capture_of_another_stream);
    tcase_add_loop_test(t, the_double_finds_what_a_capture_forbids, 0, N_BROKEN);
    suite_add_tcase(s, t);
    return run_suite(s);
}
