/* test_watch.c - what a program reports that communicates by other means, and how a thread of it
 * learns that its peers are gone. */
#include "segments/control.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/core/group.h"

#include <pthread.h>
#include <unistd.h>

enum { VICTIM = 1, LONG_MS = 100 * 1000 }; /* shorter than Check's own limit */

static void *wait_for_end(void *arg)
{
    return (void *)(intptr_t)ddp_wait_retry(arg, LONG_MS);
}

static int start_waiting(pthread_t *ret, struct ddp_group *g)
{
    return pthread_create(ret, NULL, wait_for_end, g);
}

static int result_of(pthread_t thread)
{
    void *rc;
    return pthread_join(thread, &rc) == 0 ? (int)(intptr_t)rc : -1000;
}

/* The main thread is in no call of libddp. */
static int run_bereft(int rank, void *arg)
{
    const int *gate = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    pthread_t thread[2];
    char byte;
    RANK_CHECK(rank, ddp_wait_retry(g, 0) == DDP_ETIMEOUT, "a look");
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
    if (rank == VICTIM) {
        if (read(gate[0], &byte, 1) != 1)
            _exit(1);
        raise(SIGKILL);
    }
    RANK_CHECK(rank, start_waiting(&thread[0], g) == 0, "thread");
    RANK_CHECK(rank, start_waiting(&thread[1], g) == 0, "thread");
    RANK_CHECK(rank, write(gate[1], "x", 1) == 1, "gate");
    for (int i = 0; i < 2; i++) {
        int rc = result_of(thread[i]);
        RANK_CHECK(rank, rc == DDP_EPEER, "got %s", ddp_strerror(rc));
    }
    RANK_CHECK(rank, ddp_wait_retry(g, LONG_MS) == DDP_EPEER, "it stays so");
    RANK_CHECK(rank, strstr(ddp_last_error(), "rank 1 ") != NULL, "the text names the rank");
    ddp_finalize(g);
    return 0;
}

START_TEST(threads_that_wait_learn_of_a_death)
{
    int gate[2];
    struct ranks r;
    ck_assert_int_eq(pipe(gate), 0);
    ranks_start(&r, 4, run_bereft, gate);
    ranks_wait(&r);
    for (int i = 0; i < r.n; i++)
        if (i == VICTIM)
            ck_assert(WIFSIGNALED(r.status[i]) && WTERMSIG(r.status[i]) == SIGKILL);
        else
            ck_assert_int_eq(r.status[i], 0);
}
END_TEST

static int run_to_the_end(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    pthread_t thread;
    RANK_CHECK(rank, start_waiting(&thread, g) == 0, "thread");
    for (int i = 0; i < 100; i++) /* at the same time as calls */
        RANK_CHECK(rank, rank_sum(rank, g, 1) == ddp_world_size(g), "sum");
    RANK_CHECK(rank, ddp_end_wait_retry(g) == DDP_OK, "end");
    int rc = result_of(thread);
    RANK_CHECK(rank, rc == DDP_OK, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, ddp_wait_retry(g, LONG_MS) == DDP_OK, "later waits end, too");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_wait_ends_with_0_when_the_program_ends_it)
{
    struct ranks r;
    ranks_start(&r, _i, run_to_the_end, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* A rank that leaves in good order is missed by none that waits for it. */
static int run_past_a_departure(int rank, void *arg)
{
    const int *gate = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    char byte;
    if (rank == VICTIM) {
        ddp_finalize(g);
        return write(gate[1], "x", 1) == 1 ? 0 : 1;
    }
    RANK_CHECK(rank, read(gate[0], &byte, 1) == 1, "gate");
    RANK_CHECK(rank, ddp_wait_retry(g, 50) == DDP_ETIMEOUT, "a wait");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_rank_that_leaves_ends_no_wait)
{
    int gate[2];
    struct ranks r;
    ck_assert_int_eq(pipe(gate), 0);
    ranks_start(&r, 2, run_past_a_departure, gate);
    ranks_expect_success(&r);
}
END_TEST

static int run_steps(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000), *sub;
    for (int i = 0; i < 3; i++)
        RANK_CHECK(rank, ddp_step_done(g) == DDP_OK, "step");
    const struct control_line *line = g->world->line;
    struct progress p;
    rank_status_read(&line->progress, &p);
    RANK_CHECK(rank, p.steps == 3 && p.step_ns != 0, "%llu", (unsigned long long)p.steps);
    RANK_CHECK(rank, ddp_group_split(g, 0, rank, &sub) == DDP_OK, "split");
    RANK_CHECK(rank, ddp_step_done(sub) == DDP_EINVAL, "a step of a part");
    RANK_CHECK(rank, ddp_wait_retry(sub, 0) == DDP_EINVAL, "a wait for a part");
    RANK_CHECK(rank, ddp_end_wait_retry(sub) == DDP_EINVAL, "the end of one");
    ddp_finalize(g);
    return 0;
}

START_TEST(steps_are_counted_where_ddprun_reads_them)
{
    struct ranks r;
    ranks_start(&r, 2, run_steps, NULL);
    ranks_expect_success(&r);
}
END_TEST

TEST_SUITE(watch)
{
    Suite *s = suite_create("watch");
    TCase *t = tcase_create("watch");
    tcase_set_timeout(t, 150);
    tcase_add_test(t, threads_that_wait_learn_of_a_death);
    tcase_add_loop_test(t, a_wait_ends_with_0_when_the_program_ends_it, 1, 4);
    tcase_add_test(t, a_rank_that_leaves_ends_no_wait);
    tcase_add_test(t, steps_are_counted_where_ddprun_reads_them);
    suite_add_tcase(s, t);
    return s;
}
