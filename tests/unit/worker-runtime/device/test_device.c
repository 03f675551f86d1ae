/* Calls with a stream where no GPU is available: their errors, and the state of the group
 * afterwards. tests/nccl has more, for machines with a GPU. */
#include "tests/unit/worker-runtime/ranks.h"

#include "worker-runtime/core/group.h"

#include <ddp/device.h>
#include <sys/wait.h>

static char any_stream;

static int reduce_on_stream(struct ddp_group *g)
{
    float x = 1;
    return ddp_all_reduce(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, &any_stream);
}

static void expect_text(int rank, const char *text)
{
    RANK_CHECK(rank, strstr(ddp_last_error(), text) != NULL, "no '%s'", text);
}

/* The group continues as if nothing had happened. */
static void expect_whole(int rank, struct ddp_group *g)
{
    int32_t one = 1;
    RANK_CHECK(rank, ddp_all_reduce(g, &one, &one, 1, DDP_INT32, DDP_SUM, NULL) == 0, "sum");
    RANK_CHECK(rank, one == ddp_world_size(g), "%d", one);
}

static int all_want_cpus(int rank, void *arg)
{
    (void)arg;
    struct ddp_request *request = NULL;
    void *comm;
    float x = 0;
    setenv("DDP_BACKEND", "cpu", 1);
    struct ddp_group *g = rank_init(rank, 60000);
    RANK_CHECK(rank, reduce_on_stream(g) == DDP_EUNSUPPORTED, "all_reduce");
    expect_text(rank, "rank 0 has no GPU for this group: DDP_BACKEND=cpu");
    RANK_CHECK(rank,
               ddp_ibroadcast(g, &x, &x, 1, DDP_FLOAT32, 0, &any_stream, &request) ==
                   DDP_EUNSUPPORTED,
               "ibroadcast");
    RANK_CHECK(rank, request == NULL, "a request");
    RANK_CHECK(rank, ddp_stream_wait(g, &any_stream, 0) == DDP_EINVAL, "wait");
    RANK_CHECK(rank, ddp_nccl_comm(g, &comm) == DDP_EUNSUPPORTED, "comm");
    RANK_CHECK(rank, ddp_send(g, &x, 1, DDP_FLOAT32, 1 - rank, 0, &any_stream) == DDP_EINVAL,
               "send");
    expect_whole(rank, g);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_rank_without_a_gpu_is_named_on_all_ranks)
{
    struct ranks r;
    ranks_start(&r, 2, all_want_cpus, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int no_gpu_is_seen(int rank, void *arg)
{
    (void)arg;
    int index;
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    struct ddp_group *g = rank_init(rank, 60000);
    RANK_CHECK(rank, ddp_device(g, &index) == DDP_EUNSUPPORTED, "device");
    RANK_CHECK(rank, reduce_on_stream(g) == DDP_EUNSUPPORTED, "all_reduce");
    RANK_CHECK(rank,
               strstr(ddp_last_error(), "only the CPU back end is available") != NULL ||
                   strstr(ddp_last_error(), "cannot load libddp-nccl.so") != NULL,
               "text");
    expect_whole(rank, g);
    ddp_finalize(g);
    return 0;
}

START_TEST(without_a_gpu_the_cpu_back_end_is_used)
{
    struct ranks r;
    for (int n = 1; n <= 2; n++) {
        ranks_start(&r, n, no_gpu_is_seen, NULL);
        ranks_expect_success(&r);
    }
}
END_TEST

static int gpus_are_demanded(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g;
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    setenv("DDP_BACKEND", "nccl", 1);
    RANK_CHECK(rank, ddp_init(NULL, &g) == DDP_EUNSUPPORTED, "init");
    return 0;
}

START_TEST(joining_fails_if_required_gpus_are_missing)
{
    struct ranks r;
    for (int n = 1; n <= 2; n++) {
        ranks_start(&r, n, gpus_are_demanded, NULL);
        ranks_expect_success(&r);
    }
}
END_TEST

static int variable_is_wrong(int rank, void *arg)
{
    (void)arg;
    int index;
    struct ddp_group *g = rank_init(rank, 60000);
    setenv("DDP_BACKEND", "tpu", 1); /* after ddp_init() has read the environment */
    RANK_CHECK(rank, ddp_device(g, &index) == DDP_EENV, "device");
    expect_text(rank, "invalid value 'tpu' for DDP_BACKEND: expected cpu or nccl");
    setenv("DDP_BACKEND", "nccl", 1);
    setenv("DDP_NCCL_ABORT_TIMEOUT", "soon", 1);
    RANK_CHECK(rank, ddp_device(g, &index) == DDP_EENV, "device");
    expect_text(rank, "DDP_NCCL_ABORT_TIMEOUT");
    RANK_CHECK(rank, ddp_device(g, NULL) == DDP_EINVAL, "NULL");
    RANK_CHECK(rank, ddp_nccl_comm(g, NULL) == DDP_EINVAL, "NULL");
    RANK_CHECK(rank, ddp_stream_wait(NULL, NULL, 0) == DDP_EINVAL, "NULL");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_wrong_variable_is_named)
{
    struct ranks r;
    ranks_start(&r, 1, variable_is_wrong, NULL);
    ranks_expect_success(&r);
}
END_TEST

START_TEST(a_process_that_lost_its_gpu_exits_with_75)
{
    fflush(NULL);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        rt_fail(DDP_ERESPAWN, "this is a test: the GPU is lost");
        ddp_fatal("train");
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 75);
    ck_assert_str_eq(ddp_strerror(DDP_ERESPAWN), "DDP_ERESPAWN");
}
END_TEST

TEST_SUITE(device)
{
    Suite *s = suite_create("device");
    TCase *t = tcase_create("device");
    tcase_set_timeout(t, 240);
    tcase_add_test(t, a_rank_without_a_gpu_is_named_on_all_ranks);
    tcase_add_test(t, without_a_gpu_the_cpu_back_end_is_used);
    tcase_add_test(t, joining_fails_if_required_gpus_are_missing);
    tcase_add_test(t, a_wrong_variable_is_named);
    tcase_add_test(t, a_process_that_lost_its_gpu_exits_with_75);
    suite_add_tcase(s, t);
    return s;
}
