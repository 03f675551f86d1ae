/* Spares: nodes that wait for a place, and step in only if the node that had it does not return. */
#include "one_roster.h"

static void create_with_spares(uint32_t min, uint32_t max, int n, uint32_t n_spares)
{
    struct roster_limits limits = {0};
    create(min, max, 0);
    roster_destroy(r);
    terms.spares = n_spares;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    for (int i = 1; i <= n; i++)
        join(i);
    say(1, MESSAGE_READY);
    assert_state(ROSTER_RUNNING);
}

static void lose(int node)
{
    gone(node);
    time_goes_on(50);
    assert_state(ROSTER_STOPPING);
}

START_TEST(a_spare_takes_over_after_the_last_call)
{
    create_with_spares(2, 2, 3, 1);
    lose(2);
    stops(1);
    assert_state(ROSTER_STOPPING);
    ck_assert_uint_eq(roster_deadline_ms(r), now_ms + ROSTER_LAST_CALL_MS);
    time_goes_on(ROSTER_LAST_CALL_MS);
    assert_state(ROSTER_RUNNING);
    say(1, MESSAGE_READY);
    ck_assert_uint_eq(told(3, MESSAGE_SEALED)->sealed.first_rank, 2);
}
END_TEST

START_TEST(a_node_that_returns_is_preferred_to_a_spare)
{
    create_with_spares(2, 2, 3, 1);
    lose(2);
    stops(1);
    struct message_hello h = hello_of(2);
    h.instance[1] = 9; /* another session */
    say_hello(12, h, false);
    assert_state(ROSTER_RUNNING);
    say(1, MESSAGE_READY);
    ck_assert_uint_eq(told(12, MESSAGE_SEALED)->sealed.first_rank, 2);
}
END_TEST

START_TEST(a_node_that_returns_while_others_stop_is_preferred_too)
{
    create_with_spares(2, 2, 3, 1);
    lose(2);
    time_goes_on(1000);
    struct message_hello h = hello_of(2);
    h.instance[1] = 9;
    say_hello(12, h, false);
    stops(1);
    say(1, MESSAGE_READY);
    ck_assert_uint_eq(told(12, MESSAGE_SEALED)->sealed.first_rank, 2);
}
END_TEST

START_TEST(without_a_loss_there_is_no_last_call)
{
    create_with_spares(2, 2, 3, 1);
    say(1, MESSAGE_RESTART);
    stops(1);
    stops(2);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(without_spares_there_is_no_last_call)
{
    create_with_spares(1, 2, 3, 0);
    lose(2);
    stops(1);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(a_last_call_without_a_spare_ends_at_once)
{
    create_with_spares(1, 2, 2, 1);
    lose(2);
    stops(1);
    assert_state(ROSTER_RUNNING);
}
END_TEST

TEST_SUITE(roster_spares)
{
    Suite *suite = suite_create("roster_spares");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_spare_takes_over_after_the_last_call);
    tcase_add_test(all, a_node_that_returns_is_preferred_to_a_spare);
    tcase_add_test(all, a_node_that_returns_while_others_stop_is_preferred_too);
    tcase_add_test(all, without_a_loss_there_is_no_last_call);
    tcase_add_test(all, without_spares_there_is_no_last_call);
    tcase_add_test(all, a_last_call_without_a_spare_ends_at_once);
    suite_add_tcase(suite, all);
    return suite;
}
