/* Steps of ddp_model that are not captured or replayed, and break nothing: over the double.
 *
 * Covers: worker-runtime/nccl, worker-runtime/device */
#include "gpu_net.h"

static void expect(int rank, int got, int want, const char *text)
{
    RANK_CHECK(rank, got == want, "%d: %s", got, ddp_last_error());
    RANK_CHECK(rank, strstr(ddp_last_error(), text) != NULL, "no '%s' in '%s'", text,
               ddp_last_error());
}

/* A capture with a refused call ends normally: its graph has the other calls. */
static void drop_capture(const struct net *n)
{
    GPU_CHECK(n->rank, cudaGraphExecDestroy(end_capture(n)));
}

/* Steps continue after everything that was refused. */
static void expect_whole(struct net *n)
{
    const struct net_options options = {.but = -1};
    run_both(n, &options, 1, NULL);
    cudaGraphExec_t exec = capture(n);
    run_both(n, &options, 2, exec);
    GPU_CHECK(n->rank, cudaGraphExecDestroy(exec));
    GPU_CHECK(n->rank, cudaGetLastError());
    ddp_finalize(n->g);
}

static int run_too_early(int rank, void *arg)
{
    struct net n;
    (void)arg;
    open_net(&n, rank, &(struct net_options){.but = -1});
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
    open_net(&n, rank, &(struct net_options){.but = -1, .opts.weighted = true});
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

/* Gradients are declared ready in the capture, which ends without ddp_model_sync(). */
static int run_ended_early(int rank, void *arg)
{
    const bool is_launched = *(bool *)arg; /* a bucket went into the graph */
    cudaGraph_t graph;
    struct net n;
    open_net(&n, rank, &(struct net_options){.but = -1});
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
    expect(rank, ddp_model_replayed(n.gpu_model), DDP_EINVAL,
           "cannot be called while a graph is captured");
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

/* A plain step is in the middle of its buckets when the stream begins to capture: it completes
 * after that, on all ranks, and fails. */
static int run_begun_plain(int rank, void *arg)
{
    struct net n;
    (void)arg;
    open_net(&n, rank, &(struct net_options){.but = -1});
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
    open_net(&n, rank, &(struct net_options){.but = -1, .opts.check_finite = true});
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    cudaGraphExec_t exec = capture(&n);
    expect(rank, ddp_model_replayed(n.gpu_model), DDP_EINVAL, "no graph with a step of the model");
    RANK_CHECK(rank, ddp_model_ready(n.gpu_model, 3) == 0, "ready");
    expect(rank, ddp_model_replayed(n.gpu_model), DDP_EINVAL, "a step without a graph has begun");
    for (size_t i = 0; i < 3; i++)
        RANK_CHECK(rank, ddp_model_ready(n.gpu_model, i) == 0, "ready");
    RANK_CHECK(rank, ddp_model_sync(n.gpu_model) == 0, "that step goes on");
    expect(rank, ddp_model_replayed(n.gpu_model), DDP_EINVAL, "no graph with a step of the model");
    begin_capture(&n);
    expect(rank, ddp_model_replayed(n.gpu_model), DDP_EINVAL,
           "cannot be called while a graph is captured");
    expect(rank, ddp_join(n.gpu_model), DDP_EINVAL, "cannot be called while a graph is captured");
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

/* A gradient is missing: the graph has the rest, its streams are joined, but it is not a step. */
static int run_incomplete(int rank, void *arg)
{
    struct net n;
    (void)arg;
    open_net(&n, rank, &(struct net_options){.but = -1});
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    begin_capture(&n);
    RANK_CHECK(rank, ddp_model_ready(n.gpu_model, 3) == 0, "ready");
    RANK_CHECK(rank, ddp_model_ready(n.gpu_model, 2) == 0, "ready");
    expect(rank, ddp_model_ready(n.gpu_model, 2), DDP_EINVAL,
           "was already marked ready in this step");
    expect(rank, ddp_model_sync(n.gpu_model), DDP_EINVAL, "was already marked ready in this step");
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
    open_net(&n, rank, &(struct net_options){.but = -1});
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    begin_capture(&n);
    if (in_a_step) /* its bucket is in the graph */
        for (size_t i = 4; i-- > 1;)
            RANK_CHECK(rank, ddp_model_ready(n.gpu_model, i) == 0, "ready");
    RANK_CHECK(rank, cudaStreamQuery(n.stream) == cudaErrorStreamCaptureUnsupported, "query");
    ddp_model_ready(n.gpu_model, 0);
    expect(rank, ddp_model_sync(n.gpu_model), DDP_EINVAL, "CUDA invalidated the capture");
    RANK_CHECK(rank, cudaStreamEndCapture(n.stream, &graph) == cudaErrorStreamCaptureInvalidated,
               "the end");
    RANK_CHECK(rank, graph == NULL, "no graph");
    cudaGetLastError();
    expect_whole(&n);
    return 0;
}

START_TEST(a_capture_that_cuda_invalidates_breaks_nothing)
{
    bool in_a_step = _i == 1;
    gpu_expect_report(2, run_spoiled, &in_a_step, "while a graph is captured");
}
END_TEST

static int average_and_spoil(struct ddp_group *g, const struct ddp_bucket *b, void *arg)
{
    bool *spoils = arg;
    int rc = ddp_all_reduce(g, b->data, b->data, b->count, b->dtype, DDP_AVG, b->stream);
    if (b->stream != NULL && *spoils)
        cudaStreamQuery(b->stream);
    return rc;
}

/* The kernel after the hook finds that the capture has ended. */
static int run_spoiled_by_hook(int rank, void *arg)
{
    bool spoils = false;
    cudaGraph_t graph;
    struct net n;
    (void)arg;
    open_net(&n, rank,
             &(struct net_options){
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
    gpu_expect_report(2, run_spoiled_by_hook, NULL, "while a graph is captured");
}
END_TEST

/* The model's stream is not the one that captures: its step is a plain one, which cannot end. */
static int run_beside(int rank, void *arg)
{
    struct net n;
    cudaStream_t other;
    cudaGraph_t graph;
    (void)arg;
    open_net(&n, rank, &(struct net_options){.but = -1});
    GPU_CHECK(rank, cudaStreamCreate(&other));
    RANK_CHECK(rank, run_plain(&n) == 0, "a plain step");
    GPU_CHECK(rank, cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal));
    expect(rank, ddp_stream_wait(n.g, n.stream, 0), DDP_EINVAL,
           "cannot wait while a graph is captured on this stream or another");
    expect(rank, ddp_model_sync(n.gpu_model), DDP_EINVAL, "on this stream or another");
    cudaStreamEndCapture(other, &graph);
    cudaGetLastError();
    ddp_finalize(n.g);
    return 0;
}

START_TEST(a_call_during_a_capture_of_another_stream_reports_it)
{
    gpu_expect_report(2, run_beside, NULL, "while a graph is captured");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl_graph_refused");
    TCase *t = tcase_create("refused");
    tcase_set_timeout(t, 240);
    tcase_add_checked_fixture(t, gpu_set_up, gpu_tear_down);
    tcase_add_loop_test(t, the_first_step_is_not_captured, 1, 3);
    tcase_add_test(t, steps_with_weights_are_not_captured);
    tcase_add_loop_test(t, a_step_that_begins_in_a_capture_ends_there, 0, 2);
    tcase_add_test(t, a_step_that_begins_outside_ends_there);
    tcase_add_test(t, calls_at_the_wrong_time_are_refused_and_break_nothing);
    tcase_add_test(t, a_step_with_a_mistake_is_not_captured);
    tcase_add_loop_test(t, a_capture_that_cuda_invalidates_breaks_nothing, 0, 2);
    tcase_add_test(t, a_hook_that_spoils_a_capture_breaks_nothing);
    tcase_add_test(t, a_call_during_a_capture_of_another_stream_reports_it);
    suite_add_tcase(s, t);
    return run_suite(s);
}
