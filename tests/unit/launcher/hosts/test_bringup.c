/* Which host is reached for next, when the job begins, when there are too few. */
#include "launcher/hosts/bringup.h"

#include "common/clock.h"
#include "tests/support/suite.h"

#include <check.h>

static struct bringup *m;

static void make(size_t n, size_t min, size_t at_once)
{
    m = bringup_create(&(struct bringup_limits){
        .n_hosts = n, .min_nodes = min, .at_once = at_once, .reach_ms = 100, .window_ms = 30});
    ck_assert_ptr_nonnull(m);
}

static void end(void)
{
    bringup_destroy(m);
    m = NULL;
}

static void set(size_t host, enum bringup_phase phase)
{
    bringup_set(m, host, phase, 0);
}

START_TEST(the_number_of_concurrent_connections_is_bounded)
{
    make(4, 4, 2);
    ck_assert_int_eq(bringup_next(m), 0);
    set(0, BRINGUP_REACHING);
    ck_assert_int_eq(bringup_next(m), 1);
    set(1, BRINGUP_REACHING);
    ck_assert_int_eq(bringup_next(m), -1);
    set(1, BRINGUP_UP);
    ck_assert_int_eq(bringup_next(m), 2);
}
END_TEST

START_TEST(no_host_starts_before_all_are_up)
{
    make(2, 2, 32);
    set(0, BRINGUP_REACHING);
    set(1, BRINGUP_REACHING);
    set(0, BRINGUP_UP);
    ck_assert_int_eq(bringup_look(m, 99), BRINGUP_GATHERS);
    set(1, BRINGUP_UP);
    ck_assert_int_eq(bringup_look(m, 99), BRINGUP_GOES);
    set(0, BRINGUP_ORDERED);
    set(1, BRINGUP_ORDERED);
    set(0, BRINGUP_READY);
    set(1, BRINGUP_READY);
    ck_assert_int_eq(bringup_look(m, 99), BRINGUP_GOES);
    ck_assert_uint_eq(bringup_deadline_ms(m), CO_NEVER_MS);
    set(0, BRINGUP_ENDED);
    ck_assert_int_eq(bringup_look(m, 99), BRINGUP_GOES);
    set(1, BRINGUP_ENDED);
    ck_assert_int_eq(bringup_look(m, 99), BRINGUP_IS_OVER);
}
END_TEST

START_TEST(pending_hosts_are_awaited_before_the_failure)
{
    make(4, 4, 3);
    for (size_t i = 0; i < 3; i++)
        set(i, BRINGUP_REACHING);
    set(1, BRINGUP_FAILED);
    ck_assert_int_eq(bringup_next(m), -1); /* too few hosts are left */
    ck_assert_int_eq(bringup_look(m, 0), BRINGUP_GATHERS);
    set(0, BRINGUP_UP);
    ck_assert_int_eq(bringup_look(m, 0), BRINGUP_GATHERS);
    set(2, BRINGUP_FAILED);
    ck_assert_int_eq(bringup_look(m, 0), BRINGUP_IS_SHORT);
    ck_assert_uint_eq(bringup_count(m, BRINGUP_FAILED), 2);
}
END_TEST

START_TEST(a_host_that_does_not_answer_is_late)
{
    make(2, 1, 32);
    bringup_set(m, 0, BRINGUP_REACHING, 1000);
    bringup_set(m, 1, BRINGUP_REACHING, 1010);
    ck_assert_uint_eq(bringup_deadline_ms(m), 1100);
    ck_assert_int_eq(bringup_late(m, 1099), -1);
    ck_assert_int_eq(bringup_late(m, 1100), 0);
    bringup_set(m, 0, BRINGUP_FAILED, 1100);
    ck_assert_uint_eq(bringup_deadline_ms(m), 1110);
    ck_assert_int_eq(bringup_late(m, 1200), 1);
}
END_TEST

START_TEST(enough_hosts_wait_a_while_for_late_ones)
{
    make(3, 2, 32);
    for (size_t i = 0; i < 3; i++)
        bringup_set(m, i, BRINGUP_REACHING, 1000);
    bringup_set(m, 0, BRINGUP_UP, 1010);
    ck_assert_int_eq(bringup_look(m, 1090), BRINGUP_GATHERS);
    bringup_set(m, 2, BRINGUP_UP, 1020);
    ck_assert_uint_eq(bringup_deadline_ms(m), 1050);
    ck_assert_int_eq(bringup_look(m, 1049), BRINGUP_GATHERS);
    ck_assert_int_eq(bringup_look(m, 1050), BRINGUP_GOES);
    bringup_set(m, 0, BRINGUP_ORDERED, 1050);
    bringup_set(m, 2, BRINGUP_ORDERED, 1050);
    ck_assert_uint_eq(bringup_deadline_ms(m), 1100);
    bringup_set(m, 1, BRINGUP_UP, 1060); /* and joins */
    ck_assert_int_eq(bringup_look(m, 1060), BRINGUP_GOES);
}
END_TEST

START_TEST(a_host_that_fails_before_the_start_does_not_count)
{
    make(3, 2, 32);
    for (size_t i = 0; i < 3; i++)
        bringup_set(m, i, BRINGUP_REACHING, 1000);
    bringup_set(m, 0, BRINGUP_UP, 1010);
    bringup_set(m, 1, BRINGUP_UP, 1010);
    bringup_set(m, 1, BRINGUP_FAILED, 1020);
    ck_assert_int_eq(bringup_look(m, 1080), BRINGUP_GATHERS);
    bringup_set(m, 2, BRINGUP_FAILED, 1080);
    ck_assert_int_eq(bringup_look(m, 1080), BRINGUP_IS_SHORT);
}
END_TEST

static void make_patient(size_t n, size_t min)
{
    m = bringup_create(&(struct bringup_limits){.n_hosts = n,
                                                .min_nodes = min,
                                                .at_once = 32,
                                                .reach_ms = 100,
                                                .window_ms = 30,
                                                .pause_ms = 20,
                                                .miss_ms = 200});
    ck_assert_ptr_nonnull(m);
}

START_TEST(a_host_that_cannot_be_reached_is_reached_for_again_after_a_pause)
{
    make_patient(2, 2);
    bringup_set(m, 0, BRINGUP_REACHING, 1000);
    bringup_set(m, 1, BRINGUP_REACHING, 1000);
    bringup_set(m, 0, BRINGUP_UP, 1010);
    ck_assert(bringup_may_retry(m, 1, 1010));
    bringup_set(m, 1, BRINGUP_AGAIN, 1010);
    ck_assert_int_eq(bringup_look(m, 1029), BRINGUP_GATHERS);
    ck_assert_uint_eq(bringup_deadline_ms(m), 1030);
    bringup_wake(m, 1029);
    ck_assert_int_eq(bringup_next(m), -1);
    bringup_wake(m, 1030);
    ck_assert_int_eq(bringup_next(m), 1);
    bringup_set(m, 1, BRINGUP_REACHING, 1030);
    ck_assert_int_eq(bringup_late(m, 1129), -1);
    ck_assert_int_eq(bringup_late(m, 1130), 1);
    bringup_set(m, 1, BRINGUP_UP, 1130);
    ck_assert_int_eq(bringup_look(m, 1130), BRINGUP_GOES);
}
END_TEST

START_TEST(no_attempt_begins_after_the_last_moment)
{
    make_patient(1, 1);
    bringup_set(m, 0, BRINGUP_REACHING, 1000);
    bringup_set(m, 0, BRINGUP_AGAIN, 1050);
    bringup_set(m, 0, BRINGUP_IDLE, 1070);
    bringup_set(m, 0, BRINGUP_REACHING, 1070);
    ck_assert(bringup_may_retry(m, 0, 1180));
    ck_assert(!bringup_may_retry(m, 0, 1181));
    end();
    make(1, 1, 32);
    bringup_set(m, 0, BRINGUP_REACHING, 0);
    ck_assert(!bringup_may_retry(m, 0, 0));
}
END_TEST

START_TEST(the_job_starts_without_a_host_that_is_reached_for_again)
{
    make_patient(2, 1);
    bringup_set(m, 0, BRINGUP_UP, 1000);
    bringup_set(m, 1, BRINGUP_AGAIN, 1025);
    ck_assert_uint_eq(bringup_deadline_ms(m), 1030);
    ck_assert_int_eq(bringup_look(m, 1029), BRINGUP_GATHERS);
    ck_assert_int_eq(bringup_look(m, 1030), BRINGUP_GOES);
    bringup_set(m, 0, BRINGUP_ORDERED, 1030);
    bringup_set(m, 0, BRINGUP_ENDED, 1040);
    ck_assert_int_eq(bringup_look(m, 1040), BRINGUP_GOES); /* the other one may still come */
}
END_TEST

START_TEST(a_lost_node_is_reached_for_again_for_as_long_as_at_the_start)
{
    make_patient(1, 1);
    bringup_set(m, 0, BRINGUP_REACHING, 1000);
    bringup_set(m, 0, BRINGUP_UP, 1000);
    bringup_set(m, 0, BRINGUP_ORDERED, 1000);
    bringup_set(m, 0, BRINGUP_READY, 1000);
    ck_assert(bringup_may_retry(m, 0, 9000));
    bringup_set(m, 0, BRINGUP_AGAIN, 9000);
    ck_assert_int_eq(bringup_look(m, 9000), BRINGUP_GOES);
    bringup_wake(m, 9020);
    ck_assert_int_eq(bringup_next(m), 0);
    bringup_set(m, 0, BRINGUP_REACHING, 9020);
    ck_assert(bringup_may_retry(m, 0, 9180));
    ck_assert(!bringup_may_retry(m, 0, 9181));
    bringup_set(m, 0, BRINGUP_UP, 9181);
    ck_assert_int_eq(bringup_look(m, 9181), BRINGUP_GOES);
}
END_TEST

START_TEST(too_few_hosts_do_not_wait_for_another_attempt)
{
    make_patient(2, 2);
    bringup_set(m, 0, BRINGUP_AGAIN, 1000);
    bringup_set(m, 1, BRINGUP_FAILED, 1000);
    bringup_wake(m, 1020);
    ck_assert_int_eq(bringup_next(m), -1);
    ck_assert_int_eq(bringup_look(m, 1020), BRINGUP_IS_SHORT);
}
END_TEST

TEST_SUITE(bringup)
{
    Suite *suite = suite_create("bringup");
    TCase *c = tcase_create("bringup");
    tcase_add_checked_fixture(c, NULL, end);
    tcase_add_test(c, the_number_of_concurrent_connections_is_bounded);
    tcase_add_test(c, no_host_starts_before_all_are_up);
    tcase_add_test(c, pending_hosts_are_awaited_before_the_failure);
    tcase_add_test(c, a_host_that_does_not_answer_is_late);
    tcase_add_test(c, enough_hosts_wait_a_while_for_late_ones);
    tcase_add_test(c, a_host_that_fails_before_the_start_does_not_count);
    tcase_add_test(c, a_host_that_cannot_be_reached_is_reached_for_again_after_a_pause);
    tcase_add_test(c, no_attempt_begins_after_the_last_moment);
    tcase_add_test(c, the_job_starts_without_a_host_that_is_reached_for_again);
    tcase_add_test(c, a_lost_node_is_reached_for_again_for_as_long_as_at_the_start);
    tcase_add_test(c, too_few_hosts_do_not_wait_for_another_attempt);
    suite_add_tcase(suite, c);
    return suite;
}
