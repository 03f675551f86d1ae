/* Ranks that a sentence names. */
#include "launcher/lines/rank_list.h"
#include "tests/support/suite.h"

#include <check.h>
#include <limits.h>
#include <string.h>

static void check_text(int n, const char *expected)
{
    static const int ranks[] = {0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    char text[RANK_LIST_BYTES];
    ck_assert_str_eq(rank_list_text(ranks, n, text), expected);
}

START_TEST(a_few_ranks_are_all_named)
{
    check_text(0, "ranks");
    check_text(1, "rank 0");
    check_text(2, "ranks 0 and 2");
    check_text(3, "ranks 0, 2 and 3");
    check_text(16, "ranks 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 16");
}
END_TEST

START_TEST(further_ranks_are_counted)
{
    check_text(17, "ranks 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 1 more");
    check_text(1000, "ranks 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 984 more");
}
END_TEST

START_TEST(the_longest_text_is_whole)
{
    int ranks[RANK_LIST_NAMED];
    char text[RANK_LIST_BYTES];
    for (int i = 0; i < RANK_LIST_NAMED; i++)
        ranks[i] = INT_MIN;
    const char *end = strstr(rank_list_text(ranks, INT_MAX, text), " and 2147483631 more");
    ck_assert_ptr_nonnull(end);
}
END_TEST

TEST_SUITE(rank_list)
{
    Suite *suite = suite_create("rank_list");
    TCase *c = tcase_create("rank_list");
    tcase_add_test(c, a_few_ranks_are_all_named);
    tcase_add_test(c, further_ranks_are_counted);
    tcase_add_test(c, the_longest_text_is_whole);
    suite_add_tcase(suite, c);
    return suite;
}
