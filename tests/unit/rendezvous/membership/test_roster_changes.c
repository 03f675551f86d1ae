/* What happens to a generation when nodes join, are lost, leave, or end the job. */
#include "one_roster.h"

#include "rendezvous/membership/lease.h"

#include "common/clock.h"

/* --- Joining --- */

START_TEST(a_newcomer_ends_the_generation_at_once)
{
    create_running(1, 3, 2, 0);
    join(3);
    assert_said(" 3<WELCOME 1<STOP 2<STOP STOPPING");
    ck_assert_int_eq(told(1, MESSAGE_STOP)->stop.why, MESSAGE_WHY_JOIN);
    ck_assert_str_eq(told(1, MESSAGE_STOP)->stop.text, "node3 joins");
    stops(1);
    stops(2);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 1);
    ck_assert_uint_eq(roster_n_restarts(r), 0);
}
END_TEST

/* A second passes in which no node is lost. */
static void beat(uint32_t n_nodes)
{
    time_goes_on(1000);
    for (uint32_t i = 1; i <= n_nodes; i++)
        say(i, MESSAGE_KEEP_ALIVE);
}

/* One to three nodes, two of which run. */
static void create_at_checkpoint(uint64_t timeout_ms)
{
    create(1, 3, 0);
    roster_destroy(r);
    struct roster_limits limits = {0};
    terms.admit_at = MESSAGE_ADMIT_AT_CHECKPOINT;
    terms.admit_timeout_ms = timeout_ms;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    join(1);
    join(2);
    for (int i = 0; i < 3; i++)
        beat(2);
}

START_TEST(a_newcomer_waits_for_a_checkpoint_if_configured)
{
    create_at_checkpoint(0);
    say(1, MESSAGE_READY);
    join(3);
    assert_said(" 3<WELCOME 1<CHECKPOINT_REQUEST 2<CHECKPOINT_REQUEST");
    say(1, MESSAGE_SAVED);
    assert_state(ROSTER_RUNNING);
    say(1, MESSAGE_SAVED);
    assert_state(ROSTER_RUNNING);
    say(2, MESSAGE_SAVED);
    assert_state(ROSTER_STOPPING);
}
END_TEST

/* The leading node has no ranks before its store is open; the other nodes have none before they are
 * informed of the store. */
START_TEST(ranks_that_start_while_a_newcomer_waits_are_asked_to_save)
{
    create_at_checkpoint(0);
    join(3);
    assert_said(" 3<WELCOME 1<CHECKPOINT_REQUEST");
    say(1, MESSAGE_READY);
    assert_said(" 2<SEALED 1<CHECKPOINT_REQUEST 2<CHECKPOINT_REQUEST");
    say(1, MESSAGE_SAVED);
    say(2, MESSAGE_SAVED);
    assert_state(ROSTER_STOPPING);
}
END_TEST

START_TEST(a_newcomer_waits_for_a_checkpoint_until_a_timeout)
{
    create_at_checkpoint(4000);
    join(3); /* the store is not open yet, which takes a second */
    beat(3);
    say(1, MESSAGE_READY);
    say(1, MESSAGE_SAVED);
    beat(3);
    ck_assert_uint_eq(told(3, MESSAGE_LEASE)->lease.progress->elapsed_ms, 2000);
    ck_assert_uint_eq(told(3, MESSAGE_LEASE)->lease.progress->left_ms, 2000);
    beat(3);
    assert_state(ROSTER_RUNNING);
    time_goes_on(1000);
    assert_state(ROSTER_STOPPING);
    ck_assert_str_eq(told(1, MESSAGE_STOP)->stop.text,
                     "timed out after 4000 ms waiting for all ranks to save their state "
                     "(--admit-timeout); admitting new nodes");
    ck_assert_int_eq(told(1, MESSAGE_STOP)->stop.why, MESSAGE_WHY_JOIN);
}
END_TEST

START_TEST(a_newcomer_that_left_changes_nothing)
{
    create_at_checkpoint(4000);
    say(1, MESSAGE_READY);
    join(3);
    say(3, MESSAGE_LEAVE);
    for (int i = 0; i < 6; i++)
        beat(2);
    assert_state(ROSTER_RUNNING);
    join(4);
    assert_said(" 4<WELCOME 1<CHECKPOINT_REQUEST 2<CHECKPOINT_REQUEST");
    beat(2);
    say(4, MESSAGE_KEEP_ALIVE);
    ck_assert_uint_eq(told(4, MESSAGE_LEASE)->lease.progress->left_ms, 3000);
}
END_TEST

START_TEST(no_node_is_admitted_by_the_timeout_when_some_are_done)
{
    create_at_checkpoint(2000);
    say(1, MESSAGE_READY);
    join(3);
    say(2, MESSAGE_SUCCEEDED);
    for (int i = 0; i < 4; i++)
        beat(3);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(a_node_above_the_maximum_is_a_spare)
{
    create_running(2, 2, 2, 0);
    join(3);
    assert_said(" 3<WELCOME");
    say(3, MESSAGE_KEEP_ALIVE);
    ck_assert_int_eq(told(3, MESSAGE_LEASE)->lease.progress->wait, MESSAGE_WAIT_PLACE);
    gone(2);
    time_goes_on(50);
    assert_state(ROSTER_STOPPING);
    stops(1);
    assert_state(ROSTER_RUNNING);
    say(1, MESSAGE_READY);
    ck_assert_uint_eq(told(3, MESSAGE_SEALED)->sealed.node_index, 1);
}
END_TEST

START_TEST(no_node_joins_when_some_are_done)
{
    create_running(1, 3, 2, 0);
    say(2, MESSAGE_SUCCEEDED);
    join(3);
    assert_said(" 3<WELCOME");
    say(1, MESSAGE_SUCCEEDED);
    assert_said(" 1<VERDICT 2<VERDICT 3<VERDICT CLOSED");
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 0);
}
END_TEST

/* --- Losing --- */

START_TEST(a_node_that_reconnects_in_time_is_not_lost)
{
    create_running(2, 2, 2, 0);
    gone(2);
    now_ms += 49;
    struct message_hello h = hello_of(2);
    h.resumes = 0;
    say_hello(12, h, false);
    assert_said(" 12<WELCOME 12<SEALED");
    ck_assert(told(12, MESSAGE_WELCOME)->welcome.resumed);
    time_goes_on(1000);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(a_new_link_of_a_node_replaces_the_old_one)
{
    create_running(2, 2, 2, 0);
    say_hello(12, hello_of(2), false);
    assert_said(" 2 closed 12<WELCOME 12<SEALED");
    gone(2); /* late news */
    say(2, MESSAGE_SUCCEEDED);
    assert_said("");
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(a_node_that_does_not_reconnect_is_lost)
{
    create_running(2, 3, 3, 0);
    gone(2);
    time_goes_on(49);
    assert_state(ROSTER_RUNNING);
    time_goes_on(1);
    assert_said(" 1<STOP 3<STOP STOPPING");
    ck_assert_str_eq(roster_change(r), "lost node2: its connection was lost");
    struct message_hello h = hello_of(2);
    h.resumes = 0;
    say_hello(12, h, false);
    assert_said(" 12<REFUSED 12 closed");
    ck_assert_int_eq(told(12, MESSAGE_REFUSED)->refused.why, MESSAGE_REFUSED_LOST);
    ck_assert(told(12, MESSAGE_REFUSED)->refused.again);
    h.resumes = MESSAGE_NO_GENERATION;
    say_hello(13, h, false);
    assert_said(" 13<WELCOME");
}
END_TEST

START_TEST(a_node_whose_host_is_silent_is_lost_before_its_lease_expires)
{
    create_running(1, 2, 2, 0);
    const uint8_t unknown[MESSAGE_INSTANCE_BYTES] = {99};
    uint8_t second[MESSAGE_INSTANCE_BYTES];
    struct roster_node_view view;
    ck_assert(roster_view_link(r, 2, &view));
    memcpy(second, view.instance, sizeof second);
    time_goes_on(1000);
    say(1, MESSAGE_KEEP_ALIVE);
    say(2, MESSAGE_KEEP_ALIVE);
    now_ms += 624;
    const struct roster_input silent = {
        .type = ROSTER_SILENT, .instance = second, .silent_ms = 625};
    step(silent); /* its keep-alive is not old enough */
    assert_state(ROSTER_RUNNING);
    now_ms += 1;
    step((struct roster_input){.type = ROSTER_SILENT, .instance = unknown, .silent_ms = 625});
    assert_state(ROSTER_RUNNING);
    ck_assert(roster_has_instance(r, second) && !roster_has_instance(r, unknown));
    step(silent);
    assert_said(" 2<REFUSED 2 closed 1<STOP STOPPING");
    ck_assert_str_eq(roster_change(r), "lost node2: its host has not answered for 625 ms");
    ck_assert(!roster_has_instance(r, second));
}
END_TEST

START_TEST(a_roster_that_is_replaced_dismisses_its_nodes)
{
    create_running(1, 2, 2, 0);
    step((struct roster_input){.type = ROSTER_REPLACED, .text = "node2 has continued the job"});
    assert_said(" 1<REFUSED 1 closed 2<REFUSED 2 closed");
    const struct message_refused *m = &told(2, MESSAGE_REFUSED)->refused;
    ck_assert_int_eq(m->why, MESSAGE_REFUSED_LOST);
    ck_assert(m->again);
    ck_assert_str_eq(m->text, "node2 has continued the job");
}
END_TEST

START_TEST(a_silent_node_is_lost_when_its_lease_expires)
{
    create_running(1, 2, 2, 0);
    time_goes_on(1000);
    say(1, MESSAGE_KEEP_ALIVE);
    ck_assert_ptr_null(told(1, MESSAGE_LEASE)->lease.progress);
    uint64_t lost_ms = roster_deadline_ms(r);
    ck_assert_uint_eq(lost_ms, now_ms - 1000 + LEASE_MS + LEASE_MARGIN_MS);
    now_ms = lost_ms - 1;
    say(1, MESSAGE_KEEP_ALIVE);
    time_goes_on(1);
    assert_said(" 2<REFUSED 2 closed 1<STOP STOPPING");
    ck_assert_str_eq(roster_change(r), "lost node2: no keep-alive for 3500 ms");
}
END_TEST

START_TEST(a_roster_that_slept_declares_no_node_silent)
{
    create_running(1, 2, 2, 0);
    now_ms += 10000;
    step((struct roster_input){.type = ROSTER_ASLEEP});
    time_goes_on(0);
    assert_state(ROSTER_RUNNING);
    time_goes_on(LEASE_MS + LEASE_MARGIN_MS);
    ck_assert_uint_eq(roster_n_nodes(r), 0);
}
END_TEST

START_TEST(too_few_remaining_nodes_end_a_job_that_may_not_wait)
{
    create_running(3, 3, 3, 0);
    gone(2);
    time_goes_on(50);
    assert_said(" 1<VERDICT 3<VERDICT CLOSED");
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 75);
    ck_assert_str_eq(roster_get_verdict(r)->text,
                     "lost node2: its connection was lost; 2 of at least 3 nodes remain; to let a "
                     "job wait for nodes, "
                     "use --nnodes MIN:MAX or --max-restarts");
}
END_TEST

START_TEST(a_node_that_may_reconnect_counts_when_another_is_lost)
{
    create_running(2, 2, 2, 0);
    join(3); /* a spare */
    gone(1);
    now_ms += 25;
    gone(3);
    time_goes_on(25);
    assert_state(ROSTER_STOPPING); /* node2, and node3, if it is quick */
    say_hello(13, hello_of(3), false);
    stops(2);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(too_few_remaining_nodes_wait_for_others_if_allowed)
{
    create_running(2, 2, 2, 1);
    gone(2);
    time_goes_on(50);
    assert_said(" 1<STOP STOPPING");
    stops(1);
    assert_state(ROSTER_GATHERING);
    say_hello(3, hello_of(3), false);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 1);
    ck_assert_uint_eq(roster_n_restarts(r), 0);
}
END_TEST

START_TEST(a_wait_for_others_times_out)
{
    create_running(2, 2, 2, 1);
    gone(2);
    time_goes_on(50);
    stops(1);
    for (int i = 0; i < 60; i++) {
        say(1, MESSAGE_KEEP_ALIVE);
        time_goes_on(1000);
    }
    assert_state(ROSTER_CLOSED);
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 75);
}
END_TEST

START_TEST(a_done_node_may_be_lost_unless_it_has_the_store)
{
    create_running(1, 3, 3, 0);
    say(2, MESSAGE_SUCCEEDED);
    gone(2);
    time_goes_on(50);
    assert_state(ROSTER_RUNNING);
    say(1, MESSAGE_SUCCEEDED);
    gone(1);
    time_goes_on(50);
    assert_state(ROSTER_STOPPING);
}
END_TEST

START_TEST(a_leader_lost_before_its_store_is_open_leaves_nothing_to_stop)
{
    create(1, 2, 0);
    join(1);
    join(2);
    gone(1);
    time_goes_on(50);
    assert_said(" STOPPING 2<MEMBERS 2<SEALED RUNNING");
    ck_assert_uint_eq(roster_generation(r), 1);
}
END_TEST

START_TEST(only_ready_of_the_leader_in_this_generation_counts)
{
    create(2, 2, 0);
    join(1);
    join(2);
    say(2, MESSAGE_READY);
    assert_said("");
    say_message(1,
                (struct message){.type = MESSAGE_READY, .generation = 7, .ready = {"h", 1, true}});
    assert_said("");
    say(1, MESSAGE_READY);
    assert_said(" 2<SEALED");
    say(1, MESSAGE_READY);
    assert_said("");
}
END_TEST

/* Its ranks could run until its lease is over. */
static void keep_alive(int link, int seconds)
{
    for (int i = 0; i < seconds; i++) {
        time_goes_on(1000);
        say(link, MESSAGE_KEEP_ALIVE);
    }
}

START_TEST(a_node_that_does_not_stop_is_evicted_with_its_lease)
{
    create_running(1, 2, 2, 0);
    fails(1, 1, false);
    say(1, MESSAGE_STOPPED);
    for (int i = 0; i < 10; i++) {
        say(1, MESSAGE_KEEP_ALIVE);
        say(2, MESSAGE_KEEP_ALIVE);
        time_goes_on(1000);
    }
    assert_said(" 2<REFUSED 2 closed");
    say(2, MESSAGE_KEEP_ALIVE);
    assert_said("");
    keep_alive(1, 2);
    assert_state(ROSTER_STOPPING);
    keep_alive(1, 1);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(an_evicted_node_that_joins_again_is_not_waited_for)
{
    create(1, 2, 0);
    join(1);
    join(2);
    for (int i = 0; i < 10; i++) {
        say(1, MESSAGE_KEEP_ALIVE);
        say(2, MESSAGE_KEEP_ALIVE);
        time_goes_on(1000);
    }
    assert_said(" 1<REFUSED 1 closed"); /* it did not open the store */
    struct message_hello h = hello_of(1);
    h.resumes = 0;
    say_hello(11, h, false);
    assert_said(" 11<REFUSED 11 closed");
    h.resumes = MESSAGE_NO_GENERATION;
    say_hello(12, h, false);
    assert_said(" STOPPING 12<WELCOME 2<MEMBERS 2<SEALED RUNNING");
}
END_TEST

/* --- Leaving and ending --- */

START_TEST(a_job_continues_without_a_node_that_leaves)
{
    create_running(1, 3, 3, 0);
    leaves(2);
    assert_said(" 1<STOP 2<STOP 3<STOP STOPPING");
    ck_assert_str_eq(told(1, MESSAGE_STOP)->stop.text, "node2 left: SIGTERM");
    stops(1);
    stops(3);
    assert_state(ROSTER_STOPPING); /* its ranks are given their time */
    stops(2);
    assert_state(ROSTER_RUNNING);
    gone(2);
    ck_assert_uint_eq(roster_n_nodes(r), 2);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(a_leaving_node_with_ranks_has_time_to_reconnect)
{
    create_running(1, 2, 2, 0);
    leaves(2);
    gone(2);
    stops(1);
    assert_state(ROSTER_STOPPING);
    time_goes_on(50);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(the_roster_ends_with_its_own_node)
{
    create(1, 2, 0);
    say_hello(1, hello_of(1), true);
    join(2);
    say(1, MESSAGE_READY);
    leaves(1);
    assert_said(" 1<VERDICT 2<VERDICT CLOSED");
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 75);
    ck_assert_str_eq(roster_get_verdict(r)->text,
                     "the rendezvous host node1 is shutting down: SIGTERM");
}
END_TEST

START_TEST(the_node_of_the_roster_is_never_silent)
{
    create(1, 1, 0);
    say_hello(1, hello_of(1), true);
    say(1, MESSAGE_READY);
    ck_assert_uint_eq(roster_deadline_ms(r), CO_NEVER_MS);
}
END_TEST

START_TEST(any_node_may_end_the_job_with_a_verdict_for_all)
{
    create_running(2, 2, 2, 0);
    say_message(2, (struct message){
                       .type = MESSAGE_END,
                       .verdict = {MESSAGE_ENDED, 124, MESSAGE_NO_RANK, "node2", "out of time"}});
    assert_said(" 1<VERDICT 2<VERDICT CLOSED");
    ck_assert_int_eq(told(1, MESSAGE_VERDICT)->verdict.exit_code, 124);
    ck_assert_str_eq(told(1, MESSAGE_VERDICT)->verdict.node, "node2");
}
END_TEST

START_TEST(its_owner_may_end_the_job)
{
    create_running(2, 2, 2, 0);
    struct message m = {.type = MESSAGE_END,
                        .verdict = {MESSAGE_ENDED, 143, MESSAGE_NO_RANK, "daemon", "told to stop"}};
    step((struct roster_input){.type = ROSTER_END, .message = &m});
    assert_said(" 1<VERDICT 2<VERDICT CLOSED");
    ck_assert_str_eq(roster_get_verdict(r)->node, "daemon");
}
END_TEST

START_TEST(a_closed_job_answers_with_its_verdict)
{
    create_running(1, 1, 1, 0);
    say(1, MESSAGE_SUCCEEDED);
    join(2);
    assert_said(" 2<VERDICT 2 closed");
    say_hello(11, hello_of(1), false);
    assert_said(" 1 closed 11<WELCOME 11<VERDICT");
    gone(11);
    ck_assert_uint_eq(roster_n_nodes(r), 0);
}
END_TEST

TEST_SUITE(roster_changes)
{
    Suite *suite = suite_create("roster_changes");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_newcomer_ends_the_generation_at_once);
    tcase_add_test(all, a_newcomer_waits_for_a_checkpoint_if_configured);
    tcase_add_test(all, ranks_that_start_while_a_newcomer_waits_are_asked_to_save);
    tcase_add_test(all, a_newcomer_waits_for_a_checkpoint_until_a_timeout);
    tcase_add_test(all, a_newcomer_that_left_changes_nothing);
    tcase_add_test(all, no_node_is_admitted_by_the_timeout_when_some_are_done);
    tcase_add_test(all, a_node_above_the_maximum_is_a_spare);
    tcase_add_test(all, no_node_joins_when_some_are_done);
    tcase_add_test(all, a_node_that_reconnects_in_time_is_not_lost);
    tcase_add_test(all, a_new_link_of_a_node_replaces_the_old_one);
    tcase_add_test(all, a_node_that_does_not_reconnect_is_lost);
    tcase_add_test(all, a_roster_that_is_replaced_dismisses_its_nodes);
    tcase_add_test(all, a_silent_node_is_lost_when_its_lease_expires);
    tcase_add_test(all, a_node_whose_host_is_silent_is_lost_before_its_lease_expires);
    tcase_add_test(all, a_roster_that_slept_declares_no_node_silent);
    tcase_add_test(all, too_few_remaining_nodes_end_a_job_that_may_not_wait);
    tcase_add_test(all, a_node_that_may_reconnect_counts_when_another_is_lost);
    tcase_add_test(all, too_few_remaining_nodes_wait_for_others_if_allowed);
    tcase_add_test(all, a_wait_for_others_times_out);
    tcase_add_test(all, a_done_node_may_be_lost_unless_it_has_the_store);
    tcase_add_test(all, a_leader_lost_before_its_store_is_open_leaves_nothing_to_stop);
    tcase_add_test(all, only_ready_of_the_leader_in_this_generation_counts);
    tcase_add_test(all, a_node_that_does_not_stop_is_evicted_with_its_lease);
    tcase_add_test(all, an_evicted_node_that_joins_again_is_not_waited_for);
    tcase_add_test(all, a_job_continues_without_a_node_that_leaves);
    tcase_add_test(all, a_leaving_node_with_ranks_has_time_to_reconnect);
    tcase_add_test(all, the_roster_ends_with_its_own_node);
    tcase_add_test(all, the_node_of_the_roster_is_never_silent);
    tcase_add_test(all, any_node_may_end_the_job_with_a_verdict_for_all);
    tcase_add_test(all, its_owner_may_end_the_job);
    tcase_add_test(all, a_closed_job_answers_with_its_verdict);
    suite_add_tcase(suite, all);
    return suite;
}
