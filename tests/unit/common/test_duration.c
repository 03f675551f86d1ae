#include "common/duration.h"
#include "tests/support/suite.h"

#include <check.h>

START_TEST(the_two_largest_units_are_shown)
{
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {
        {0, "0.00 s"},
        {59999, "59.99 s"},
        {60000, "1 min 0 s"},
        {723000, "12 min 3 s"},
        {7380000, "2 h 3 min"},
        {90000000, "1 d 1 h"},
        {INT64_MAX, "106751991167 d 7 h"},
    };
    char buf[CO_DURATION_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_str_eq(co_duration_text(cases[i].ms, buf), cases[i].text);
}
END_TEST

TEST_SUITE(duration)
{
    Suite *suite = suite_create("duration");
    TCase *tc = tcase_create("duration");
    tcase_add_test(tc, the_two_largest_units_are_shown);
    suite_add_tcase(suite, tc);
    return suite;
}
