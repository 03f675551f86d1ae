/* How long ranks run without a sign of the coordinator's host. */
#include "launcher/spawner/heartbeat.h"

#include "common/clock.h"
#include "tests/support/suite.h"

#include <check.h>

static struct heartbeat h;

static void set_up(void)
{
    h = (struct heartbeat){0};
}

static void begin(void)
{
    heartbeat_begin(&h, 1000, 600);
}

START_TEST(nothing_is_suspended_before_there_are_heartbeats)
{
    ck_assert(!heartbeat_is_due(&h, 1000000));
    ck_assert(!heartbeat_lapse(&h, 1000000));
    ck_assert_uint_eq(heartbeat_deadline_ms(&h), CO_NEVER_MS);
    ck_assert(!heartbeat_resume(&h, 1000000, 1000000));
}
END_TEST

START_TEST(a_heartbeat_is_due_six_times_within_the_limit)
{
    begin();
    ck_assert(heartbeat_is_due(&h, 1000));
    heartbeat_sent(&h, 1000, true);
    ck_assert(!heartbeat_is_due(&h, 1099));
    ck_assert(heartbeat_is_due(&h, 1100));
    ck_assert_uint_eq(heartbeat_deadline_ms(&h), 1100);
}
END_TEST

START_TEST(the_limit_counts_from_when_an_acknowledged_heartbeat_was_sent)
{
    begin();
    ck_assert_uint_eq(heartbeat_end_ms(&h), 1600);
    heartbeat_sent(&h, 1100, true);
    heartbeat_sent(&h, 1200, true);
    heartbeat_sent(&h, 1300, true);
    ck_assert_uint_eq(heartbeat_end_ms(&h), 1600);
    heartbeat_acked(&h, 1);
    ck_assert_uint_eq(heartbeat_end_ms(&h), 1800);
    heartbeat_acked(&h, 2); /* late news */
    ck_assert_uint_eq(heartbeat_end_ms(&h), 1800);
    ck_assert(!heartbeat_lapse(&h, 1799));
    ck_assert(heartbeat_lapse(&h, 1800));
    ck_assert(!heartbeat_lapse(&h, 1801));
}
END_TEST

START_TEST(a_heartbeat_that_the_kernel_did_not_take_is_not_acknowledged)
{
    begin();
    heartbeat_sent(&h, 1100, false);
    heartbeat_acked(&h, 0);
    ck_assert_uint_eq(heartbeat_end_ms(&h), 1600);
    ck_assert(!heartbeat_is_due(&h, 1199));
}
END_TEST

START_TEST(more_unacknowledged_bytes_than_were_sent_mean_nothing)
{
    begin();
    heartbeat_sent(&h, 1100, true);
    heartbeat_acked(&h, 5);
    ck_assert_uint_eq(heartbeat_end_ms(&h), 1600);
}
END_TEST

START_TEST(no_more_heartbeats_are_sent_than_there_are_times_kept)
{
    begin();
    for (uint64_t ms = 1100; ms < 1100 + HEARTBEAT_MAX_UNACKED; ms++)
        heartbeat_sent(&h, ms, true);
    ck_assert(!heartbeat_is_due(&h, 100000));
    heartbeat_acked(&h, 0);
    ck_assert_uint_eq(heartbeat_end_ms(&h), 1100 + HEARTBEAT_MAX_UNACKED - 1 + 600);
    ck_assert(heartbeat_is_due(&h, 100000));
}
END_TEST

START_TEST(an_acknowledgment_does_not_resume_but_an_answer_does)
{
    begin();
    heartbeat_sent(&h, 1500, true);
    ck_assert(heartbeat_lapse(&h, 1600));
    heartbeat_acked(&h, 0);
    ck_assert(h.is_suspended);
    ck_assert(!heartbeat_resume(&h, 1100, 1700)); /* older than the limit */
    ck_assert(h.is_suspended);
    ck_assert(heartbeat_resume(&h, 1610, 1700));
    ck_assert(!h.is_suspended);
    ck_assert_uint_eq(heartbeat_end_ms(&h), 2210);
}
END_TEST

START_TEST(another_connection_does_not_resume)
{
    begin();
    ck_assert(heartbeat_lapse(&h, 1600));
    heartbeat_begin(&h, 1700, 600);
    ck_assert(h.is_suspended);
    ck_assert(heartbeat_resume(&h, 1700, 1701));
}
END_TEST

START_TEST(a_connection_that_ends_limits_until_the_coordinator_has_answered)
{
    begin();
    heartbeat_lose_link(&h);
    ck_assert(!heartbeat_is_due(&h, 1500));
    ck_assert_uint_eq(heartbeat_end_ms(&h), 1600);
    ck_assert(heartbeat_lapse(&h, 1600));
    ck_assert(heartbeat_resume(&h, 1650, 1700));
    ck_assert_uint_eq(heartbeat_end_ms(&h), CO_NEVER_MS);
}
END_TEST

START_TEST(the_coordinators_node_runs_until_the_end_that_is_stated)
{
    begin();
    heartbeat_state(&h, 5000);
    ck_assert(!heartbeat_is_due(&h, 4000));
    ck_assert_uint_eq(heartbeat_end_ms(&h), 5000);
    ck_assert(heartbeat_lapse(&h, 5000));
    heartbeat_state(&h, 6000);
    ck_assert(h.is_suspended);
    ck_assert(heartbeat_resume(&h, 5100, 5200));
    heartbeat_state(&h, CO_NEVER_MS);
    ck_assert(!heartbeat_lapse(&h, 1000000));
}
END_TEST

TEST_SUITE(heartbeat)
{
    Suite *suite = suite_create("heartbeat");
    TCase *t = tcase_create("heartbeat");
    tcase_add_checked_fixture(t, set_up, NULL);
    tcase_add_test(t, nothing_is_suspended_before_there_are_heartbeats);
    tcase_add_test(t, a_heartbeat_is_due_six_times_within_the_limit);
    tcase_add_test(t, the_limit_counts_from_when_an_acknowledged_heartbeat_was_sent);
    tcase_add_test(t, a_heartbeat_that_the_kernel_did_not_take_is_not_acknowledged);
    tcase_add_test(t, more_unacknowledged_bytes_than_were_sent_mean_nothing);
    tcase_add_test(t, no_more_heartbeats_are_sent_than_there_are_times_kept);
    tcase_add_test(t, an_acknowledgment_does_not_resume_but_an_answer_does);
    tcase_add_test(t, another_connection_does_not_resume);
    tcase_add_test(t, a_connection_that_ends_limits_until_the_coordinator_has_answered);
    tcase_add_test(t, the_coordinators_node_runs_until_the_end_that_is_stated);
    suite_add_tcase(suite, t);
    return suite;
}
