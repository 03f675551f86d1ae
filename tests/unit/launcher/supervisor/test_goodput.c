/* Seconds by cause, in virtual time: each case is a job, written as what happens and when. */
#include "launcher/supervisor/goodput.h"
#include "tests/support/chance.h"
#include "tests/support/machine_checks.h"
#include "tests/support/suite.h"

#include <check.h>
#include <inttypes.h>
#include <stdlib.h>

enum { BEGUN_MS = 100000 };

static struct goodput g;
static struct goodput_sums sums;

static void set_up(void)
{
    goodput_begin(&g, BEGUN_MS);
}

/* At a time in milliseconds since the begin. */
static void at(uint64_t ms, enum goodput_event_type type)
{
    goodput_step(&g, &(struct goodput_event){.type = type, .now_ms = BEGUN_MS + ms});
}

static void step_at(uint64_t now_ms, uint64_t completed_ms)
{
    goodput_step(&g, &(struct goodput_event){.type = GOODPUT_EV_STEP,
                                             .now_ms = BEGUN_MS + now_ms,
                                             .at_ms = BEGUN_MS + completed_ms});
}

static void hang_at(uint64_t now_ms, uint64_t since_ms)
{
    goodput_step(&g, &(struct goodput_event){.type = GOODPUT_EV_HANG,
                                             .now_ms = BEGUN_MS + now_ms,
                                             .at_ms = BEGUN_MS + since_ms});
}

/* returns   whether the causes add up to the time since the begin */
static bool adds_up_at(uint64_t ms)
{
    uint64_t sum_ms = 0;
    goodput_read(&g, BEGUN_MS + ms, &sums);
    for (int i = 0; i < GOODPUT_N_STATES; i++)
        sum_ms += sums.sum_ms[i];
    return sums.total_ms == ms && sum_ms == ms;
}

static void read_at(uint64_t ms)
{
    ck_assert(adds_up_at(ms));
}

#define ASSERT_SUM(cause, ms) ck_assert_uint_eq(sums.sum_ms[GOODPUT_##cause], ms)

START_TEST(a_job_with_steps_is_productive_from_its_first_step_to_the_end_of_its_ranks)
{
    at(10, GOODPUT_EV_START);
    at(20, GOODPUT_EV_RUN);
    step_at(900, 500);
    step_at(900, 800);
    at(1000, GOODPUT_EV_DONE);
    at(1010, GOODPUT_EV_END);
    read_at(1100);
    ASSERT_SUM(START, 500);
    ASSERT_SUM(PRODUCTIVE, 500);
    ASSERT_SUM(SHUTDOWN, 100);
    ck_assert(sums.is_counted);
    ck_assert_double_eq_tol(goodput_ratio(&sums), 500.0 / 1100, 1e-9);
}
END_TEST

START_TEST(without_steps_a_job_is_productive_while_all_ranks_run)
{
    at(10, GOODPUT_EV_START);
    at(20, GOODPUT_EV_RUN);
    read_at(500);
    ASSERT_SUM(START, 20);
    ASSERT_SUM(PRODUCTIVE, 480);
    ck_assert_int_eq(sums.now, GOODPUT_PRODUCTIVE);
    at(1000, GOODPUT_EV_BREAK);
    at(1100, GOODPUT_EV_START);
    at(1200, GOODPUT_EV_RUN);
    at(1500, GOODPUT_EV_DONE);
    read_at(1600);
    ASSERT_SUM(START, 20);
    ASSERT_SUM(PRODUCTIVE, 980 + 300);
    ASSERT_SUM(RESTART, 200);
    ASSERT_SUM(SHUTDOWN, 100);
    ck_assert(!sums.is_counted);
}
END_TEST

START_TEST(the_work_after_the_last_step_before_a_failure_is_lost)
{
    at(0, GOODPUT_EV_START);
    at(10, GOODPUT_EV_RUN);
    step_at(1000, 100);
    step_at(1000, 900);
    at(1000, GOODPUT_EV_BREAK);
    at(1200, GOODPUT_EV_START);
    at(1210, GOODPUT_EV_RUN);
    read_at(1300);
    ASSERT_SUM(RESTART, 400);
    step_at(2000, 1500);
    step_at(2000, 1900);
    read_at(2000);
    ASSERT_SUM(START, 100);
    ASSERT_SUM(PRODUCTIVE, 800 + 500);
    ASSERT_SUM(RESTART, 600);
    ASSERT_SUM(RECOVERY, 0);
}
END_TEST

START_TEST(what_turns_out_to_be_a_recovery_is_booked_as_one_from_the_last_step_on)
{
    at(0, GOODPUT_EV_START);
    at(10, GOODPUT_EV_RUN);
    step_at(1000, 100);
    step_at(1000, 900);
    at(1000, GOODPUT_EV_BREAK); /* a node is lost: it is not known yet what follows */
    at(1300, GOODPUT_EV_RECOVER);
    at(1400, GOODPUT_EV_RUN);
    step_at(1600, 1500);
    read_at(1600);
    ASSERT_SUM(RECOVERY, 600);
    ASSERT_SUM(RESTART, 0);
    ASSERT_SUM(PRODUCTIVE, 800 + 100);
}
END_TEST

START_TEST(a_recovery_that_fails_is_a_restart)
{
    at(0, GOODPUT_EV_START);
    step_at(200, 100);
    at(200, GOODPUT_EV_RECOVER);
    at(300, GOODPUT_EV_BREAK);
    at(400, GOODPUT_EV_START);
    step_at(700, 600);
    read_at(700);
    ASSERT_SUM(RESTART, 500);
    ASSERT_SUM(RECOVERY, 0);
    ASSERT_SUM(PRODUCTIVE, 100);
}
END_TEST

START_TEST(a_failure_that_ends_the_job_is_part_of_its_shutdown)
{
    at(0, GOODPUT_EV_START);
    step_at(200, 100);
    step_at(200, 150);
    at(200, GOODPUT_EV_BREAK);
    at(300, GOODPUT_EV_END);
    read_at(400);
    ASSERT_SUM(PRODUCTIVE, 50);
    ASSERT_SUM(RESTART, 0);
    ASSERT_SUM(SHUTDOWN, 250);
}
END_TEST

START_TEST(generations_without_a_step_are_not_productive_where_steps_are_counted)
{
    at(0, GOODPUT_EV_START);
    step_at(200, 100);
    step_at(200, 200);
    for (uint64_t ms = 200; ms < 1000; ms += 200) {
        at(ms, GOODPUT_EV_BREAK);
        at(ms + 50, GOODPUT_EV_START);
        at(ms + 60, GOODPUT_EV_RUN);
    }
    read_at(1000);
    ASSERT_SUM(PRODUCTIVE, 100);
    ASSERT_SUM(RESTART, 800);
    at(1000, GOODPUT_EV_BREAK);
    at(1000, GOODPUT_EV_END);
    read_at(1000);
    ASSERT_SUM(SHUTDOWN, 800);
}
END_TEST

START_TEST(a_hang_lasts_from_the_last_movement_until_the_rank_is_ended)
{
    at(0, GOODPUT_EV_START);
    at(10, GOODPUT_EV_RUN);
    step_at(5000, 100);
    step_at(5000, 1000);
    hang_at(5000, 1200);
    at(6000, GOODPUT_EV_BREAK);
    at(6500, GOODPUT_EV_START);
    step_at(8000, 7000);
    read_at(8000);
    ASSERT_SUM(HANG, 4800);
    ASSERT_SUM(RESTART, 1000);
    ASSERT_SUM(PRODUCTIVE, 1100 + 1000);
}
END_TEST

START_TEST(a_hang_of_a_job_without_steps_begins_when_it_fell_silent)
{
    at(0, GOODPUT_EV_START);
    at(10, GOODPUT_EV_RUN);
    hang_at(5000, 2000);
    at(5100, GOODPUT_EV_BREAK);
    at(5100, GOODPUT_EV_END);
    read_at(5200);
    ASSERT_SUM(START, 10);
    ASSERT_SUM(PRODUCTIVE, 1990);
    ASSERT_SUM(HANG, 3100);
    ASSERT_SUM(SHUTDOWN, 100);
}
END_TEST

START_TEST(a_rank_that_moves_after_all_ends_the_hang)
{
    at(0, GOODPUT_EV_START);
    step_at(200, 100);
    hang_at(1000, 200);
    step_at(1500, 1200);
    read_at(2000);
    ASSERT_SUM(HANG, 1000);
    ASSERT_SUM(PRODUCTIVE, 100 + 800);
}
END_TEST

START_TEST(steps_are_productive_while_the_ranks_save)
{
    at(0, GOODPUT_EV_START);
    step_at(200, 100);
    at(300, GOODPUT_EV_SAVE);
    step_at(500, 400);
    at(600, GOODPUT_EV_BREAK);
    at(700, GOODPUT_EV_START);
    step_at(900, 800);
    read_at(900);
    ASSERT_SUM(CHECKPOINT, 200);
    ASSERT_SUM(RESTART, 200);
    ASSERT_SUM(PRODUCTIVE, 200 + 100 + 100);
}
END_TEST

START_TEST(waits_of_several_nodes_have_causes_of_their_own)
{
    at(0, GOODPUT_EV_GATHER);
    at(50, GOODPUT_EV_FEW_NODES);
    at(1000, GOODPUT_EV_GATHER);
    at(1100, GOODPUT_EV_START);
    step_at(1500, 1400);
    step_at(2000, 2000);
    at(2000, GOODPUT_EV_RECOVER); /* the ranks live on, and nodes are missing */
    at(2100, GOODPUT_EV_FEW_NODES);
    at(9000, GOODPUT_EV_RECOVER);
    step_at(9300, 9200);
    read_at(9300);
    ASSERT_SUM(RENDEZVOUS, 150);
    ASSERT_SUM(NODES, 950 + 6900);
    ASSERT_SUM(START, 300);
    ASSERT_SUM(RECOVERY, 100 + 200);
    ASSERT_SUM(PRODUCTIVE, 600 + 100);
}
END_TEST

START_TEST(nodes_that_are_missing_after_a_failure_are_waited_for)
{
    at(0, GOODPUT_EV_GATHER);
    at(10, GOODPUT_EV_START);
    step_at(100, 100);
    at(200, GOODPUT_EV_BREAK);
    at(300, GOODPUT_EV_GATHER); /* a part of the restart */
    at(400, GOODPUT_EV_FEW_NODES);
    at(1000, GOODPUT_EV_START);
    step_at(1200, 1100);
    read_at(1200);
    ASSERT_SUM(RENDEZVOUS, 10);
    ASSERT_SUM(RESTART, 300 + 100); /* since the last step */
    ASSERT_SUM(NODES, 600);
    ASSERT_SUM(PRODUCTIVE, 100);
}
END_TEST

START_TEST(steps_of_the_generation_before_do_not_count_twice)
{
    at(0, GOODPUT_EV_START);
    step_at(200, 100);
    step_at(200, 150);
    at(200, GOODPUT_EV_BREAK);
    step_at(210, 150); /* read again */
    step_at(220, 199); /* of a rank that is being stopped */
    ck_assert_int_eq(g.state, GOODPUT_RESTART);
    at(300, GOODPUT_EV_START);
    step_at(310, 250);
    ck_assert_int_eq(g.state, GOODPUT_RESTART);
    step_at(400, 350);
    ck_assert_int_eq(g.state, GOODPUT_PRODUCTIVE);
    read_at(400);
    ASSERT_SUM(RESTART, 200);
}
END_TEST

START_TEST(a_stop_by_the_user_keeps_what_was_done)
{
    at(0, GOODPUT_EV_START);
    step_at(200, 100);
    at(450, GOODPUT_EV_END);
    read_at(500);
    ASSERT_SUM(PRODUCTIVE, 350);
    ASSERT_SUM(SHUTDOWN, 50);
}
END_TEST

START_TEST(ranks_that_have_ended_start_again_if_those_of_another_node_failed)
{
    at(0, GOODPUT_EV_START);
    step_at(200, 100);
    at(300, GOODPUT_EV_DONE);
    at(400, GOODPUT_EV_START);
    step_at(600, 500);
    read_at(600);
    ASSERT_SUM(SHUTDOWN, 100);
    ASSERT_SUM(RESTART, 100);
    ASSERT_SUM(PRODUCTIVE, 200 + 100);
}
END_TEST

START_TEST(a_read_changes_nothing)
{
    at(0, GOODPUT_EV_START);
    at(10, GOODPUT_EV_RUN);
    const struct goodput before = g;
    read_at(1000);
    ck_assert_mem_eq(&g, &before, sizeof g);
}
END_TEST

/* Whatever happens, in whatever order. */
START_TEST(random_jobs_add_up)
{
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        struct chance c = chance_from(seed);
        uint64_t ms = 0;
        set_up();
        for (int i = 0; i < 60; i++) {
            ms += chance_draw(&c, 50);
            const uint64_t back = chance_draw(&c, 120);
            goodput_step(&g, &(struct goodput_event){
                                 .type = (enum goodput_event_type)chance_draw(&c, GOODPUT_N_EVENTS),
                                 .now_ms = BEGUN_MS + ms,
                                 .at_ms = BEGUN_MS + (back < ms ? ms - back : 0)});
            if (!adds_up_at(ms) || g.booked_ms > BEGUN_MS + ms)
                ck_abort_msg("seed %" PRIu64 ", event %d", seed, i);
        }
    }
}
END_TEST

START_TEST(the_table_is_whole)
{
    assert_whole(&goodput_machine);
}
END_TEST

START_TEST(the_drawing_is_the_table)
{
    assert_drawn(&goodput_machine, "goodput");
}
END_TEST

START_TEST(each_cause_has_a_name)
{
    for (int i = 0; i < GOODPUT_N_STATES; i++)
        ck_assert_ptr_nonnull(goodput_name((enum goodput_state)i));
}
END_TEST

TEST_SUITE(goodput)
{
    Suite *suite = suite_create("goodput");
    TCase *tc = tcase_create("goodput");
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_test(tc, a_job_with_steps_is_productive_from_its_first_step_to_the_end_of_its_ranks);
    tcase_add_test(tc, without_steps_a_job_is_productive_while_all_ranks_run);
    tcase_add_test(tc, the_work_after_the_last_step_before_a_failure_is_lost);
    tcase_add_test(tc, what_turns_out_to_be_a_recovery_is_booked_as_one_from_the_last_step_on);
    tcase_add_test(tc, a_recovery_that_fails_is_a_restart);
    tcase_add_test(tc, a_failure_that_ends_the_job_is_part_of_its_shutdown);
    tcase_add_test(tc, generations_without_a_step_are_not_productive_where_steps_are_counted);
    tcase_add_test(tc, a_hang_lasts_from_the_last_movement_until_the_rank_is_ended);
    tcase_add_test(tc, a_hang_of_a_job_without_steps_begins_when_it_fell_silent);
    tcase_add_test(tc, a_rank_that_moves_after_all_ends_the_hang);
    tcase_add_test(tc, steps_are_productive_while_the_ranks_save);
    tcase_add_test(tc, waits_of_several_nodes_have_causes_of_their_own);
    tcase_add_test(tc, nodes_that_are_missing_after_a_failure_are_waited_for);
    tcase_add_test(tc, steps_of_the_generation_before_do_not_count_twice);
    tcase_add_test(tc, a_stop_by_the_user_keeps_what_was_done);
    tcase_add_test(tc, ranks_that_have_ended_start_again_if_those_of_another_node_failed);
    tcase_add_test(tc, a_read_changes_nothing);
    tcase_add_test(tc, random_jobs_add_up);
    tcase_add_test(tc, the_table_is_whole);
    tcase_add_test(tc, the_drawing_is_the_table);
    tcase_add_test(tc, each_cause_has_a_name);
    suite_add_tcase(suite, tc);
    return suite;
}
