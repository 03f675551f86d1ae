#include "launcher/supervisor/pace.h"
#include "segments/rank_status.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>

static struct pace_rank rank(uint64_t step_ns, uint64_t inside_ns)
{
    const struct progress p = {
        .steps = 10, .steps_before = 90, .mean_ns = step_ns, .inside_ns = inside_ns};
    return pace_of(&p);
}

static struct pace judge(const struct pace_rank *ranks, int n)
{
    struct pace pace;
    pace_judge(ranks, n, &pace);
    return pace;
}

START_TEST(the_rank_that_waits_least_is_the_slowest)
{
    const struct pace_rank ranks[] = {rank(1000, 400), rank(1000, 0), rank(1000, 450),
                                      rank(1000, 500)};
    const struct pace p = judge(ranks, 4);
    ck_assert_int_eq(p.n_known, 4);
    ck_assert_int_eq(p.slowest, 1);
    ck_assert_uint_eq(p.step_ns, 1000);
    ck_assert_uint_eq(p.steps, 100);
    ck_assert_double_eq_tol(p.share, 0.45, 1e-9); /* 1000 compared with 550 */
}
END_TEST

START_TEST(equal_ranks_cause_no_waits)
{
    const struct pace_rank ranks[] = {rank(1000, 100), rank(1000, 100), rank(1000, 100)};
    const struct pace p = judge(ranks, 3);
    ck_assert_int_eq(p.slowest, 0);
    ck_assert_double_eq(p.share, 0);
}
END_TEST

START_TEST(two_ranks_are_compared_with_each_other)
{
    const struct pace_rank ranks[] = {rank(1000, 700), rank(1000, 100)};
    const struct pace p = judge(ranks, 2);
    ck_assert_int_eq(p.slowest, 1);
    ck_assert_double_eq_tol(p.share, 0.6, 1e-9);
}
END_TEST

START_TEST(ranks_without_data_are_left_out)
{
    const struct pace_rank none[] = {pace_of(NULL), rank(0, 0)};
    ck_assert_int_eq(judge(none, 2).slowest, -1);
    ck_assert_int_eq(judge(none, 2).n_known, 0);
    const struct pace_rank some[] = {pace_of(NULL), rank(50, 0)};
    ck_assert_int_eq(judge(some, 2).slowest, 1);
    ck_assert_double_eq(judge(some, 2).share, 0);
}
END_TEST

START_TEST(the_pace_is_reported_soon_and_then_less_often)
{
    uint64_t next_ms = 0, told[16];
    int n_told = 0;
    for (uint64_t now_ms = 5000; now_ms < 5000 + 400000; now_ms += 500)
        if (pace_is_due(&next_ms, 5000, now_ms)) {
            ck_assert_int_lt(n_told, 16);
            told[n_told++] = now_ms - 5000;
        }
    const uint64_t expected[] = {1000, 2000, 4000, 8000, 16000, 32000, 64000, 124000, 184000};
    for (int i = 0; i < 9; i++)
        ck_assert_uint_eq(told[i], expected[i]);
}
END_TEST

TEST_SUITE(pace)
{
    Suite *suite = suite_create("pace");
    TCase *tc = tcase_create("pace");
    tcase_add_test(tc, the_rank_that_waits_least_is_the_slowest);
    tcase_add_test(tc, equal_ranks_cause_no_waits);
    tcase_add_test(tc, two_ranks_are_compared_with_each_other);
    tcase_add_test(tc, ranks_without_data_are_left_out);
    tcase_add_test(tc, the_pace_is_reported_soon_and_then_less_often);
    suite_add_tcase(suite, tc);
    return suite;
}
