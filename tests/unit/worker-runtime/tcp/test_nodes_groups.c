/* test_nodes_groups.c - groups of some ranks, and messages, between nodes. */
#include "tests/unit/worker-runtime/nodes.h"

static const struct nodes even = {.n = 2, .n_ranks = 6, .size = {3, 3}};
static const struct nodes dealt = {.n = 3, .n_ranks = 7, .size = {3, 2, 2}, .dealt = true};

static struct store_process store;

/* --- groups ----------------------------------------------------------------------------------- */

/* Groups along the nodes, and across them; their ranks the other way round. */
static int run_grid(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_group *node = rank_split(rank, g, rank / 3, 0),
                     *across = rank_split(rank, g, rank % 3, -rank);
    RANK_CHECK(rank, ddp_world_size(node) == 3 && ddp_rank(node) == rank % 3, "node");
    RANK_CHECK(rank, ddp_n_nodes(node) == 1, "on one node");
    RANK_CHECK(rank, ddp_world_size(across) == 2 && ddp_rank(across) == 1 - rank / 3, "across");
    RANK_CHECK(rank, ddp_n_nodes(across) == 2 && ddp_local_world_size(across) == 1, "places");
    for (int i = 0; i < 50; i++) {
        RANK_CHECK(rank, rank_sum(rank, node, rank) == (rank < 3 ? 3 : 12), "node %d", i);
        RANK_CHECK(rank, rank_sum(rank, across, rank) == 2 * (rank % 3) + 3, "across %d", i);
        RANK_CHECK(rank, i % 5 != 0 || rank_sum(rank, g, 1) == 6, "world %d", i);
    }
    struct ddp_group *alone = rank_split(rank, across, ddp_rank(across), 0);
    void *p;
    RANK_CHECK(rank, ddp_world_size(alone) == 1 && ddp_alloc(alone, 100, &p) == DDP_OK, "alone");
    ddp_free(g, p); /* it is the same memory */
    ddp_group_destroy(node);
    ddp_group_destroy(across);
    RANK_CHECK(rank, rank_sum(rank, g, 1) == 6, "the world goes on");
    ddp_finalize(g);
    return 0;
}

START_TEST(groups_may_be_along_and_across_nodes)
{
    struct ranks r;
    nodes_start(&r, &even, run_grid, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* A group whose ranks lie on the nodes in no order: blocks must come in that of the group. */
static int run_scrambled(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_group *sub = rank_split(rank, g, rank == 4 ? DDP_NO_COLOR : 1, rank * 5 % 7);
    if (sub != NULL) {
        static int64_t in[20000], out[20000], expected[20000];
        for (int kind = CALL_ALL_REDUCE; kind <= CALL_ALL_TO_ALL; kind++)
            for (int i = 0; i < 12; i++) {
                struct exchange x = {.kind = (enum call_kind)kind,
                                     .has_counts = i % 2 == 1,
                                     .dtype = DDP_INT64,
                                     .n = ddp_world_size(sub),
                                     .rank = ddp_rank(sub),
                                     .root = i % 6,
                                     .salt = (uint32_t)(kind * 100 + i),
                                     .count = i < 6 ? 3 : 1500};
                if (!exchange_has_form(x.kind, x.has_counts))
                    continue;
                exchange_init(&x);
                exchange_fill(&x, in);
                RANK_CHECK(rank, exchange_call(&x, sub, in, out) == DDP_OK, "call");
                uint8_t *should = exchange_expected(&x); /* integers: sums in any order */
                memcpy(expected, should, exchange_out_count(&x) * 8);
                RANK_CHECK(rank, memcmp(out, expected, exchange_out_count(&x) * 8) == 0, "%s",
                           call_kind_name(x.kind));
                free(should);
            }
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(blocks_are_in_group_order_on_any_nodes)
{
    struct ranks r;
    nodes_start(&r, &dealt, run_scrambled, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* --- messages --------------------------------------------------------------------------------- */

static const size_t counts[] = {0, 1, 1024, 1025, 300000}; /* of int32: short up to 1024 */

static int run_messages(int rank, void *arg)
{
    enum { N = sizeof counts / sizeof *counts, MOST = 300000 };
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    const int n = ddp_world_size(g);
    int32_t *out = malloc(MOST * 4), *in = malloc(MOST * 4);
    for (int step = 1; step < n; step++) { /* each to each, of this node and others */
        const int to = (rank + step) % n, from = (rank + n - step) % n;
        for (int i = 0; i < N; i++) {
            struct ddp_request *request;
            for (size_t k = 0; k < counts[i]; k++)
                out[k] = rank * 1000 + (int32_t)k;
            memset(in, 0xff, counts[i] * 4);
            RANK_CHECK(rank,
                       ddp_isend(g, out, counts[i], DDP_INT32, to, i, NULL, &request) == DDP_OK,
                       "send");
            RANK_CHECK(rank, ddp_recv(g, in, counts[i], DDP_INT32, from, i, NULL) == DDP_OK,
                       "receive");
            RANK_CHECK(rank, ddp_wait(request) == DDP_OK, "wait");
            for (size_t k = 0; k < counts[i]; k++)
                RANK_CHECK(rank, in[k] == from * 1000 + (int32_t)k, "element %zu", k);
        }
    }
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
    ddp_finalize(g);
    return 0;
}

START_TEST(messages_of_all_lengths_reach_every_rank)
{
    struct ranks r;
    nodes_start(&r, &even, run_messages, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* Tags in another order than they were sent in, more than may be under way, and a collective that
 * the other side begins first. */
static int run_order(int rank, void *arg)
{
    enum { N = 60, COUNT = 5000 };
    (void)arg;
    static int32_t data[N][COUNT];
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_request *request[N];
    float x = 1;
    if (rank == 0) {
        for (int i = 0; i < N; i++) {
            data[i][0] = i;
            RANK_CHECK(rank,
                       ddp_isend(g, data[i], i % 2 == 0 ? 1 : COUNT, DDP_INT32, 1, i, NULL,
                                 &request[i]) == DDP_OK,
                       "send");
        }
        RANK_CHECK(rank, ddp_all_reduce(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, NULL) == DDP_OK, "sum");
        for (int i = 0; i < N; i++)
            RANK_CHECK(rank, ddp_wait(request[i]) == DDP_OK, "wait");
        for (int i = 0; i < 200; i++)
            RANK_CHECK(rank, ddp_send(g, &i, 1, DDP_INT32, 1, 7, NULL) == DDP_OK, "many");
    } else {
        for (int i = N; i-- > 0;) {
            RANK_CHECK(
                rank, ddp_recv(g, data[i], i % 2 == 0 ? 1 : COUNT, DDP_INT32, 0, i, NULL) == DDP_OK,
                "receive %d", i);
            RANK_CHECK(rank, data[i][0] == i, "%d", data[i][0]);
        }
        RANK_CHECK(rank, ddp_all_reduce(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, NULL) == DDP_OK, "sum");
        for (int i = 0, got; i < 200; i++)
            RANK_CHECK(rank, ddp_recv(g, &got, 1, DDP_INT32, 0, 7, NULL) == DDP_OK && got == i,
                       "%d", i);
    }
    RANK_CHECK(rank, x == 2, "%g", (double)x);
    ddp_finalize(g);
    return 0;
}

START_TEST(messages_match_by_tag_and_progress_during_collectives)
{
    static const struct nodes two = {.n = 2, .n_ranks = 2, .size = {1, 1}};
    struct ranks r;
    nodes_start(&r, &two, run_order, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_wrong_message(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    int64_t x = 0;
    int rc;
    if (rank == 0) {
        RANK_CHECK(rank, ddp_send(g, &x, 1, DDP_INT64, 3, 5, NULL) == DDP_OK, "send");
        rc = ddp_barrier(g);
    } else if (rank == 3) {
        rc = ddp_recv(g, &x, 2, DDP_INT32, 0, 5, NULL);
        RANK_CHECK(rank,
                   strstr(ddp_last_error(), "rank 0 on node 0") != NULL &&
                       strstr(ddp_last_error(), "sent 1 x int64 with tag 5") != NULL,
                   "text");
    } else {
        rc = ddp_barrier(g);
    }
    RANK_CHECK(rank, rc == DDP_EMISMATCH, "got %s", ddp_strerror(rc));
    ddp_finalize(g);
    return 0;
}

START_TEST(a_message_of_another_type_is_a_mismatch_for_all)
{
    struct ranks r;
    nodes_start(&r, &even, run_wrong_message, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_waiting_for_the_dead(int rank, void *arg)
{
    const int *pipes = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    int32_t x[3000] = {0};
    char byte = 0;
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
    if (rank == 5) {
        for (int i = 0; i < 5; i++) /* all are through */
            RANK_CHECK(rank, read(pipes[0], &byte, 1) == 1, "gate");
        raise(SIGKILL);
    }
    RANK_CHECK(rank, write(pipes[1], &byte, 1) == 1, "gate");
    int rc = rank == 0   ? ddp_recv(g, x, 1, DDP_INT32, 5, 0, NULL)
             : rank == 1 ? ddp_send(g, x, 3000, DDP_INT32, 5, 0, NULL)
                         : ddp_recv(g, x, 1, DDP_INT32, (rank + 1) % 5, 0, NULL);
    RANK_CHECK(rank, rc == DDP_EPEER, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, strstr(ddp_last_error(), "rank 5 on node 1") != NULL, "whom");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_receiver_learns_of_a_death_on_another_node)
{
    int pipes[2];
    struct ranks r;
    ck_assert_int_eq(pipe(pipes), 0);
    nodes_start(&r, &even, run_waiting_for_the_dead, pipes);
    ranks_wait(&r);
    for (int i = 0; i < 5; i++)
        ck_assert_msg(r.status[i] == 0, "rank %d ended with %#x", i, r.status[i]);
}
END_TEST

static void set_up(void)
{
    store_start(&store);
}

static void tear_down(void)
{
    store_stop(&store);
}

TEST_SUITE(nodes_groups)
{
    Suite *suite = suite_create("nodes_groups");
    TCase *tcase = tcase_create("all");
    tcase_add_unchecked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, groups_may_be_along_and_across_nodes);
    tcase_add_test(tcase, blocks_are_in_group_order_on_any_nodes);
    tcase_add_test(tcase, messages_of_all_lengths_reach_every_rank);
    tcase_add_test(tcase, messages_match_by_tag_and_progress_during_collectives);
    tcase_add_test(tcase, a_message_of_another_type_is_a_mismatch_for_all);
    tcase_add_test(tcase, a_receiver_learns_of_a_death_on_another_node);
    suite_add_tcase(suite, tcase);
    return suite;
}
