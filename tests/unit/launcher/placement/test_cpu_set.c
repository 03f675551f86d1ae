/* Sets of CPUs as text, both ways. */
#include "launcher/placement/placement.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static const char *const lists[] = {
    "", "0", "8191", "0-8191", "0-3,8,10-11", "63-64,127-128", "0,2,4,6", "0-62,64-8190"};

START_TEST(a_list_survives_a_round_trip)
{
    char text[100];
    struct cpu_set s;
    ck_assert_int_eq(cpu_set_parse(lists[_i], &s), 0);
    ck_assert_str_eq(cpu_set_print(&s, text, sizeof text), lists[_i]);
}
END_TEST

START_TEST(the_kernels_line_ends_and_order_does_not_matter)
{
    char text[100];
    struct cpu_set s;
    ck_assert_int_eq(cpu_set_parse("5,1-2,0,2-3\n", &s), 0);
    ck_assert_str_eq(cpu_set_print(&s, text, sizeof text), "0-3,5");
    ck_assert_uint_eq(cpu_set_count(&s), 5);
    ck_assert_int_eq(cpu_set_parse("\n", &s), 0);
    ck_assert_uint_eq(cpu_set_count(&s), 0);
}
END_TEST

START_TEST(an_invalid_list_is_refused_and_changes_nothing)
{
    static const char *const bad[] = {"8192", "0-8192", "3-1",  "-1",     "1-",   ",",
                                      "1,",   ",1",     "1,,2", "1 2",    "x",    "1x",
                                      "0x1",  " 1",     "1\n2", "99999",  "1--2", "1-2-3",
                                      "\n\n", "00000",  "1.5",  "1-2:3/4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cpu_set s = {.word = {7}};
        ck_assert_msg(cpu_set_parse(bad[i], &s) == -EINVAL, "'%s'", bad[i]);
        ck_assert_uint_eq(s.word[0], 7);
    }
}
END_TEST

START_TEST(a_list_that_does_not_fit_is_cut_after_a_number)
{
    struct cpu_set s;
    char text[20];
    ck_assert_int_eq(cpu_set_parse("0-3,8,10-11,4000", &s), 0);
    ck_assert_str_eq(cpu_set_print(&s, text, 20), "0-3,8,10-11,4000");
    ck_assert_str_eq(cpu_set_print(&s, text, 16), "0-3,8,10-11...");
    ck_assert_str_eq(cpu_set_print(&s, text, 9), "0-3,8...");
    ck_assert_str_eq(cpu_set_print(&s, text, 4), "...");
    ck_assert_str_eq(cpu_set_print(&s, text, 3), "");
    ck_assert_str_eq(cpu_set_print(&s, text, 1), "");
}
END_TEST

TEST_SUITE(cpu_set)
{
    Suite *suite = suite_create("cpu_set");
    TCase *c = tcase_create("cpu_set");
    tcase_add_loop_test(c, a_list_survives_a_round_trip, 0, sizeof lists / sizeof *lists);
    tcase_add_test(c, the_kernels_line_ends_and_order_does_not_matter);
    tcase_add_test(c, an_invalid_list_is_refused_and_changes_nothing);
    tcase_add_test(c, a_list_that_does_not_fit_is_cut_after_a_number);
    suite_add_tcase(suite, c);
    return suite;
}
