/* What becomes of ranks on GPUs when something goes wrong in one of them: over the double, with its
 * faults. No rank hangs, streams are idle afterwards, and each rank hears why.
 *
 * Covers: worker-runtime/nccl, worker-runtime/device */
#include "gpu_ranks.h"

enum { RANKS = 3, STEPS = 6, COUNT = 40000 };

/* The outcome of a rank, as its exit status. */
enum { WELL = 0, PEER = 10, RESPAWN, TIMEOUT, REFUSED, OTHER, BUSY };

static int verdict_of(int rc)
{
    return rc == 0                  ? WELL
           : rc == DDP_EPEER        ? PEER
           : rc == DDP_ERESPAWN     ? RESPAWN
           : rc == DDP_ETIMEOUT     ? TIMEOUT
           : rc == DDP_EUNSUPPORTED ? REFUSED
                                    : OTHER;
}

static int train(int rank, struct ddp_group *g, float *gpu, cudaStream_t stream)
{
    int rc = 0;
    for (int i = 0; i < STEPS && rc == 0; i++) {
        GPU_CHECK(rank, cudaMemsetAsync(gpu, 0, COUNT * sizeof *gpu, stream));
        rc = ddp_all_reduce(g, gpu, gpu, COUNT, DDP_FLOAT32, DDP_AVG, stream);
        if (rc == 0)
            rc = ddp_stream_wait(g, stream, 0);
    }
    return rc;
}

static int run(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 0);
    float *gpu;
    cudaStream_t stream;
    int index;
    RANK_CHECK(rank, ddp_device(g, &index) == 0, "device");
    GPU_CHECK(rank, cudaMalloc((void **)&gpu, COUNT * sizeof *gpu));
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    const int rc = train(rank, g, gpu, stream);
    const bool has_text = rc == 0 || ddp_last_error()[0] != '\0';
    RANK_CHECK(rank, has_text, "no text for %d", rc);
    if (rc != 0) {
        fprintf(stderr, "rank %d: %s\n", rank, ddp_last_error());
        const int again = ddp_all_reduce(g, gpu, gpu, COUNT, DDP_FLOAT32, DDP_AVG, stream);
        RANK_CHECK(rank, again != 0, "a call on a broken group went well");
        void *comm;
        RANK_CHECK(rank, ddp_nccl_comm(g, &comm) != 0, "a communicator that is gone is given out");
    }
    if (rc != 0 && rc != DDP_ERESPAWN && !gpu_becomes_idle(stream))
        _exit(BUSY);
    ddp_finalize(g);
    _exit(verdict_of(rc)); /* a thread that hangs, as was wanted, is not waited for */
}

/* Keeps its graph for longer than its group. */
static int run_graph(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = gpu_rank_init(rank);
    float *gpu;
    cudaStream_t stream;
    GPU_CHECK(rank, cudaMalloc((void **)&gpu, COUNT * sizeof *gpu));
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    GPU_CHECK(rank, cudaMemsetAsync(gpu, 0, COUNT * sizeof *gpu, stream));
    RANK_CHECK(rank, ddp_all_reduce(g, gpu, gpu, COUNT, DDP_FLOAT32, DDP_SUM, stream) == 0, "call");
    RANK_CHECK(rank, ddp_stream_wait(g, stream, 0) == 0, "wait");
    GPU_CHECK(rank, cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 2; i++)
        RANK_CHECK(rank, ddp_all_reduce(g, gpu, gpu, COUNT, DDP_FLOAT32, DDP_SUM, stream) == 0,
                   "call in a capture");
    const cudaGraphExec_t exec = gpu_end_capture(rank, stream);
    /* a rank that dies in its graph must not interrupt the capture of another one */
    RANK_CHECK(rank, ddp_barrier(g) == 0, "barrier");
    GPU_CHECK(rank, cudaGraphLaunch(exec, stream));
    const int rc = ddp_stream_wait(g, stream, 0);
    if (!gpu_becomes_idle(stream))
        _exit(BUSY);
    ddp_finalize(g);
    GPU_CHECK(rank, cudaGraphExecDestroy(exec));
    _exit(verdict_of(rc));
}

/* The driver may wait for all streams to load kernels: one has a call that no other rank makes. */
static int run_model(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 0); /* the time limit is DDP_TIMEOUT */
    float *gpu;
    cudaStream_t stream, other;
    struct ddp_model *m;
    int index;
    RANK_CHECK(rank, ddp_device(g, &index) == 0, "device");
    GPU_CHECK(rank, cudaMalloc((void **)&gpu, 2 * COUNT * sizeof *gpu));
    GPU_CHECK(rank, cudaStreamCreate(&stream));
    GPU_CHECK(rank, cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    GPU_CHECK(rank, cudaMemsetAsync(gpu, 0, 2 * COUNT * sizeof *gpu, stream));
    RANK_CHECK(rank, ddp_all_reduce(g, gpu, gpu, COUNT, DDP_FLOAT32, DDP_SUM, stream) == 0, "call");
    RANK_CHECK(rank, ddp_stream_wait(g, stream, 0) == 0, "wait");
    if (rank == 0)
        RANK_CHECK(rank, ddp_all_reduce(g, gpu, gpu, COUNT, DDP_FLOAT32, DDP_SUM, other) == 0,
                   "a call of one rank");
    struct ddp_tensor t = {"t", gpu + COUNT, NULL, COUNT, DDP_FLOAT32};
    const int rc = ddp_model_create(g, &t, 1, &(struct ddp_model_opts){.stream = stream}, &m);
    fprintf(stderr, "rank %d: %s\n", rank, ddp_last_error());
    ddp_finalize(g);
    _exit(verdict_of(rc));
}

struct counts {
    int well, peer, respawn, timeout, refused, killed, other;
};

static struct counts count(const struct ranks *r)
{
    struct counts c = {0};
    for (int i = 0; i < r->n; i++) {
        const int status = r->status[i];
        if (WIFSIGNALED(status))
            c.killed++;
        else
            switch (WEXITSTATUS(status)) {
            case WELL:
                c.well++;
                break;
            case PEER:
                c.peer++;
                break;
            case RESPAWN:
                c.respawn++;
                break;
            case TIMEOUT:
                c.timeout++;
                break;
            case REFUSED:
                c.refused++;
                break;
            default:
                c.other++;
            }
    }
    return c;
}

static void expect_of(rank_fn *fn, const char *faults, struct counts want)
{
    struct ranks r;
    setenv("NCCL_DOUBLE_FAULTS", faults, 1);
    ranks_start(&r, RANKS, fn, NULL);
    ranks_wait(&r);
    const struct counts got = count(&r);
    ck_assert_msg(memcmp(&got, &want, sizeof got) == 0,
                  "%s: well %d, peer %d, respawn %d, timeout %d, refused %d, killed %d, other %d",
                  faults, got.well, got.peer, got.respawn, got.timeout, got.refused, got.killed,
                  got.other);
    gpu_expect_no_report();
}

static void expect(const char *faults, struct counts want)
{
    expect_of(run, faults, want);
}

static void set_up(void)
{
    gpu_set_up();
    setenv("DDP_TIMEOUT", "60", 1);
    setenv("DDP_NCCL_ABORT_TIMEOUT", "60", 1);
}

/* Whether a log of calls has that line. */
static bool is_in(const char *path, const char *line)
{
    char have[128];
    bool is = false;
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    while (!is && fgets(have, sizeof have, f) != NULL) {
        have[strcspn(have, "\n")] = '\0';
        is = strcmp(have, line) == 0;
    }
    fclose(f);
    return is;
}

START_TEST(without_faults_all_calls_succeed)
{
    expect("", (struct counts){.well = RANKS});
}
END_TEST

START_TEST(a_death_in_a_collective_ends_the_kernels_of_the_others)
{
    expect("r1g0:kill@3", (struct counts){.killed = 1, .peer = RANKS - 1});
}
END_TEST

START_TEST(a_death_ends_the_creation_of_the_communicator)
{
    expect("r2g0:kill_init@1", (struct counts){.killed = 1, .peer = RANKS - 1});
}
END_TEST

START_TEST(ranks_wait_for_a_slow_start)
{
    expect("r0g0:slow_init@1=300", (struct counts){.well = RANKS});
}
END_TEST

START_TEST(a_start_error_reaches_all_ranks_and_costs_one_process)
{
    expect("r1g0:fail_init@1", (struct counts){.respawn = 1, .peer = RANKS - 1});
}
END_TEST

START_TEST(two_ranks_on_one_gpu_are_refused_on_all_ranks)
{
    expect("r1g0:usage_init@1;r2g0:usage_init@1", (struct counts){.refused = RANKS});
}
END_TEST

START_TEST(a_start_that_hangs_costs_one_process)
{
    setenv("DDP_TIMEOUT", "5", 1);
    expect("r1g0:hang_init@1", (struct counts){.respawn = 1, .peer = RANKS - 1});
}
END_TEST

START_TEST(an_asynchronous_error_of_all_ranks_costs_one_process)
{
    expect("async@2", (struct counts){.respawn = 1, .peer = RANKS - 1});
}
END_TEST

START_TEST(a_death_whose_news_comes_after_the_error_of_the_network_costs_no_other_process)
{
    expect("r1g0:kill@2=2000;r0g0:async@2", (struct counts){.killed = 1, .peer = RANKS - 1});
}
END_TEST

START_TEST(an_error_of_cuda_costs_the_process_that_has_it)
{
    expect("r0g0:cuda@4", (struct counts){.respawn = 1, .peer = RANKS - 1});
}
END_TEST

START_TEST(a_kernel_that_never_ends_is_a_timeout_for_all)
{
    setenv("DDP_TIMEOUT", "5", 1);
    expect("r1g0:stall@2", (struct counts){.timeout = RANKS});
}
END_TEST

START_TEST(a_communicator_with_a_call_in_progress_is_aborted)
{
    expect("r1g0:kill@1=1000;r0g0:hang_call@1", (struct counts){.killed = 1, .peer = RANKS - 1});
}
END_TEST

START_TEST(an_asynchronous_error_costs_one_process_and_revokes_only_the_others)
{
    char log[PATH_MAX];
    snprintf(log, sizeof log, "%.*s/log", (int)sizeof log - 8, gpu_dir);
    setenv("NCCL_DOUBLE_LOG", log, 1);
    expect("r2g0:async@2", (struct counts){.respawn = 1, .peer = RANKS - 1});
    unsetenv("NCCL_DOUBLE_LOG");
    ck_assert(is_in(log, "0 ncclCommRevoke"));
    ck_assert(is_in(log, "2 ncclCommAbort"));
    ck_assert(!is_in(log, "2 ncclCommRevoke"));
}
END_TEST

START_TEST(a_communicator_that_cannot_be_revoked_is_aborted)
{
    expect("r1g0:kill@2;revoke_error@1", (struct counts){.killed = 1, .peer = RANKS - 1});
}
END_TEST

START_TEST(a_revoked_communicator_is_not_freed_while_a_graph_holds_it)
{
    expect_of(run_graph, "r1g0:kill@2", (struct counts){.killed = 1, .peer = RANKS - 1});
}
END_TEST

START_TEST(kernels_that_the_driver_does_not_load_are_a_timeout_for_all)
{
    setenv("DDP_TIMEOUT", "5", 1);
    expect_of(run_model, "", (struct counts){.timeout = RANKS});
}
END_TEST

START_TEST(a_revoke_that_hangs_is_followed_by_an_abort)
{
    setenv("DDP_NCCL_ABORT_TIMEOUT", "4", 1);
    expect("r1g0:kill@2;r0g0:revoke_hang@1", (struct counts){.killed = 1, .peer = RANKS - 1});
}
END_TEST

START_TEST(a_rank_that_cannot_abort_must_be_replaced)
{
    expect("r1g0:kill@2;r0g0:revoke_error@1;r0g0:abort_error@1",
           (struct counts){.killed = 1, .respawn = 1, .peer = RANKS - 2});
}
END_TEST

START_TEST(a_rank_that_hangs_in_an_abort_must_be_replaced)
{
    setenv("DDP_NCCL_ABORT_TIMEOUT", "4", 1);
    expect("r1g0:kill@2;r0g0:revoke_error@1;r0g0:abort_hang@1",
           (struct counts){.killed = 1, .respawn = 1, .peer = RANKS - 2});
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl_failures");
    TCase *t = tcase_create("failures");
    tcase_set_timeout(t, 240);
    tcase_add_checked_fixture(t, set_up, gpu_tear_down);
    tcase_add_test(t, without_faults_all_calls_succeed);
    tcase_add_test(t, a_death_in_a_collective_ends_the_kernels_of_the_others);
    tcase_add_test(t, a_death_ends_the_creation_of_the_communicator);
    tcase_add_test(t, ranks_wait_for_a_slow_start);
    tcase_add_test(t, a_start_error_reaches_all_ranks_and_costs_one_process);
    tcase_add_test(t, two_ranks_on_one_gpu_are_refused_on_all_ranks);
    tcase_add_test(t, a_start_that_hangs_costs_one_process);
    tcase_add_test(t, an_asynchronous_error_of_all_ranks_costs_one_process);
    tcase_add_test(t,
                   a_death_whose_news_comes_after_the_error_of_the_network_costs_no_other_process);
    tcase_add_test(t, an_error_of_cuda_costs_the_process_that_has_it);
    tcase_add_test(t, a_kernel_that_never_ends_is_a_timeout_for_all);
    tcase_add_test(t, a_communicator_with_a_call_in_progress_is_aborted);
    tcase_add_test(t, an_asynchronous_error_costs_one_process_and_revokes_only_the_others);
    tcase_add_test(t, a_communicator_that_cannot_be_revoked_is_aborted);
    tcase_add_test(t, a_revoked_communicator_is_not_freed_while_a_graph_holds_it);
    tcase_add_test(t, kernels_that_the_driver_does_not_load_are_a_timeout_for_all);
    tcase_add_test(t, a_revoke_that_hangs_is_followed_by_an_abort);
    tcase_add_test(t, a_rank_that_cannot_abort_must_be_replaced);
    tcase_add_test(t, a_rank_that_hangs_in_an_abort_must_be_replaced);
    suite_add_tcase(s, t);
    return run_suite(s);
}
