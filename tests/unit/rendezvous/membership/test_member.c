/* The member's table, whole and drawn, and the two ends of a member's life; what lies between:
 * test_member_ranks.c and test_member_links.c. All orders of messages, and faults of all kinds:
 * tests/sim. */
#include "one_member.h"

#include "common/clock.h"

START_TEST(each_pair_of_state_and_event_has_one_answer)
{
    assert_whole(&member_machine);
}
END_TEST

START_TEST(the_drawing_is_the_table)
{
    assert_drawn(&member_machine, "member");
}
END_TEST

/* --- Joining --- */

START_TEST(a_missing_daemon_is_retried_quickly_then_slowly)
{
    create();
    uint64_t begun_ms = now_ms, last_ms = 1;
    while (now_ms < begun_ms + 5000) {
        event(MEMBER_LINK_DOWN);
        uint64_t wait_ms = member_deadline_ms(m) - now_ms;
        if (now_ms <= begun_ms + LEASE_RETURN_MS)
            ck_assert_uint_le(wait_ms, MEMBER_QUICK_MS);
        else if (now_ms < begun_ms + MEMBER_SOON_FOR_MS)
            ck_assert_uint_le(wait_ms, MEMBER_SOON_MS);
        ck_assert_uint_le(last_ms, wait_ms);
        last_ms = wait_ms;
        time_goes_on(wait_ms);
        assert_did(" connect");
    }
    ck_assert_uint_eq(last_ms, MEMBER_AGAIN_MS);
}
END_TEST

START_TEST(a_daemon_that_never_starts_ends_the_wait)
{
    create();
    while (member_get_state(m) == MEMBER_JOINING) {
        step((struct member_input){.type = MEMBER_LINK_DOWN, .text = "connection refused"});
        time_goes_on(member_deadline_ms(m) - now_ms);
    }
    ck_assert_uint_eq(now_ms, 110000);
    assert_state(MEMBER_ENDED);
    ck_assert_int_eq(member_get_end(m)->exit_code, 69);
    ck_assert_str_eq(
        member_get_end(m)->text,
        "timed out after 10 s waiting for the rendezvous endpoint head:29400: connection refused; "
        "check that ddprun or ddp-rendezvous runs there and that this node can reach the address");
}
END_TEST

START_TEST(a_link_that_this_node_cannot_make_ends_it_at_once)
{
    create();
    step((struct member_input){
        .type = MEMBER_LINK_DOWN, .final = true, .exit_code = 69, .text = "the port is taken"});
    assert_did(" end");
    ck_assert_int_eq(member_get_end(m)->exit_code, 69);
    ck_assert_str_eq(member_get_end(m)->text, "the port is taken");
}
END_TEST

static void reject(void)
{
    step((struct member_input){
        .type = MEMBER_LINK_DOWN, .rejected = true, .exit_code = 77, .text = "another token"});
}

START_TEST(a_wrong_token_ends_it_after_some_seconds)
{
    create_with_start_timeout(60000);
    const uint64_t begin_ms = now_ms;
    reject();
    assert_did("");
    while (member_get_state(m) == MEMBER_JOINING) {
        time_goes_on(MEMBER_AGAIN_MS);
        assert_did(" connect");
        reject();
    }
    assert_did(" end");
    ck_assert_uint_eq(now_ms - begin_ms, MEMBER_REJECTED_MS);
    ck_assert_int_eq(member_get_end(m)->exit_code, 77);
    ck_assert_str_eq(member_get_end(m)->text, "another token");
}
END_TEST

/* Another process had the port for a while. */
START_TEST(rejections_that_end_are_forgotten)
{
    create_with_start_timeout(60000);
    for (int i = 0; i < 3; i++) {
        reject();
        time_goes_on(MEMBER_REJECTED_MS - 1);
        reject();
        step((struct member_input){.type = MEMBER_LINK_DOWN, .text = "connection refused"});
        time_goes_on(MEMBER_AGAIN_MS);
    }
    assert_state(MEMBER_JOINING);
    reject();
    time_goes_on(60000);
    assert_state(MEMBER_ENDED); /* late: the reason is the rejection */
    ck_assert_int_eq(member_get_end(m)->exit_code, 77);
    ck_assert_str_eq(member_get_end(m)->text, "timed out after 60 s waiting for the rendezvous "
                                              "endpoint head:29400: another token");
}
END_TEST

START_TEST(a_node_that_the_roster_knows_outlives_rejections)
{
    create_running();
    reject();
    time_goes_on(MEMBER_AGAIN_MS);
    reject();
    assert_state(MEMBER_RUNNING);
}
END_TEST

START_TEST(a_final_refusal_ends_it_with_the_reason)
{
    create();
    event(MEMBER_LINK_UP);
    refused(false);
    assert_did(" disconnect end");
    ck_assert_int_eq(member_get_end(m)->exit_code, 78);
    ck_assert_str_eq(member_get_end(m)->text, "no reason");
}
END_TEST

START_TEST(a_temporary_refusal_is_retried_later)
{
    create();
    event(MEMBER_LINK_UP);
    refused(true);
    assert_did(" disconnect");
    ck_assert_uint_eq(member_deadline_ms(m) - now_ms, MEMBER_AGAIN_MS);
    time_goes_on(MEMBER_AGAIN_MS);
    assert_did(" connect");
}
END_TEST

static void refused_for_rank(void)
{
    hear((struct message){.type = MESSAGE_REFUSED,
                          .refused = {MESSAGE_REFUSED_NODE_RANK, false, "node1 and node1"}});
}

START_TEST(a_node_that_was_started_again_awaits_the_end_of_the_process_before)
{
    create_with_limits((struct member_limits){.start_timeout_ms = 10000, .awaits_rank = true});
    event(MEMBER_LINK_UP);
    refused_for_rank();
    assert_did(" disconnect");
    assert_state(MEMBER_JOINING);
    time_goes_on(MEMBER_AGAIN_MS);
    assert_did(" connect");
    event(MEMBER_LINK_UP);
    refused(false); /* other reasons are final */
    assert_did(" disconnect end");
}
END_TEST

START_TEST(the_rank_of_another_node_is_a_final_refusal)
{
    create();
    event(MEMBER_LINK_UP);
    refused_for_rank();
    assert_did(" disconnect end");
    ck_assert_int_eq(member_get_end(m)->exit_code, 78);
}
END_TEST

START_TEST(a_node_that_joins_a_closed_job_receives_its_verdict)
{
    create();
    event(MEMBER_LINK_UP);
    verdict(7);
    assert_did(" disconnect end");
    ck_assert_int_eq(member_get_end(m)->exit_code, 7);
    ck_assert(member_get_end(m)->by_roster);
    ck_assert_str_eq(member_get_end(m)->node, "node9");
}
END_TEST

/* --- Leaving and ending --- */

START_TEST(a_leave_is_sent_before_ranks_stop_and_ends_with_its_signal)
{
    create_running();
    step((struct member_input){
        .type = MEMBER_LEAVE, .signal = 15, .exit_code = 143, .text = "SIGTERM"});
    assert_did(" LEAVE stop");
    hears(MESSAGE_STOP, 0);
    assert_did(" STOPPING");
    verdict(75);
    event(MEMBER_RANKS_STOPPED);
    assert_did(" STOPPED disconnect end");
    ck_assert_int_eq(member_get_end(m)->signal, 15);
    ck_assert(!member_get_end(m)->by_roster);
}
END_TEST

START_TEST(a_leave_while_nothing_runs_ends_at_once)
{
    create_waiting();
    step((struct member_input){
        .type = MEMBER_LEAVE, .signal = 2, .exit_code = 130, .text = "SIGINT"});
    assert_did(" LEAVE disconnect end");
}
END_TEST

START_TEST(a_signal_before_the_daemon_is_found_ends_at_once)
{
    create();
    step((struct member_input){
        .type = MEMBER_LEAVE, .signal = 15, .exit_code = 143, .text = "SIGTERM"});
    assert_did(" disconnect end");
    ck_assert_uint_eq(member_deadline_ms(m), CO_NEVER_MS);
}
END_TEST

START_TEST(the_end_of_the_job_is_sent)
{
    create_running();
    step((struct member_input){.type = MEMBER_END_JOB, .exit_code = 124, .text = "out of time"});
    assert_did(" END stop");
    ck_assert_int_eq(o.messages[0].verdict.exit_code, 124);
    event(MEMBER_RANKS_STOPPED);
    ck_assert_int_eq(member_get_end(m)->exit_code, 124);
}
END_TEST

START_TEST(a_node_with_a_hanging_process_leaves)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    step((struct member_input){.type = MEMBER_RANKS_STOPPED, .hangs = true});
    assert_did(" LEAVE disconnect end");
    ck_assert_int_eq(member_get_end(m)->exit_code, 70);
}
END_TEST

START_TEST(the_progress_of_a_wait_is_kept)
{
    create_waiting();
    struct message_progress p = {.wait = MESSAGE_WAIT_NODES, .n_names = 1, .names = {"node5"}};
    hear((struct message){.type = MESSAGE_LEASE, .lease = {.sent_ms = now_ms, .progress = &p}});
    p.names[0] = "gone";
    ck_assert_str_eq(member_get_progress(m)->names[0], "node5");
    answered(now_ms);
    ck_assert_ptr_null(member_get_progress(m));
}
END_TEST

TEST_SUITE(member)
{
    Suite *suite = suite_create("member");
    TCase *t = tcase_create("member");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, each_pair_of_state_and_event_has_one_answer);
    tcase_add_test(t, the_drawing_is_the_table);
    tcase_add_test(t, a_missing_daemon_is_retried_quickly_then_slowly);
    tcase_add_test(t, a_daemon_that_never_starts_ends_the_wait);
    tcase_add_test(t, a_link_that_this_node_cannot_make_ends_it_at_once);
    tcase_add_test(t, a_wrong_token_ends_it_after_some_seconds);
    tcase_add_test(t, rejections_that_end_are_forgotten);
    tcase_add_test(t, a_node_that_the_roster_knows_outlives_rejections);
    tcase_add_test(t, a_final_refusal_ends_it_with_the_reason);
    tcase_add_test(t, a_temporary_refusal_is_retried_later);
    tcase_add_test(t, a_node_that_was_started_again_awaits_the_end_of_the_process_before);
    tcase_add_test(t, the_rank_of_another_node_is_a_final_refusal);
    tcase_add_test(t, a_node_that_joins_a_closed_job_receives_its_verdict);
    tcase_add_test(t, a_leave_is_sent_before_ranks_stop_and_ends_with_its_signal);
    tcase_add_test(t, a_leave_while_nothing_runs_ends_at_once);
    tcase_add_test(t, a_signal_before_the_daemon_is_found_ends_at_once);
    tcase_add_test(t, the_end_of_the_job_is_sent);
    tcase_add_test(t, a_node_with_a_hanging_process_leaves);
    tcase_add_test(t, the_progress_of_a_wait_is_kept);
    suite_add_tcase(suite, t);
    suite_add_tcase(suite, member_ranks_cases());
    suite_add_tcase(suite, member_links_cases());
    return suite;
}
