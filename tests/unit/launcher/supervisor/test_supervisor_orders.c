/* What a supervisor does at the roster's orders: what is started, what is stopped, how the job
 * ends. */
#include "one_supervisor.h"

#include "common/clock.h"

static void ordered_stop(bool gently)
{
    step((struct supervisor_event){SUPERVISOR_EV_ORDER_STOP, .gently = gently});
}

static void begin_waiting(int n_ranks)
{
    create_usual(n_ranks, true);
    ck_assert_uint_eq(supervisor_deadline_ms(s), CO_NEVER_MS);
}

static void start(int n_ranks, uint32_t generation)
{
    next(generation);
    ck_assert(o.renew);
    ck_assert_int_eq(supervisor_generation(s), generation);
    for (int i = 0; i < n_ranks; i++)
        started(i);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
}

static void expect_waiting(void)
{
    ck_assert(o.drain);
    event(SUPERVISOR_EV_DRAINED);
    ck_assert(!o.ended);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_WAITING);
}

START_TEST(ranks_are_started_by_order_and_the_next_order_is_awaited)
{
    begin_waiting(2);
    start(2, 0);
    exited(0, EXIT_STATUS(3), false);
    ck_assert_int_eq(o.signal, SIGTERM);
    exited(1, SIGTERM, true);
    expect_waiting();
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 0);

    start(2, 7); /* it did not take part in those between */
    exited(0, 0, false);
    exited(1, 0, true);
    expect_waiting();
    ck_assert_int_eq(supervisor_get_verdict(s)->outcome, OUTCOME_WELL);
    finish(0, 0, ENDED_BY_ROSTER);
    ck_assert(o.drain);
    event(SUPERVISOR_EV_DRAINED);
    ck_assert(o.ended);
    ck_assert_int_eq(supervisor_exit_code(s), 0);
}
END_TEST

START_TEST(a_rank_stopped_by_an_order_has_not_failed)
{
    static const int statuses[] = {SIGTERM, SIGSEGV, EXIT_STATUS(3), 0};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        begin_waiting(1);
        start(1, 0);
        ordered_stop(false);
        ck_assert_int_eq(o.signal, SIGTERM);
        exited(0, statuses[i], true);
        ck_assert_int_eq(supervisor_get_verdict(s)->outcome, OUTCOME_ORDERED);
        ck_assert_int_eq(supervisor_get_rank(s, 0)->signaled_first, SIGTERM);
        expect_waiting();
        supervisor_destroy(s);
        s = NULL;
    }
}
END_TEST

START_TEST(a_failure_before_the_order_to_stop_counts)
{
    begin_waiting(2);
    start(2, 0);
    ordered_stop(false);
    exited_of_another(0, EXIT_STATUS(1));
    exited_before_our_signal(1, EXIT_STATUS(3), true);
    ck_assert_int_eq(supervisor_get_verdict(s)->outcome, OUTCOME_RANK_FAILED);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 1);
    expect_waiting();
    start(2, 1); /* and forgotten */
    ordered_stop(false);
    exited(0, SIGTERM, false);
    exited(1, SIGTERM, true);
    ck_assert_int_eq(supervisor_get_verdict(s)->outcome, OUTCOME_ORDERED);
}
END_TEST

START_TEST(the_reason_decides_the_time_of_an_ordered_stop)
{
    begin_waiting(1);
    start(1, 0);
    ordered_stop(true);
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + 30000);
    ordered_stop(false); /* and a more urgent one makes it shorter ... */
    ck_assert_int_eq(o.signal, 0);
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + 5000);
    ordered_stop(true); /* ... never longer */
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + 5000);
    event(SUPERVISOR_EV_TIME);
    ck_assert_int_eq(o.signal, SIGKILL);
}
END_TEST

START_TEST(an_order_to_kill_kills_ranks_and_their_leftovers)
{
    begin_waiting(1);
    start(1, 0);
    event(SUPERVISOR_EV_ORDER_KILL);
    ck_assert_int_eq(o.signal, SIGKILL);
    ck_assert(o.to_groups);
    exited(0, SIGKILL, false);
    ck_assert_int_eq(o.sweep_signal, SIGKILL);
    event(SUPERVISOR_EV_EMPTY);
    ck_assert_int_eq(supervisor_get_verdict(s)->outcome, OUTCOME_ORDERED);
    expect_waiting();

    start(1, 1);
    exited(0, 0, false);
    ck_assert_int_eq(o.sweep_signal, SIGTERM);
    event(SUPERVISOR_EV_ORDER_KILL);
    ck_assert_int_eq(o.sweep_signal, SIGKILL);
    event(SUPERVISOR_EV_EMPTY);
    expect_waiting();
    ck_assert_int_eq(supervisor_get_verdict(s)->outcome, OUTCOME_WELL);
}
END_TEST

START_TEST(an_order_during_the_start_awaits_the_requested_ranks)
{
    begin_waiting(3);
    next(0);
    ck_assert_int_eq(o.n_start, 2);
    event(SUPERVISOR_EV_ORDER_KILL);
    ck_assert_int_eq(o.signal, SIGKILL);
    started(0);
    ck_assert_int_eq(o.n_start, 0);
    exited(0, SIGKILL, true);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_KILLING);
    started(1);
    exited(1, SIGKILL, true);
    expect_waiting();
    start(3, 1);
}
END_TEST

START_TEST(a_signal_is_recorded_and_the_roster_decides_the_end)
{
    begin_waiting(1);
    signalled(SIGUSR1);
    ck_assert_int_eq(supervisor_stop_signal(s), 0);
    signalled(SIGTERM); /* nothing runs */
    ck_assert(!o.drain);
    ck_assert_int_eq(supervisor_stop_signal(s), SIGTERM);
    finish(143, SIGTERM, ENDED_BY_STOP);
    event(SUPERVISOR_EV_DRAINED);
    ck_assert(o.ended);
    ck_assert_int_eq(supervisor_die_of(s), SIGTERM);
    supervisor_destroy(s);

    begin_waiting(1);
    start(1, 0);
    signalled(SIGINT);
    ck_assert_int_eq(o.signal, SIGINT);
    exited(0, SIGINT, true);
    expect_waiting();
    ck_assert_int_eq(supervisor_stop_signal(s), SIGINT);
    finish(130, SIGINT, ENDED_BY_STOP);
    event(SUPERVISOR_EV_DRAINED);
    ck_assert_int_eq(supervisor_exit_code(s), 130);
}
END_TEST

START_TEST(a_signal_ends_the_wait_for_a_reader_and_the_roster_decides)
{
    begin_waiting(1);
    start(1, 0);
    exited(0, EXIT_STATUS(1), true);
    ck_assert(o.drain);
    signalled(SIGTERM);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_WAITING);
    ck_assert_int_eq(supervisor_get_verdict(s)->outcome, OUTCOME_RANK_FAILED);
    finish(143, SIGTERM, ENDED_BY_STOP);
    ck_assert(o.drain);
    ck_assert(!o.ended);
    signalled(SIGTERM); /* the last report is not waited for, either */
    ck_assert(o.ended);
    ck_assert_int_eq(supervisor_exit_code(s), 143);
}
END_TEST

START_TEST(the_timeout_is_left_to_the_roster)
{
    begin_waiting(1);
    event(SUPERVISOR_EV_TIMEOUT);
    ck_assert(supervisor_timed_out(s));
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_WAITING);
    supervisor_destroy(s);

    begin_waiting(1);
    start(1, 0);
    event(SUPERVISOR_EV_TIMEOUT);
    ck_assert_int_eq(o.signal, SIGTERM);
    exited(0, SIGTERM, true);
    expect_waiting();
    finish(124, 0, ENDED_BY_STOP);
    event(SUPERVISOR_EV_DRAINED);
    ck_assert_int_eq(supervisor_exit_code(s), 124);
}
END_TEST

START_TEST(without_its_spawner_it_waits_for_the_end)
{
    begin_waiting(1);
    event(SUPERVISOR_EV_SPAWNER_LOST);
    ck_assert(supervisor_is_alone(s));
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_WAITING);
    supervisor_destroy(s);

    begin_waiting(1);
    start(1, 0);
    event(SUPERVISOR_EV_SPAWNER_LOST);
    ck_assert(o.sweep_alone);
    step((struct supervisor_event){SUPERVISOR_EV_SWEPT});
    expect_waiting();
    ck_assert(supervisor_is_alone(s));
    ck_assert_int_eq(supervisor_get_verdict(s)->outcome, OUTCOME_INTERNAL);
}
END_TEST

static void begin_recoverable(int n_ranks)
{
    create(&(struct supervisor_limits){.n_ranks = n_ranks,
                                       .window = n_ranks,
                                       .grace_ms = 30000,
                                       .failure_grace_ms = 5000,
                                       .has_others = true,
                                       .recovers = true,
                                       .recovery_ms = 60000});
    next(0);
    ck_assert_int_eq(o.n_start, n_ranks);
}

static void joined(bool recovers)
{
    step((struct supervisor_event){SUPERVISOR_EV_JOINED, .rank = 0, .recovers = recovers});
}

static void ordered_to_keep(void)
{
    step((struct supervisor_event){SUPERVISOR_EV_ORDER_STOP, .may_park = true});
}

START_TEST(a_rank_that_joined_before_its_start_report_is_parked)
{
    begin_recoverable(1);
    joined(true);
    ordered_to_keep();
    ck_assert(o.park);
    ck_assert_int_eq(o.signal, 0);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_PARKED);
    next(1);
    ck_assert(o.recover);
    ck_assert_int_eq(o.n_restart, 0);
    started(0); /* of the first generation: that it comes to this one is still waited for */
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RECOVERING);
    joined(true);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
}
END_TEST

START_TEST(a_rank_that_is_unknown_or_cannot_recover_is_stopped)
{
    for (int has_joined = 0; has_joined < 2; has_joined++) {
        begin_recoverable(1);
        if (has_joined)
            joined(false);
        ordered_to_keep();
        ck_assert(!o.park);
        ck_assert_int_eq(o.signal, SIGTERM);
        ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STOPPING);
        supervisor_destroy(s);
        s = NULL;
    }
}
END_TEST

START_TEST(a_rank_that_left_before_its_start_report_is_not_forgotten)
{
    begin_recoverable(1);
    joined(true);
    step((struct supervisor_event){SUPERVISOR_EV_ASKED, .rank = 0});
    started(0);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + 60000);
    event(SUPERVISOR_EV_TIME);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_PARKED);
    ck_assert(supervisor_get_verdict(s)->is_parted);
}
END_TEST

START_TEST(a_rank_that_succeeds_after_its_request_parks_no_other)
{
    begin_recoverable(2);
    started(0);
    started(1);
    joined(true);
    step((struct supervisor_event){SUPERVISOR_EV_JOINED, .rank = 1, .recovers = true});
    step((struct supervisor_event){SUPERVISOR_EV_ASKED, .rank = 0});
    exited(0, 0, true);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + 60000);
    event(SUPERVISOR_EV_TIME);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
    ck_assert_uint_eq(supervisor_deadline_ms(s), CO_NEVER_MS);
}
END_TEST

TEST_SUITE(supervisor_orders)
{
    Suite *suite = suite_create("supervisor_orders");
    TCase *t = tcase_create("orders");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, ranks_are_started_by_order_and_the_next_order_is_awaited);
    tcase_add_test(t, a_rank_stopped_by_an_order_has_not_failed);
    tcase_add_test(t, a_failure_before_the_order_to_stop_counts);
    tcase_add_test(t, the_reason_decides_the_time_of_an_ordered_stop);
    tcase_add_test(t, an_order_to_kill_kills_ranks_and_their_leftovers);
    tcase_add_test(t, an_order_during_the_start_awaits_the_requested_ranks);
    tcase_add_test(t, a_signal_is_recorded_and_the_roster_decides_the_end);
    tcase_add_test(t, a_signal_ends_the_wait_for_a_reader_and_the_roster_decides);
    tcase_add_test(t, the_timeout_is_left_to_the_roster);
    tcase_add_test(t, without_its_spawner_it_waits_for_the_end);
    tcase_add_test(t, a_rank_that_joined_before_its_start_report_is_parked);
    tcase_add_test(t, a_rank_that_is_unknown_or_cannot_recover_is_stopped);
    tcase_add_test(t, a_rank_that_left_before_its_start_report_is_not_forgotten);
    tcase_add_test(t, a_rank_that_succeeds_after_its_request_parks_no_other);
    suite_add_tcase(suite, t);
    return suite;
}
