/* Detection of hanging ranks, in virtual time: no process, no clock. */
#include "launcher/supervisor/hang.h"
#include "segments/call_kind.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { N = 4, T = 1000, STEP = 100 };

static struct hang *h;
static struct hang_look look[N];
static int cpu_percent[N]; /* that each rank uses */
static uint64_t now_ms;
static struct hang_finding found;

static void set_up(void)
{
    memset(look, 0, sizeof look);
    memset(cpu_percent, 0, sizeof cpu_percent);
    now_ms = 50000;
    h = hang_create(N, T, false);
    hang_renew(h, false, now_ms);
    for (int i = 0; i < N; i++)
        look[i] = (struct hang_look){.runs = true, .cpu_ms = 70000 * (uint64_t)(i + 1)};
}

static void tear_down(void)
{
    hang_destroy(h);
}

static struct rank_status_call call(uint32_t number, uint16_t group, enum rank_status_state state)
{
    return (struct rank_status_call){
        .number = number, .group = group, .kind = CALL_ALL_REDUCE, .bytes = 64, .state = state};
}

/* The rank's last call, in the first of its groups; that is progress. */
static void set_call(int rank, struct rank_status_call c)
{
    look[rank].has_page = true;
    look[rank].digest++;
    look[rank].progress.n_calls = 1;
    look[rank].progress.call[0] = c;
    look[rank].progress.waits = c.state == RANK_STATUS_WAITS;
}

static void everybody(struct rank_status_call c)
{
    for (int i = 0; i < N; i++)
        set_call(i, c);
}

/* Lets time pass, and looks now and then. returns whether a rank hangs: see `found` */
static bool pass(uint64_t ms)
{
    for (const uint64_t end_ms = now_ms + ms; now_ms < end_ms;) {
        now_ms += STEP;
        for (int i = 0; i < N; i++)
            look[i].cpu_ms += (uint64_t)(STEP * cpu_percent[i] / 100);
        if (hang_note(h, look, now_ms) && hang_blame(h, look, now_ms, &found))
            return true;
    }
    return false;
}

START_TEST(a_rank_that_others_wait_for_is_missing_after_the_timeout)
{
    everybody(call(811, 0, RANK_STATUS_OUTSIDE));
    ck_assert(!pass(STEP));
    for (int i = 0; i < N; i++)
        if (i != 1)
            set_call(i, call(812, 0, RANK_STATUS_WAITS));
    ck_assert(!pass(STEP)); /* that they wait is seen now */
    ck_assert(!pass(T - STEP));
    ck_assert(pass(STEP));
    ck_assert_int_eq(found.kind, HANG_MISSING);
    ck_assert_int_eq(found.rank, 1);
    ck_assert(!found.is_guess && !found.is_stopped);
    ck_assert_int_eq(found.n_alike, 0);
    ck_assert_uint_eq(found.waiting_ms, T);
    ck_assert_int_eq(found.n_waiting, 3);
    ck_assert_int_eq(found.waiting[0], 0);
    ck_assert_int_eq(found.waiting[1], 2);
    ck_assert_uint_eq(found.call.number, 812);
    ck_assert(found.has_last);
    ck_assert_uint_eq(found.last.number, 811);
}
END_TEST

START_TEST(a_rank_that_moves_is_never_blamed)
{
    everybody(call(1, 0, RANK_STATUS_WAITS));
    for (int i = 0; i < 100; i++) {
        set_call(2, call((uint32_t)i, 5, RANK_STATUS_OUTSIDE)); /* in a group of its own */
        ck_assert(!pass(T / 2));
    }
}
END_TEST

START_TEST(a_slow_step_with_output_is_not_a_hang)
{
    everybody(call(1, 0, RANK_STATUS_OUTSIDE));
    for (int i = 0; i < 50; i++) {
        look[3].output_ms = now_ms;
        ck_assert(!pass(T / 2));
    }
    ck_assert(pass(T));
    ck_assert_int_eq(found.kind, HANG_SILENT);
}
END_TEST

START_TEST(output_does_not_excuse_a_rank_that_others_wait_for)
{
    everybody(call(1, 0, RANK_STATUS_WAITS));
    set_call(0, call(1, 0, RANK_STATUS_OUTSIDE));
    ck_assert(!pass(T));
    look[0].output_ms = now_ms;
    ck_assert(pass(STEP));
    ck_assert_int_eq(found.rank, 0);
}
END_TEST

START_TEST(the_lowest_missing_rank_is_named_and_the_others_are_counted)
{
    everybody(call(7, 0, RANK_STATUS_OUTSIDE));
    set_call(0, call(8, 0, RANK_STATUS_WAITS));
    ck_assert(pass(T + STEP));
    ck_assert_int_eq(found.rank, 1);
    ck_assert_int_eq(found.n_alike, 2);
    ck_assert_int_eq(found.n_waiting, 1);
}
END_TEST

START_TEST(a_stopped_rank_is_named_before_others)
{
    everybody(call(7, 0, RANK_STATUS_OUTSIDE));
    set_call(0, call(8, 0, RANK_STATUS_WAITS));
    look[3].is_stopped = true;
    ck_assert(pass(T + STEP));
    ck_assert_int_eq(found.rank, 3);
    ck_assert(found.is_stopped);
    ck_assert_int_eq(found.kind, HANG_MISSING);
}
END_TEST

START_TEST(a_rank_stopped_inside_of_the_call_is_named_though_it_waits)
{
    everybody(call(8, 0, RANK_STATUS_WAITS));
    look[2].is_stopped = true;
    ck_assert(pass(T + STEP));
    ck_assert_int_eq(found.kind, HANG_ALL_WAIT);
    ck_assert_int_eq(found.rank, 2);
    ck_assert(!found.is_guess);
    set_call(1, call(8, 0, RANK_STATUS_OUTSIDE)); /* had all it needed */
    ck_assert(pass(T + STEP));
    ck_assert_int_eq(found.kind, HANG_MISSING);
    ck_assert_int_eq(found.rank, 2);
}
END_TEST

START_TEST(if_all_wait_the_rank_in_another_call_is_named)
{
    everybody(call(8, 0, RANK_STATUS_WAITS));
    set_call(3, call(7, 0, RANK_STATUS_WAITS));
    ck_assert(pass(T + STEP));
    ck_assert_int_eq(found.kind, HANG_ALL_WAIT);
    ck_assert_int_eq(found.rank, 3);
    ck_assert_uint_eq(found.call.number, 8);
    ck_assert_uint_eq(found.last.number, 7);
    ck_assert(!found.is_guess);
}
END_TEST

START_TEST(if_all_wait_in_one_call_the_answer_is_marked_as_a_guess)
{
    everybody(call(8, 0, RANK_STATUS_WAITS));
    ck_assert(pass(T + STEP));
    ck_assert_int_eq(found.kind, HANG_ALL_WAIT);
    ck_assert_int_eq(found.rank, 0);
    ck_assert(found.is_guess);
}
END_TEST

START_TEST(a_member_of_the_group_that_waits_is_named_before_a_descendant)
{
    everybody(call(3, 0, RANK_STATUS_OUTSIDE));
    for (int i = 2; i < N; i++) { /* ranks 2 and 3 have a group */
        look[i].progress.n_calls = 2;
        look[i].progress.call[1] = call(4, 99, RANK_STATUS_OUTSIDE);
    }
    look[2].progress.call[1].number = 5;
    look[2].progress.call[1].state = RANK_STATUS_WAITS;
    look[2].progress.waits = true;
    ck_assert(pass(T + STEP));
    ck_assert_int_eq(found.rank, 3);
    ck_assert_uint_eq(found.call.group, 99);
    ck_assert_uint_eq(found.last.number, 4);
}
END_TEST

START_TEST(a_rank_that_has_not_joined_is_named)
{
    for (int i = 0; i < N; i++)
        look[i].has_page = i != 2;
    ck_assert(pass(T + STEP));
    ck_assert_int_eq(found.kind, HANG_NOT_JOINED);
    ck_assert_int_eq(found.rank, 2);
    ck_assert_int_eq(found.n_waiting, 3);
}
END_TEST

START_TEST(an_ended_rank_is_ignored)
{
    everybody(call(8, 0, RANK_STATUS_WAITS));
    look[1].runs = false;
    set_call(2, call(7, 0, RANK_STATUS_OUTSIDE));
    ck_assert(pass(T + STEP));
    ck_assert_int_eq(found.rank, 2);
    ck_assert_int_eq(found.n_waiting, 2);
    for (int i = 0; i < N; i++)
        look[i].runs = false;
    ck_assert(!pass(3 * T));
}
END_TEST

START_TEST(ranks_without_pages_hang_when_all_are_silent)
{
    for (int i = 0; i < 10; i++) {
        look[1].output_ms = now_ms; /* one that writes is enough: the others wait for it, perhaps */
        ck_assert(!pass(T / 2));
    }
    ck_assert(pass(T));
    ck_assert_int_eq(found.kind, HANG_SILENT);
    ck_assert(found.is_guess);
    ck_assert(!found.has_call && !found.has_last);
}
END_TEST

START_TEST(the_silent_rank_that_sleeps_elsewhere_is_named)
{
    for (int i = 0; i < N; i++)
        strcpy(look[i].place, i == 2 ? "hrtimer_nanosleep" : "do_epoll_wait");
    ck_assert(pass(T + STEP));
    ck_assert_int_eq(found.rank, 2);
    ck_assert(found.odd == HANG_SLEEPS && !found.is_guess);
    look[3].is_stopped = true;
    ck_assert(hang_blame(h, look, now_ms, &found));
    ck_assert(found.is_stopped && found.odd == HANG_NOT_ODD);
    ck_assert_int_eq(found.rank, 3);
}
END_TEST

/* What each rank does: it computes (R), its first thread is always ready and gets no CPU (r),
 * another thread of it computes (t), it sleeps somewhere (a, b, c), or nothing is known (-). */
static void set_act(int rank, char act)
{
    look[rank].runs = act != '.';
    look[rank].is_runnable = act == 'R' || act == 'r';
    cpu_percent[rank] = act == 'R' ? 100 : act == 't' ? 90 : act == 'r' ? 3 : 1;
    snprintf(look[rank].place, sizeof look[rank].place, "%.*s",
             (act >= 'a' && act <= 'c') || act == 't', &act);
}

START_TEST(the_silent_rank_that_differs_is_named)
{
    static const struct {
        char acts[N + 1];
        int rank;
        enum hang_odd odd;
        bool is_guess;
    } rows[] = {
        {"aRaa", 1, HANG_RUNS, false},   {"aata", 2, HANG_RUNS, false},
        {"aaar", 3, HANG_RUNS, false},   {"abRc", 2, HANG_RUNS, false},
        {"aaRb", 2, HANG_RUNS, false},   {"R---", 0, HANG_RUNS, false},
        {".a.R", 3, HANG_RUNS, true},    {".RaR", 2, HANG_SLEEPS, false},
        {"RRRa", 3, HANG_SLEEPS, false}, {"aaba", 2, HANG_SLEEPS, false},
        {"aabc", 2, HANG_SLEEPS, true},  {"abca", 1, HANG_SLEEPS, true},
        {"..ab", 2, HANG_NOT_ODD, true}, {"aaaa", 0, HANG_NOT_ODD, true},
        {"RRRR", 0, HANG_NOT_ODD, true}, {"aabb", 0, HANG_NOT_ODD, true},
        {"aRRa", 0, HANG_NOT_ODD, true}, {"----", 0, HANG_NOT_ODD, true},
        {"aa-a", 0, HANG_NOT_ODD, true}, {"...a", 3, HANG_NOT_ODD, false},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        hang_renew(h, false, now_ms);
        for (int i = 0; i < N; i++)
            set_act(i, rows[row].acts[i]);
        ck_assert(!pass(T - STEP));
        ck_assert(pass(STEP));
        ck_assert_msg(found.rank == rows[row].rank && found.odd == rows[row].odd &&
                          found.is_guess == rows[row].is_guess,
                      "'%s': rank %d, odd %d, guess %d", rows[row].acts, found.rank, found.odd,
                      found.is_guess);
    }
}
END_TEST

START_TEST(only_the_last_looks_decide_which_rank_runs)
{
    for (int i = 0; i < N; i++)
        set_act(i, 'R');
    for (int i = 0; i < 10; i++) { /* all compute, and one writes */
        look[0].output_ms = now_ms;
        ck_assert(!pass(T / 2));
    }
    for (int i = 0; i < N; i++)
        set_act(i, i == 3 ? 'R' : 'a');
    look[0].output_ms = now_ms;
    ck_assert(!pass(T - STEP));
    ck_assert(pass(STEP));
    ck_assert_int_eq(found.rank, 3);
    ck_assert_int_eq(found.odd, HANG_RUNS);
    ck_assert_int_eq(hang_cpu_percent(h, 0), 1);
    ck_assert_int_eq(hang_cpu_percent(h, 3), 100);
    hang_renew(h, false, now_ms);
    ck_assert_int_eq(hang_cpu_percent(h, 3), -1);
}
END_TEST

START_TEST(activity_before_the_hang_does_not_count)
{
    static const struct {
        const char *before, *acts;
    } rows[] = {
        {"RRRR", "aaaR"}, /* all import their modules, and then one computes for good */
        {"aaaa", "aaar"}, /* one begins to compute late, on a machine that has no CPU left */
        {"RRaR", "aaaR"},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        hang_renew(h, false, now_ms);
        for (int i = 0; i < N; i++)
            set_act(i, rows[row].before[i]);
        ck_assert(!pass(T / 2));
        for (int i = 0; i < N; i++)
            set_act(i, rows[row].acts[i]);
        ck_assert(!pass(T / 2 - STEP));
        ck_assert(pass(STEP));
        ck_assert_msg(found.rank == 3 && found.odd == HANG_RUNS && !found.is_guess,
                      "'%s' and then '%s': rank %d, odd %d, guess %d", rows[row].before,
                      rows[row].acts, found.rank, found.odd, found.is_guess);
    }
}
END_TEST

START_TEST(with_other_nodes_only_certain_findings_are_reported)
{
    hang_renew(h, true, now_ms);
    everybody(call(8, 0, RANK_STATUS_WAITS));
    ck_assert(!pass(5 * T)); /* they may wait for a rank elsewhere */
    look[1].is_stopped = true;
    ck_assert(pass(STEP));
    ck_assert_int_eq(found.rank, 1);
    everybody(call(9, 0, RANK_STATUS_OUTSIDE));
    look[1].is_stopped = false;
    ck_assert(!pass(5 * T)); /* a rank may write elsewhere */
    set_call(0, call(10, 0, RANK_STATUS_WAITS));
    ck_assert(pass(2 * T));
    ck_assert_int_eq(found.kind, HANG_MISSING);
    ck_assert_int_eq(found.rank, 1);
}
END_TEST

START_TEST(a_new_generation_resets_the_time)
{
    everybody(call(8, 0, RANK_STATUS_WAITS));
    ck_assert(!pass(T));
    hang_renew(h, false, now_ms);
    for (int i = 0; i < N; i++)
        look[i].has_page = false;
    ck_assert(!pass(T - STEP));
    ck_assert(pass(STEP));
}
END_TEST

START_TEST(the_interval_between_looks_is_bounded)
{
    ck_assert_uint_eq(hang_interval_ms(30000), 500);
    ck_assert_uint_eq(hang_interval_ms(800), 100);
    ck_assert_uint_eq(hang_interval_ms(1), 10);
}
END_TEST

/* As a program reports it by lines. */
static void set_steps(int rank, uint64_t steps)
{
    look[rank].has_page = true;
    look[rank].digest = steps;
    look[rank].progress = (struct progress){.only_steps = true, .steps = steps};
}

START_TEST(steps_that_stand_still_are_a_hang)
{
    for (uint64_t step = 1; step <= 37; step++) {
        for (int i = 0; i < N; i++)
            set_steps(i, i == 2 && step == 37 ? 36 : step);
        ck_assert(!pass(step < 37 ? T / 2 : T));
    }
    ck_assert(pass(STEP));
    ck_assert_int_eq(found.kind, HANG_SILENT);
    ck_assert_int_eq(found.rank, 2); /* the others are ahead */
    ck_assert(!found.is_guess && found.has_steps);
    ck_assert_uint_eq(found.steps, 36);
    ck_assert_uint_eq(found.most_steps, 37);
}
END_TEST

START_TEST(equal_steps_do_not_identify_a_rank)
{
    for (int i = 0; i < N; i++) {
        set_steps(i, 36);
        snprintf(look[i].place, sizeof look[i].place, "%s", i == 1 ? "nanosleep" : "ep_poll");
    }
    ck_assert(!pass(T));
    ck_assert(pass(STEP));
    ck_assert_int_eq(found.rank, 1); /* by where it sleeps */
    ck_assert_int_eq(found.odd, HANG_SLEEPS);
    for (int i = 0; i < N; i++)
        look[i].place[0] = '\0';
    ck_assert(pass(STEP));
    ck_assert(found.is_guess);
}
END_TEST

START_TEST(a_rank_that_alone_reports_steps_waits_for_no_other)
{
    for (uint64_t step = 1; step < 20; step++) {
        set_steps(0, step);
        ck_assert(!pass(T / 2));
    }
    for (int i = 1; i < N; i++) /* they write something */
        look[i].output_ms = now_ms + T / 2;
    ck_assert(!pass(T + T / 2 - STEP));
    ck_assert(pass(2 * STEP));
    ck_assert_int_eq(found.kind, HANG_SILENT);
}
END_TEST

/* All ranks make a step each time. */
static void make_steps(int n, uint64_t step_ms)
{
    for (int i = 0; i < n; i++) {
        now_ms += step_ms;
        for (int rank = 0; rank < N; rank++) {
            look[rank].has_page = look[rank].progress.only_steps = true;
            look[rank].digest++;
        }
        hang_note(h, look, now_ms);
    }
}

static void learn(uint64_t most_ms)
{
    hang_destroy(h);
    h = hang_create(N, most_ms, true);
    hang_renew(h, false, now_ms);
}

START_TEST(a_timeout_is_learned_from_the_longest_movement)
{
    const uint64_t most_ms = 4 * HANG_LEARN_MIN_MS, long_ms = HANG_LEARN_MIN_MS / 2;
    learn(most_ms);
    make_steps(1, 2 * most_ms); /* the first one takes longer */
    ck_assert_uint_eq(hang_timeout_ms(h), most_ms);
    make_steps(HANG_LEARN_MOVES / N - 1, 1000);
    ck_assert_uint_eq(hang_timeout_ms(h), most_ms);
    make_steps(1, 1000);
    ck_assert_uint_eq(hang_timeout_ms(h), HANG_LEARN_MIN_MS);
    make_steps(1, long_ms);
    make_steps(3, 1000);
    ck_assert_uint_eq(hang_timeout_ms(h), HANG_LEARN_FACTOR * long_ms);
    hang_renew(h, false, now_ms);
    make_steps(1, 3 * long_ms); /* nor does the first one of another generation count */
    ck_assert_uint_eq(hang_timeout_ms(h), HANG_LEARN_FACTOR * long_ms);
    make_steps(1, most_ms);
    ck_assert_uint_eq(hang_timeout_ms(h), most_ms);
}
END_TEST

START_TEST(a_learned_timeout_ends_a_rank)
{
    learn(4 * HANG_LEARN_MIN_MS);
    make_steps(HANG_LEARN_MOVES, 1000);
    ck_assert(!pass(HANG_LEARN_MIN_MS - STEP));
    ck_assert(pass(STEP));
    ck_assert_int_eq(found.kind, HANG_SILENT);
}
END_TEST

TEST_SUITE(hang)
{
    Suite *suite = suite_create("hang");
    TCase *tc = tcase_create("hang");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_rank_that_others_wait_for_is_missing_after_the_timeout);
    tcase_add_test(tc, steps_that_stand_still_are_a_hang);
    tcase_add_test(tc, equal_steps_do_not_identify_a_rank);
    tcase_add_test(tc, a_rank_that_alone_reports_steps_waits_for_no_other);
    tcase_add_test(tc, a_rank_that_moves_is_never_blamed);
    tcase_add_test(tc, a_slow_step_with_output_is_not_a_hang);
    tcase_add_test(tc, output_does_not_excuse_a_rank_that_others_wait_for);
    tcase_add_test(tc, the_lowest_missing_rank_is_named_and_the_others_are_counted);
    tcase_add_test(tc, a_stopped_rank_is_named_before_others);
    tcase_add_test(tc, a_rank_stopped_inside_of_the_call_is_named_though_it_waits);
    tcase_add_test(tc, if_all_wait_the_rank_in_another_call_is_named);
    tcase_add_test(tc, if_all_wait_in_one_call_the_answer_is_marked_as_a_guess);
    tcase_add_test(tc, a_member_of_the_group_that_waits_is_named_before_a_descendant);
    tcase_add_test(tc, a_rank_that_has_not_joined_is_named);
    tcase_add_test(tc, an_ended_rank_is_ignored);
    tcase_add_test(tc, ranks_without_pages_hang_when_all_are_silent);
    tcase_add_test(tc, the_silent_rank_that_sleeps_elsewhere_is_named);
    tcase_add_test(tc, the_silent_rank_that_differs_is_named);
    tcase_add_test(tc, only_the_last_looks_decide_which_rank_runs);
    tcase_add_test(tc, activity_before_the_hang_does_not_count);
    tcase_add_test(tc, with_other_nodes_only_certain_findings_are_reported);
    tcase_add_test(tc, a_new_generation_resets_the_time);
    tcase_add_test(tc, the_interval_between_looks_is_bounded);
    tcase_add_test(tc, a_timeout_is_learned_from_the_longest_movement);
    tcase_add_test(tc, a_learned_timeout_ends_a_rank);
    suite_add_tcase(suite, tc);
    return suite;
}
