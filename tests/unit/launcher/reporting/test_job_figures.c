/* What the other nodes of a job report about their ranks. */
#include "launcher/reporting/job_figures.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>

static struct job_figures f;

static void set_up(void)
{
    ck_assert_int_eq(job_figures_begin(&f, 3, 4, 1000), 0);
}

static void tear_down(void)
{
    job_figures_fini(&f);
}

static int take(uint32_t generation, uint32_t node, const char *host, size_t n, uint64_t now_ms)
{
    static const struct message_figures_rank ranks[MESSAGE_MAX_LOCAL] = {
        {.rank = 7, .steps = 12, .has_steps = true}};
    const struct message m = {.type = MESSAGE_FIGURES,
                              .generation = generation,
                              .figures = {.kind = MESSAGE_FIGURES_RANKS,
                                          .node_index = node,
                                          .host = host,
                                          .n_ranks = n,
                                          .ranks = n > 0 ? ranks : NULL}};
    return job_figures_take(&f, &m, now_ms);
}

START_TEST(the_last_figures_of_a_node_are_kept)
{
    ck_assert_int_eq(take(3, 1, "n1", 2, 2000), 0);
    ck_assert_int_eq(take(3, 2, "n2", 0, 2000), 0);
    ck_assert_int_eq(take(3, 1, "n1b", 1, 3000), 0);
    ck_assert_uint_eq(f.n_ranks, 1);
    ck_assert_str_eq(f.nodes[1].host, "n1b");
    ck_assert_uint_eq(f.nodes[1].ranks[0].rank, 7);
    ck_assert_uint_eq(f.nodes[1].heard_ms, 3000);
    ck_assert_ptr_null(f.nodes[3].host);
}
END_TEST

START_TEST(figures_of_no_other_node_are_refused)
{
    ck_assert_int_eq(take(2, 1, "n1", 1, 2000), -ESTALE);
    ck_assert_int_eq(take(3, 0, "n0", 1, 2000), -ESTALE);
    ck_assert_int_eq(take(3, 4, "n4", 1, 2000), -ESTALE);
    tear_down();
    ck_assert_int_eq(take(0, 1, "n1", 1, 2000), -ESTALE); /* none are wanted */
}
END_TEST

START_TEST(a_silent_node_is_stale)
{
    ck_assert_int_eq(take(3, 1, "n1", 1, 2000), 0);
    ck_assert_uint_eq(job_figures_age_ms(&f, 1, 2500), 500);
    ck_assert_uint_eq(job_figures_age_ms(&f, 1, 1500), 0);
    ck_assert(!job_figures_is_stale(&f, 1, 2000 + JOB_FIGURES_STALE_MS - 1));
    ck_assert(job_figures_is_stale(&f, 1, 2000 + JOB_FIGURES_STALE_MS));
    ck_assert_uint_eq(job_figures_age_ms(&f, 2, 1600), 600); /* since the generation began */
    ck_assert(job_figures_is_stale(&f, 2, 1000 + JOB_FIGURES_STALE_MS));
}
END_TEST

START_TEST(another_generation_begins_without_figures)
{
    ck_assert_int_eq(take(3, 1, "n1", 1, 2000), 0);
    ck_assert_int_eq(job_figures_begin(&f, 4, 2, 5000), 0);
    ck_assert_uint_eq(f.n_ranks, 0);
    ck_assert_ptr_null(f.nodes[1].host);
    ck_assert_int_eq(take(3, 1, "n1", 1, 6000), -ESTALE);
}
END_TEST

START_TEST(the_number_of_ranks_is_bounded)
{
    const uint32_t n_nodes = JOB_FIGURES_MAX_RANKS / MESSAGE_MAX_LOCAL + 2;
    ck_assert_int_eq(job_figures_begin(&f, 3, n_nodes, 1000), 0);
    for (uint32_t i = 1; i < n_nodes; i++)
        ck_assert_int_eq(take(3, i, "n", MESSAGE_MAX_LOCAL, 2000), i < n_nodes - 1 ? 0 : -E2BIG);
    ck_assert_uint_eq(f.n_ranks, JOB_FIGURES_MAX_RANKS);
    ck_assert_int_eq(take(3, 1, "n", MESSAGE_MAX_LOCAL, 3000), 0); /* instead of its own */
}
END_TEST

TEST_SUITE(job_figures)
{
    Suite *suite = suite_create("job_figures");
    TCase *tc = tcase_create("job_figures");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, the_last_figures_of_a_node_are_kept);
    tcase_add_test(tc, figures_of_no_other_node_are_refused);
    tcase_add_test(tc, a_silent_node_is_stale);
    tcase_add_test(tc, another_generation_begins_without_figures);
    tcase_add_test(tc, the_number_of_ranks_is_bounded);
    suite_add_tcase(suite, tc);
    return suite;
}
