#include "segments/control.h"
#include "tests/unit/worker-runtime/exchange.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/core/group.h"
#include "worker-runtime/core/process.h"

#include <pthread.h>

/* --- members ---------------------------------------------------------------------------------- */

static int run_halves(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_group *half = rank_split(rank, g, rank % 2, -rank); /* the last first */
    const int n = rank % 2 == 0 ? 3 : 2, expected = n - 1 - rank / 2;
    RANK_CHECK(rank, ddp_world_size(half) == n, "%d", ddp_world_size(half));
    RANK_CHECK(rank, ddp_rank(half) == expected, "%d, not %d", ddp_rank(half), expected);
    RANK_CHECK(rank, ddp_local_rank(half) == expected && ddp_local_world_size(half) == n, "local");
    RANK_CHECK(rank, ddp_n_nodes(half) == 1 && ddp_generation(half) == ddp_generation(g), "rest");
    for (int i = 0; i < 200; i++) { /* their calls are numbered apart */
        RANK_CHECK(rank, rank_sum(rank, half, rank) == (rank % 2 == 0 ? 6 : 4), "half %d", i);
        if (rank % 2 == 0)
            RANK_CHECK(rank, ddp_barrier(half) == DDP_OK, "barrier");
        RANK_CHECK(rank, i % 3 != 0 || rank_sum(rank, g, 1) == 5, "world %d", i);
    }
    int from = -1;
    int mine = rank;
    RANK_CHECK(rank, ddp_broadcast(half, &mine, &from, 1, DDP_INT32, 0, NULL) == DDP_OK, "root");
    RANK_CHECK(rank, from == (rank % 2 == 0 ? 4 : 3), "%d", from);
    ddp_group_destroy(half);
    RANK_CHECK(rank, rank_sum(rank, g, 1) == 5, "the world goes on");
    ddp_finalize(g);
    return 0;
}

START_TEST(colors_divide_the_ranks_and_keys_order_them)
{
    struct ranks r;
    ranks_start(&r, 5, run_halves, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_outsider(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_group *sub = rank_split(rank, g, rank == 1 ? DDP_NO_COLOR : 7, 0);
    RANK_CHECK(rank, (sub == NULL) == (rank == 1), "who");
    if (sub != NULL) {
        RANK_CHECK(rank, rank_sum(rank, sub, rank) == 2, "sum");
        struct ddp_group *alone =
            rank_split(rank, sub, rank, 0); /* of a group that was split off */
        RANK_CHECK(rank, ddp_world_size(alone) == 1 && rank_sum(rank, alone, 5) == 5, "alone");
        void *p;
        RANK_CHECK(rank, ddp_alloc(alone, 100, &p) == DDP_OK, "alloc");
        ddp_free(g, p); /* it is the same memory */
    }
    RANK_CHECK(rank, ddp_group_split(g, -2, 0, &sub) == DDP_EINVAL, "color");
    RANK_CHECK(rank, ddp_group_split(g, 0, 0, NULL) == DDP_EINVAL, "ret_sub");
    RANK_CHECK(rank, ddp_group_split(NULL, 0, 0, &sub) == DDP_EINVAL, "group");
    ddp_group_destroy(NULL);
    ddp_group_destroy(g); /* the world is not to be destroyed so */
    RANK_CHECK(rank, rank_sum(rank, g, 1) == 3, "the world");
    ddp_finalize(g); /* and what is left of its groups */
    return 0;
}

START_TEST(a_rank_without_color_joins_none)
{
    struct ranks r;
    ranks_start(&r, 3, run_outsider, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_world_of_one(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_group *sub = rank_split(rank, g, 0, 0);
    RANK_CHECK(rank, ddp_world_size(sub) == 1 && rank_sum(rank, sub, 3) == 3, "alone");
    ddp_group_destroy(sub);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_world_of_one_can_be_split)
{
    struct ranks r;
    ranks_start(&r, 1, run_world_of_one, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* --- memory ----------------------------------------------------------------------------------- */

static int run_again(int rank, void *arg)
{
    (void)arg;
    setenv("DDP_SEGMENT_BYTES", "8M", 1); /* space for 15 groups at a time */
    struct ddp_group *g = rank_init(rank, 60000);
    for (int i = 0; i < 100; i++) {
        struct ddp_group *a = rank_split(rank, g, rank < 2, rank),
                         *b = rank_split(rank, g, rank % 2, 0);
        struct exchange x = {.kind = CALL_ALL_TO_ALL, .n = 2, .count = 3000, .salt = (uint32_t)i};
        static float in[6000], out[6000];
        x.rank = ddp_rank(a);
        exchange_init(&x);
        exchange_fill(&x, in);
        RANK_CHECK(rank, exchange_call(&x, a, in, out) == DDP_OK, "all_to_all");
        uint8_t *expected = exchange_expected(&x);
        RANK_CHECK(rank, memcmp(out, expected, sizeof out) == 0, "round %d", i);
        free(expected);
        RANK_CHECK(rank, rank_sum(rank, b, rank) == (rank % 2 == 0 ? 2 : 4), "round %d", i);
        ddp_group_destroy(a);
        ddp_group_destroy(b);
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(groups_reuse_the_same_memory)
{
    struct ranks r;
    ranks_start(&r, 4, run_again, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_out_of_memory(int rank, void *arg)
{
    (void)arg;
    setenv("DDP_SEGMENT_BYTES", "4M", 1);
    struct ddp_group *g = rank_init(rank, 60000);
    void *p;
    if (rank == 1)
        RANK_CHECK(rank, ddp_alloc(g, 3800 << 10, &p) == DDP_OK, "alloc");
    struct ddp_group *sub = NULL;
    RANK_CHECK(rank, ddp_group_split(g, 0, 0, &sub) == DDP_ENOMEM && sub == NULL, "no room");
    RANK_CHECK(rank, strstr(ddp_last_error(), "rank 1 is out of memory") != NULL, "text");
    if (rank == 1)
        ddp_free(g, p);
    RANK_CHECK(rank, rank_sum(rank, g, 1) == 3, "the world goes on");
    sub = rank_split(rank, g, 0, 0);
    RANK_CHECK(rank, rank_sum(rank, sub, 1) == 3, "and there is room again");
    ddp_finalize(g);
    return 0;
}

START_TEST(all_ranks_report_it_if_one_is_out_of_memory_for_a_group)
{
    struct ranks r;
    ranks_start(&r, 3, run_out_of_memory, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* --- failures --------------------------------------------------------------------------------- */

static int run_mismatch(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_group *sub = rank_split(rank, g, rank / 2, 0);
    float x[3] = {0};
    int rc = rank / 2 == 1 ? ddp_all_reduce(sub, x, x, (size_t)rank - 1, DDP_FLOAT32, DDP_SUM, NULL)
                           : ddp_barrier(g);
    RANK_CHECK(rank, rc == DDP_EMISMATCH, "got %s", ddp_strerror(rc));
    const char *text = rank / 2 == 1
                           ? "rank 3 called ddp_all_reduce(float32, sum, 2) as call #1 where "
                             "rank 2 called ddp_all_reduce(float32, sum, 1)"
                           : "ranks of another group called different collectives";
    RANK_CHECK(rank, strstr(ddp_last_error(), text) != NULL, "expected %s", text);
    RANK_CHECK(rank, ddp_barrier(sub) == DDP_EMISMATCH, "all groups are broken");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_mismatch_in_a_group_breaks_the_job)
{
    struct ranks r;
    ranks_start(&r, 4, run_mismatch, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_destroyed(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_group *sub = rank_split(rank, g, 0, 0);
    if (rank == 1) {
        ddp_group_destroy(sub);
        RANK_CHECK(rank, ddp_barrier(g) == DDP_EMISMATCH, "the job");
    } else {
        RANK_CHECK(rank, ddp_barrier(sub) == DDP_EMISMATCH, "the group");
        RANK_CHECK(rank, strstr(ddp_last_error(), "group_destroy()") != NULL, "text");
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(a_call_on_a_destroyed_group_is_an_error)
{
    struct ranks r;
    ranks_start(&r, 3, run_destroyed, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_death(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_group *sub = rank_split(rank, g, rank == 0, 0);
    if (rank == 2)
        kill(getpid(), SIGKILL);
    int rc = ddp_barrier(rank == 0 ? g : sub);
    RANK_CHECK(rank, rc == DDP_EPEER, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), "rank 2 died") != NULL, "text");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_death_in_a_group_is_detected)
{
    struct ranks r;
    ranks_start(&r, 3, run_death, NULL);
    ranks_wait(&r);
    ck_assert_int_eq(r.status[0], 0);
    ck_assert_int_eq(r.status[1], 0);
    ck_assert(WIFSIGNALED(r.status[2]));
}
END_TEST

/* --- at the same time ------------------------------------------------------------------------- */

struct thread {
    int rank;
    struct ddp_group *g;
};

static void *run_thread(void *arg)
{
    struct thread *t = arg;
    for (int i = 0; i < 2000; i++)
        RANK_CHECK(t->rank, rank_sum(t->rank, t->g, i) == 3.0 * i, "round %d", i);
    return NULL;
}

static int run_threads(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_group *sub = rank_split(rank, g, 0, 0);
    struct thread one = {rank, g}, other = {rank, sub};
    pthread_t thread;
    RANK_CHECK(rank, pthread_create(&thread, NULL, run_thread, &other) == 0, "thread");
    run_thread(&one);
    pthread_join(thread, NULL);
    ddp_finalize(g);
    return 0;
}

START_TEST(threads_use_different_groups_at_the_same_time)
{
    struct ranks r;
    ranks_start(&r, 3, run_threads, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* --- worlds of one ---------------------------------------------------------------------------- */

/* As after a shrink: the world is another, the memory is the process's. */
static int run_shrunk(int rank, void *arg)
{
    (void)arg;
    enum { BYTES = 1 << 20, N_TIMES = 64 }; /* together more than there is space for */
    setenv("DDP_SEGMENT_BYTES", "16M", 1);
    for (int i = 0; i < N_TIMES; i++) {
        void *shared, *own;
        struct ddp_group *g = rank_init(rank, 60000);
        RANK_CHECK(rank, ddp_alloc(g, BYTES, &shared) == DDP_OK, "in a world of 2");
        memset(shared, 1, BYTES);
        ddp_finalize(g);
        setenv("WORLD_SIZE", "1", 1);
        setenv("RANK", "0", 1);
        g = rank_init(rank, 60000);
        RANK_CHECK(rank, ddp_alloc(g, BYTES, &own) == DDP_OK, "in a world of 1");
        ddp_free(g, shared);
        ddp_free(g, own);
        ddp_finalize(g);
        setenv("WORLD_SIZE", "2", 1);
        setenv("RANK", rank == 0 ? "0" : "1", 1);
    }
    return 0;
}

START_TEST(memory_of_a_larger_world_is_freed_in_a_world_of_one)
{
    struct ranks r;
    ranks_start(&r, 2, run_shrunk, NULL);
    ranks_expect_success(&r);
}
END_TEST

START_TEST(a_group_of_one_learns_that_the_generation_has_ended)
{
    struct control *c;
    int fd;
    ck_assert_int_eq(control_create(2, 0, &fd, &c, NULL), 0);
    struct world world = {.group = {.world_size = 2}, .control = c};
    struct ddp_group one = {.world = &world, .world_size = 1};
    double x = 3, sum = 0;
    process_set_may_go_on(true);
    ck_assert_int_eq(ddp_all_reduce(&one, &x, &sum, 1, DDP_FLOAT64, DDP_SUM, NULL), DDP_OK);
    ck_assert_double_eq(sum, 3);
    control_abort_set(c, (struct control_abort){.cause = CONTROL_RENEWED});
    ck_assert_int_eq(ddp_all_reduce(&one, &x, &sum, 1, DDP_FLOAT64, DDP_SUM, NULL), DDP_RETRY);
    control_unmap(c);
    close(fd);
}
END_TEST

TEST_SUITE(groups)
{
    Suite *suite = suite_create("groups");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 200);
    tcase_add_test(tcase, colors_divide_the_ranks_and_keys_order_them);
    tcase_add_test(tcase, a_rank_without_color_joins_none);
    tcase_add_test(tcase, a_world_of_one_can_be_split);
    tcase_add_test(tcase, groups_reuse_the_same_memory);
    tcase_add_test(tcase, all_ranks_report_it_if_one_is_out_of_memory_for_a_group);
    tcase_add_test(tcase, a_mismatch_in_a_group_breaks_the_job);
    tcase_add_test(tcase, a_call_on_a_destroyed_group_is_an_error);
    tcase_add_test(tcase, a_death_in_a_group_is_detected);
    tcase_add_test(tcase, threads_use_different_groups_at_the_same_time);
    tcase_add_test(tcase, memory_of_a_larger_world_is_freed_in_a_world_of_one);
    tcase_add_test(tcase, a_group_of_one_learns_that_the_generation_has_ended);
    suite_add_tcase(suite, tcase);
    return suite;
}
