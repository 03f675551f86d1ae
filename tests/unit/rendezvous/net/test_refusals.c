#include "rendezvous/net/refusals.h"

#include "tests/support/suite.h"

#include <check.h>
#include <string.h>

START_TEST(one_a_second_is_reported_with_the_number_of_the_others)
{
    struct refusals r = {0};
    ck_assert_str_eq(refusals_note(&r, 5000, "one"), "one");
    ck_assert_ptr_null(refusals_note(&r, 5000, "two"));
    ck_assert_ptr_null(refusals_note(&r, 5999, "three"));
    ck_assert_str_eq(refusals_note(&r, 6000, "four"), "four (and 2 more before it)");
    ck_assert_ptr_null(refusals_note(&r, 6500, "five"));
    ck_assert_str_eq(refusals_note(&r, 9000, "six"), "six (and 1 more before it)");
    ck_assert_str_eq(refusals_note(&r, 10000, "seven"), "seven");
}
END_TEST

START_TEST(a_long_text_is_cut_and_keeps_the_number)
{
    struct refusals r = {0};
    char text[2 * CO_ERROR_TEXT_BYTES];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    ck_assert_uint_eq(strlen(refusals_note(&r, 1, text)), CO_ERROR_TEXT_BYTES - 1);
    ck_assert_ptr_null(refusals_note(&r, 2, text));
    ck_assert_ptr_nonnull(strstr(refusals_note(&r, 2000, text), "x (and 1 more before it)"));
}
END_TEST

TEST_SUITE(refusals)
{
    Suite *suite = suite_create("refusals");
    TCase *all = tcase_create("all");
    tcase_add_test(all, one_a_second_is_reported_with_the_number_of_the_others);
    tcase_add_test(all, a_long_text_is_cut_and_keeps_the_number);
    suite_add_tcase(suite, all);
    return suite;
}
