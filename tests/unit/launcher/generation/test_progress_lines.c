/* The lines by which programs report their steps: good ones, bad ones, and what follows of them. */
#include "launcher/generation/progress_lines.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static struct progress_lines p;
static uint64_t now_ns;

static void set_up(void)
{
    p = (struct progress_lines){0};
    now_ns = 1000;
}

static void feed(const char *text)
{
    progress_lines_feed(&p, text, strlen(text), now_ns);
}

START_TEST(lines_count_steps_and_their_time)
{
    const struct progress *g = &p.progress;
    feed("step 31\n");
    ck_assert(g->only_steps);
    ck_assert_uint_eq(g->steps_before, 30); /* before this generation */
    ck_assert_uint_eq(g->steps, 1);
    ck_assert_uint_eq(g->first_ns, 1000);
    ck_assert_uint_eq(g->mean_ns, 0); /* since when, is not known */
    now_ns += 800;
    feed("step 32\n");
    ck_assert_uint_eq(g->last_ns, 800);
    ck_assert_uint_eq(g->mean_ns, 800);
    now_ns += 1600;
    feed("step 33 wait_ms 0.0004\n");
    ck_assert_uint_eq(g->steps, 3);
    ck_assert_uint_eq(g->last_ns, 1600);
    ck_assert_uint_eq(g->mean_ns, 900);
    ck_assert_uint_eq(g->inside_ns, 400);
    now_ns += 4000;
    feed("step 34 wait_ms 0\nstep 35 wait_ms 1\nstep 37\n"); /* together: they share the time */
    ck_assert_uint_eq(g->steps, 7);
    ck_assert_uint_eq(g->last_ns, 1000);
    ck_assert_uint_eq(g->step_ns, 7400);
    ck_assert_uint_eq(g->first_ns, 1000);
    ck_assert_uint_eq(p.n_lines, 6);
    ck_assert_uint_eq(p.n_bad, 0);
}
END_TEST

START_TEST(the_first_lines_may_come_together)
{
    feed("step 1\nstep 2\nstep 3\n");
    ck_assert_uint_eq(p.progress.steps_before, 0);
    ck_assert_uint_eq(p.progress.steps, 3);
    ck_assert_uint_eq(p.progress.step_ns, 1000);
}
END_TEST

START_TEST(zero_steps_are_a_sign_of_life)
{
    feed("step 0\n");
    ck_assert(p.progress.only_steps);
    ck_assert_uint_eq(p.progress.steps, 0);
    ck_assert_uint_eq(p.progress.step_ns, 0);
    now_ns = 5000;
    feed("step 1\n");
    ck_assert_uint_eq(p.progress.steps, 1);
    ck_assert_uint_eq(p.progress.first_ns, 5000);
}
END_TEST

START_TEST(a_number_that_is_not_larger_counts_no_step)
{
    feed("step 10\n");
    now_ns = 2000;
    feed("step 3\nstep 10\n");
    ck_assert_uint_eq(p.n_lines, 3); /* the rank lives */
    ck_assert_uint_eq(p.progress.steps_before + p.progress.steps, 10);
    ck_assert_uint_eq(p.progress.step_ns, 1000);
    feed("step 11\n");
    ck_assert_uint_eq(p.progress.steps_before + p.progress.steps, 11);
}
END_TEST

START_TEST(a_line_may_arrive_in_pieces)
{
    for (const char *c = "step 7\r\nstep 8 wait_ms 2.50\n"; *c != '\0'; c++)
        progress_lines_feed(&p, c, 1, now_ns);
    ck_assert_uint_eq(p.n_lines, 2);
    ck_assert_uint_eq(p.progress.steps_before + p.progress.steps, 8);
    feed("step 9");
    ck_assert_uint_eq(p.n_lines, 2);
}
END_TEST

START_TEST(other_lines_are_counted_as_bad)
{
    static const char *const bad[] = {
        "",
        "37",
        "step",
        "step ",
        "step  1",
        " step 1",
        "Step 1",
        "step -1",
        "step +1",
        "step 1.5",
        "step 0x10",
        "step 1 ",
        "step 1 wait_ms",
        "step 1 wait_ms ",
        "step 1 wait_ms -1",
        "step 1 wait_ms .5",
        "step 1 wait_ms 1e3",
        "step 1 wait_ms nan",
        "step 1 wait_ms 1 2",
        "step 1 wait_ms 1000000000001",
        "step 1 wait_s 1",
        "step 4611686018427387904", /* RANK_STATUS_MOST + 1 */
        "step 99999999999999999999999999",
        "step 000000000000000000000000000000000000000000000000000000000000001",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        feed(bad[i]);
        feed("\n");
        ck_assert_msg(p.n_bad == i + 1 && p.n_lines == 0, "%s", bad[i]);
    }
    progress_lines_feed(&p, "step 1\0\n", 8, now_ns);
    ck_assert_uint_eq(p.n_lines, 0);
    feed("step 4611686018427387903\n");
    ck_assert_uint_eq(p.n_lines, 1);
    ck_assert_uint_eq(p.progress.steps_before + p.progress.steps, RANK_STATUS_MOST);
}
END_TEST

START_TEST(a_process_names_the_signal_for_its_stack)
{
    static const char *const bad[] = {"stack_signal",    "stack_signal ",   "stack_signal 0",
                                      "stack_signal 65", "stack_signal 9",  "stack_signal 19",
                                      "stack_signal -1", "stack_signal 1 ", "stack_signal TERM"};
    feed("stack_signal 64\n");
    ck_assert_int_eq(p.stack_signal, 64);
    ck_assert(!p.progress.only_steps); /* not a step */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        feed(bad[i]);
        feed("\n");
        ck_assert_msg(p.n_bad == i + 1, "%s", bad[i]);
    }
    ck_assert_int_eq(p.stack_signal, 64);
}
END_TEST

START_TEST(a_long_line_is_bounded)
{
    char line[1000];
    memset(line, '1', sizeof line);
    for (int i = 0; i < 100; i++)
        progress_lines_feed(&p, line, sizeof line, now_ns);
    feed("\nstep 5\n");
    ck_assert_uint_eq(p.n_bad, 1);
    ck_assert_uint_eq(p.n_lines, 1);
}
END_TEST

START_TEST(another_generation_begins_after_the_steps_before_its_first_line)
{
    feed("step 1\nstep 2\n");
    progress_lines_renew(&p);
    ck_assert(!p.progress.only_steps);
    feed("step 3\n");
    ck_assert_uint_eq(p.progress.steps_before, 2);
    ck_assert_uint_eq(p.progress.steps, 1);
}
END_TEST

TEST_SUITE(progress_lines)
{
    Suite *suite = suite_create("progress_lines");
    TCase *tc = tcase_create("progress_lines");
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_test(tc, lines_count_steps_and_their_time);
    tcase_add_test(tc, the_first_lines_may_come_together);
    tcase_add_test(tc, zero_steps_are_a_sign_of_life);
    tcase_add_test(tc, a_number_that_is_not_larger_counts_no_step);
    tcase_add_test(tc, a_line_may_arrive_in_pieces);
    tcase_add_test(tc, other_lines_are_counted_as_bad);
    tcase_add_test(tc, a_process_names_the_signal_for_its_stack);
    tcase_add_test(tc, a_long_line_is_bounded);
    tcase_add_test(tc, another_generation_begins_after_the_steps_before_its_first_line);
    suite_add_tcase(suite, tc);
    return suite;
}
