/* A member and its roster: what the member repeats on a new link, and what happens when its lease
 * is not renewed. */
#include "one_member.h"

#include "common/clock.h"

/* --- Links --- */

START_TEST(a_lost_link_is_restored_at_once_and_all_is_repeated)
{
    create_running();
    event(MEMBER_RANKS_SUCCEEDED);
    event(MEMBER_LINK_DOWN);
    assert_did(" connect");
    now_ms += 3;
    event(MEMBER_LINK_UP);
    assert_did(" HELLO");
    ck_assert_uint_eq(o.messages[0].hello.resumes, 0);
    welcomed(true);
    assert_did(" SUCCEEDED");
    assert_state(MEMBER_RUNNING);
}
END_TEST

START_TEST(repeated_messages_keep_their_order)
{
    create_running();
    event(MEMBER_LINK_DOWN);
    step((struct member_input){.type = MEMBER_LEAVE, .signal = 15, .exit_code = 143, .text = "T"});
    event(MEMBER_LINK_UP);
    welcomed(true);
    assert_did(" LEAVE");
    hears(MESSAGE_STOP, 0);
    event(MEMBER_LINK_DOWN);
    event(MEMBER_LINK_UP);
    welcomed(true);
    assert_did(" LEAVE STOPPING");
}
END_TEST

START_TEST(a_new_roster_restarts_the_count)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    event(MEMBER_RANKS_STOPPED);
    event(MEMBER_LINK_DOWN);
    event(MEMBER_LINK_UP);
    ck_assert_uint_eq(o.messages[0].hello.resumes, MESSAGE_NO_GENERATION);
    welcomed(false);
    assert_did("");
    sealed(0, false);
    assert_did(" start");
}
END_TEST

START_TEST(an_answer_without_a_heartbeat_closes_the_link)
{
    create_running();
    answered(now_ms + 1);
    assert_did(" disconnect connect");
}
END_TEST

/* --- Leases --- */

START_TEST(heartbeats_renew_the_lease_from_their_sending_time)
{
    create_running();
    ck_assert_uint_eq(o.lease_end_ms, now_ms + 3000);
    time_goes_on(1000);
    assert_did(" KEEP_ALIVE");
    uint64_t sent_ms = now_ms;
    now_ms += 700;
    answered(sent_ms);
    ck_assert(o.set_lease);
    ck_assert_uint_eq(o.lease_end_ms, sent_ms + 3000);
}
END_TEST

START_TEST(an_expired_lease_kills_ranks_and_the_error_names_the_daemon)
{
    create_running();
    time_goes_on(1000);
    time_goes_on(1000);
    time_goes_on(1000);
    assert_did(" KEEP_ALIVE kill");
    event(MEMBER_RANKS_STOPPED);
    assert_did(" disconnect end");
    ck_assert_int_eq(member_get_end(m)->exit_code, 75);
    ck_assert_str_eq(member_get_end(m)->text,
                     "lost contact with the rendezvous endpoint head:29400: no reply for 3000 ms; "
                     "stopping the ranks of this node; check that the endpoint's host runs and is "
                     "reachable");
}
END_TEST

START_TEST(a_kill_by_the_spawner_is_not_a_failure)
{
    create_running();
    now_ms += 3000; /* this ddprun was stopped */
    step((struct member_input){.type = MEMBER_RANK_FAILED, .exit_code = 137, .text = "killed"});
    assert_did(" kill");
    hears(MESSAGE_STOP, 0);
    assert_did("");
    refused(true);
    assert_did(" disconnect");
    event(MEMBER_RANKS_STOPPED);
    assert_did(" connect");
    assert_state(MEMBER_JOINING);
}
END_TEST

START_TEST(a_renewed_lease_after_the_kill_reports_that_ranks_are_gone)
{
    create_running();
    time_goes_on(1000);
    time_goes_on(1900);
    uint64_t sent_ms = now_ms;
    time_goes_on(100);
    assert_state(MEMBER_KILLING);
    answered(sent_ms);
    event(MEMBER_RANKS_STOPPED);
    assert_did(" STOPPED");
    assert_state(MEMBER_WAITING);
}
END_TEST

START_TEST(an_evicted_node_joins_again)
{
    create_running();
    refused(true);
    assert_did(" disconnect kill");
    event(MEMBER_RANKS_STOPPED);
    assert_did(" connect");
    event(MEMBER_LINK_UP);
    ck_assert_uint_eq(o.messages[0].hello.resumes, MESSAGE_NO_GENERATION);
}
END_TEST

START_TEST(a_node_whose_lease_is_over_seeks_the_coordinator_before_it_ends)
{
    create_that_seeks(10000);
    time_goes_on(3000);
    assert_state(MEMBER_KILLING);
    event(MEMBER_RANKS_STOPPED);
    assert_state(MEMBER_WAITING);
    time_goes_on(1);
    assert_did(" disconnect connect"); /* nothing came on the old link */
    event(MEMBER_LINK_UP);
    assert_did(" HELLO");
    ck_assert(!o.messages[0].hello.was.is_known);
    ck_assert_uint_eq(o.messages[0].hello.resumes, MESSAGE_NO_GENERATION);
    time_goes_on(3000);
    assert_did(" disconnect");
    time_goes_on(1);
    assert_did(" connect");
    ck_assert_uint_gt(member_seek_end_ms(m), now_ms);
    time_goes_on(3997);
    assert_state(MEMBER_WAITING);
    time_goes_on(1);
    assert_state(MEMBER_ENDED);
    ck_assert_int_eq(member_get_end(m)->exit_code, MEMBER_EXIT_TOO_FEW);
}
END_TEST

START_TEST(a_node_that_has_found_its_coordinator_again_joins_the_next_generation)
{
    create_that_seeks(10000);
    time_goes_on(3000);
    event(MEMBER_RANKS_STOPPED);
    time_goes_on(1);
    event(MEMBER_LINK_UP);
    welcomed(false);
    ck_assert_uint_eq(member_seek_end_ms(m), CO_NEVER_MS);
    sealed(1, false);
    assert_did(" start");
    assert_state(MEMBER_RUNNING);
}
END_TEST

START_TEST(a_waiting_node_leaves_a_silent_daemon_but_not_a_slow_one)
{
    create_waiting();
    time_goes_on(1000);
    uint64_t sent_ms = now_ms;
    time_goes_on(1900);
    answered(sent_ms); /* late, but it lives */
    time_goes_on(2999);
    assert_state(MEMBER_WAITING);
    sealed(0, false); /* without a lease nothing starts */
    assert_did(" STOPPED");
    assert_state(MEMBER_WAITING);
    time_goes_on(3000);
    assert_state(MEMBER_ENDED);
    ck_assert_int_eq(member_get_end(m)->exit_code, 75);
}
END_TEST

static void nobody_has_the_roster(uint64_t asked_ms_ago)
{
    step((struct member_input){.type = MEMBER_COORDINATOR_LOST, .asked_ms = now_ms - asked_ms_ago});
}

START_TEST(a_lease_continues_while_no_node_has_the_roster)
{
    create_running();
    event(MEMBER_LINK_DOWN);
    time_goes_on(2000);
    nobody_has_the_roster(100);
    ck_assert_uint_eq(o.lease_end_ms, now_ms - 100 + 3000);
    time_goes_on(2899);
    assert_state(MEMBER_RUNNING);
    time_goes_on(1);
    assert_state(MEMBER_KILLING);
}
END_TEST

START_TEST(a_lease_continues_at_most_for_the_failover_timeout)
{
    create_running();
    event(MEMBER_LINK_DOWN);
    for (int i = 0; i < 59; i++) {
        time_goes_on(1000);
        nobody_has_the_roster(0);
    }
    assert_state(MEMBER_RUNNING);
    time_goes_on(1999); /* 60 s after the first of them */
    nobody_has_the_roster(0);
    assert_state(MEMBER_RUNNING);
    time_goes_on(1);
    assert_state(MEMBER_KILLING);
}
END_TEST

START_TEST(a_hello_has_the_place_that_the_node_still_has)
{
    create_running();
    event(MEMBER_LINK_DOWN);
    time_goes_on(1);
    step((struct member_input){.type = MEMBER_LINK_UP});
    ck_assert_int_eq(o.messages[0].type, MESSAGE_HELLO);
    const struct message_was *was = &o.messages[0].hello.was;
    ck_assert(was->is_known);
    ck_assert_uint_eq(was->generation, member_get_place(m)->generation);
    ck_assert_uint_eq(was->place.node_index, member_get_place(m)->place.node_index);
    ck_assert_str_eq(was->place.host, member_get_place(m)->place.host);
}
END_TEST

START_TEST(after_the_verdict_no_lease_kills)
{
    create_running();
    verdict(1);
    ck_assert(o.set_lease);
    ck_assert_uint_eq(o.lease_end_ms, CO_NEVER_MS);
    time_goes_on(100000);
    assert_state(MEMBER_ENDING);
}
END_TEST

static void needs_lease(bool is_needed)
{
    step((struct member_input){.type = MEMBER_LEASE, .needed = is_needed});
}

START_TEST(a_node_that_needs_no_lease_outlives_any_silence)
{
    create_running();
    needs_lease(false);
    ck_assert(o.set_lease && !o.leased);
    ck_assert_uint_eq(o.lease_end_ms, CO_NEVER_MS);
    time_goes_on(100000); /* ddprun was suspended */
    assert_did(" KEEP_ALIVE");
    assert_state(MEMBER_RUNNING);
}
END_TEST

START_TEST(a_lease_that_is_needed_again_is_reported_when_it_runs)
{
    create_running();
    needs_lease(false);
    needs_lease(true);
    ck_assert(o.leased && o.set_lease);
    ck_assert_uint_eq(o.lease_end_ms, now_ms + 3000);
    needs_lease(false);
    time_goes_on(100000);
    needs_lease(true); /* the last answer is too old */
    ck_assert(!o.leased);
    assert_state(MEMBER_RUNNING);
    answered(now_ms);
    ck_assert(o.leased && o.set_lease);
    ck_assert_uint_eq(o.lease_end_ms, now_ms + 3000);
    time_goes_on(3000);
    assert_state(MEMBER_KILLING);
}
END_TEST

START_TEST(suspended_ranks_are_resumed_by_an_answer_to_what_was_sent_since)
{
    create_running();
    time_goes_on(1000);
    assert_did(" KEEP_ALIVE");
    const uint64_t before_ms = now_ms;
    now_ms += 10;
    event(MEMBER_SUSPENDED);
    assert_did(" KEEP_ALIVE");
    ck_assert(!o.resume);
    answered(before_ms);
    ck_assert(!o.resume);
    answered(now_ms);
    ck_assert(o.resume);
    ck_assert_uint_eq(o.resume_from_ms, now_ms);
    answered(now_ms);
    ck_assert(!o.resume);
}
END_TEST

START_TEST(without_a_link_nothing_resumes_suspended_ranks)
{
    create_running();
    event(MEMBER_LINK_DOWN);
    event(MEMBER_SUSPENDED);
    ck_assert(!o.resume);
    assert_state(MEMBER_RUNNING);
}
END_TEST

START_TEST(a_lost_link_needs_its_lease_again)
{
    create_running();
    needs_lease(false);
    event(MEMBER_LINK_DOWN);
    ck_assert(o.set_lease);
    ck_assert_uint_eq(o.lease_end_ms, now_ms + 3000);
    time_goes_on(3000);
    assert_state(MEMBER_KILLING);
}
END_TEST

START_TEST(a_place_is_taken_without_a_lease_where_none_is_needed)
{
    create_waiting();
    needs_lease(false);
    time_goes_on(100000);
    assert_state(MEMBER_WAITING);
    sealed(0, false);
    assert_state(MEMBER_RUNNING);
    ck_assert_uint_eq(o.lease_end_ms, CO_NEVER_MS);
}
END_TEST

START_TEST(a_roster_in_this_process_has_no_leases)
{
    create();
    step((struct member_input){.type = MEMBER_LINK_UP, .local = true});
    welcomed(false);
    sealed(0, true);
    event(MEMBER_STORE_OPEN);
    assert_did(" READY start");
    ck_assert_uint_eq(member_deadline_ms(m), CO_NEVER_MS);
}
END_TEST

START_TEST(a_node_with_the_roster_asks_what_it_waits_for)
{
    create();
    step((struct member_input){.type = MEMBER_LINK_UP, .local = true});
    welcomed(false);
    time_goes_on(999);
    assert_did("");
    for (int i = 0; i < 2; i++) {
        time_goes_on(i == 0 ? 1 : 1000);
        assert_did(" KEEP_ALIVE");
        hear((struct message){
            .type = MESSAGE_LEASE,
            .generation = MESSAGE_NO_GENERATION,
            .lease = {.sent_ms = now_ms,
                      .progress = &(struct message_progress){.wait = MESSAGE_WAIT_STOP}}});
        ck_assert_int_eq(member_get_progress(m)->wait, MESSAGE_WAIT_STOP);
    }
    sealed(0, true);
    event(MEMBER_STORE_OPEN);
    assert_did(" READY start");
    ck_assert_uint_eq(member_deadline_ms(m), CO_NEVER_MS);
}
END_TEST

TCase *member_links_cases(void)
{
    TCase *t = tcase_create("links");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_lost_link_is_restored_at_once_and_all_is_repeated);
    tcase_add_test(t, repeated_messages_keep_their_order);
    tcase_add_test(t, a_new_roster_restarts_the_count);
    tcase_add_test(t, an_answer_without_a_heartbeat_closes_the_link);
    tcase_add_test(t, heartbeats_renew_the_lease_from_their_sending_time);
    tcase_add_test(t, an_expired_lease_kills_ranks_and_the_error_names_the_daemon);
    tcase_add_test(t, a_kill_by_the_spawner_is_not_a_failure);
    tcase_add_test(t, a_renewed_lease_after_the_kill_reports_that_ranks_are_gone);
    tcase_add_test(t, an_evicted_node_joins_again);
    tcase_add_test(t, a_node_whose_lease_is_over_seeks_the_coordinator_before_it_ends);
    tcase_add_test(t, a_node_that_has_found_its_coordinator_again_joins_the_next_generation);
    tcase_add_test(t, a_waiting_node_leaves_a_silent_daemon_but_not_a_slow_one);
    tcase_add_test(t, a_lease_continues_while_no_node_has_the_roster);
    tcase_add_test(t, a_lease_continues_at_most_for_the_failover_timeout);
    tcase_add_test(t, a_hello_has_the_place_that_the_node_still_has);
    tcase_add_test(t, after_the_verdict_no_lease_kills);
    tcase_add_test(t, a_node_that_needs_no_lease_outlives_any_silence);
    tcase_add_test(t, a_lease_that_is_needed_again_is_reported_when_it_runs);
    tcase_add_test(t, a_lost_link_needs_its_lease_again);
    tcase_add_test(t, without_a_link_nothing_resumes_suspended_ranks);
    tcase_add_test(t, suspended_ranks_are_resumed_by_an_answer_to_what_was_sent_since);
    tcase_add_test(t, a_place_is_taken_without_a_lease_where_none_is_needed);
    tcase_add_test(t, a_roster_in_this_process_has_no_leases);
    tcase_add_test(t, a_node_with_the_roster_asks_what_it_waits_for);
    return t;
}
