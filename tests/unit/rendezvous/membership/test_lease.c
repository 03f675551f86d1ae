/* When a lease is over, for the node and for the roster. */
#include "rendezvous/membership/lease.h"

#include "common/clock.h"
#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>

static struct lease l;
static struct co_error err;

static void begin(uint64_t sent_ms)
{
    l = (struct lease){0};
    lease_sent(&l, sent_ms);
    ck_assert_int_eq(lease_begin(&l, sent_ms, LEASE_KEEP_ALIVE_MS, LEASE_MS, &err), 0);
}

START_TEST(without_a_welcome_no_lease_exists)
{
    l = (struct lease){0};
    lease_sent(&l, 100);
    ck_assert_uint_eq(lease_end_ms(&l), CO_NEVER_MS);
    ck_assert_uint_eq(lease_next_ms(&l), CO_NEVER_MS);
}
END_TEST

START_TEST(it_runs_from_the_time_of_the_answered_heartbeat)
{
    begin(1000);
    ck_assert_uint_eq(lease_end_ms(&l), 4000);
    ck_assert_uint_eq(lease_next_ms(&l), 2000);
    lease_sent(&l, 2000);
    ck_assert_uint_eq(lease_end_ms(&l), 4000);
    ck_assert_uint_eq(lease_next_ms(&l), 3000);
    ck_assert_int_eq(lease_answered(&l, 2000, &err), 0);
    ck_assert_uint_eq(lease_end_ms(&l), 5000);
}
END_TEST

START_TEST(an_older_answer_does_not_shorten_it)
{
    begin(1000);
    lease_sent(&l, 2000);
    lease_sent(&l, 3000);
    ck_assert_int_eq(lease_answered(&l, 3000, &err), 0);
    ck_assert_int_eq(lease_answered(&l, 2000, &err), 0);
    ck_assert_uint_eq(lease_end_ms(&l), 6000);
}
END_TEST

START_TEST(an_answer_without_a_heartbeat_is_an_error)
{
    begin(1000);
    ck_assert_int_eq(lease_answered(&l, 1001, &err), -EPROTO);
    ck_assert_int_eq(lease_answered(&l, UINT64_MAX, &err), -EPROTO);
    ck_assert_uint_eq(lease_end_ms(&l), 4000);
}
END_TEST

START_TEST(invalid_times_are_refused)
{
    l = (struct lease){0};
    lease_sent(&l, 10);
    ck_assert_int_eq(lease_begin(&l, 10, 0, 3000, &err), -EPROTO);
    ck_assert_int_eq(lease_begin(&l, 10, 3000, 3000, &err), -EPROTO);
    ck_assert_int_eq(lease_begin(&l, 10, 1000, UINT64_MAX, &err), -EPROTO);
    ck_assert_int_eq(lease_begin(&l, 11, 1000, 3000, &err), -EPROTO);
    ck_assert_uint_eq(lease_end_ms(&l), CO_NEVER_MS);
}
END_TEST

START_TEST(a_new_link_never_shortens_it)
{
    begin(1000);
    lease_sent(&l, 1500);
    ck_assert_int_eq(lease_begin(&l, 1500, 500, 1000, &err), 0);
    ck_assert_uint_eq(lease_end_ms(&l), 4500);
}
END_TEST

START_TEST(it_continues_while_the_roster_is_replaced)
{
    begin(1000);
    lease_extend(&l, 60000);
    lease_extend(&l, 50000);
    ck_assert_uint_eq(lease_end_ms(&l), 60000);
    lease_sent(&l, 59000);
    ck_assert_int_eq(lease_answered(&l, 59000, &err), 0);
    ck_assert_uint_eq(lease_end_ms(&l), 62000);
}
END_TEST

START_TEST(the_roster_waits_longer_than_the_node)
{
    begin(1000); /* heard at once, at the same time of another clock */
    uint64_t lost_ms = 1000 + lease_silence_ms(LEASE_MS, LEASE_MARGIN_MS);
    ck_assert_uint_eq(lost_ms - lease_end_ms(&l), LEASE_MARGIN_MS);
}
END_TEST

TEST_SUITE(lease)
{
    Suite *suite = suite_create("lease");
    TCase *all = tcase_create("all");
    tcase_add_test(all, without_a_welcome_no_lease_exists);
    tcase_add_test(all, it_runs_from_the_time_of_the_answered_heartbeat);
    tcase_add_test(all, an_older_answer_does_not_shorten_it);
    tcase_add_test(all, an_answer_without_a_heartbeat_is_an_error);
    tcase_add_test(all, invalid_times_are_refused);
    tcase_add_test(all, a_new_link_never_shortens_it);
    tcase_add_test(all, it_continues_while_the_roster_is_replaced);
    tcase_add_test(all, the_roster_waits_longer_than_the_node);
    suite_add_tcase(suite, all);
    return suite;
}
