/* A member's ranks: how a generation starts, stops and fails, and which of them live on into the
 * next. */
#include "one_member.h"

START_TEST(the_leader_opens_the_store_before_its_ranks_start)
{
    create_waiting();
    static const struct message_address address = {4, {10, 0, 0, 2}};
    hear(
        (struct message){.type = MESSAGE_MEMBERS, .generation = 0, .members = {1, 0, 1, &address}});
    sealed(0, true);
    assert_did(" open");
    uint32_t n;
    ck_assert_mem_eq(member_get_addresses(m, &n), &address, sizeof address);
    ck_assert_uint_eq(n, 1);
    event(MEMBER_STORE_OPEN);
    assert_did(" READY start");
    ck_assert_uint_eq(member_get_place(m)->place.port, 77);
}
END_TEST

START_TEST(a_list_of_addresses_with_a_gap_closes_the_link)
{
    create_waiting();
    static const struct message_address address = {4, {10, 0, 0, 2}};
    hear(
        (struct message){.type = MESSAGE_MEMBERS, .generation = 0, .members = {9, 5, 1, &address}});
    assert_did(" disconnect connect");
}
END_TEST

START_TEST(a_store_that_cannot_be_opened_is_a_failure)
{
    create_waiting();
    sealed(0, true);
    step((struct member_input){
        .type = MEMBER_RANK_FAILED, .exit_code = 70, .final = true, .text = "no port"});
    assert_did(" FAILED stop");
    event(MEMBER_RANKS_STOPPED);
    assert_did(" STOPPED");
    assert_state(MEMBER_WAITING);
}
END_TEST

START_TEST(a_stop_is_answered_at_once_and_when_complete)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    assert_did(" STOPPING stop");
    ck_assert_str_eq(member_stop_text(m), "x");
    event(MEMBER_RANKS_STOPPED);
    assert_did(" STOPPED");
    sealed(1, false);
    assert_did(" start");
}
END_TEST

START_TEST(the_reason_of_a_stop_may_arrive_when_it_is_complete)
{
    create_running();
    event(MEMBER_RANK_FAILED);
    event(MEMBER_RANKS_STOPPED);
    assert_state(MEMBER_WAITING);
    hears(MESSAGE_STOP, 0);
    assert_did(" STOPPING STOPPED");
    ck_assert_str_eq(member_stop_text(m), "x");
    sealed(1, false);
    assert_did(" start");
}
END_TEST

START_TEST(late_and_repeated_messages_are_ignored)
{
    create_running();
    sealed(0, false);
    assert_did("");
    hears(MESSAGE_STOP, 0);
    event(MEMBER_RANKS_STOPPED);
    sealed(0, false);
    assert_did("");
    sealed(1, false);
    hears(MESSAGE_STOP, 0);
    assert_did("");
    hears(MESSAGE_CHECKPOINT_REQUEST, 0);
    assert_did("");
}
END_TEST

START_TEST(a_stop_of_an_unknown_generation_is_answered)
{
    create_waiting();
    hears(MESSAGE_STOP, 4);
    assert_did(" STOPPING STOPPED");
    sealed(4, false); /* late */
    assert_did("");
    sealed(5, false);
    assert_did(" start");
}
END_TEST

START_TEST(a_failed_rank_is_reported_and_the_others_are_stopped)
{
    create_running();
    step((struct member_input){
        .type = MEMBER_RANK_FAILED, .rank = 3, .exit_code = 9, .text = "exited with 9"});
    assert_did(" FAILED stop");
    ck_assert_int_eq(o.why, MESSAGE_WHY_FAILURE);
    ck_assert_uint_eq(o.messages[0].failed.rank, 3);
    step((struct member_input){
        .type = MEMBER_RANK_FAILED, .rank = 2, .exit_code = 137, .text = "its cause"});
    assert_did(" FAILED");
    hears(MESSAGE_STOP, 0);
    assert_did(" STOPPING");
    event(MEMBER_RANKS_STOPPED);
    assert_did(" STOPPED");
}
END_TEST

START_TEST(parked_ranks_continue_in_the_next_generation)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    assert_did(" STOPPING stop");
    ck_assert(o.may_park);
    parked(2);
    assert_did(" STOPPED");
    assert_state(MEMBER_PARKED);
    hears(MESSAGE_STOP, 0); /* for another reason than was thought */
    assert_did(" STOPPING STOPPED");
    sealed(1, false);
    assert_did(" start");
    assert_state(MEMBER_RUNNING);
}
END_TEST

static void expect_stopped(uint32_t generation, uint32_t n_local)
{
    assert_did(" STOPPED");
    ck_assert_uint_eq(o.messages[0].generation, generation);
    ck_assert_uint_eq(o.messages[0].stopped.n_local, n_local);
}

START_TEST(the_number_of_parked_ranks_is_sent_again_when_one_dies)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    parked(2);
    expect_stopped(0, 2);
    parked(1);
    expect_stopped(0, 1);
    assert_state(MEMBER_PARKED);
    event(MEMBER_LINK_DOWN);
    event(MEMBER_LINK_UP);
    ck_assert_uint_eq(o.messages[0].hello.n_local, 1);
    welcomed(true);
    assert_did(" STOPPING STOPPED");
    ck_assert_uint_eq(o.messages[1].stopped.n_local, 1);
    sealed(1, false); /* it was made before that was heard: for two */
    assert_did(" start");
    ck_assert_uint_eq(member_get_place(m)->place.n_local, 2);
    hears(MESSAGE_STOP, 1);
    parked(1);
    expect_stopped(1, 1);
    sealed(2, false);
    hears(MESSAGE_STOP, 2);
    event(MEMBER_RANKS_STOPPED); /* all of them begin again */
    expect_stopped(2, 2);
}
END_TEST

START_TEST(a_place_for_too_many_ranks_closes_the_link)
{
    create_waiting();
    hear((struct message){
        .type = MESSAGE_SEALED,
        .sealed = {.n_nodes = 1, .world_size = 3, .n_local = 3, .leads = true, .host = ""}});
    assert_did(" disconnect connect");
    assert_state(MEMBER_WAITING);
}
END_TEST

START_TEST(with_parked_ranks_rank_0_may_change)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    parked(2);
    sealed(1, true);
    assert_did(" open");
    hears(MESSAGE_STOP, 1); /* another node is lost meanwhile */
    assert_did(" STOPPING stop");
    parked(2);
    assert_did(" STOPPED");
    sealed(2, true);
    event(MEMBER_STORE_OPEN);
    assert_did(" READY start");
}
END_TEST

START_TEST(parked_ranks_end_with_the_lease_or_the_verdict)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    parked(2);
    event(MEMBER_LINK_DOWN);
    event(MEMBER_LINK_UP);
    ck_assert_uint_eq(o.messages[0].hello.resumes, 0);
    time_goes_on(3000);
    assert_did(" kill");
    member_destroy(m);

    create_running();
    hears(MESSAGE_STOP, 0);
    parked(2);
    refused(true);
    assert_did(" disconnect kill");
    event(MEMBER_RANKS_STOPPED);
    assert_state(MEMBER_JOINING);
    member_destroy(m);

    create_running();
    hears(MESSAGE_STOP, 0);
    parked(2);
    verdict(0);
    assert_did(" stop");
    ck_assert(!o.may_park);
    parked(2); /* late */
    assert_state(MEMBER_ENDING);
    event(MEMBER_RANKS_STOPPED);
    assert_did(" STOPPED disconnect end");
}
END_TEST

/* The roster made it before it noticed the silence, and has renewed the lease since. */
START_TEST(a_place_that_arrives_while_parked_ranks_are_killed_is_declined)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    parked(2);
    now_ms += 3000;
    sealed(1, false);
    assert_did(" kill");
    assert_state(MEMBER_KILLING);
    event(MEMBER_TIME);
    assert_did(" KEEP_ALIVE");
    answered(now_ms);
    event(MEMBER_RANKS_STOPPED);
    expect_stopped(1, 2);
    assert_state(MEMBER_WAITING);
    sealed(1, false); /* late */
    assert_did("");
    sealed(2, false);
    assert_did(" start");
}
END_TEST

START_TEST(a_failure_during_a_stop_is_sent_unless_it_is_a_consequence)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    step((struct member_input){
        .type = MEMBER_RANK_FAILED, .exit_code = 1, .consequence = true, .text = "lost a peer"});
    assert_did("");
    step((struct member_input){
        .type = MEMBER_RANK_FAILED, .rank = 3, .exit_code = 9, .text = "exited with 9"});
    assert_did(" FAILED");
    ck_assert(!o.messages[0].failed.consequence);
    event(MEMBER_RANKS_STOPPED);
    assert_did(" STOPPED");
}
END_TEST

START_TEST(a_consequence_is_sent_as_one_until_it_is_corrected)
{
    create_running();
    step((struct member_input){
        .type = MEMBER_RANK_FAILED, .exit_code = 1, .consequence = true, .text = "lost a peer"});
    assert_did(" FAILED stop");
    ck_assert(o.messages[0].failed.consequence);
    step(
        (struct member_input){.type = MEMBER_RANK_FAILED, .exit_code = 9, .text = "exited with 9"});
    assert_did(" FAILED");
    ck_assert(!o.messages[0].failed.consequence);
}
END_TEST

START_TEST(stopped_ranks_that_succeed_send_nothing)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    event(MEMBER_RANKS_SUCCEEDED);
    assert_did("");
}
END_TEST

START_TEST(the_end_is_sent_and_its_verdict_awaited)
{
    create_running();
    event(MEMBER_RANKS_SUCCEEDED);
    assert_did(" SUCCEEDED");
    assert_state(MEMBER_RUNNING);
    verdict(0);
    assert_did(" stop");
    event(MEMBER_RANKS_STOPPED);
    assert_did(" STOPPED disconnect end");
    ck_assert_int_eq(member_get_end(m)->exit_code, 0);
}
END_TEST

START_TEST(ranks_are_informed_of_a_newcomer)
{
    create_running();
    hears(MESSAGE_CHECKPOINT_REQUEST, 0);
    assert_did(" tell");
    event(MEMBER_RANKS_SAVED);
    assert_did(" SAVED");
}
END_TEST

START_TEST(a_requested_restart_stops_ranks_that_could_be_parked)
{
    create_running();
    event(MEMBER_RESTART);
    assert_did(" RESTART");
    assert_state(MEMBER_RUNNING);
    event(MEMBER_LINK_DOWN);
    event(MEMBER_LINK_UP);
    welcomed(true);
    assert_did(" RESTART");
    hear((struct message){.type = MESSAGE_STOP, .stop = {MESSAGE_WHY_RESTART, "it was asked for"}});
    assert_did(" STOPPING stop");
    ck_assert(!o.may_park);
    ck_assert_int_eq(o.why, MESSAGE_WHY_RESTART);
    event(MEMBER_RESTART);
    assert_did("");
    event(MEMBER_RANKS_STOPPED);
    sealed(1, false);
    assert_did(" start");
}
END_TEST

TCase *member_ranks_cases(void)
{
    TCase *t = tcase_create("ranks");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, the_leader_opens_the_store_before_its_ranks_start);
    tcase_add_test(t, a_list_of_addresses_with_a_gap_closes_the_link);
    tcase_add_test(t, a_store_that_cannot_be_opened_is_a_failure);
    tcase_add_test(t, a_stop_is_answered_at_once_and_when_complete);
    tcase_add_test(t, the_reason_of_a_stop_may_arrive_when_it_is_complete);
    tcase_add_test(t, late_and_repeated_messages_are_ignored);
    tcase_add_test(t, a_stop_of_an_unknown_generation_is_answered);
    tcase_add_test(t, a_failed_rank_is_reported_and_the_others_are_stopped);
    tcase_add_test(t, parked_ranks_continue_in_the_next_generation);
    tcase_add_test(t, the_number_of_parked_ranks_is_sent_again_when_one_dies);
    tcase_add_test(t, a_place_for_too_many_ranks_closes_the_link);
    tcase_add_test(t, with_parked_ranks_rank_0_may_change);
    tcase_add_test(t, parked_ranks_end_with_the_lease_or_the_verdict);
    tcase_add_test(t, a_place_that_arrives_while_parked_ranks_are_killed_is_declined);
    tcase_add_test(t, a_failure_during_a_stop_is_sent_unless_it_is_a_consequence);
    tcase_add_test(t, a_consequence_is_sent_as_one_until_it_is_corrected);
    tcase_add_test(t, stopped_ranks_that_succeed_send_nothing);
    tcase_add_test(t, the_end_is_sent_and_its_verdict_awaited);
    tcase_add_test(t, ranks_are_informed_of_a_newcomer);
    tcase_add_test(t, a_requested_restart_stops_ranks_that_could_be_parked);
    return t;
}
