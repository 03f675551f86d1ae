/* Steps of ddp_model in CUDA graphs, compared with the same model on CPUs: over the double.
 *
 * Covers: worker-runtime/nccl, worker-runtime/device */
#include "gpu_net.h"

enum { STEPS = 6, FAILED = 10 };

static int run_replays(int rank, void *arg)
{
    const struct net_options *options = arg;
    struct ddp_model_stats stats;
    struct net n;
    open_net(&n, rank, options);
    run_both(&n, options, 1, NULL);
    cudaGraphExec_t exec = capture(&n);
    for (int step = 2; step <= STEPS; step++)
        run_both(&n, options, step, exec);
    ddp_model_get_stats(n.gpu_model, &stats);
    RANK_CHECK(rank,
               stats.n_steps ==
                   (uint64_t)(STEPS - (options->opts.check_finite && options->bad_step > 0)),
               "%d steps are counted", (int)stats.n_steps);
    GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    GPU_CHECK(rank, cudaGetLastError()); /* no call leaves an error for the program's own */
    ddp_finalize(n.g);
    return 0;
}

/* --- replays ---------------------------------------------------------------------------------- */

START_TEST(replays_give_the_same_bits_as_plain_steps)
{
    struct net_options options = {.but = -1, .owns = _i % 2, .plain_step = 4};
    gpu_expect_ranks(1 + _i / 2, run_replays, &options);
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
    struct net_options options = {.opts = all_opts[_i], .but = -1, .plain_step = 3};
    gpu_expect_ranks(3, run_replays, &options);
}
END_TEST

START_TEST(gradients_unused_in_the_capture_count_as_zeros)
{
    struct net_options options = {
        .opts.allow_unused = true, .but = 2, .plain_step = 4}; /* with all of them */
    gpu_expect_ranks(_i, run_replays, &options);
}
END_TEST

START_TEST(a_nonfinite_value_affects_only_its_own_replay)
{
    struct net_options options = {.but = -1, .bad_step = 3, .bad_rank = 0};
    options.opts.check_finite = _i % 2;
    options.opts.tell_nonfinite = !options.opts.check_finite;
    options.opts.compress = _i / 2 % 2 ? DDP_COMPRESS_BFLOAT16 : DDP_COMPRESS_NONE;
    gpu_expect_ranks(_i < 4 ? 1 : 3, run_replays, &options);
}
END_TEST

START_TEST(a_capture_waits_for_calls_in_progress)
{
    struct net_options options = {.opts.compress = DDP_COMPRESS_FLOAT16, .but = -1};
    setenv("NCCL_DOUBLE_FAULTS", "lazy", 1);
    gpu_expect_ranks(2, run_replays, &options);
}
END_TEST

/* A pass without averages is a graph of its own, and the last one also. */
static int run_accumulate(int rank, void *arg)
{
    const struct net_options options = {.but = -1};
    struct net n;
    (void)arg;
    open_net(&n, rank, &options);
    run_both(&n, &options, 1, NULL);
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
        put_batch(&n, &options, step);
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

START_TEST(accumulated_passes_are_captured)
{
    gpu_expect_ranks(2, run_accumulate, NULL);
}
END_TEST

static int run_two_graphs(int rank, void *arg)
{
    const struct net_options options = {.but = -1};
    struct net n;
    (void)arg;
    open_net(&n, rank, &options);
    run_both(&n, &options, 1, NULL);
    cudaGraphExec_t exec[] = {capture(&n), capture(&n)};
    for (int step = 2; step < 8; step++)
        run_both(&n, &options, step, exec[step / 2 % 2]);
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
    open_net(&n, rank, &(struct net_options){.but = -1});
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
        gpu_wait(rank, n.g, n.stream);
        GPU_CHECK(rank, cudaMemcpy(&got, buffer.param, sizeof got, cudaMemcpyDeviceToHost));
        RANK_CHECK(rank, got == (float)(10 * step + 5), "%g", (double)got);
    }
    GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    ddp_finalize(n.g);
    return 0;
}

START_TEST(buffers_equal_those_of_rank_0_after_each_replay)
{
    gpu_expect_ranks(2, run_buffers, NULL);
}
END_TEST

/* Gradients are also clipped in the graph, after their averages. */
static int run_clip(int rank, void *arg)
{
    static char got[MOST * 8];
    const struct net_options options = {.but = -1};
    struct net n;
    (void)arg;
    open_net(&n, rank, &options);
    run_both(&n, &options, 1, NULL);
    begin_capture(&n);
    run_backward(&n);
    RANK_CHECK(rank, ddp_model_sync(n.gpu_model) == 0, "%s", ddp_last_error());
    RANK_CHECK(rank, ddp_model_clip(n.gpu_model, 1, NULL) == 0, "%s", ddp_last_error());
    cudaGraphExec_t exec = end_capture(&n);
    for (int step = 2; step < 5; step++) {
        double sum = 0;
        put_batch(&n, &options, step);
        RANK_CHECK(rank, replay(&n, exec) == 0, "%s", ddp_last_error());
        gpu_wait(rank, n.g, n.stream);
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

/* Another stream captures, which the model's has joined: it is part of that graph. */
static int run_joined(int rank, void *arg)
{
    const struct net_options options = {.but = -1};
    struct net n;
    cudaStream_t origin;
    cudaEvent_t event;
    (void)arg;
    open_net(&n, rank, &options);
    GPU_CHECK(rank, cudaStreamCreate(&origin));
    GPU_CHECK(rank, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    run_both(&n, &options, 1, NULL);
    GPU_CHECK(rank, cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal));
    GPU_CHECK(rank, cudaEventRecord(event, origin));
    GPU_CHECK(rank, cudaStreamWaitEvent(n.stream, event, 0));
    run_backward(&n);
    RANK_CHECK(rank, ddp_model_sync(n.gpu_model) == 0, "%s", ddp_last_error());
    GPU_CHECK(rank, cudaEventRecord(event, n.stream));
    GPU_CHECK(rank, cudaStreamWaitEvent(origin, event, 0));
    cudaGraphExec_t exec = gpu_end_capture(rank, origin);
    run_both(&n, &options, 2, exec);
    run_both(&n, &options, 3, exec);
    GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    ddp_finalize(n.g);
    return 0;
}

START_TEST(a_model_may_be_part_of_the_capture_of_another_stream)
{
    gpu_expect_ranks(2, run_joined, NULL);
}
END_TEST

/* --- ranks that differ ------------------------------------------------------------------------ */

/* All come to their ends together, or do so in plain steps. */
static int run_join(int rank, void *arg)
{
    const struct net_options options = {.but = -1};
    const int n_plain = arg != NULL ? rank : 0;
    struct net n;
    open_net(&n, rank, &options);
    run_both(&n, &options, 1, NULL);
    cudaGraphExec_t exec = capture(&n);
    run_both(&n, &options, 2, exec);
    for (int step = 0; step < n_plain; step++) {
        put_batch(&n, &options, 3 + step);
        RANK_CHECK(rank, run_plain(&n) == 0, "%s", ddp_last_error());
    }
    RANK_CHECK(rank, ddp_join(n.gpu_model) == 0, "%s", ddp_last_error());
    GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    ddp_finalize(n.g);
    return 0;
}

START_TEST(ranks_join_after_replays_together_or_in_plain_steps)
{
    gpu_expect_ranks(3, run_join, _i == 1 ? "plain" : NULL);
}
END_TEST

/* NCCL would hang, since it needs the same from all ranks: all of them get an error. */
static int run_apart(int rank, void *arg)
{
    const bool joins = *(bool *)arg;
    const struct net_options options = {.but = -1};
    struct net n;
    open_net(&n, rank, &options);
    run_both(&n, &options, 1, NULL);
    cudaGraphExec_t exec = capture(&n);
    run_both(&n, &options, 2, exec);
    put_batch(&n, &options, 3);
    int rc;
    if (rank != 1)
        rc = replay(&n, exec);
    else if (joins)
        rc = ddp_join(n.gpu_model);
    else
        rc = ddp_model_sync(n.gpu_model);
    RANK_CHECK(rank, rc == DDP_EMISMATCH, "%d", rc);
    RANK_CHECK(rank,
               strstr(ddp_last_error(), "replays this step from a graph, but rank 1 does not"),
               "%s", ddp_last_error());
    RANK_CHECK(rank, ddp_model_replayed(n.gpu_model) == DDP_EMISMATCH, "it is broken");
    RANK_CHECK(rank, gpu_becomes_idle(n.stream), "the stream is busy");
    GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    ddp_finalize(n.g);
    return 0;
}

START_TEST(all_ranks_report_a_rank_that_does_not_replay)
{
    bool joins = _i == 1;
    gpu_expect_ranks(3, run_apart, &joins);
}
END_TEST

/* --- failures --------------------------------------------------------------------------------- */

static int run_until_death(int rank, void *arg)
{
    const int want = *(int *)arg;
    const struct net_options options = {.but = -1};
    struct net n;
    open_net(&n, rank, &options);
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    cudaGraphExec_t exec = capture(&n);
    for (int step = 0; step < 1000; step++) {
        put_batch(&n, &options, step);
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
    setenv("NCCL_DOUBLE_FAULTS", faults, 1);
    gpu_expect_death(3, run_until_death, &want, SIGKILL, W_EXITCODE(FAILED, 0));
}

START_TEST(a_death_in_a_replay_fails_it_on_all_others)
{
    char faults[64];
    snprintf(faults, sizeof faults, "r1g0:kill@%d", 13 + _i); /* in each bucket of the second */
    expect_death(faults, DDP_EPEER);
}
END_TEST

START_TEST(an_abort_ends_a_kernel_that_a_revoke_does_not_end)
{
    setenv("DDP_NCCL_ABORT_TIMEOUT", "0.5", 1);
    expect_death("r1g0:kill@13;revoke_graph", DDP_EPEER);
    unsetenv("DDP_NCCL_ABORT_TIMEOUT");
}
END_TEST

/* An abort waits for the program's graphs, and times out. */
START_TEST(without_revoke_a_death_costs_a_process_that_has_a_graph)
{
    setenv("DDP_NCCL_ABORT_TIMEOUT", "0.5", 1);
    expect_death("r1g0:kill@13;revoke_error", DDP_ERESPAWN);
    unsetenv("DDP_NCCL_ABORT_TIMEOUT");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl_graph");
    TCase *t = tcase_create("graph");
    tcase_set_timeout(t, 240);
    tcase_add_checked_fixture(t, gpu_set_up, gpu_tear_down);
    tcase_add_loop_test(t, replays_give_the_same_bits_as_plain_steps, 0, 8);
    tcase_add_loop_test(t, all_options_hold_in_replays, 0, N_OPTS);
    tcase_add_loop_test(t, gradients_unused_in_the_capture_count_as_zeros, 1, 4);
    tcase_add_loop_test(t, a_nonfinite_value_affects_only_its_own_replay, 0, 8);
    tcase_add_test(t, a_capture_waits_for_calls_in_progress);
    tcase_add_test(t, accumulated_passes_are_captured);
    tcase_add_test(t, a_model_may_have_several_graphs);
    tcase_add_test(t, buffers_equal_those_of_rank_0_after_each_replay);
    tcase_add_loop_test(t, gradients_are_clipped_in_the_graph, 1, 3);
    tcase_add_loop_test(t, ranks_join_after_replays_together_or_in_plain_steps, 0, 2);
    tcase_add_loop_test(t, all_ranks_report_a_rank_that_does_not_replay, 0, 2);
    tcase_add_loop_test(t, a_death_in_a_replay_fails_it_on_all_others, 0, 4);
    tcase_add_test(t, an_abort_ends_a_kernel_that_a_revoke_does_not_end);
    tcase_add_test(t, without_revoke_a_death_costs_a_process_that_has_a_graph);
    tcase_add_test(t, a_model_may_be_part_of_the_capture_of_another_stream);
    suite_add_tcase(s, t);
    return run_suite(s);
}
