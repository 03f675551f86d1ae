/* What a member does with the results of checks of its node's health. */
#include "one_member.h"

static void found(bool is_fit)
{
    step((struct member_input){.type = is_fit ? MEMBER_FIT : MEMBER_UNFIT, .text = "no disk"});
}

START_TEST(a_result_from_before_the_welcome_is_sent_after_it)
{
    create();
    found(true);
    assert_did("");
    event(MEMBER_LINK_UP);
    assert_did(" HELLO");
    welcomed(false);
    assert_did(" HEALTH");
    ck_assert_int_eq(o.messages[0].health.fitness, MESSAGE_FIT);
}
END_TEST

START_TEST(each_result_is_sent_and_the_newest_again_on_a_new_link)
{
    create_waiting();
    found(false);
    assert_did(" HEALTH");
    ck_assert_int_eq(o.messages[0].health.fitness, MESSAGE_UNFIT);
    ck_assert_str_eq(o.messages[0].health.text, "no disk");
    found(true);
    assert_did(" HEALTH");
    step((struct member_input){.type = MEMBER_LINK_DOWN, .text = "gone"});
    event(MEMBER_LINK_UP);
    welcomed(true);
    assert_did(" HEALTH");
    ck_assert_int_eq(o.messages[0].health.fitness, MESSAGE_FIT);
}
END_TEST

START_TEST(after_a_generation_nothing_is_known)
{
    create_waiting();
    found(true);
    sealed(0, false);
    hears(MESSAGE_STOP, 0);
    event(MEMBER_RANKS_STOPPED);
    assert_did(" STOPPED");
    found(true);
    assert_did(" HEALTH");
}
END_TEST

START_TEST(a_generation_that_is_declined_leaves_the_node_as_fit_as_it_was)
{
    create_waiting();
    found(true);
    hears(MESSAGE_STOP, 0); /* its place was lost with a link */
    assert_did(" STOPPING STOPPED HEALTH");
}
END_TEST

START_TEST(parked_ranks_of_an_unfit_node_are_stopped)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    parked(2);
    assert_state(MEMBER_PARKED);
    found(false);
    assert_did(" HEALTH stop");
    ck_assert(!o.may_park);
    assert_state(MEMBER_STOPPING);
    event(MEMBER_RANKS_STOPPED);
    assert_did(" STOPPED HEALTH");
    assert_state(MEMBER_WAITING);
}
END_TEST

START_TEST(parked_ranks_of_a_fit_node_live_on)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    parked(2);
    found(true);
    assert_did(" HEALTH");
    assert_state(MEMBER_PARKED);
}
END_TEST

START_TEST(a_result_that_comes_when_ranks_run_is_ignored)
{
    create_running();
    found(false);
    assert_did("");
    assert_state(MEMBER_RUNNING);
}
END_TEST

START_TEST(an_unfit_node_declines_its_place)
{
    create_waiting();
    found(true);
    found(false);
    sealed(0, true);
    assert_did(" STOPPED HEALTH");
    assert_state(MEMBER_WAITING);
}
END_TEST

START_TEST(a_node_that_joins_again_has_to_be_checked_again)
{
    create_waiting();
    found(true);
    refused(true);
    assert_state(MEMBER_JOINING);
    time_goes_on(1000);
    event(MEMBER_LINK_UP);
    welcomed(false);
    assert_did("");
}
END_TEST

TEST_SUITE(member_health)
{
    Suite *suite = suite_create("member_health");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_result_from_before_the_welcome_is_sent_after_it);
    tcase_add_test(all, each_result_is_sent_and_the_newest_again_on_a_new_link);
    tcase_add_test(all, after_a_generation_nothing_is_known);
    tcase_add_test(all, a_generation_that_is_declined_leaves_the_node_as_fit_as_it_was);
    tcase_add_test(all, parked_ranks_of_an_unfit_node_are_stopped);
    tcase_add_test(all, parked_ranks_of_a_fit_node_live_on);
    tcase_add_test(all, a_result_that_comes_when_ranks_run_is_ignored);
    tcase_add_test(all, an_unfit_node_declines_its_place);
    tcase_add_test(all, a_node_that_joins_again_has_to_be_checked_again);
    suite_add_tcase(suite, all);
    return suite;
}
