/* test_failures.c - a rank is killed, or stopped, in the midst of each collective in each shape. */
#include "tests/unit/worker-runtime/exchange.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "tests/unit/worker-runtime/timeouts.h"

#include <pthread.h>

struct shape { /* what leads to it */
    const char *name;
    size_t bytes;
    bool shared;
    const char *cma;
};

static const struct shape shapes[] = {
    {"note", 16, false, "0"},
    {"one-shot", 3000, false, "0"},
    {"staged", 200000, false, "0"},
    {"direct", 900000, true, "0"},
    {"cma", (size_t)3 << 20, false, "1"},
};

enum {
    N = 3,
    VICTIM = 1,
    N_SHAPES = sizeof shapes / sizeof *shapes,
    N_KINDS = CALL_ALL_TO_ALL - CALL_ALL_REDUCE + 2, /* and the barrier */
    N_CASES = N_KINDS * N_SHAPES,
    STOP_TIMEOUT_MS = 1000, /* longer than a busy machine lets a rank wait */
};

struct loop {
    enum call_kind kind;
    const struct shape *shape;
    int expected;     /* status */
    const char *whom; /* part of the text */
    uint64_t timeout_ms;
    int report; /* a pipe: a byte per rank once it is in the midst of the loop */
};

static uint8_t *buffer(struct ddp_group *g, const struct shape *shape, size_t bytes)
{
    void *p = NULL;
    if (!shape->shared)
        return calloc(1, bytes);
    return ddp_alloc(g, bytes, &p) == DDP_OK ? p : NULL;
}

static int run_until_broken(int rank, void *arg)
{
    const struct loop *loop = arg;
    setenv("DDP_CMA", loop->shape->cma, 1);
    setenv("DDP_TUNING", "ranks 3: cma=256K cma_sum=256K", 1);
    struct ddp_group *g = rank_init(rank, loop->timeout_ms);
    struct exchange x = {.kind = loop->kind, .dtype = DDP_INT32, .n = N, .rank = rank};
    x.count = loop->shape->bytes / 4;
    if (exchange_deals(&x) || exchange_collects(&x))
        x.count /= N;
    exchange_init(&x);
    uint8_t *in = buffer(g, loop->shape, loop->shape->bytes + 64);
    uint8_t *out = buffer(g, loop->shape, loop->shape->bytes + 64);
    RANK_CHECK(rank, in != NULL && out != NULL, "memory");
    int rc = DDP_OK;
    for (unsigned i = 0; rc == DDP_OK; i++) {
        if (i == 5)
            RANK_CHECK(rank, write(loop->report, "x", 1) == 1, "report");
        rc = exchange_call(&x, g, in, out);
    }
    RANK_CHECK(rank, rc == loop->expected, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), loop->whom) != NULL, "expected: %s", loop->whom);
    RANK_CHECK(rank, strstr(ddp_last_error(), call_kind_name(loop->kind)) != NULL, "in what");
    RANK_CHECK(rank, ddp_barrier(g) == loop->expected, "a broken group works on");
    memset(in, 1, loop->shape->bytes); /* it is ours */
    ddp_finalize(g);
    return 0;
}

/* Does that to rank 1 in the midst of case `i`, and checks the errors of the other ranks. */
static void strike(int i, int sig, struct loop loop)
{
    const int kind = i % N_KINDS;
    struct ranks r;
    int ends[2];
    char byte;
    loop.kind = kind == N_KINDS - 1 ? CALL_BARRIER : (enum call_kind)(CALL_ALL_REDUCE + kind);
    loop.shape = &shapes[i / N_KINDS];
    if (loop.kind == CALL_BARRIER && i >= N_KINDS)
        return; /* it has one shape */
    ck_assert_int_eq(pipe(ends), 0);
    loop.report = ends[1];
    ranks_start(&r, N, run_until_broken, &loop);
    close(ends[1]); /* the ranks' alone: their end is the end of the file */
    for (int k = 0; k < N; k++)
        ck_assert_msg(read(ends[0], &byte, 1) == 1, "%s, %s: a rank ended early",
                      call_kind_name(loop.kind), loop.shape->name);
    kill(r.pid[VICTIM], sig);
    pid_t victim = r.pid[VICTIM];
    r.pid[VICTIM] = 0; /* waited for here: it does not end by itself when it is stopped */
    ranks_wait(&r);
    kill(victim, SIGKILL);
    ck_assert_int_eq(waitpid(victim, &r.status[VICTIM], 0), victim);
    for (int k = 0; k < N; k++)
        ck_assert_msg(k == VICTIM || r.status[k] == 0, "%s, %s: rank %d ended with %#x",
                      call_kind_name(loop.kind), loop.shape->name, k, r.status[k]);
    close(ends[0]);
}

START_TEST(a_rank_that_is_killed_in_a_collective_is_named_by_all_others)
{
    strike(_i, SIGKILL,
           (struct loop){.expected = DDP_EPEER, .whom = "rank 1 died", .timeout_ms = 60000});
}
END_TEST

/* Each waits for its timeout: a third of them always, each kind and each shape among them, and all
 * with TEST_STOPS. */
START_TEST(a_rank_stopped_in_a_collective_is_named_at_the_timeout)
{
    if ((_i % N_KINDS + _i / N_KINDS) % 3 != 0 && getenv("TEST_STOPS") == NULL)
        return;
    strike(_i, SIGSTOP,
           (struct loop){
               .expected = DDP_ETIMEOUT, .whom = "for rank 1", .timeout_ms = STOP_TIMEOUT_MS});
}
END_TEST

/* --- which rank is missing, and where --------------------------------------------------------- */

static int run_monitored(int rank, void *arg)
{
    const int *pipes = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    char byte;
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
    if (rank > 0) {
        RANK_CHECK(rank, read(pipes[0], &byte, 1) == 1, "gate");
        ddp_finalize(g);
        return 0;
    }
    RANK_CHECK(rank, ddp_monitored_barrier(g, 150) == DDP_ETIMEOUT, "they do not come");
    for (int r = 1; r < ddp_world_size(g); r++) {
        char text[64];
        snprintf(text, sizeof text, "rank %d (pid ", r);
        RANK_CHECK(rank, strstr(ddp_last_error(), text) != NULL, "%s", text);
    }
    RANK_CHECK(rank, strstr(ddp_last_error(), "timed out after 0.15 s waiting for rank 1") != NULL,
               "text");
    RANK_CHECK(rank, strstr(ddp_last_error(), "last call: barrier, call #1)") != NULL, "text");
    for (int r = 1; r < ddp_world_size(g); r++)
        RANK_CHECK(rank, write(pipes[1], "x", 1) == 1, "gate");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_monitored_barrier_names_missing_ranks_and_their_last_calls)
{
    int pipes[2];
    struct ranks r;
    ck_assert_int_eq(pipe(pipes), 0);
    ranks_start(&r, 5, run_monitored, pipes);
    ranks_expect_success(&r);
}
END_TEST

START_TEST(a_timeout_that_was_shortened_ends_each_kind_of_call)
{
    struct timeouts t = {.kind = (enum timeouts_kind)_i};
    struct ranks r;
    ck_assert_int_eq(pipe(t.gate), 0);
    ranks_start(&r, 3, timeouts_run, &t);
    ranks_expect_success(&r);
    close(t.gate[0]);
    close(t.gate[1]);
}
END_TEST

/* --- a rank that joined by a thread which has ended ------------------------------------------ */

static void *join_job(void *arg)
{
    *(struct ddp_group **)arg = rank_init(1, 60000);
    return NULL;
}

static int run_by_thread(int rank, void *arg)
{
    const int *pipes = arg;
    struct ddp_group *g;
    pthread_t thread;
    char byte;
    if (rank == 0) {
        g = rank_init(rank, 60000);
        RANK_CHECK(rank, ddp_barrier(g) == DDP_EPEER, "it waits for a rank without its thread");
        RANK_CHECK(rank, strstr(ddp_last_error(), "rank 1 died") != NULL, "text");
        RANK_CHECK(rank, write(pipes[1], "x", 1) == 1, "gate");
        ddp_finalize(g);
        return 0;
    }
    RANK_CHECK(rank, pthread_create(&thread, NULL, join_job, &g) == 0, "thread");
    pthread_join(thread, NULL);
    RANK_CHECK(rank, read(pipes[0], &byte, 1) == 1, "gate");
    RANK_CHECK(rank, ddp_barrier(g) == DDP_EPEER, "the group is broken");
    return 0;
}

START_TEST(a_rank_whose_joining_thread_has_ended_counts_as_dead)
{
    int pipes[2];
    struct ranks r;
    ck_assert_int_eq(pipe(pipes), 0);
    ranks_start(&r, 2, run_by_thread, pipes);
    ranks_expect_success(&r);
}
END_TEST

TEST_SUITE(failures)
{
    Suite *suite = suite_create("failures");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, a_rank_that_is_killed_in_a_collective_is_named_by_all_others, 0,
                        N_CASES);
    tcase_add_loop_test(tcase, a_rank_stopped_in_a_collective_is_named_at_the_timeout, 0, N_CASES);
    tcase_add_test(tcase, a_rank_whose_joining_thread_has_ended_counts_as_dead);
    tcase_add_test(tcase, a_monitored_barrier_names_missing_ranks_and_their_last_calls);
    tcase_add_loop_test(tcase, a_timeout_that_was_shortened_ends_each_kind_of_call, 0,
                        TIMEOUTS_N_KINDS);
    suite_add_tcase(suite, tcase);
    return suite;
}
