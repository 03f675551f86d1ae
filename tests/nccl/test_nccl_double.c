/* The double of CUDA: what the other tests rely on that it finds.
 *
 * Covers: worker-runtime/nccl, worker-runtime/device */
#include "gpu_ranks.h"

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

START_TEST(the_double_detects_calls_that_a_capture_forbids)
{
    struct ranks r;
    int which = _i;
    ranks_start(&r, 1, run_rules, &which);
    ranks_expect_success(&r);
    const bool is_told = _i > 0 && _i < 7; /* CUDA itself reports an unjoined stream */
    ck_assert_msg((gpu_first_report()[0] != '\0') == is_told, "%s", gpu_first_report());
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl_double");
    TCase *t = tcase_create("captures");
    tcase_set_timeout(t, 240);
    tcase_add_checked_fixture(t, gpu_set_up, gpu_tear_down);
    tcase_add_loop_test(t, the_double_detects_calls_that_a_capture_forbids, 0, N_BROKEN);
    suite_add_tcase(s, t);
    return run_suite(s);
}
