/* Nodes whose ranks outlive the end of a generation: whether a new rank replaces the one that died,
 * and what ends parked ranks. */
#include "one_job.h"

static void expect_starts(int node, int n_starts)
{
    ck_assert_int_eq(nodes_look(w, node).n_starts, n_starts);
    ck_assert_int_eq(nodes_look(w, node).n_sigterm, 0);
}

START_TEST(in_recovery_a_failure_starts_one_rank_and_then_is_the_verdict)
{
    begin(2, 2, 3);
    nodes_recover(w);
    start(2);
    for (uint32_t i = 1; i <= 3; i++) {
        nodes_exit_rank(w, 1, 1, SIGKILL);
        expect_running(0, i, 0, 4);
        expect_running(1, i, 2, 4);
        expect_starts(0, NODES_LOCAL);
        expect_starts(1, NODES_LOCAL + (int)i);
    }
    ck_assert_uint_eq(roster_n_restarts(nodes_roster(w)), 3);
    nodes_exit_rank(w, 0, 0, SIGKILL);
    expect_end(0, 137, 0);
    expect_end(1, 137, 0);
}
END_TEST

START_TEST(in_recovery_nodes_join_and_leave_without_ending_ranks)
{
    begin(1, 3, 0);
    nodes_recover(w);
    start(3);
    expect_running(2, 0, 4, 6);
    nodes_kill(w, 0);
    nodes_advance(w, 50);
    expect_running(1, 1, 0, 4);
    expect_running(2, 1, 2, 4);
    nodes_start(w, 0, false);
    expect_running(1, 2, 0, 6);
    expect_running(2, 2, 2, 6);
    nodes_signal(w, 2, SIGTERM); /* it leaves */
    expect_running(1, 3, 0, 4);
    expect_end(2, 143, SIGTERM);
    expect_starts(1, NODES_LOCAL);
}
END_TEST

START_TEST(joined_ranks_survive_although_their_starts_are_unreported)
{
    begin(1, 3, 0);
    nodes_recover(w);
    nodes_slow_spawner(w, 2, 1000);
    start(3);
    nodes_advance(w, 1500); /* of rank 0 it has, and rank 1 was started then */
    ck_assert_int_eq(nodes_look(w, 2).n_running, NODES_LOCAL);
    ck_assert_int_eq(supervisor_get_state(nodes_look(w, 2).supervisor), SUPERVISOR_STARTING);
    nodes_kill(w, 0);
    nodes_advance(w, 1000);
    expect_running(1, 1, 0, 4);
    expect_running(2, 1, 2, 4);
    expect_starts(2, NODES_LOCAL);
}
END_TEST

START_TEST(parked_ranks_end_with_the_job_or_by_a_signal)
{
    for (int i = 0; i < 2; i++) {
        begin(2, 2, 1);
        nodes_recover(w);
        start(2);
        nodes_kill(w, 1);
        nodes_advance(w, 50);
        ck_assert(nodes_look(w, 0).is_parked);
        ck_assert_int_eq(nodes_look(w, 0).n_running, NODES_LOCAL);
        if (i == 0)
            nodes_advance(w, 20000); /* no node joins */
        else
            nodes_signal(w, 0, SIGTERM);
        expect_end(0, i == 0 ? 75 : 143, i == 0 ? 0 : SIGTERM);
        tear_down();
    }
}
END_TEST

START_TEST(all_parked_ranks_may_die)
{
    begin(2, 2, 1);
    nodes_recover(w);
    start(2);
    nodes_kill(w, 1);
    nodes_advance(w, 50);
    for (int i = 0; i < NODES_LOCAL; i++)
        nodes_exit_rank(w, 0, i, SIGKILL);
    ck_assert(nodes_look(w, 0).is_parked);
    nodes_start(w, 1, false);
    expect_running(0, 1, 0, 4);
    expect_starts(0, 2 * NODES_LOCAL);
}
END_TEST

START_TEST(with_shrink_all_continue_with_new_numbers_after_a_failure)
{
    begin(2, 2, 3);
    nodes_shrink(w);
    start(2);
    nodes_exit_rank(w, 0, 0, SIGKILL);
    expect_some_running(0, 1, 1, 0, 3);
    expect_some_running(1, 1, 2, 1, 3);
    nodes_exit_rank(w, 1, 1, SIGKILL);
    expect_some_running(0, 2, 1, 0, 2);
    expect_some_running(1, 2, 1, 1, 2);
    expect_starts(0, NODES_LOCAL);
    expect_starts(1, NODES_LOCAL);
    ck_assert_uint_eq(roster_n_restarts(nodes_roster(w)), 2);
    nodes_exit_rank(w, 0, 1, SIGKILL); /* the last one of its node: that node begins again */
    expect_some_running(0, 3, 2, 0, 3);
    expect_some_running(1, 3, 1, 2, 3);
    expect_starts(1, NODES_LOCAL);
    nodes_exit_rank(w, 1, 0, SIGKILL);
    expect_end(0, 137, 0);
    expect_text(1, "rank 2 on n1: killed by SIGKILL (Killed), 0.00 s after its start");
}
END_TEST

START_TEST(with_shrink_a_rank_that_dies_between_generations_is_left_out)
{
    begin(2, 2, 1);
    nodes_shrink(w);
    start(2);
    nodes_kill(w, 1);
    nodes_advance(w, 50);
    ck_assert(nodes_look(w, 0).is_parked);
    nodes_exit_rank(w, 0, 0, SIGKILL);
    nodes_start(w, 1, false);
    expect_some_running(0, 1, 1, 0, 3);
    expect_some_running(1, 1, 2, 1, 3);
    expect_starts(0, NODES_LOCAL);
    ck_assert(supervisor_get_rank(nodes_look(w, 0).supervisor, 0)->is_dropped);
}
END_TEST

START_TEST(with_shrink_a_node_whose_ranks_all_die_starts_them_again)
{
    begin(2, 2, 1);
    nodes_shrink(w);
    start(2);
    nodes_exit_rank(w, 0, 0, SIGKILL);
    expect_some_running(0, 1, 1, 0, 3);
    nodes_kill(w, 1);
    nodes_advance(w, 50);
    ck_assert(nodes_look(w, 0).is_parked);
    nodes_exit_rank(w, 0, 1, SIGKILL);
    nodes_start(w, 1, false);
    expect_some_running(0, 2, 1, 0, 3);
    expect_some_running(1, 2, 2, 1, 3);
    expect_starts(0, NODES_LOCAL + 1);
    ck_assert(!supervisor_get_rank(nodes_look(w, 0).supervisor, 1)->is_dropped);
}
END_TEST

START_TEST(after_a_requested_restart_all_ranks_run_again)
{
    begin(2, 2, 1);
    nodes_shrink(w);
    start(2);
    nodes_exit_rank(w, 1, 0, SIGKILL);
    expect_some_running(1, 1, 1, 2, 3);
    nodes_ask_restart(w, 0);
    expect_running(0, 2, 0, 4);
    expect_running(1, 2, 2, 4);
}
END_TEST

START_TEST(parked_ranks_die_with_the_lease)
{
    begin(2, 2, 1);
    nodes_recover(w);
    start(2);
    nodes_kill(w, 1);
    nodes_advance(w, 50);
    nodes_cut(w, 0);
    nodes_advance(w, 3000);
    ck_assert_int_eq(nodes_look(w, 0).n_running, 0);
    expect_end(0, 75, 0);
}
END_TEST

START_TEST(live_ranks_that_lost_each_other_join_a_new_generation)
{
    begin(2, 2, 1);
    nodes_recover(w);
    start(2);
    nodes_part_rank(w, 0, 1);
    nodes_advance(w, 59999);
    expect_running(1, 0, 2, 4);
    nodes_advance(w, 1);
    expect_running(0, 1, 0, 4);
    expect_running(1, 1, 2, 4);
    expect_starts(0, NODES_LOCAL);
    expect_starts(1, NODES_LOCAL);
    ck_assert_uint_eq(roster_n_restarts(nodes_roster(w)), 1);
    nodes_part_rank(w, 1, 0);
    nodes_advance(w, 60000);
    expect_end(0, 70, 0);
    expect_text(0, "rank 2 on n1: lost its connection to ranks on other nodes that are still "
                   "alive; check the network between the nodes");
}
END_TEST

START_TEST(the_cause_of_a_lost_connection_is_usually_known)
{
    begin(1, 2, 0);
    nodes_recover(w);
    start(2);
    nodes_part_rank(w, 1, 0);
    nodes_kill(w, 0);
    nodes_advance(w, 50);
    expect_running(1, 1, 0, 2);
    nodes_advance(w, 100000);
    expect_running(1, 1, 0, 2);
}
END_TEST

START_TEST(a_rank_that_does_not_join_the_next_generation_has_failed)
{
    begin(2, 2, 2);
    nodes_recover(w);
    start(2);
    nodes_keep_ranks(w, 0);
    nodes_exit_rank(w, 1, 0, SIGKILL);
    nodes_advance(w, 60000);
    ck_assert_int_eq(nodes_look(w, 0).n_sigterm, 1);
    nodes_advance(w, 5000); /* they do not listen to that either */
    expect_running(0, 2, 0, 4);
    expect_running(1, 2, 2, 4);
    expect_starts(1, NODES_LOCAL + 1);
    ck_assert_int_eq(nodes_look(w, 0).n_starts, 2 * NODES_LOCAL);
}
END_TEST

START_TEST(a_requested_restart_keeps_no_rank)
{
    begin(2, 2, 0);
    nodes_recover(w);
    start(2);
    nodes_ask_restart(w, 0);
    for (int i = 0; i < 2; i++) {
        expect_running(i, 1, 2 * (uint32_t)i, 4);
        ck_assert_int_eq(nodes_look(w, i).n_starts, 2 * NODES_LOCAL);
    }
}
END_TEST

TCase *roster_agent_recovery_cases(void)
{
    TCase *t = tcase_create("recovery");
    tcase_add_checked_fixture(t, NULL, tear_down);
    tcase_add_test(t, in_recovery_a_failure_starts_one_rank_and_then_is_the_verdict);
    tcase_add_test(t, in_recovery_nodes_join_and_leave_without_ending_ranks);
    tcase_add_test(t, joined_ranks_survive_although_their_starts_are_unreported);
    tcase_add_test(t, parked_ranks_end_with_the_job_or_by_a_signal);
    tcase_add_test(t, all_parked_ranks_may_die);
    tcase_add_test(t, with_shrink_all_continue_with_new_numbers_after_a_failure);
    tcase_add_test(t, with_shrink_a_rank_that_dies_between_generations_is_left_out);
    tcase_add_test(t, with_shrink_a_node_whose_ranks_all_die_starts_them_again);
    tcase_add_test(t, after_a_requested_restart_all_ranks_run_again);
    tcase_add_test(t, parked_ranks_die_with_the_lease);
    tcase_add_test(t, live_ranks_that_lost_each_other_join_a_new_generation);
    tcase_add_test(t, the_cause_of_a_lost_connection_is_usually_known);
    tcase_add_test(t, a_rank_that_does_not_join_the_next_generation_has_failed);
    tcase_add_test(t, a_requested_restart_keeps_no_rank);
    return t;
}
