/* Budgets, windows, exceptions, the row of waits. */
#include "rendezvous/restart_policy.h"

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

START_TEST(none_unless_asked_for)
{
    init(0, 0, NULL);
    ck_assert(!restart_policy_allows(&p, 1, 0));
    restart_policy_fini(&p);
    init(0, 1000, NULL);
    ck_assert(!restart_policy_allows(&p, 1, 5000));
}
END_TEST

START_TEST(a_budget_is_used_up)
{
    init(2, 0, NULL);
    for (int i = 0; i < 2; i++) {
        ck_assert(restart_policy_allows(&p, 1, 1000));
        restart_policy_take(&p, 1000, 10);
    }
    ck_assert(!restart_policy_allows(&p, 1, UINT64_MAX));
}
END_TEST

START_TEST(a_window_forgets)
{
    init(2, 1000, NULL);
    restart_policy_take(&p, 5000, 10);
    restart_policy_take(&p, 5600, 10);
    ck_assert(!restart_policy_allows(&p, 1, 5999));
    ck_assert(restart_policy_allows(&p, 1, 6000));
    restart_policy_take(&p, 6000, 10);
    ck_assert(!restart_policy_allows(&p, 1, 6599));
    ck_assert(restart_policy_allows(&p, 1, 6600));
}
END_TEST

START_TEST(some_codes_are_final)
{
    bool final[256] = {[2] = true, [137] = true};
    init(5, 0, final);
    ck_assert(!restart_policy_allows(&p, 2, 0));
    ck_assert(!restart_policy_allows(&p, 137, 0));
    ck_assert(restart_policy_allows(&p, 1, 0));
}
END_TEST

START_TEST(waits_grow_to_a_limit_and_begin_anew_after_a_steady_run)
{
    init(100, 0, NULL);
    ck_assert_uint_eq(restart_policy_take(&p, 0, 10), 0);
    uint64_t wait = RESTART_FIRST_WAIT_MS;
    for (int i = 0; i < 8; i++, wait *= 2)
        ck_assert_uint_eq(restart_policy_take(&p, 0, 10), wait);
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq(restart_policy_take(&p, 0, 10), i == 0 ? wait : RESTART_MAX_WAIT_MS);
    ck_assert_uint_eq(restart_policy_take(&p, 0, RESTART_STEADY_MS), 0);
    ck_assert_uint_eq(restart_policy_take(&p, 0, RESTART_STEADY_MS - 1), RESTART_FIRST_WAIT_MS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("restart_policy");
    TCase *tc = tcase_create("rules");
    tcase_add_checked_fixture(tc, NULL, tear_down);
    tcase_add_test(tc, none_unless_asked_for);
    tcase_add_test(tc, a_budget_is_used_up);
    tcase_add_test(tc, a_window_forgets);
    tcase_add_test(tc, some_codes_are_final);
    tcase_add_test(tc, waits_grow_to_a_limit_and_begin_anew_after_a_steady_run);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
