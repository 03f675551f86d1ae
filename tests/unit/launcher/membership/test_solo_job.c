/* A job of one node: what its roster decides when ranks fail, are replaced, are left out, or are to
 * be started again. */
#include "launcher/membership/roster_agent.h"
#include "rendezvous/membership/restart_policy.h"
#include "tests/support/solo_job.h"
#include "tests/support/suite.h"

#include <check.h>
#include <signal.h>

#define EXIT_STATUS(code) ((code) << 8)

static struct solo_job j;
static struct supervisor_orders last; /* that start, replace or stop anything */
static bool ended;

static void carry_out(void *arg, const struct supervisor_orders *o)
{
    (void)arg;
    if (o->n_start > 0 || o->recover || o->signal != 0)
        last = *o;
    ended |= o->ended;
    if (o->drain)
        solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_DRAINED});
}

static enum supervisor_state state(void)
{
    return supervisor_get_state(j.supervisor);
}

static const struct roster_restart *restart(void)
{
    return roster_get_restart(j.roster);
}

static void begin_with(const struct supervisor_limits *limits, struct message_terms terms)
{
    j = (struct solo_job){.now_ms = 1000, .carry_out = carry_out};
    ended = false;
    ck_assert_int_eq(solo_job_begin(&j, limits, terms), 0);
    ck_assert_int_eq(state(), SUPERVISOR_STARTING);
}

static void start_all(int n_ranks)
{
    for (int i = 0; i < n_ranks; i++)
        solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_STARTED, .rank = i, .pid = 9});
    ck_assert_int_eq(state(), SUPERVISOR_RUNNING);
}

static void begin(int n_ranks, uint32_t max_restarts)
{
    begin_with(&(struct supervisor_limits){.n_ranks = n_ranks,
                                           .window = n_ranks,
                                           .grace_ms = 30000,
                                           .failure_grace_ms = 5000,
                                           .output_after_ms = 60000},
               (struct message_terms){.max_restarts = max_restarts});
    start_all(n_ranks);
}

static void joined(int rank)
{
    solo_job_feed(&j,
                  (struct supervisor_event){SUPERVISOR_EV_JOINED, .rank = rank, .recovers = true});
}

static void begin_recoverable(int n_ranks, uint32_t max_restarts, bool drops)
{
    begin_with(&(struct supervisor_limits){.n_ranks = n_ranks,
                                           .window = n_ranks,
                                           .grace_ms = 30000,
                                           .failure_grace_ms = 5000,
                                           .recovers = true,
                                           .drops = drops,
                                           .recovery_ms = 60000},
               (struct message_terms){.max_restarts = max_restarts});
    start_all(n_ranks);
    for (int i = 0; i < n_ranks; i++)
        joined(i);
}

static void exited(int rank, int status, bool empty)
{
    solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = rank,
                                                .status = status, .empty = empty});
}

static void signalled(int sig)
{
    solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_SIGNAL, .sig = sig});
}

static void expect_end(int exit_code)
{
    ck_assert(ended);
    ck_assert_int_eq(supervisor_exit_code(j.supervisor), exit_code);
    ck_assert_ptr_null(restart());
}

static void tear_down(void)
{
    solo_job_fini(&j);
    j = (struct solo_job){0};
}

START_TEST(ranks_that_all_succeed_end_the_job)
{
    begin(2, 3);
    exited(0, 0, false);
    exited(1, 0, true);
    expect_end(0);
}
END_TEST

START_TEST(failures_cause_restarts_within_the_budget)
{
    begin(1, 2);
    exited(0, EXIT_STATUS(3), true); /* the first one at once */
    ck_assert_uint_eq(supervisor_generation(j.supervisor), 1);
    ck_assert_uint_eq(restart()->n_counted, 1);
    ck_assert_uint_eq(restart()->wait_ms, 0);
    start_all(1);
    exited(0, EXIT_STATUS(3), true); /* the next one after a pause */
    ck_assert_int_eq(state(), SUPERVISOR_WAITING);
    ck_assert_uint_eq(restart()->n_counted, 2);
    ck_assert_uint_eq(restart()->wait_ms, RESTART_FIRST_WAIT_MS);
    ck_assert(!restart()->is_free);
    ck_assert_uint_eq(solo_job_pause_ms(&j), j.now_ms + RESTART_FIRST_WAIT_MS);
    j.now_ms += RESTART_FIRST_WAIT_MS;
    solo_job_end_pause(&j, false);
    ck_assert_uint_eq(supervisor_generation(j.supervisor), 2);
    start_all(1);
    exited(0, EXIT_STATUS(3), true);
    expect_end(3);
}
END_TEST

START_TEST(a_failure_after_progress_is_free)
{
    begin(1, 1);
    for (int i = 0; i < 3; i++) {
        solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_EXITED, .status = EXIT_STATUS(1),
                                                    .empty = true, .progress.n_steps = 1});
        ck_assert(restart()->is_free);
        ck_assert_uint_eq(restart()->n_counted, 0);
        j.now_ms += restart()->wait_ms;
        solo_job_end_pause(&j, false);
        start_all(1);
    }
    exited(0, EXIT_STATUS(1), true);
    ck_assert(!restart()->is_free);
    j.now_ms += restart()->wait_ms;
    solo_job_end_pause(&j, false);
    start_all(1);
    exited(0, EXIT_STATUS(1), true);
    expect_end(1);
}
END_TEST

/* What was heard first may be a consequence: the code of the cause decides. */
START_TEST(the_root_cause_decides_about_a_restart)
{
    for (int is_final = 0; is_final < 2; is_final++) {
        struct message_terms terms = {.max_restarts = 9};
        const int final_code = is_final ? 3 : 1;
        terms.no_restart_on[final_code / 8] = (uint8_t)(1 << final_code % 8);
        begin_with(&(struct supervisor_limits){.n_ranks = 2, .window = 2}, terms);
        start_all(2);
        solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 0,
                                                    .status = EXIT_STATUS(1), .lost_peer = true});
        solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 1,
                                                    .status = EXIT_STATUS(3), .was_ending = true,
                                                    .empty = true});
        if (is_final)
            expect_end(3);
        else
            ck_assert_uint_eq(supervisor_generation(j.supervisor), 1);
        tear_down();
    }
}
END_TEST

START_TEST(a_signal_ends_a_pause_and_the_job)
{
    begin(1, 9);
    exited(0, EXIT_STATUS(3), true);
    start_all(1);
    exited(0, EXIT_STATUS(3), true);
    ck_assert_int_eq(state(), SUPERVISOR_WAITING);
    signalled(SIGTERM);
    expect_end(128 + SIGTERM);
    ck_assert_int_eq(supervisor_die_of(j.supervisor), SIGTERM);
}
END_TEST

START_TEST(a_stop_prevents_a_restart_and_no_more)
{
    for (uint32_t budget = 0; budget < 2; budget++) {
        begin(2, budget);
        exited(0, EXIT_STATUS(3), false);
        signalled(SIGINT);
        exited(1, SIGTERM, true);
        expect_end(budget > 0 ? 128 + SIGINT : 3);
        tear_down();
        begin(2, budget);
        exited(0, EXIT_STATUS(3), false);
        solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_TIMEOUT});
        exited(1, SIGTERM, true);
        expect_end(budget > 0 ? SUPERVISOR_EXIT_TIMEOUT : 3);
        tear_down();
    }
}
END_TEST

START_TEST(without_the_spawner_no_restart_follows)
{
    begin(1, 9);
    exited(0, EXIT_STATUS(3), true);
    start_all(1);
    exited(0, EXIT_STATUS(3), true);
    solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_SPAWNER_LOST}); /* in a pause */
    expect_end(70);
    tear_down();

    begin(2, 9);
    exited(0, EXIT_STATUS(3), false);
    solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_SPAWNER_LOST});
    solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_SWEPT});
    expect_end(3);
}
END_TEST

/* --- ddpctl restart --- */

START_TEST(a_requested_restart_does_not_use_the_budget)
{
    begin(2, 0);
    solo_job_restart(&j);
    ck_assert_int_eq(state(), SUPERVISOR_STOPPING);
    ck_assert_int_eq(last.signal, SIGTERM);
    ck_assert_uint_eq(supervisor_deadline_ms(j.supervisor), j.now_ms + 30000);
    exited(0, SIGTERM, false);
    exited(1, SIGTERM, true);
    ck_assert_int_eq(state(), SUPERVISOR_STARTING);
    ck_assert_uint_eq(supervisor_generation(j.supervisor), 1);
    ck_assert_int_eq(last.n_start, 2);
    ck_assert_int_eq(restart()->why, MESSAGE_WHY_RESTART);
    ck_assert(restart()->is_free);
}
END_TEST

START_TEST(a_failure_does_not_prevent_a_requested_restart)
{
    begin(2, 0);
    solo_job_restart(&j);
    solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 0,
                                                .status = EXIT_STATUS(3), .was_ending = true});
    exited(1, SIGTERM, true);
    ck_assert_uint_eq(supervisor_generation(j.supervisor), 1);
    ck_assert_int_eq(restart()->why, MESSAGE_WHY_RESTART);
}
END_TEST

START_TEST(a_signal_counts_more_than_a_requested_restart)
{
    begin(1, 0);
    solo_job_restart(&j);
    signalled(SIGINT);
    exited(0, SIGINT, true);
    expect_end(128 + SIGINT);
}
END_TEST

START_TEST(a_request_ends_the_wait_before_a_restart)
{
    begin(1, 9);
    exited(0, EXIT_STATUS(1), true);
    start_all(1);
    exited(0, EXIT_STATUS(1), true);
    ck_assert_int_eq(state(), SUPERVISOR_WAITING);
    solo_job_end_pause(&j, true);
    ck_assert_int_eq(state(), SUPERVISOR_STARTING);
}
END_TEST

/* --- ranks that live on --- */

START_TEST(each_replacement_uses_the_budget_once)
{
    begin_recoverable(2, 2, false);
    for (uint32_t i = 1; i <= 2; i++) {
        exited(0, EXIT_STATUS(3), false);
        ck_assert_int_eq(state(), SUPERVISOR_RECOVERING);
        ck_assert_int_eq(last.n_restart, 1);
        ck_assert_int_eq(last.restart[0], 0);
        ck_assert_uint_eq(restart()->n_counted, i);
        ck_assert_int_eq(supervisor_get_replacement(j.supervisor)->rank, 0);
        solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_STARTED, .rank = 0});
        joined(1);
        joined(0);
    }
    exited(0, EXIT_STATUS(3), false);
    ck_assert_int_eq(state(), SUPERVISOR_STOPPING);
    ck_assert_int_eq(last.signal, SIGTERM);
    exited(1, SIGTERM, true);
    expect_end(3);
}
END_TEST

START_TEST(ranks_are_left_out_while_the_budget_lasts)
{
    begin_recoverable(3, 1, true);
    exited(0, SIGKILL, false);
    ck_assert_int_eq(last.n_dropped, 1);
    ck_assert_int_eq(last.dropped[0], 0);
    ck_assert_uint_eq(member_get_place(j.member)->place.world_size, 2);
    joined(1);
    joined(2);
    ck_assert_int_eq(state(), SUPERVISOR_RUNNING);
    exited(1, SIGKILL, false);
    ck_assert_int_eq(state(), SUPERVISOR_STOPPING);
    exited(2, SIGTERM, true);
    expect_end(137);
}
END_TEST

START_TEST(a_failure_of_the_last_rank_restarts_all)
{
    begin_recoverable(2, 5, true);
    exited(0, SIGKILL, false);
    joined(1);
    exited(1, SIGKILL, true);
    ck_assert_int_eq(state(), SUPERVISOR_STARTING);
    ck_assert_int_eq(last.n_start, 2);
    ck_assert_uint_eq(member_get_place(j.member)->place.world_size, 2);
}
END_TEST

START_TEST(survivors_that_do_not_join_in_time_restart_all_ranks)
{
    begin_recoverable(3, 5, false);
    exited(0, SIGKILL, false);
    solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_STARTED, .rank = 0});
    joined(2);
    j.now_ms += 60000;
    solo_job_feed(&j, (struct supervisor_event){SUPERVISOR_EV_TIME});
    exited(1, 0, false); /* its status no longer counts */
    exited(0, SIGTERM, false);
    exited(2, SIGTERM, true);
    ck_assert_int_eq(state(), SUPERVISOR_STARTING);
    ck_assert_uint_eq(restart()->n_counted, 2);
}
END_TEST

TEST_SUITE(solo_job)
{
    Suite *suite = suite_create("solo_job");
    TCase *t = tcase_create("solo_job");
    tcase_add_checked_fixture(t, NULL, tear_down);
    tcase_add_test(t, ranks_that_all_succeed_end_the_job);
    tcase_add_test(t, failures_cause_restarts_within_the_budget);
    tcase_add_test(t, a_failure_after_progress_is_free);
    tcase_add_test(t, the_root_cause_decides_about_a_restart);
    tcase_add_test(t, a_signal_ends_a_pause_and_the_job);
    tcase_add_test(t, a_stop_prevents_a_restart_and_no_more);
    tcase_add_test(t, without_the_spawner_no_restart_follows);
    tcase_add_test(t, a_requested_restart_does_not_use_the_budget);
    tcase_add_test(t, a_failure_does_not_prevent_a_requested_restart);
    tcase_add_test(t, a_signal_counts_more_than_a_requested_restart);
    tcase_add_test(t, a_request_ends_the_wait_before_a_restart);
    tcase_add_test(t, each_replacement_uses_the_budget_once);
    tcase_add_test(t, ranks_are_left_out_while_the_budget_lasts);
    tcase_add_test(t, a_failure_of_the_last_rank_restarts_all);
    tcase_add_test(t, survivors_that_do_not_join_in_time_restart_all_ranks);
    suite_add_tcase(suite, t);
    return suite;
}
