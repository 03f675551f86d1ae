/* What becomes of a generation, and of nodes, when ranks fail. */
#include "one_roster.h"

#include "rendezvous/membership/restart_policy.h"

/* --- Failures --- */

START_TEST(a_failure_is_final_when_all_nodes_have_answered)
{
    create_running(3, 3, 3, 0);
    fails(2, 9, false);
    assert_said(" 1<STOP 2<STOP 3<STOP STOPPING");
    say(1, MESSAGE_STOPPING);
    assert_said("");
    say(3, MESSAGE_STOPPING);
    assert_said(" 1<VERDICT 2<VERDICT 3<VERDICT CLOSED");
    const struct message_verdict *v = roster_get_verdict(r);
    ck_assert_int_eq(v->outcome, MESSAGE_RANK_FAILED);
    ck_assert_int_eq(v->exit_code, 9);
    ck_assert_int_eq(v->rank, 5);
    ck_assert_str_eq(v->node, "node2");
    ck_assert_str_eq(v->text, "rank 5 on node2: bad luck");
}
END_TEST

START_TEST(a_node_gets_the_number_of_ranks_that_it_last_sent)
{
    create_running(1, 3, 3, 3);
    fails(2, 9, false);
    stops(1);
    stopped(2, 1);
    stops(3);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(told(1, MESSAGE_SEALED)->sealed.world_size, 5);
    say(1, MESSAGE_READY);
    ck_assert_uint_eq(told(2, MESSAGE_SEALED)->sealed.n_local, 1);
    ck_assert_uint_eq(told(3, MESSAGE_SEALED)->sealed.first_rank, 3);
    fails(1, 9, false);
    stopped(1, 1);
    stopped(2, 1);
    stopped(1, 2); /* it has thought better of it */
    stops(3);
    ck_assert_uint_eq(told(1, MESSAGE_SEALED)->sealed.world_size, 5);
    stopped(3, 1); /* of a generation that it does not know yet: it counts for the next one */
    say(1, MESSAGE_READY);
    ck_assert_uint_eq(told(3, MESSAGE_SEALED)->sealed.n_local, 2);
}
END_TEST

START_TEST(deaths_of_ranks_during_a_wait_for_nodes_do_not_count)
{
    create_running(2, 2, 2, 3);
    gone(2);
    time_goes_on(50);
    stops(1);
    assert_state(ROSTER_GATHERING);
    stopped(1, 1);
    join(3);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(told(1, MESSAGE_SEALED)->sealed.world_size, 3);
}
END_TEST

START_TEST(a_node_lost_without_an_answer_is_the_cause)
{
    create_running(1, 3, 3, 0);
    fails(2, 9, false);
    gone(3);
    stops(1);
    say(2, MESSAGE_STOPPED);
    assert_state(ROSTER_STOPPING);
    time_goes_on(50);
    assert_said(" 1<STOP 2<STOP 1<MEMBERS 1<SEALED RUNNING");
    for (int node = 1; node <= 2; node++) {
        const struct message_stop *stop = &told(node, MESSAGE_STOP)->stop;
        ck_assert_int_eq(stop->why, MESSAGE_WHY_LOST);
        ck_assert_str_eq(stop->text, "lost node3: its connection was lost");
    }
    ck_assert_uint_eq(roster_n_restarts(r), 0);
}
END_TEST

START_TEST(a_node_that_leaves_without_an_answer_is_the_cause)
{
    create_running(1, 3, 3, 0);
    fails(2, 9, false);
    leaves(3);
    stops(3);
    stops(1);
    say(2, MESSAGE_STOPPED);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(the_failure_of_a_single_node_is_final_at_once)
{
    create_running(1, 1, 1, 0);
    fails(1, 3, false);
    assert_said(" 1<VERDICT CLOSED");
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 3);
}
END_TEST

START_TEST(failures_count_for_the_whole_job)
{
    create_running(2, 2, 2, 2);
    for (int i = 0; i < 2; i++) {
        fails(1 + i, 1, false);
        assert_said(" 1<STOP 2<STOP STOPPING");
        fails(2 - i, 1, false); /* the other node also fails: counted once */
        stops(1);
        stops(2);
        if (i > 0) /* the second restart waits */
            time_goes_on(RESTART_FIRST_WAIT_MS);
        assert_state(ROSTER_RUNNING);
        ck_assert_uint_eq(roster_n_restarts(r), 1 + (uint32_t)i);
        say(1, MESSAGE_READY);
    }
    fails(1, 1, false);
    say(1, MESSAGE_STOPPING);
    say(2, MESSAGE_STOPPING);
    assert_state(ROSTER_CLOSED);
}
END_TEST

START_TEST(a_failure_with_survivors_counts_and_restarts_at_once)
{
    create_running(2, 2, 2, 2);
    for (int i = 0; i < 2; i++) {
        struct message m = {.type = MESSAGE_FAILED,
                            .generation = roster_generation(r),
                            .failed = {.exit_code = 137, .text = "killed", .recovers = true}};
        say_message(1, m);
        assert_said(" 1<STOP 2<STOP STOPPING");
        stops(1);
        stops(2);
        assert_state(ROSTER_RUNNING);
        ck_assert_uint_eq(roster_n_restarts(r), 1 + (uint32_t)i);
        say(1, MESSAGE_READY);
    }
    fails(1, 1, false);
    say(2, MESSAGE_STOPPING);
    assert_state(ROSTER_CLOSED); /* the budget is spent */
}
END_TEST

START_TEST(a_final_failure_is_not_followed_by_a_restart)
{
    create_running(2, 2, 2, 5);
    fails(1, 127, true);
    say(2, MESSAGE_STOPPING);
    assert_state(ROSTER_CLOSED);
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 127);
}
END_TEST

START_TEST(some_exit_statuses_end_the_job)
{
    create(1, 1, 5);
    roster_destroy(r);
    struct roster_limits limits = {0};
    terms.no_restart_on[66 / 8] = 1 << 66 % 8;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    join(1);
    say(1, MESSAGE_READY);
    fails(1, 66, false);
    assert_state(ROSTER_CLOSED);
}
END_TEST

START_TEST(the_node_that_reported_a_failure_may_correct_it)
{
    create_running(2, 2, 2, 0);
    fails(1, 1, false);
    fails(2, 2, false); /* another node may not */
    fails(1, 137, false);
    say(2, MESSAGE_STOPPING);
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 137);
}
END_TEST

START_TEST(a_consequence_waits_for_its_cause_until_all_ranks_have_ended)
{
    create_running(3, 3, 3, 0);
    fails_of_another(2, 1);
    assert_said(" 1<STOP 2<STOP 3<STOP STOPPING");
    for (int node = 1; node <= 3; node++)
        say(node, MESSAGE_STOPPING);
    assert_state(ROSTER_STOPPING);
    fails(3, 9, false);
    assert_said(" 1<VERDICT 2<VERDICT 3<VERDICT CLOSED");
    const struct message_verdict *v = roster_get_verdict(r);
    ck_assert_int_eq(v->exit_code, 9);
    ck_assert_int_eq(v->rank, 5);
    ck_assert_str_eq(v->text, "rank 5 on node3: bad luck");
}
END_TEST

START_TEST(nodes_that_received_a_consequence_receive_its_cause)
{
    create_running(3, 3, 3, 0);
    fails_of_another(2, 1);
    fails(3, 9, false); /* node 1 may have been lost: it has not answered */
    assert_said(" 1<STOP 2<STOP 3<STOP");
    ck_assert_str_eq(told(1, MESSAGE_STOP)->stop.text, "rank 5 on node3: bad luck");
    fails_of_another(1, 1);
    say(1, MESSAGE_STOPPING);
    assert_said(" 1<VERDICT 2<VERDICT 3<VERDICT CLOSED");
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 9);
}
END_TEST

START_TEST(a_consequence_without_a_cause_is_the_verdict)
{
    create_running(2, 2, 2, 0);
    fails_of_another(2, 1);
    fails_of_another(1, 6);
    stops(1);
    assert_state(ROSTER_STOPPING);
    say(2, MESSAGE_STOPPED);
    assert_said(" 1<VERDICT 2<VERDICT CLOSED");
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 1);
    ck_assert_str_eq(roster_get_verdict(r)->node, "node2");
}
END_TEST

START_TEST(a_consequence_corrects_no_cause)
{
    create_running(3, 3, 3, 0);
    fails(2, 9, false);
    fails_of_another(2, 1);
    fails_of_another(3, 1);
    assert_state(ROSTER_STOPPING);
    say(1, MESSAGE_STOPPING);
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 9);
}
END_TEST

START_TEST(the_only_node_may_correct_a_consequence)
{
    create_running(1, 1, 1, 0);
    fails_of_another(1, 1);
    assert_said(" 1<STOP STOPPING");
    fails(1, 3, false);
    assert_said(" 1<VERDICT CLOSED");
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 3);
}
END_TEST

START_TEST(the_cause_decides_about_a_restart)
{
    create_running(2, 2, 2, 1);
    fails_of_another(1, 1); /* alone it would be followed by one */
    fails(2, 127, true);
    assert_state(ROSTER_CLOSED);
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 127);
}
END_TEST

START_TEST(a_node_lost_without_an_answer_is_the_cause_of_consequences)
{
    create_running(1, 3, 3, 0);
    fails_of_another(2, 1);
    gone(3);
    stops(1);
    say(2, MESSAGE_STOPPED);
    time_goes_on(50);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_n_restarts(r), 0);
}
END_TEST

/* --- Generations without progress --- */

static void stopped_after(int link, uint64_t steps)
{
    say_message(link, (struct message){.type = MESSAGE_STOPPED,
                                       .generation = roster_generation(r),
                                       .stopped = {.n_local = 2, .steps = steps}});
}

static void create_limited(uint32_t no_progress, int n_nodes)
{
    const struct roster_limits limits = {0};
    terms = (struct message_terms){.min_nodes = (uint32_t)n_nodes,
                                   .max_nodes = (uint32_t)n_nodes,
                                   .start_timeout_ms = 600000,
                                   .rejoin_timeout_ms = 60000,
                                   .max_restarts = 100,
                                   .no_progress = no_progress};
    now_ms = 1000;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    for (int i = 1; i <= n_nodes; i++)
        join(i);
    say(1, MESSAGE_READY);
    assert_state(ROSTER_RUNNING);
}

/* A rank of node 1 fails; these are the steps that both nodes have completed. */
static void fails_after(uint64_t steps_1, uint64_t steps_2)
{
    fails(1, 7, false);
    stopped_after(1, steps_1);
    say(2, MESSAGE_STOPPING);
    stopped_after(2, steps_2);
}

static void run_again(void)
{
    while (roster_get_state(r) == ROSTER_STOPPING)
        time_goes_on(roster_deadline_ms(r) - now_ms);
    say(1, MESSAGE_READY);
    assert_state(ROSTER_RUNNING);
}

START_TEST(generations_without_a_new_step_end_the_job)
{
    create_limited(3, 2);
    fails_after(0, 30); /* only one node reports steps */
    run_again();
    fails_after(0, 30);
    run_again();
    fails_after(0, 20); /* from an older checkpoint */
    run_again();
    fails_after(0, 31); /* a new one: the count begins again */
    run_again();
    for (int i = 0; i < 2; i++) {
        fails_after(0, 31);
        run_again();
    }
    fails_after(31, 31);
    assert_state(ROSTER_CLOSED);
    const struct message_verdict *v = &told(2, MESSAGE_VERDICT)->verdict;
    ck_assert_int_eq(v->outcome, MESSAGE_STUCK);
    ck_assert_int_eq(v->exit_code, 79);
    ck_assert_int_eq(v->rank, 5);
    ck_assert_str_eq(v->node, "node1");
    ck_assert_str_eq(v->text,
                     "no progress: 3 generations in a row completed no new step (--no-progress), "
                     "the last completed step is 31; rank 5 on node1: bad luck");
}
END_TEST

START_TEST(a_lost_node_counts_as_a_generation_without_progress)
{
    create_limited(2, 2);
    fails_after(0, 0);
    run_again();
    gone(2);
    time_goes_on(50);
    stopped_after(1, 0);
    assert_state(ROSTER_CLOSED);
    const struct message_verdict *v = &told(1, MESSAGE_VERDICT)->verdict;
    ck_assert_int_eq(v->outcome, MESSAGE_STUCK);
    ck_assert_int_eq(v->rank, MESSAGE_NO_RANK);
    ck_assert_ptr_nonnull(strstr(v->text, "the last completed step is 0; lost node2: "));
}
END_TEST

START_TEST(requested_restarts_need_no_progress)
{
    create_limited(1, 2);
    for (int i = 0; i < 3; i++) {
        say(1, MESSAGE_RESTART);
        stopped_after(1, 0);
        stopped_after(2, 0);
        run_again();
    }
    fails_after(1, 0); /* the first step ever */
    run_again();
    fails_after(1, 0);
    assert_state(ROSTER_CLOSED);
}
END_TEST

/* --- Nodes whose ranks fail again and again --- */

/* Three at most, of which one is a spare if there are four. */
static void create_excluding(uint32_t min, uint32_t after, uint64_t window_ms, int n_nodes)
{
    const struct roster_limits limits = {0};
    terms = (struct message_terms){.min_nodes = min,
                                   .max_nodes = 3,
                                   .start_timeout_ms = 600000,
                                   .rejoin_timeout_ms = 60000,
                                   .max_restarts = 100,
                                   .exclude_after = after,
                                   .exclude_window_ms = window_ms};
    now_ms = 1000;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    for (int i = 1; i <= n_nodes; i++)
        join(i);
    time_goes_on(0); /* the window is over */
    say(1, MESSAGE_READY);
    assert_state(ROSTER_RUNNING);
}

/* A rank of node `link` fails, and all running nodes stop, this one last. assert_said() then checks
 * what follows. */
static void fails_and_all_stop(int link, int n_links)
{
    fails(link, 7, false);
    for (int i = 1; i <= n_links; i++)
        if (i != link)
            stops(i);
    say(link, MESSAGE_STOPPED);
}

/* Through the pause, to where the ranks run again. */
static void go_on(void)
{
    while (roster_get_state(r) == ROSTER_STOPPING)
        time_goes_on(roster_deadline_ms(r) - now_ms);
    say(1, MESSAGE_READY);
    assert_state(ROSTER_RUNNING);
}

static uint32_t count_members(void)
{
    struct roster_node_view view;
    uint32_t n = 0;
    for (uint32_t i = 0; i < roster_n_slots(r); i++)
        n += roster_view(r, i, &view) && view.is_member;
    return n;
}

START_TEST(a_node_whose_ranks_failed_too_often_is_excluded)
{
    create_excluding(1, 2, 0, 3);
    fails_and_all_stop(2, 3);
    go_on();
    ck_assert_uint_eq(count_members(), 3);
    fails_and_all_stop(3, 3); /* another one's count for that one */
    go_on();
    ck_assert_uint_eq(count_members(), 3);
    fails_and_all_stop(2, 3);
    const struct message_verdict *v = &told(2, MESSAGE_VERDICT)->verdict;
    ck_assert_int_eq(v->outcome, MESSAGE_EXCLUDED);
    ck_assert_int_eq(v->exit_code, 7);
    ck_assert_str_eq(v->node, "node2");
    ck_assert_str_eq(
        v->text,
        "node node2 excluded: 2 rank failures (--exclude-node-after); continuing without it");
    ck_assert_int_eq(strncmp(said, " 2<VERDICT 2 closed", 19), 0);
    ck_assert_str_eq(roster_newly_excluded(r), "node2");
    go_on();
    ck_assert_ptr_nonnull(strstr(roster_change(r), "; node2 is excluded"));
    ck_assert_uint_eq(count_members(), 2);
    ck_assert_uint_eq(roster_n_nodes(r), 2);
    fails_and_all_stop(3, 3);
    ck_assert_str_eq(roster_newly_excluded(r), "node3"); /* also its second failure */
    go_on();
    fails(1, 7, false);
    ck_assert_str_eq(roster_newly_excluded(r), "");
}
END_TEST

START_TEST(a_node_with_the_name_of_an_excluded_one_is_refused)
{
    create_excluding(1, 1, 0, 2);
    fails_and_all_stop(2, 2);
    go_on();
    struct message_hello h = hello_of(2);
    h.instance[0] = 77;
    say_hello(12, h, false);
    assert_said(" 12<VERDICT 12 closed");
    ck_assert_int_eq(told(12, MESSAGE_VERDICT)->verdict.outcome, MESSAGE_EXCLUDED);
    say_hello(13, hello_of(3), false);
    ck_assert_ptr_nonnull(told(13, MESSAGE_WELCOME));
}
END_TEST

START_TEST(the_next_roster_knows_the_excluded_nodes)
{
    const struct roster_limits limits = {0};
    struct roster_past past;
    create_excluding(1, 1, 0, 3);
    fails_and_all_stop(2, 3);
    go_on();
    roster_get_past(r, &past);
    ck_assert_uint_eq(past.n_excluded, 1);
    roster_destroy(r);
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    ck_assert_int_eq(roster_resume(r, &past, now_ms, NULL), 0);
    struct message_hello h = hello_of(2);
    h.instance[0] = 77;
    say_hello(12, h, false);
    assert_said(" 12<VERDICT 12 closed");
    ck_assert_int_eq(told(12, MESSAGE_VERDICT)->verdict.outcome, MESSAGE_EXCLUDED);
    ck_assert_int_eq(told(12, MESSAGE_VERDICT)->verdict.exit_code, 7);
    roster_get_past(r, &past); /* the next roster also knows it */
    ck_assert_uint_eq(past.n_excluded, 1);
    ck_assert_str_eq(past.excluded[0].name, "node2");
}
END_TEST

START_TEST(an_excluded_node_is_informed_when_it_reconnects)
{
    create_excluding(1, 1, 0, 3);
    fails(2, 7, false);
    stops(1);
    say(2, MESSAGE_STOPPED);
    gone(2);
    stops(3);
    assert_state(ROSTER_RUNNING);
    say_hello(12, hello_of(2), false);
    assert_said(" 12<VERDICT 12 closed");
}
END_TEST

START_TEST(a_spare_replaces_an_excluded_node)
{
    create_excluding(3, 1, 0, 4);
    fails_and_all_stop(2, 3);
    ck_assert_int_eq(told(2, MESSAGE_VERDICT)->verdict.outcome, MESSAGE_EXCLUDED);
    go_on();
    ck_assert_uint_eq(count_members(), 3);
    ck_assert_ptr_nonnull(told(4, MESSAGE_SEALED));
}
END_TEST

START_TEST(too_few_nodes_after_an_exclusion_wait_for_others)
{
    create_excluding(3, 1, 0, 3);
    fails_and_all_stop(2, 3);
    assert_state(ROSTER_GATHERING);
    ck_assert_ptr_nonnull(strstr(roster_change(r), "; node2 is excluded"));
    say_hello(4, hello_of(4), false);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(failures_outside_the_window_exclude_no_node)
{
    create_excluding(1, 2, 60000, 3);
    fails_and_all_stop(2, 3);
    go_on();
    for (int i = 0; i < 60; i++) {
        for (int link = 1; link <= 3; link++)
            say(link, MESSAGE_KEEP_ALIVE);
        time_goes_on(1000);
    }
    fails_and_all_stop(2, 3);
    go_on();
    ck_assert_uint_eq(count_members(), 3);
    fails_and_all_stop(2, 3);
    ck_assert_str_eq(told(2, MESSAGE_VERDICT)->verdict.text,
                     "node node2 excluded: 2 rank failures within 60 s (--exclude-node-after); "
                     "continuing without it");
}
END_TEST

START_TEST(consequences_of_another_failure_do_not_count)
{
    create_excluding(1, 1, 0, 3);
    fails_of_another(2, 7);
    stops(1);
    stops(3);
    say(2, MESSAGE_STOPPED);
    go_on();
    ck_assert_uint_eq(count_members(), 3);
}
END_TEST

START_TEST(the_node_with_the_roster_is_never_excluded)
{
    const struct roster_limits limits = {0};
    create_excluding(1, 1, 0, 3); /* for its terms */
    roster_destroy(r);
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    say_hello(1, hello_of(1), true);
    join(2);
    join(3);
    say(1, MESSAGE_READY);
    fails_and_all_stop(1, 3);
    go_on();
    ck_assert_uint_eq(count_members(), 3);
}
END_TEST

START_TEST(a_failure_that_ends_the_job_excludes_no_node)
{
    create_excluding(1, 1, 0, 3);
    fails(2, 7, true);
    for (int i = 1; i <= 3; i++)
        say(i, MESSAGE_STOPPING);
    assert_state(ROSTER_CLOSED);
    ck_assert_int_eq(told(2, MESSAGE_VERDICT)->verdict.outcome, MESSAGE_RANK_FAILED);
}
END_TEST

START_TEST(a_failure_restarts_nodes_that_were_done)
{
    create_running(2, 2, 2, 1);
    say(1, MESSAGE_SUCCEEDED);
    fails(2, 1, false);
    assert_said(" 1<STOP 2<STOP STOPPING");
    stops(1);
    stops(2);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(lost_ranks_end_the_generation)
{
    create_running(2, 2, 2, 0);
    say(2, MESSAGE_STOPPED);
    assert_said(" 1<STOP STOPPING");
    stops(1);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(a_requested_restart_does_not_use_the_budget)
{
    create_running(2, 2, 2, 0);
    say(2, MESSAGE_RESTART);
    assert_said(" 1<STOP 2<STOP STOPPING");
    ck_assert_int_eq(told(1, MESSAGE_STOP)->stop.why, MESSAGE_WHY_RESTART);
    ck_assert_str_eq(told(1, MESSAGE_STOP)->stop.text, "restart requested on node2");
    fails(1, 1, false); /* of what it lost */
    assert_said("");
    stops(1);
    stops(2);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 1);
    ck_assert_uint_eq(roster_n_restarts(r), 0);
}
END_TEST

START_TEST(a_restart_includes_nodes_that_were_done)
{
    create_running(2, 2, 2, 0);
    say(1, MESSAGE_SUCCEEDED);
    say(1, MESSAGE_RESTART);
    assert_said(" 1<STOP 2<STOP STOPPING");
}
END_TEST

START_TEST(only_members_may_request_a_restart_once_in_a_generation)
{
    create_running(1, 2, 2, 0);
    join(3); /* a spare */
    say(3, MESSAGE_RESTART);
    assert_state(ROSTER_RUNNING);
    struct message late = {.type = MESSAGE_RESTART, .generation = roster_generation(r)};
    say_message(1, late);
    say_message(2, late);
    assert_said("");
    stops(1);
    stops(2);
    assert_state(ROSTER_RUNNING);
    say(1, MESSAGE_READY);
    say_message(1, late);
    assert_said("");
}
END_TEST

TEST_SUITE(roster_failures)
{
    Suite *suite = suite_create("roster_failures");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_failure_is_final_when_all_nodes_have_answered);
    tcase_add_test(all, a_node_gets_the_number_of_ranks_that_it_last_sent);
    tcase_add_test(all, deaths_of_ranks_during_a_wait_for_nodes_do_not_count);
    tcase_add_test(all, a_node_lost_without_an_answer_is_the_cause);
    tcase_add_test(all, a_node_that_leaves_without_an_answer_is_the_cause);
    tcase_add_test(all, the_failure_of_a_single_node_is_final_at_once);
    tcase_add_test(all, failures_count_for_the_whole_job);
    tcase_add_test(all, a_failure_with_survivors_counts_and_restarts_at_once);
    tcase_add_test(all, a_final_failure_is_not_followed_by_a_restart);
    tcase_add_test(all, some_exit_statuses_end_the_job);
    tcase_add_test(all, the_node_that_reported_a_failure_may_correct_it);
    tcase_add_test(all, a_consequence_waits_for_its_cause_until_all_ranks_have_ended);
    tcase_add_test(all, nodes_that_received_a_consequence_receive_its_cause);
    tcase_add_test(all, a_consequence_without_a_cause_is_the_verdict);
    tcase_add_test(all, a_consequence_corrects_no_cause);
    tcase_add_test(all, the_only_node_may_correct_a_consequence);
    tcase_add_test(all, the_cause_decides_about_a_restart);
    tcase_add_test(all, a_node_lost_without_an_answer_is_the_cause_of_consequences);
    tcase_add_test(all, generations_without_a_new_step_end_the_job);
    tcase_add_test(all, a_lost_node_counts_as_a_generation_without_progress);
    tcase_add_test(all, requested_restarts_need_no_progress);
    tcase_add_test(all, a_node_whose_ranks_failed_too_often_is_excluded);
    tcase_add_test(all, a_node_with_the_name_of_an_excluded_one_is_refused);
    tcase_add_test(all, the_next_roster_knows_the_excluded_nodes);
    tcase_add_test(all, an_excluded_node_is_informed_when_it_reconnects);
    tcase_add_test(all, a_spare_replaces_an_excluded_node);
    tcase_add_test(all, too_few_nodes_after_an_exclusion_wait_for_others);
    tcase_add_test(all, failures_outside_the_window_exclude_no_node);
    tcase_add_test(all, consequences_of_another_failure_do_not_count);
    tcase_add_test(all, the_node_with_the_roster_is_never_excluded);
    tcase_add_test(all, a_failure_that_ends_the_job_excludes_no_node);
    tcase_add_test(all, a_failure_restarts_nodes_that_were_done);
    tcase_add_test(all, lost_ranks_end_the_generation);
    tcase_add_test(all, a_requested_restart_does_not_use_the_budget);
    tcase_add_test(all, a_restart_includes_nodes_that_were_done);
    tcase_add_test(all, only_members_may_request_a_restart_once_in_a_generation);
    suite_add_tcase(suite, all);
    return suite;
}
