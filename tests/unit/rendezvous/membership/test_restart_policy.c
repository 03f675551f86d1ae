/* Budgets, windows, exceptions, the row of waits. */
#include "rendezvous/membership/restart_policy.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>

static struct restart_policy p;

static void init(int max, uint64_t window_ms, const bool *no_restart_on)
{
    struct restart_rules rules = {
        .max_restarts = max, .window_ms = window_ms, .no_restart_on = no_restart_on};
    ck_assert_int_eq(restart_policy_init(&p, &rules), 0);
}

static void tear_down(void)
{
    restart_policy_fini(&p);
}

/* A generation that ran 10 ms and failed with 1. */
static struct restart_failure at(uint64_t now_ms)
{
    return (struct restart_failure){.exit_code = 1, .begun_ms = now_ms - 10, .now_ms = now_ms};
}

static struct restart_failure after(uint64_t ran_ms)
{
    return (struct restart_failure){.exit_code = 1, .begun_ms = 1000, .now_ms = 1000 + ran_ms};
}

static bool allows(struct restart_failure f)
{
    return restart_policy_allows(&p, &f);
}

static uint64_t take(struct restart_failure f)
{
    return restart_policy_take(&p, &f);
}

START_TEST(no_restart_without_a_request)
{
    init(0, 0, NULL);
    ck_assert(!allows(at(1000)));
    restart_policy_fini(&p);
    init(0, 1000, NULL);
    ck_assert(!allows(at(5000)));
}
END_TEST

START_TEST(a_budget_limits_the_restarts)
{
    init(2, 0, NULL);
    for (int i = 0; i < 2; i++) {
        ck_assert(allows(at(1000)));
        take(at(1000));
    }
    ck_assert(!allows(at(UINT64_MAX)));
}
END_TEST

START_TEST(a_window_forgets)
{
    init(2, 1000, NULL);
    take(at(5000));
    take(at(5600));
    ck_assert(!allows(at(5999)));
    ck_assert(allows(at(6000)));
    take(at(6000));
    ck_assert(!allows(at(6599)));
    ck_assert(allows(at(6600)));
}
END_TEST

START_TEST(some_exit_statuses_are_final)
{
    bool final[256] = {[2] = true, [137] = true};
    struct restart_failure f = at(1000);
    init(5, 0, final);
    ck_assert(allows(f));
    f.exit_code = 2;
    ck_assert(!allows(f));
    f.exit_code = 137;
    ck_assert(!allows(f));
}
END_TEST

START_TEST(waits_grow_to_a_limit_and_reset_after_a_steady_run)
{
    init(100, 0, NULL);
    ck_assert_uint_eq(take(after(10)), 0);
    uint64_t wait = RESTART_FIRST_WAIT_MS;
    for (int i = 0; i < 8; i++, wait *= 2)
        ck_assert_uint_eq(take(after(10)), wait);
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq(take(after(10)), i == 0 ? wait : RESTART_MAX_WAIT_MS);
    ck_assert_uint_eq(take(after(RESTART_STEADY_MS)), 0);
    ck_assert_uint_eq(take(after(RESTART_STEADY_MS - 1)), RESTART_FIRST_WAIT_MS);
}
END_TEST

/* --- after progress --- */

static struct restart_failure free_of(struct restart_failure f)
{
    f.is_free = true;
    return f;
}

START_TEST(a_failure_after_progress_is_free)
{
    init(0, 0, NULL);
    ck_assert(!allows(at(1000)));
    for (uint64_t i = 1; i < 100; i++) {
        ck_assert(allows(free_of(at(1000 * i))));
        take(free_of(at(1000 * i)));
    }
    ck_assert(!allows(at(1000000)));
}
END_TEST

START_TEST(a_crash_loop_ends_with_the_budget)
{
    init(2, 0, NULL);
    take(at(1000));
    take(free_of(at(2000))); /* does not give back what was used up */
    take(at(3000));
    ck_assert_uint_eq(p.n_counted, 2);
    ck_assert(!allows(at(4000)));
    ck_assert(allows(free_of(at(4000))));
}
END_TEST

START_TEST(a_window_forgets_only_what_was_counted)
{
    init(2, 1000, NULL);
    take(at(5000));
    take(free_of(at(5300)));
    take(at(5600));
    take(free_of(at(5900)));
    ck_assert(!allows(at(5999)));
    ck_assert(allows(at(6000)));
    take(at(6000));
    ck_assert(!allows(at(6599)));
    ck_assert(allows(at(6600)));
}
END_TEST

START_TEST(some_exit_statuses_are_final_even_after_progress)
{
    bool final[256] = {[1] = true};
    init(5, 0, final);
    ck_assert(!allows(free_of(at(1000))));
}
END_TEST

START_TEST(free_restarts_wait_like_other_restarts)
{
    init(1, 0, NULL);
    ck_assert_uint_eq(take(free_of(after(10))), 0);
    ck_assert_uint_eq(take(free_of(after(10))), RESTART_FIRST_WAIT_MS);
    ck_assert_uint_eq(take(after(10)), 2 * RESTART_FIRST_WAIT_MS);
}
END_TEST

START_TEST(failures_of_a_node_are_counted_to_the_limit)
{
    for (uint32_t limit = 1; limit <= RESTART_MAX_STRIKES; limit++) {
        struct restart_strikes s = {0};
        for (uint32_t i = 1; i <= 2 * RESTART_MAX_STRIKES; i++)
            ck_assert_int_eq(restart_strikes_add(&s, limit, 0, 1000 * i), i >= limit);
    }
}
END_TEST

START_TEST(failures_of_a_node_are_forgotten_after_the_window)
{
    struct restart_strikes s = {0};
    ck_assert(!restart_strikes_add(&s, 3, 1000, 5000));
    ck_assert(!restart_strikes_add(&s, 3, 1000, 5500));
    ck_assert(!restart_strikes_add(&s, 3, 1000, 6000)); /* the first is 1000 ms ago */
    ck_assert(!restart_strikes_add(&s, 3, 1000, 9000));
    ck_assert(!restart_strikes_add(&s, 3, 1000, 9500));
    ck_assert(restart_strikes_add(&s, 3, 1000, 9999));
    ck_assert(restart_strikes_add(&s, 3, 1000, 10000));
}
END_TEST

START_TEST(a_replacement_counts_but_does_not_extend_the_wait)
{
    init(5, 0, NULL);
    struct restart_failure f = at(1000);
    for (int i = 0; i < 3; i++)
        restart_policy_spend(&p, &f);
    ck_assert_uint_eq(p.n_counted, 3);
    ck_assert_uint_eq(take(at(1000)), 0); /* the first restart */
    ck_assert_uint_eq(take(at(1000)), RESTART_FIRST_WAIT_MS);
    ck_assert(!allows(at(1000)));
    restart_policy_fini(&p);

    init(1, 1000, NULL); /* in a window, as others do */
    restart_policy_spend(&p, &f);
    ck_assert(!allows(at(1999)));
    ck_assert(allows(at(2000)));
    restart_policy_fini(&p);

    init(1, 0, NULL);
    f.is_free = true;
    restart_policy_spend(&p, &f);
    ck_assert_uint_eq(p.n_counted, 0);
}
END_TEST

START_TEST(generations_without_progress_are_counted_in_a_row)
{
    const struct restart_rules rules = {.max_restarts = 9, .max_idle = 3};
    ck_assert_int_eq(restart_policy_init(&p, &rules), 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            ck_assert(!restart_policy_is_stuck(&p));
            restart_policy_note_progress(&p, false);
        }
        ck_assert(restart_policy_is_stuck(&p));
        restart_policy_note_progress(&p, true);
    }
    restart_policy_fini(&p);
    init(9, 0, NULL); /* without such a rule */
    for (int i = 0; i < 9; i++)
        restart_policy_note_progress(&p, false);
    ck_assert(!restart_policy_is_stuck(&p));
}
END_TEST

TEST_SUITE(restart_policy)
{
    Suite *suite = suite_create("restart_policy");
    TCase *tc = tcase_create("rules");
    tcase_add_checked_fixture(tc, NULL, tear_down);
    tcase_add_test(tc, no_restart_without_a_request);
    tcase_add_test(tc, a_replacement_counts_but_does_not_extend_the_wait);
    tcase_add_test(tc, failures_of_a_node_are_counted_to_the_limit);
    tcase_add_test(tc, failures_of_a_node_are_forgotten_after_the_window);
    tcase_add_test(tc, a_budget_limits_the_restarts);
    tcase_add_test(tc, generations_without_progress_are_counted_in_a_row);
    tcase_add_test(tc, a_window_forgets);
    tcase_add_test(tc, some_exit_statuses_are_final);
    tcase_add_test(tc, waits_grow_to_a_limit_and_reset_after_a_steady_run);
    tcase_add_test(tc, a_failure_after_progress_is_free);
    tcase_add_test(tc, a_crash_loop_ends_with_the_budget);
    tcase_add_test(tc, a_window_forgets_only_what_was_counted);
    tcase_add_test(tc, some_exit_statuses_are_final_even_after_progress);
    tcase_add_test(tc, free_restarts_wait_like_other_restarts);
    suite_add_tcase(suite, tc);
    return suite;
}
