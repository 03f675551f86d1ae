/* test_model_nodes.c - models of ranks on several nodes, and in groups of some of the ranks. */
#include "tests/unit/worker-runtime/model_ranks.h"
#include "tests/unit/worker-runtime/nodes.h"

enum { COUNT = 300 };
static const struct nodes grid = {.n = 2, .n_ranks = 3, .size = {2, 1}};
static const struct ddp_model_opts two_a_bucket = {.bucket_bytes = 2 * COUNT * sizeof(double)};

static void train(struct ddp_group *g, int n_batches)
{
    const int n = ddp_world_size(g);
    struct small s;
    small_init(&s, 8, COUNT, DDP_FLOAT64);
    small_create(&s, g, &two_a_bucket);
    for (int step = 0; step < n_batches; step++) {
        small_backward(&s, ddp_rank(g), step);
        for (size_t i = 0; i < 8; i++) /* first to last: the order is learned */
            rank_expect(ddp_model_ready(s.m, i) == 0);
        rank_expect(ddp_model_sync(s.m) == 0);
        small_expect_sums(&s, n, step, 1.0 / n, 1e-13);
        ((double *)s.t[0].param)[0] += 1;
    }
    if (ddp_rank(g) == 0) { /* and continues alone */
        for (size_t i = 0; i < 8; i++)
            memset(s.t[i].grad, 0, COUNT * sizeof(double));
        rank_expect(ddp_model_sync(s.m) == 0);
        ((double *)s.t[0].param)[0] += 1;
    }
    rank_expect(ddp_join(s.m) == 0);
    rank_expect(((double *)s.t[0].param)[0] == n_batches + 1);
    rank_expect(small_stats(&s).was_reordered);
    small_fini(&s);
}

static int train_on_nodes(int rank, void *arg)
{
    struct ddp_group *sub;
    (void)arg;
    own_rank = rank;
    struct ddp_group *g = rank_init(rank, SMALL_TIMEOUT_MS);
    train(g, 3);
    for (int color = 0; color < 2; color++) { /* groups on both nodes, on one, and of one rank */
        rank_expect(ddp_group_split(g, rank == color ? 1 : 0, 0, &sub) == 0);
        train(sub, 2 + color);
        ddp_group_destroy(sub);
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(steps_between_nodes_and_in_groups_equal_those_of_one_node)
{
    struct store_process store;
    struct ranks r;
    store_start(&store);
    nodes_start(&r, &grid, train_on_nodes, NULL);
    ranks_expect_success(&r);
    store_stop(&store);
}
END_TEST

/* --- death ------------------------------------------------------------------------------------ */

START_TEST(ranks_of_one_node_agree_on_the_last_step_when_another_node_is_lost)
{
    struct store_process store;
    store_start(&store);
    for (unsigned trial = 0; trial < 3; trial++) {
        struct ranks r;
        small_count_begin();
        nodes_start(&r, &grid, small_train_until_death, NULL);
        small_count_end(&r, 10 + 7 * trial);
    }
    store_stop(&store);
}
END_TEST

TEST_SUITE(model_nodes)
{
    Suite *s = suite_create("model on nodes");
    TCase *t = tcase_create("nodes");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, steps_between_nodes_and_in_groups_equal_those_of_one_node);
    tcase_add_test(t, ranks_of_one_node_agree_on_the_last_step_when_another_node_is_lost);
    suite_add_tcase(s, t);
    return s;
}
