/* From timings to thresholds. */
#include "perf/perf_crossover.h"
#include "tests/support/suite.h"

#include <check.h>

START_TEST(the_small_algorithm_ends_where_the_large_one_is_faster)
{
    const double small[] = {1, 2, 4, 8}, large[] = {3, 3, 3, 3};
    ck_assert_uint_eq(perf_crossover_up_to(small, large, 4), 2);
    ck_assert_uint_eq(perf_crossover_up_to(large, small, 4), 0);
    ck_assert_uint_eq(perf_crossover_up_to(small, small, 4), 4);
}
END_TEST

START_TEST(the_large_algorithm_begins_where_it_stays_faster)
{
    const double small[] = {1, 5, 4, 8}, large[] = {3, 3, 5, 3};
    ck_assert_uint_eq(perf_crossover_from(small, large, 4), 3);
    ck_assert_uint_eq(perf_crossover_from(large, small, 4), 4);
    const double faster[] = {0.5, 1, 1, 1};
    ck_assert_uint_eq(perf_crossover_from(small, faster, 4), 0);
}
END_TEST

START_TEST(a_difference_within_the_noise_decides_nothing)
{
    const double small[] = {100, 100}, large[] = {97, 96};
    ck_assert_uint_eq(perf_crossover_up_to(small, large, 2), 2);
    ck_assert_uint_eq(perf_crossover_from(small, large, 2), 2);
}
END_TEST

START_TEST(the_best_algorithm_is_best_over_all_sizes)
{
    const double us[] = {1,   600, /* best at the one size, bad at the other */
                         1.5, 210, /* good at both */
                         4,   200};
    ck_assert_uint_eq(perf_crossover_best(us, 3, 2), 1);
    const double equal[] = {1, 1, 1, 1};
    ck_assert_uint_eq(perf_crossover_best(equal, 2, 2), 0);
}
END_TEST

START_TEST(more_is_taken_only_if_it_is_faster_than_the_noise)
{
    const double none[] = {100, 97, 96, 120}, two[] = {100, 52, 50, 50}, last[] = {100, 90, 80, 70};
    ck_assert_uint_eq(perf_crossover_least(none, 4), 0);
    ck_assert_uint_eq(perf_crossover_least(two, 4), 1);
    ck_assert_uint_eq(perf_crossover_least(last, 4), 3);
    ck_assert_uint_eq(perf_crossover_least(last, 1), 0);
}
END_TEST

START_TEST(sizes_have_the_form_of_the_table)
{
    char text[PERF_CROSSOVER_SIZE_BYTES];
    ck_assert_str_eq(perf_crossover_size(0, text), "0");
    ck_assert_str_eq(perf_crossover_size(1000, text), "1000");
    ck_assert_str_eq(perf_crossover_size(16 << 10, text), "16K");
    ck_assert_str_eq(perf_crossover_size(3 << 19, text), "1536K");
    ck_assert_str_eq(perf_crossover_size((size_t)1 << 40, text), "1T");
}
END_TEST

TEST_SUITE(perf_crossover)
{
    Suite *suite = suite_create("perf_crossover");
    TCase *tc = tcase_create("thresholds");
    tcase_add_test(tc, the_small_algorithm_ends_where_the_large_one_is_faster);
    tcase_add_test(tc, the_large_algorithm_begins_where_it_stays_faster);
    tcase_add_test(tc, a_difference_within_the_noise_decides_nothing);
    tcase_add_test(tc, the_best_algorithm_is_best_over_all_sizes);
    tcase_add_test(tc, more_is_taken_only_if_it_is_faster_than_the_noise);
    tcase_add_test(tc, sizes_have_the_form_of_the_table);
    suite_add_tcase(suite, tc);
    return suite;
}
