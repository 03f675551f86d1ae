/* A supervisor whose ranks can live on when one of them dies: another one comes in its place, or
 * none, or all start again. */
#include "one_supervisor.h"

#include "common/clock.h"

#include <errno.h>

static void joined(int rank, bool recovers)
{
    step((struct supervisor_event){SUPERVISOR_EV_JOINED, .rank = rank, .recovers = recovers});
}

/* Ranks that run, and have joined each other. */
static struct supervisor_limits recovery(int n_ranks, bool drops)
{
    return (struct supervisor_limits){.n_ranks = n_ranks,
                                      .window = n_ranks,
                                      .grace_ms = 30000,
                                      .failure_grace_ms = 5000,
                                      .recovers = true,
                                      .drops = drops,
                                      .recovery_ms = 60000};
}

static void begin_with(const struct supervisor_limits *limits)
{
    create(limits);
    next(0);
    for (int i = 0; i < limits->n_ranks; i++)
        started(i);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
}

static void begin_all(int n_ranks, bool drops)
{
    const struct supervisor_limits limits = recovery(n_ranks, drops);
    begin_with(&limits);
    for (int i = 0; i < n_ranks; i++)
        joined(i, true);
}

static void begin_recoverable(int n_ranks)
{
    begin_all(n_ranks, false);
}

static void begin_shrinkable(int n_ranks)
{
    begin_all(n_ranks, true);
}

/* A rank fails, the others are parked, and the roster lets a generation follow. */
static void lose(int rank, int status)
{
    exited(rank, status, false);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_PARKED);
    ck_assert(o.park);
    ck_assert_int_eq(o.signal, 0);
    ck_assert(supervisor_get_verdict(s)->recovers);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, rank);
    next(supervisor_generation(s) + 1);
}

static void expect_replaced(int rank)
{
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RECOVERING);
    ck_assert(o.recover);
    ck_assert_int_eq(o.n_restart, 1);
    ck_assert_int_eq(o.restart[0], rank);
    ck_assert_int_eq(o.signal, 0);
    ck_assert_int_eq(o.n_start, 0);
    ck_assert(!o.renew);
}

START_TEST(a_failed_rank_alone_is_replaced_and_all_join_its_generation)
{
    begin_recoverable(3);
    lose(1, SIGKILL);
    expect_replaced(1);
    ck_assert_uint_eq(supervisor_generation(s), 1);
    ck_assert_int_eq(supervisor_get_replacement(s)->rank, 1);
    ck_assert_int_eq(supervisor_get_replacement(s)->was.status, SIGKILL);
    joined(0, true);
    started(1);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RECOVERING);
    joined(2, true);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
    ck_assert_uint_eq(supervisor_deadline_ms(s), CO_NEVER_MS);
    for (int i = 0; i < 3; i++)
        exited(i, 0, i == 2);
    ck_assert_int_eq(supervisor_get_verdict(s)->outcome, OUTCOME_WELL);
}
END_TEST

START_TEST(failed_ranks_may_be_left_out_until_one_is_left)
{
    begin_shrinkable(3);
    for (int i = 0; i < 2; i++) {
        lose(i, SIGKILL);
        ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RECOVERING);
        ck_assert(o.recover);
        ck_assert_int_eq(o.n_dropped, 1);
        ck_assert_int_eq(o.dropped[0], i);
        ck_assert_int_eq(o.n_restart, 0);
        ck_assert(supervisor_get_replacement(s)->is_dropped);
        for (int k = i + 1; k < 3; k++)
            joined(k, true);
        ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
    }
    exited(2, 0, true);
    ck_assert_int_eq(supervisor_get_verdict(s)->outcome, OUTCOME_WELL);
    ck_assert_int_eq(supervisor_exit_code(s), 0);
}
END_TEST

START_TEST(the_last_rank_cannot_be_left_out)
{
    begin_shrinkable(2);
    lose(0, SIGKILL);
    joined(1, true);
    exited(1, SIGKILL, true); /* no rank survives */
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_DRAINING);
    event(SUPERVISOR_EV_DRAINED);
    next(2);
    ck_assert(o.renew);
    ck_assert_int_eq(o.n_start, 2);
}
END_TEST

START_TEST(parked_ranks_are_stopped_when_the_job_ends)
{
    begin_shrinkable(3);
    exited(1, SIGKILL, false);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_PARKED);
    step((struct supervisor_event){SUPERVISOR_EV_ORDER_STOP});
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STOPPING);
    ck_assert_int_eq(o.signal, SIGTERM);
    ck_assert_int_eq(o.except, -1);
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + 5000);
    exited(0, SIGTERM, false);
    exited(2, SIGTERM, true);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 1);
    ck_assert_int_eq(supervisor_exit_code(s), 137);
}
END_TEST

START_TEST(a_rank_blamed_while_others_are_parked_dies_of_its_own_signal)
{
    begin_recoverable(3);
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 0, .status = EXIT_STATUS(5),
                                   .blames = true, .culprit = 2});
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_PARKED);
    step((struct supervisor_event){SUPERVISOR_EV_ORDER_STOP});
    ck_assert_int_eq(o.signal, SIGTERM);
    ck_assert_int_eq(o.except, 2);
    exited(2, SIGKILL, false);
    exited(1, SIGTERM, true);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 2);
    ck_assert_int_eq(supervisor_exit_code(s), 137);
}
END_TEST

START_TEST(a_rank_that_has_not_joined_yet_is_not_late_after_a_shrink)
{
    begin_shrinkable(3);
    lose(0, SIGKILL);
    lose(1, SIGKILL);
    joined(2, true);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
    supervisor_destroy(s);

    const struct supervisor_limits limits = recovery(2, true);
    begin_with(&limits);
    joined(0, true); /* the other one has begun a moment ago */
    lose(0, SIGKILL);
    ck_assert_int_eq(o.n_dropped, 1);
    ck_assert_int_eq(o.dropped[0], 0);
    ck_assert_uint_eq(supervisor_deadline_ms(s), CO_NEVER_MS);
    joined(1, true);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
}
END_TEST

START_TEST(another_death_during_a_replacement_starts_a_new_rendezvous)
{
    begin_recoverable(3);
    lose(0, SIGKILL);
    started(0);
    joined(1, true);
    lose(2, SIGSEGV);
    expect_replaced(2);
    ck_assert_uint_eq(supervisor_generation(s), 2);
    started(2);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RECOVERING); /* rank 1 is called again */
    joined(1, true);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING); /* rank 0 comes when it can */
    lose(0, SIGKILL); /* if it dies before that, ddprun also replaces it */
    expect_replaced(0);
}
END_TEST

START_TEST(survivors_that_do_not_join_in_time_restart_all_ranks)
{
    begin_recoverable(3);
    lose(0, SIGKILL);
    started(0);
    joined(2, true);
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + 60000);
    now_ms += 60000;
    event(SUPERVISOR_EV_TIME);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STOPPING);
    ck_assert_int_eq(o.signal, SIGTERM);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 1);
    exited(1, 0, false); /* its status no longer counts */
    exited(0, SIGTERM, false);
    exited(2, SIGTERM, true);
    ck_assert_int_eq(supervisor_get_verdict(s)->outcome, OUTCOME_RANK_FAILED);
    ck_assert_int_ne(supervisor_exit_code(s), 0);
}
END_TEST

START_TEST(ranks_that_cannot_recover_are_all_restarted)
{
    begin_recoverable(2);
    joined(1, false);
    exited(0, SIGKILL, false);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STOPPING);
    supervisor_destroy(s);

    begin_and_start(2); /* not asked for */
    joined(0, true);
    joined(1, true);
    exited(0, SIGKILL, false);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STOPPING);
    supervisor_destroy(s);

    begin_recoverable(2);
    exited(1, 0, false); /* a finished rank cannot continue with a new one */
    exited(0, SIGKILL, true);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_DRAINING);
    supervisor_destroy(s);

    begin_recoverable(1); /* no survivor */
    exited(0, SIGKILL, true);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_DRAINING);
}
END_TEST

START_TEST(a_rank_may_join_before_its_start_report)
{
    begin_recoverable(2);
    lose(0, SIGKILL);
    joined(1, true);
    joined(0, true);
    started(0);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
    lose(1, SIGKILL);
    ck_assert(supervisor_get_rank(s, 0)->called);
}
END_TEST

START_TEST(a_replacement_that_cannot_be_executed_ends_the_job)
{
    begin_recoverable(2);
    lose(0, SIGKILL);
    step((struct supervisor_event){SUPERVISOR_EV_START_FAILED, .rank = 0, .status = ENOENT,
                                   .stage = SUPERVISOR_START_EXEC});
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STOPPING);
    exited(1, SIGTERM, true);
    ck_assert_int_eq(supervisor_exit_code(s), 127);
}
END_TEST

START_TEST(a_signal_ends_a_recovering_job)
{
    begin_recoverable(2);
    lose(0, SIGKILL);
    started(0);
    signalled(SIGTERM);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STOPPING);
    exited(0, SIGTERM, false);
    exited(1, SIGTERM, true);
    ck_assert_int_eq(supervisor_exit_code(s), 128 + SIGTERM);
}
END_TEST

TCase *supervisor_recovery_cases(void)
{
    TCase *t = tcase_create("recovery");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_failed_rank_alone_is_replaced_and_all_join_its_generation);
    tcase_add_test(t, failed_ranks_may_be_left_out_until_one_is_left);
    tcase_add_test(t, the_last_rank_cannot_be_left_out);
    tcase_add_test(t, parked_ranks_are_stopped_when_the_job_ends);
    tcase_add_test(t, a_rank_blamed_while_others_are_parked_dies_of_its_own_signal);
    tcase_add_test(t, a_rank_that_has_not_joined_yet_is_not_late_after_a_shrink);
    tcase_add_test(t, another_death_during_a_replacement_starts_a_new_rendezvous);
    tcase_add_test(t, survivors_that_do_not_join_in_time_restart_all_ranks);
    tcase_add_test(t, ranks_that_cannot_recover_are_all_restarted);
    tcase_add_test(t, a_rank_may_join_before_its_start_report);
    tcase_add_test(t, a_replacement_that_cannot_be_executed_ends_the_job);
    tcase_add_test(t, a_signal_ends_a_recovering_job);
    return t;
}
