/* Time that does not run backwards, and deadlines. Only relations are tested, no durations. */
#include "common/clock.h"
#include "tests/support/suite.h"

#include <check.h>
#include <limits.h>

START_TEST(time_does_not_run_backwards)
{
    uint64_t last = co_now_ns();
    for (int i = 0; i < 1000; i++) {
        uint64_t now = co_now_ns();
        ck_assert_uint_ge(now, last);
        last = now;
    }
}
END_TEST

START_TEST(both_units_give_the_same_time)
{
    uint64_t before = co_now_ns() / 1000000u;
    uint64_t ms = co_now_ms();
    uint64_t after = co_now_ns() / 1000000u;
    ck_assert_uint_ge(ms, before);
    ck_assert_uint_le(ms, after);
}
END_TEST

START_TEST(a_deadline_lies_its_timeout_ahead)
{
    uint64_t before = co_now_ms();
    uint64_t deadline = co_deadline_ms(5000);
    uint64_t after = co_now_ms();
    ck_assert_uint_ge(deadline, before + 5000);
    ck_assert_uint_le(deadline, after + 5000);
    ck_assert_int_le(co_left_ms(deadline), 5000);
}
END_TEST

START_TEST(an_infinite_deadline_stays_infinite)
{
    ck_assert_uint_eq(co_deadline_ms(CO_NEVER_MS), CO_NEVER_MS);
    ck_assert_uint_eq(co_deadline_ms(CO_NEVER_MS - 1), CO_NEVER_MS); /* the sum would wrap */
    ck_assert_int_eq(co_left_ms(CO_NEVER_MS), -1);
}
END_TEST

START_TEST(nothing_is_left_once_a_deadline_has_passed)
{
    ck_assert_int_eq(co_left_ms(0), 0);
    ck_assert_int_eq(co_left_ms(co_now_ms()), 0);
}
END_TEST

START_TEST(far_deadlines_fit_into_the_range_of_poll)
{
    ck_assert_int_eq(co_left_ms(CO_NEVER_MS - 1), INT_MAX);
    ck_assert_int_eq(co_left_ms(co_deadline_ms((uint64_t)INT_MAX * 4)), INT_MAX);
}
END_TEST

TEST_SUITE(clock)
{
    Suite *suite = suite_create("clock");
    TCase *c = tcase_create("clock");
    tcase_add_test(c, time_does_not_run_backwards);
    tcase_add_test(c, both_units_give_the_same_time);
    tcase_add_test(c, a_deadline_lies_its_timeout_ahead);
    tcase_add_test(c, an_infinite_deadline_stays_infinite);
    tcase_add_test(c, nothing_is_left_once_a_deadline_has_passed);
    tcase_add_test(c, far_deadlines_fit_into_the_range_of_poll);
    suite_add_tcase(suite, c);
    return suite;
}
