/* A rank waits in MPI_Abort until other nodes know of it: whether it is the cause, and what ends
 * it. */
#include "one_supervisor.h"

enum { GRACE_MS = 5000 }; /* of a failure, in one_supervisor.h */

static void aborted(int rank, int code)
{
    step((struct supervisor_event){SUPERVISOR_EV_ABORTED, .rank = rank, .status = EXIT_STATUS(code),
                                   .progress.n_steps = 7});
}

static void order_stop(void)
{
    step((struct supervisor_event){SUPERVISOR_EV_ORDER_STOP, .for_failure = true});
}

static void begin_and_start_with_others(int n_ranks)
{
    create_usual(n_ranks, true);
    next(0);
    for (int i = 0; i < n_ranks; i++)
        started(i);
}

static void expect_verdict(int rank, int status)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(s);
    ck_assert_int_eq(v->outcome, OUTCOME_RANK_FAILED);
    ck_assert_int_eq(v->rank, rank);
    ck_assert_int_eq(supervisor_get_rank(s, rank)->status, status);
}

START_TEST(an_abort_is_known_and_stops_no_rank)
{
    begin_and_start_with_others(3);
    ck_assert_int_eq(supervisor_get_aborter(s), -1);
    aborted(1, 77);
    ck_assert_int_eq(supervisor_get_aborter(s), 1);
    ck_assert_int_eq(supervisor_get_rank(s, 1)->status, EXIT_STATUS(77));
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
    ck_assert_int_eq(supervisor_get_verdict(s)->outcome, OUTCOME_NONE);
    ck_assert_int_eq(o.signal, 0);
    ck_assert(supervisor_has_progressed(s));
}
END_TEST

START_TEST(the_order_to_stop_spares_the_aborter_and_makes_it_the_cause)
{
    begin_and_start_with_others(3);
    aborted(1, 77);
    order_stop();
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STOPPING);
    ck_assert_int_eq(o.signal, SIGTERM);
    ck_assert_int_eq(o.except, 1);
    ck_assert_int_eq(supervisor_get_aborter(s), -1);
    expect_verdict(1, EXIT_STATUS(77));
    exited(0, SIGTERM, false);
    exited(2, SIGTERM, false);
    exited(1, EXIT_STATUS(77), true);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_DRAINING);
    expect_verdict(1, EXIT_STATUS(77));
}
END_TEST

START_TEST(an_aborter_that_does_not_end_is_killed_with_the_others)
{
    begin_and_start_with_others(2);
    aborted(0, 77);
    order_stop();
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + GRACE_MS);
    now_ms += GRACE_MS;
    step((struct supervisor_event){SUPERVISOR_EV_TIME});
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_KILLING);
    ck_assert_int_eq(o.signal, SIGKILL);
    ck_assert_int_eq(o.except, -1);
    exited(1, SIGTERM, false);
    exited(0, EXIT_STATUS(77), true); /* as mpi_end.h has it */
    expect_verdict(0, EXIT_STATUS(77));
}
END_TEST

START_TEST(the_first_of_several_aborts_counts)
{
    begin_and_start_with_others(3);
    aborted(1, 77);
    aborted(2, 14);
    aborted(1, 78);
    ck_assert_int_eq(supervisor_get_aborter(s), 1);
    order_stop();
    expect_verdict(1, EXIT_STATUS(77));
}
END_TEST

START_TEST(an_aborter_that_ends_before_the_order_has_failed)
{
    begin_and_start_with_others(2);
    aborted(1, 77);
    exited(1, EXIT_STATUS(77), false);
    ck_assert_int_eq(supervisor_get_aborter(s), -1);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STOPPING);
    ck_assert_int_eq(o.except, -1);
    expect_verdict(1, EXIT_STATUS(77));
}
END_TEST

START_TEST(a_rank_that_fails_by_itself_is_the_cause_of_an_abort)
{
    begin_and_start_with_others(3); /* before the order to stop */
    aborted(1, 14);
    exited(0, SIGSEGV, false);
    expect_verdict(0, SIGSEGV);
    exited(1, EXIT_STATUS(14), false);
    exited(2, SIGTERM, true);
    expect_verdict(0, SIGSEGV);
    supervisor_destroy(s);

    begin_and_start_with_others(3); /* seen after it */
    aborted(1, 14);
    order_stop();
    exited_before_our_signal(0, SIGSEGV, false);
    exited(1, EXIT_STATUS(14), false);
    exited(2, SIGTERM, true);
    expect_verdict(0, SIGSEGV);
}
END_TEST

START_TEST(ranks_that_end_because_of_the_abort_are_not_the_cause)
{
    begin_and_start_with_others(3);
    aborted(1, 77);
    order_stop();
    exited(0, EXIT_STATUS(1), false); /* after our signal */
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 2, .status = EXIT_STATUS(1),
                                   .was_ending = true, .blames = true, .culprit = 1});
    exited(1, EXIT_STATUS(77), true);
    expect_verdict(1, EXIT_STATUS(77));
}
END_TEST

START_TEST(an_abort_that_was_not_announced_may_be_a_consequence_as_well)
{
    const struct supervisor_event abort = {SUPERVISOR_EV_EXITED, .rank = 1,
                                           .status = EXIT_STATUS(14), .was_ending = true,
                                           .aborts = true};
    begin_and_start_with_others(2); /* the first failure */
    step(abort);
    expect_verdict(1, EXIT_STATUS(14));
    exited_before_our_signal(0, SIGSEGV, true);
    expect_verdict(0, SIGSEGV);
    supervisor_destroy(s);

    begin_and_start_with_others(2); /* after a stop because of another node */
    order_stop();
    step(abort);
    exited(0, SIGTERM, true);
    ck_assert_int_eq(supervisor_get_verdict(s)->outcome, OUTCOME_ORDERED);
}
END_TEST

START_TEST(an_abort_ends_the_wait_for_the_cause_of_a_lost_peer)
{
    begin_to_lose_a_peer(3, 2000, true);
    exited_of_another(0, EXIT_STATUS(1));
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_AWAITING);
    aborted(1, 77);
    ck_assert_int_eq(supervisor_get_aborter(s), 1);
    order_stop();
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STOPPING);
    ck_assert_int_eq(o.except, 1);
    expect_verdict(1, EXIT_STATUS(77));
}
END_TEST

START_TEST(an_abort_that_cannot_be_the_cause_changes_nothing)
{
    begin_and_start_with_others(2); /* it had a signal to stop */
    signalled(SIGTERM);
    aborted(1, 77);
    ck_assert_int_eq(supervisor_get_aborter(s), -1);
    ck_assert_int_eq(supervisor_get_rank(s, 1)->status, 0);
    exited(0, SIGTERM, false);
    exited(1, EXIT_STATUS(77), true);
    ck_assert_int_eq(supervisor_get_verdict(s)->outcome, OUTCOME_SIGNAL);
    supervisor_destroy(s);

    begin_and_start_with_others(2); /* of a rank that has ended, and of numbers that no rank has */
    exited(1, 0, false);
    aborted(1, 77);
    aborted(2, 77);
    aborted(-1, 77);
    ck_assert_int_eq(supervisor_get_aborter(s), -1);
    supervisor_destroy(s);

    create(&(struct supervisor_limits){
        .n_ranks = 2, .window = 2, .has_others = true, .recovers = true}); /* others outlive it */
    next(0);
    for (int i = 0; i < 2; i++) {
        started(i);
        step((struct supervisor_event){SUPERVISOR_EV_JOINED, .rank = i, .recovers = true});
    }
    aborted(1, 77);
    ck_assert_int_eq(supervisor_get_aborter(s), -1);
    exited(1, EXIT_STATUS(77), false);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_PARKED);
}
END_TEST

START_TEST(the_next_generation_knows_of_no_abort)
{
    begin_and_start_with_others(1);
    aborted(0, 77);
    order_stop();
    exited(0, EXIT_STATUS(77), true);
    event(SUPERVISOR_EV_DRAINED);
    next(1);
    started(0);
    ck_assert_int_eq(supervisor_get_aborter(s), -1);
    aborted(0, 78);
    ck_assert_int_eq(supervisor_get_aborter(s), 0);
}
END_TEST

TCase *supervisor_abort_cases(void)
{
    TCase *t = tcase_create("aborts");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, an_abort_is_known_and_stops_no_rank);
    tcase_add_test(t, the_order_to_stop_spares_the_aborter_and_makes_it_the_cause);
    tcase_add_test(t, an_aborter_that_does_not_end_is_killed_with_the_others);
    tcase_add_test(t, the_first_of_several_aborts_counts);
    tcase_add_test(t, an_aborter_that_ends_before_the_order_has_failed);
    tcase_add_test(t, a_rank_that_fails_by_itself_is_the_cause_of_an_abort);
    tcase_add_test(t, ranks_that_end_because_of_the_abort_are_not_the_cause);
    tcase_add_test(t, an_abort_that_was_not_announced_may_be_a_consequence_as_well);
    tcase_add_test(t, an_abort_ends_the_wait_for_the_cause_of_a_lost_peer);
    tcase_add_test(t, an_abort_that_cannot_be_the_cause_changes_nothing);
    tcase_add_test(t, the_next_generation_knows_of_no_abort);
    return t;
}
