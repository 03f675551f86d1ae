/* The end of a job whose coordinator can be replaced: no node receives it before it is confirmed.
 * All orders of messages and losses of the coordinator: tests/sim/sim_membership.c. */
#include "one_roster.h"

#include "common/clock.h"

static bool was_sent(int link, enum message_type type)
{
    for (size_t i = 0; i < last.n; i++)
        if (last.items[i].type == ROSTER_SEND && last.items[i].link == (uint64_t)link &&
            last.items[i].message.type == type)
            return true;
    return false;
}

static void keep_alive(int link)
{
    say_message(link,
                (struct message){.type = MESSAGE_KEEP_ALIVE, .generation = MESSAGE_NO_GENERATION});
}

static void confirm(uint64_t term)
{
    step((struct roster_input){
        .type = ROSTER_CONFIRMED, .generation = roster_generation(r), .term = term});
}

/* Nodes 1 and 2, without restarts; only both together are enough. */
static void begin(void)
{
    struct roster_limits limits = {.confirm_ms = 60000, .verdict_ms = 2000};
    struct co_error err;
    terms = (struct message_terms){
        .min_nodes = 2, .max_nodes = 2, .start_timeout_ms = 600000, .rejoin_timeout_ms = 60000};
    now_ms = 100000;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, &err), 0);
    join(1);
    join(2);
    confirm(7);
    say(1, MESSAGE_READY);
    assert_state(ROSTER_RUNNING);
}

static void fail_for_good(void)
{
    fails(2, 9, true);
    say(1, MESSAGE_STOPPING);
    assert_state(ROSTER_CLOSED);
}

static void pass_ms(uint64_t ms)
{
    for (const uint64_t end_ms = now_ms + ms; now_ms < end_ms;) {
        time_goes_on(500);
        ck_assert(!was_sent(1, MESSAGE_VERDICT) && !was_sent(2, MESSAGE_VERDICT));
        keep_alive(1);
        keep_alive(2);
    }
}

START_TEST(a_place_has_the_term_in_which_its_generation_was_decided)
{
    struct roster_limits limits = {.confirm_ms = 60000};
    struct co_error err;
    terms = (struct message_terms){.min_nodes = 1, .max_nodes = 1, .start_timeout_ms = 600000};
    now_ms = 100000;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, &err), 0);
    join(1);
    confirm(7);
    ck_assert_uint_eq(told(1, MESSAGE_SEALED)->sealed.term, 7);
}
END_TEST

START_TEST(a_coordinator_that_is_not_replaced_has_term_1)
{
    create(1, 1, 0);
    join(1);
    ck_assert_uint_eq(told(1, MESSAGE_SEALED)->sealed.term, 1);
    ck_assert(!roster_has_informed_all(r));
    fails(1, 9, true);
    assert_said(" 1<VERDICT CLOSED");
    ck_assert(roster_has_informed_all(r));
}
END_TEST

START_TEST(a_failure_is_not_announced_before_it_is_confirmed)
{
    begin();
    fail_for_good();
    ck_assert(!roster_has_informed_all(r));
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 9);
    ck_assert(!was_sent(1, MESSAGE_VERDICT));
    confirm(7);
    assert_said(" 1<VERDICT 2<VERDICT");
    ck_assert(roster_has_informed_all(r));
    confirm(7);
    assert_said("");
}
END_TEST

START_TEST(nodes_that_connect_before_that_do_not_hear_it)
{
    begin();
    fail_for_good();
    gone(2);
    say_hello(12, hello_of(2), false);
    assert_said(" 12<WELCOME");
    join(3); /* a newcomer */
    assert_said(" 3 closed");
    confirm(7);
    assert_said(" 1<VERDICT 12<VERDICT");
    join(3);
    assert_said(" 3<VERDICT 3 closed");
}
END_TEST

START_TEST(a_node_whose_connection_ends_meanwhile_is_kept)
{
    begin();
    fail_for_good();
    gone(2);
    ck_assert_uint_eq(roster_n_nodes(r), 2);
    confirm(7);
    assert_said(" 1<VERDICT");
    say_hello(12, hello_of(2), false);
    assert_said(" 12<WELCOME 12<VERDICT");
}
END_TEST

START_TEST(a_failure_is_announced_without_confirmation_if_all_members_are_heard)
{
    begin();
    step((struct roster_input){.type = ROSTER_DOUBT});
    fail_for_good();
    pass_ms(1500);
    time_goes_on(500);
    ck_assert(was_sent(1, MESSAGE_VERDICT) && was_sent(2, MESSAGE_VERDICT));
}
END_TEST

START_TEST(a_failure_is_not_announced_while_a_member_may_be_with_another_coordinator)
{
    begin();
    step((struct roster_input){.type = ROSTER_DOUBT});
    fail_for_good();
    gone(2); /* lost in 2 s, in doubt */
    for (int i = 0; i < 20; i++) {
        keep_alive(1);
        time_goes_on(500);
        ck_assert(!was_sent(1, MESSAGE_VERDICT));
    }
    step((struct roster_input){.type = ROSTER_CERTAIN});
    confirm(8);
    assert_said(" 1<VERDICT");
}
END_TEST

START_TEST(success_is_announced_without_confirmation_after_a_time)
{
    begin();
    step((struct roster_input){.type = ROSTER_DOUBT});
    say(1, MESSAGE_SUCCEEDED);
    say(2, MESSAGE_SUCCEEDED);
    assert_state(ROSTER_CLOSED);
    gone(2);
    time_goes_on(1999);
    ck_assert(!was_sent(1, MESSAGE_VERDICT));
    keep_alive(1);
    time_goes_on(1);
    ck_assert(was_sent(1, MESSAGE_VERDICT));
}
END_TEST

START_TEST(a_job_that_never_began_ends_without_confirmation)
{
    struct roster_limits limits = {.confirm_ms = 60000};
    struct co_error err;
    terms = (struct message_terms){.min_nodes = 2, .max_nodes = 2, .start_timeout_ms = 1000};
    now_ms = 100000;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, &err), 0);
    join(1);
    time_goes_on(1000);
    assert_said(" 1<VERDICT CLOSED");
}
END_TEST

TEST_SUITE(roster_verdict)
{
    Suite *suite = suite_create("roster_verdict");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_place_has_the_term_in_which_its_generation_was_decided);
    tcase_add_test(all, a_coordinator_that_is_not_replaced_has_term_1);
    tcase_add_test(all, a_failure_is_not_announced_before_it_is_confirmed);
    tcase_add_test(all, nodes_that_connect_before_that_do_not_hear_it);
    tcase_add_test(all, a_node_whose_connection_ends_meanwhile_is_kept);
    tcase_add_test(all, a_failure_is_announced_without_confirmation_if_all_members_are_heard);
    tcase_add_test(all, a_failure_is_not_announced_while_a_member_may_be_with_another_coordinator);
    tcase_add_test(all, success_is_announced_without_confirmation_after_a_time);
    tcase_add_test(all, a_job_that_never_began_ends_without_confirmation);
    suite_add_tcase(suite, all);
    return suite;
}
