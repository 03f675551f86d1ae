/* The roster agent between real supervisors, real members and a real roster, on virtual time. Where
 * ranks outlive a generation: test_roster_agent_recovery.c. */
#include "one_job.h"

#include <errno.h>
#include <string.h>

START_TEST(nodes_start_together_and_end_together)
{
    begin(2, 2, 0);
    start(1);
    ck_assert_int_eq(nodes_look(w, 0).n_running, 0);
    nodes_start(w, 1, false);
    expect_running(0, 0, 0, 4);
    expect_running(1, 0, 2, 4);
    ck_assert_uint_eq(nodes_look(w, 0).port, nodes_look(w, 1).port);
    nodes_exit_rank(w, 0, 0, 0);
    nodes_exit_rank(w, 0, 1, 0);
    ck_assert(!nodes_look(w, 0).ended); /* its store serves the others */
    nodes_exit_rank(w, 1, 0, 0);
    nodes_exit_rank(w, 1, 1, 0);
    expect_end(0, 0, 0);
    expect_end(1, 0, 0);
}
END_TEST

START_TEST(a_failure_restarts_all_and_then_is_the_verdict_of_all)
{
    begin(2, 2, 1);
    start(2);
    nodes_advance(w, 1230);
    nodes_exit_rank(w, 1, 1, EXIT_STATUS(3));
    expect_running(0, 1, 0, 4);
    expect_running(1, 1, 2, 4);
    ck_assert_int_eq(nodes_look(w, 0).port, nodes_look(w, 1).port);
    nodes_advance(w, 1230);
    nodes_exit_rank(w, 1, 1, SIGSEGV);
    expect_end(0, 139, 0);
    expect_end(1, 139, 0);
    expect_text(0, "rank 3 on n1: killed by SIGSEGV (Segmentation fault), 1.23 s after its start");
    ck_assert_int_eq(member_get_end(nodes_look(w, 0).member)->rank, 3);
}
END_TEST

START_TEST(a_cause_that_follows_its_consequence_is_the_verdict)
{
    begin(2, 2, 0);
    start(2);
    nodes_advance(w, 1230);
    nodes_exit_unseen(w, 1, 1, EXIT_STATUS(3));
    nodes_exit_consequence(w, 0, 0, EXIT_STATUS(1));
    expect_end(0, 3, 0);
    expect_end(1, 3, 0);
    expect_text(0, "rank 3 on n1: exit status 3, 1.23 s after its start");
    expect_text(1, "rank 3 on n1: exit status 3, 1.23 s after its start");
    ck_assert_int_eq(supervisor_get_verdict(nodes_look(w, 1).supervisor)->rank, 1);
}
END_TEST

START_TEST(a_consequence_without_a_known_cause_is_the_verdict)
{
    begin(2, 2, 0);
    start(2);
    nodes_exit_consequence(w, 0, 0, EXIT_STATUS(1));
    expect_end(0, 1, 0);
    expect_end(1, 1, 0);
}
END_TEST

START_TEST(a_node_waits_for_a_cause_before_it_sends_a_consequence)
{
    begin(2, 2, 0);
    nodes_await_cause(w, 2000);
    start(2);
    nodes_exit_consequence(w, 0, 0, EXIT_STATUS(1));
    nodes_advance(w, 1900);
    ck_assert_int_eq(nodes_look(w, 1).n_sigterm, 0); /* its ranks may fail by themselves */
    nodes_exit_rank(w, 1, 1, EXIT_STATUS(3));
    expect_end(0, 3, 0);
    expect_end(1, 3, 0);
    expect_text(0, "rank 3 on n1: exit status 3, 1.90 s after its start");
}
END_TEST

START_TEST(a_consequence_is_sent_when_the_wait_is_over)
{
    begin(2, 2, 0);
    nodes_await_cause(w, 2000);
    start(2);
    nodes_exit_consequence(w, 0, 0, EXIT_STATUS(1));
    nodes_advance(w, 2000);
    expect_end(0, 1, 0);
    expect_end(1, 1, 0);
}
END_TEST

START_TEST(an_abort_is_the_verdict_though_its_rank_has_not_ended)
{
    begin(2, 2, 0);
    start(2);
    nodes_advance(w, 1230);
    nodes_abort_rank(w, 1, 1, EXIT_STATUS(77));
    expect_end(0, 77, 0);
    expect_end(1, 77, 0);
    expect_text(0, "rank 3 on n1: exit status 77, 1.23 s after its start");
    ck_assert_int_eq(member_get_end(nodes_look(w, 0).member)->rank, 3);
    ck_assert_int_eq(supervisor_get_verdict(nodes_look(w, 1).supervisor)->rank, 1);
    ck_assert_int_eq(nodes_look(w, 0).n_sigterm, 1);
    ck_assert_int_eq(nodes_look(w, 1).n_sigterm, 1);
}
END_TEST

START_TEST(an_abort_of_a_node_without_the_roster_waits_for_it)
{
    begin(2, 2, 0);
    start(2);
    nodes_cut(w, 1);
    nodes_abort_rank(w, 1, 1, EXIT_STATUS(77));
    ck_assert_int_eq(nodes_look(w, 1).n_running, 1); /* nodes.c ends it with the lease only */
    nodes_advance(w, 10000);
    ck_assert_int_eq(nodes_look(w, 1).n_running, 0);
}
END_TEST

START_TEST(an_abort_restarts_all_once)
{
    begin(2, 2, 1);
    start(2);
    nodes_abort_rank(w, 1, 1, EXIT_STATUS(77));
    expect_running(0, 1, 0, 4);
    expect_running(1, 1, 2, 4);
    ck_assert_uint_eq(roster_n_restarts(nodes_roster(w)), 1);
    nodes_abort_rank(w, 0, 0, EXIT_STATUS(78));
    expect_end(0, 78, 0);
    expect_end(1, 78, 0);
}
END_TEST

START_TEST(a_rank_that_fails_by_itself_on_another_node_is_the_cause_of_an_abort)
{
    begin(2, 2, 0);
    start(2);
    nodes_exit_unseen(w, 1, 1, SIGSEGV);
    nodes_abort_rank(w, 0, 0, EXIT_STATUS(14));
    expect_end(0, 139, 0);
    expect_end(1, 139, 0);
    ck_assert_int_eq(member_get_end(nodes_look(w, 0).member)->rank, 3);
}
END_TEST

START_TEST(an_abort_of_a_single_node_is_its_verdict)
{
    begin(1, 1, 0);
    start(1);
    nodes_abort_rank(w, 0, 1, EXIT_STATUS(77));
    nodes_exit_rank(w, 0, 1, 0); /* there it does not wait; the status is that of the abort */
    expect_end(0, 77, 0);
}
END_TEST

START_TEST(the_death_of_a_node_ends_the_wait_for_a_cause)
{
    begin(1, 2, 0);
    nodes_await_cause(w, 20000);
    start(2);
    nodes_exit_consequence(w, 0, 0, EXIT_STATUS(1));
    nodes_kill(w, 1);
    nodes_advance(w, 1000);
    ck_assert_int_eq(nodes_look(w, 0).generation, 1);
    ck_assert_int_eq(nodes_look(w, 0).n_running, NODES_LOCAL);
}
END_TEST

START_TEST(a_program_that_cannot_be_executed_is_not_restarted)
{
    begin(2, 2, 5);
    nodes_start(w, 0, false);
    nodes_fail_starts(w, 0, ENOENT);
    nodes_start(w, 1, false);
    expect_end(0, 127, 0);
    expect_end(1, 127, 0);
    expect_text(1, "rank 0 on n0: cannot execute './train': No such file or directory");
}
END_TEST

START_TEST(simultaneous_failures_on_nodes_count_once)
{
    begin(2, 2, 1);
    start(2);
    nodes_exit_ranks_at_once(w, EXIT_STATUS(3));
    nodes_advance(w, 1000);
    expect_running(0, 1, 0, 4);
    ck_assert_uint_eq(roster_n_restarts(nodes_roster(w)), 1);
    nodes_exit_ranks_at_once(w, EXIT_STATUS(4));
    expect_end(0, 4, 0);
    expect_end(1, 4, 0);
    tear_down();

    begin(3, 3, 5); /* none of them can be started */
    start(2);
    for (int i = 0; i < 2; i++)
        nodes_fail_starts(w, i, ENOENT);
    nodes_start(w, 2, false);
    for (int i = 0; i < 3; i++)
        expect_end(i, 127, 0);
}
END_TEST

START_TEST(a_failure_after_progress_costs_no_restart)
{
    begin(2, 2, 0);
    start(2);
    nodes_exit_after_progress(w, 1, 0, EXIT_STATUS(3));
    expect_running(0, 1, 0, 4);
    ck_assert_uint_eq(roster_n_restarts(nodes_roster(w)), 0);
    nodes_exit_rank(w, 1, 0, EXIT_STATUS(3));
    expect_end(0, 3, 0);
}
END_TEST

START_TEST(the_death_of_a_node_costs_the_others_no_restart)
{
    begin(1, 2, 1);
    start(2);
    expect_running(1, 0, 2, 4);
    nodes_kill(w, 0);
    nodes_exit_rank(w, 1, 0, EXIT_STATUS(1)); /* its connections broke */
    nodes_advance(w, 50);
    expect_running(1, 1, 0, 2);
    ck_assert_uint_eq(roster_n_restarts(nodes_roster(w)), 0);
}
END_TEST

START_TEST(a_node_that_gets_a_signal_leaves_and_dies_of_it)
{
    begin(1, 2, 0);
    start(2);
    nodes_signal(w, 0, SIGTERM);
    expect_end(0, 143, SIGTERM);
    expect_running(1, 1, 0, 2);
    nodes_signal(w, 1, SIGINT);
    expect_end(1, 130, SIGINT);
}
END_TEST

START_TEST(too_few_are_left_when_a_node_leaves_a_fixed_job)
{
    begin(2, 2, 0);
    start(2);
    nodes_signal(w, 0, SIGTERM);
    expect_end(0, 143, SIGTERM);
    expect_end(1, 75, 0);
}
END_TEST

START_TEST(a_signal_ends_each_wait)
{
    begin(2, 3, 0);
    start(1); /* for the second node */
    nodes_signal(w, 0, SIGTERM);
    expect_end(0, 143, SIGTERM);
    tear_down();

    begin(2, 2, 0);
    nodes_start_cut(w, 0); /* for the roster */
    nodes_advance(w, 5000);
    nodes_signal(w, 0, SIGHUP);
    expect_end(0, 129, SIGHUP);
    tear_down();

    begin(1, 2, 0);
    start(2); /* for a place, as a spare */
    nodes_start(w, 2, false);
    nodes_signal(w, 2, SIGQUIT);
    expect_end(2, 131, SIGQUIT);
    expect_running(0, 0, 0, 4);
}
END_TEST

START_TEST(the_launching_node_ends_the_others)
{
    begin(1, 2, 0);
    nodes_start(w, 0, true);
    nodes_start(w, 1, false);
    nodes_signal(w, 0, SIGTERM);
    expect_end(0, 143, SIGTERM);
    expect_end(1, 143, 0);
    expect_text(1, "n0 was stopped by SIGTERM");
}
END_TEST

START_TEST(the_timeout_ends_the_job)
{
    begin(1, 2, 0);
    start(2);
    nodes_time_out(w, 1);
    expect_end(0, 124, 0);
    expect_end(1, 124, 0);
    expect_text(0, "the job timed out on n1 (--timeout)");
}
END_TEST

START_TEST(the_reason_decides_how_long_ranks_may_take_to_stop)
{
    begin(1, 3, 0);
    start(2);
    nodes_advance(w, 3000);
    expect_running(1, 0, 2, 4);
    nodes_keep_ranks(w, 1);
    nodes_start(w, 2, false); /* a node joins: the ranks get time for a checkpoint */
    ck_assert_int_eq(nodes_look(w, 1).n_sigterm, 1);
    nodes_advance(w, 29999);
    ck_assert_int_eq(nodes_look(w, 1).n_sigkill, 0);
    nodes_advance(w, 1);
    ck_assert_int_eq(nodes_look(w, 1).n_sigkill, 1);
    expect_running(2, 1, 4, 6);
    nodes_kill(w, 2); /* a node is lost: there is nothing to wait for */
    nodes_advance(w, 50);
    ck_assert_int_eq(nodes_look(w, 1).n_sigterm, 2);
    nodes_advance(w, 5000);
    expect_running(1, 2, 2, 4);
}
END_TEST

START_TEST(a_restart_requested_on_one_node_restarts_all_nodes)
{
    begin(2, 2, 0);
    start(2);
    nodes_ask_restart(w, 1);
    for (int i = 0; i < 2; i++) {
        expect_running(i, 1, 2 * (uint32_t)i, 4);
        ck_assert_int_eq(nodes_look(w, i).n_starts, 2 * NODES_LOCAL);
    }
    ck_assert_uint_eq(roster_n_restarts(nodes_roster(w)), 0);
}
END_TEST

START_TEST(ranks_may_save_before_a_requested_restart)
{
    begin(2, 2, 0);
    start(2);
    nodes_keep_ranks(w, 1);
    nodes_ask_restart(w, 0);
    nodes_advance(w, 29999);
    ck_assert_int_eq(nodes_look(w, 1).n_sigkill, 0);
    nodes_advance(w, 1);
    ck_assert_int_eq(nodes_look(w, 1).n_sigkill, 1);
    expect_running(1, 1, 2, 4);
}
END_TEST

START_TEST(a_disconnected_node_kills_its_ranks_before_others_continue)
{
    begin(1, 2, 0);
    start(2);
    nodes_advance(w, 500);
    nodes_cut(w, 0);
    uint64_t cut_ms = nodes_now_ms(w);
    while (nodes_look(w, 0).n_running > 0)
        nodes_advance(w, 1);
    ck_assert_uint_le(nodes_now_ms(w) - cut_ms, 3000);
    expect_running(1, 0, 2, 4); /* the other nodes do not know yet */
    nodes_advance(w, 600);
    expect_end(0, 75, 0);
    nodes_advance(w, 1000);
    expect_running(1, 1, 0, 2);
}
END_TEST

START_TEST(a_consequence_is_reported_first_and_corrected_by_its_cause)
{
    begin(2, 2, 0);
    start(2);
    nodes_keep_ranks(w, 1);
    nodes_exit_witness(w, 1, 0, EXIT_STATUS(1), 1, SIGKILL);
    expect_end(0, 137, 0);
    ck_assert_int_eq(member_get_end(nodes_look(w, 0).member)->rank, 3);
}
END_TEST

START_TEST(a_node_without_its_spawner_leaves)
{
    begin(1, 2, 0);
    start(2);
    nodes_lose_spawner(w, 1);
    expect_end(1, 70, 0);
    expect_running(0, 1, 0, 2);
    tear_down();

    begin(2, 2, 0);
    start(1); /* also one that only waits */
    nodes_lose_spawner(w, 0);
    expect_end(0, 70, 0);
}
END_TEST

START_TEST(nodes_that_do_not_join_end_the_job)
{
    begin(2, 2, 0);
    start(1);
    nodes_advance(w, 10000);
    expect_end(0, 69, 0);
}
END_TEST

START_TEST(a_roster_that_is_not_found_ends_the_job)
{
    begin(1, 1, 0);
    nodes_start_cut(w, 0);
    nodes_advance(w, 10000);
    expect_end(0, 69, 0);
}
END_TEST

START_TEST(a_job_that_fell_below_its_minimum_waits_for_another_node)
{
    begin(2, 3, 0);
    start(2);
    nodes_advance(w, 3000);
    expect_running(0, 0, 0, 4);
    nodes_kill(w, 1);
    nodes_advance(w, 5000);
    ck_assert_int_eq(nodes_look(w, 0).n_running, 0);
    ck_assert_int_eq(supervisor_get_state(nodes_look(w, 0).supervisor), SUPERVISOR_WAITING);
    nodes_start(w, 2, false);
    nodes_advance(w, 3000);
    expect_running(0, 1, 0, 4);
    expect_running(2, 1, 2, 4);
}
END_TEST

START_TEST(a_late_node_is_admitted_when_all_have_saved)
{
    begin_at_checkpoint();
    start(2);
    nodes_advance(w, 3000);
    expect_running(0, 0, 0, 4);
    nodes_save(w, 0); /* without a request: it does not count later */
    nodes_start(w, 2, false);
    ck_assert(nodes_look(w, 0).is_asked && nodes_look(w, 1).is_asked);
    nodes_save(w, 1);
    nodes_advance(w, 600000);
    expect_running(0, 0, 0, 4);
    ck_assert_int_eq(nodes_look(w, 2).n_running, 0);
    nodes_save(w, 0);
    expect_running(0, 1, 0, 6);
    expect_running(2, 1, 4, 6);
    ck_assert(!nodes_look(w, 0).is_asked);
}
END_TEST

START_TEST(a_save_of_one_generation_does_not_count_in_the_next)
{
    begin_at_checkpoint();
    start(2);
    nodes_advance(w, 3000);
    nodes_start(w, 2, false);
    nodes_save(w, 1);
    nodes_kill(w, 0); /* a loss also admits the waiting node */
    nodes_advance(w, 1000);
    expect_running(1, 1, 0, 4);
    nodes_start(w, 3, false);
    nodes_save(w, 2);
    expect_running(1, 1, 0, 4);
    nodes_save(w, 1);
    expect_running(3, 2, 4, 6);
}
END_TEST

TEST_SUITE(roster_agent)
{
    Suite *suite = suite_create("roster agent");
    TCase *t = tcase_create("roster agent");
    tcase_add_checked_fixture(t, NULL, tear_down);
    tcase_add_test(t, nodes_start_together_and_end_together);
    tcase_add_test(t, a_failure_restarts_all_and_then_is_the_verdict_of_all);
    tcase_add_test(t, a_cause_that_follows_its_consequence_is_the_verdict);
    tcase_add_test(t, a_consequence_without_a_known_cause_is_the_verdict);
    tcase_add_test(t, a_node_waits_for_a_cause_before_it_sends_a_consequence);
    tcase_add_test(t, a_consequence_is_sent_when_the_wait_is_over);
    tcase_add_test(t, an_abort_is_the_verdict_though_its_rank_has_not_ended);
    tcase_add_test(t, an_abort_of_a_node_without_the_roster_waits_for_it);
    tcase_add_test(t, an_abort_restarts_all_once);
    tcase_add_test(t, a_rank_that_fails_by_itself_on_another_node_is_the_cause_of_an_abort);
    tcase_add_test(t, an_abort_of_a_single_node_is_its_verdict);
    tcase_add_test(t, the_death_of_a_node_ends_the_wait_for_a_cause);
    tcase_add_test(t, a_program_that_cannot_be_executed_is_not_restarted);
    tcase_add_test(t, simultaneous_failures_on_nodes_count_once);
    tcase_add_test(t, a_failure_after_progress_costs_no_restart);
    tcase_add_test(t, the_death_of_a_node_costs_the_others_no_restart);
    tcase_add_test(t, a_node_that_gets_a_signal_leaves_and_dies_of_it);
    tcase_add_test(t, too_few_are_left_when_a_node_leaves_a_fixed_job);
    tcase_add_test(t, a_signal_ends_each_wait);
    tcase_add_test(t, the_launching_node_ends_the_others);
    tcase_add_test(t, the_timeout_ends_the_job);
    tcase_add_test(t, the_reason_decides_how_long_ranks_may_take_to_stop);
    tcase_add_test(t, a_restart_requested_on_one_node_restarts_all_nodes);
    tcase_add_test(t, ranks_may_save_before_a_requested_restart);
    tcase_add_test(t, a_disconnected_node_kills_its_ranks_before_others_continue);
    tcase_add_test(t, a_consequence_is_reported_first_and_corrected_by_its_cause);
    tcase_add_test(t, a_node_without_its_spawner_leaves);
    tcase_add_test(t, nodes_that_do_not_join_end_the_job);
    tcase_add_test(t, a_roster_that_is_not_found_ends_the_job);
    tcase_add_test(t, a_job_that_fell_below_its_minimum_waits_for_another_node);
    tcase_add_test(t, a_late_node_is_admitted_when_all_have_saved);
    tcase_add_test(t, a_save_of_one_generation_does_not_count_in_the_next);
    suite_add_tcase(suite, t);
    suite_add_tcase(suite, roster_agent_recovery_cases());
    return suite;
}
