/* test_straggler.c - which rank is blamed for a wait between nodes, in virtual time. */
#include "tests/support/suite.h"
#include "worker-runtime/tcp/straggler.h"

#include <check.h>

enum { BEGUN_MS = 1000000 };

static struct straggler waiting_for(uint64_t timeout_ms)
{
    struct straggler l;
    straggler_reset(&l, timeout_ms);
    l.begun_ms = BEGUN_MS;
    return l;
}

START_TEST(others_are_asked_after_half_of_the_timeout_and_again)
{
    struct straggler l = waiting_for(8000);
    ck_assert(!straggler_is_to_ask(&l, BEGUN_MS + 3999));
    ck_assert(straggler_is_to_ask(&l, BEGUN_MS + 4000));
    l.asked_ms = l.asked_again_ms = BEGUN_MS + 4000;
    ck_assert(!straggler_is_to_ask(&l, BEGUN_MS + 4001));
    ck_assert(straggler_is_to_ask(&l, BEGUN_MS + 4000 + grace_silence_ms(8000)));
}
END_TEST

START_TEST(a_rank_is_not_silent_before_it_is_asked)
{
    const struct straggler l = waiting_for(8000);
    ck_assert(straggler_is_over(&l, BEGUN_MS + 100000));
    ck_assert(!straggler_is_silent(&l, 0, BEGUN_MS + 100000));
}
END_TEST

START_TEST(a_rank_that_does_not_answer_in_time_is_silent)
{
    struct straggler l = waiting_for(100);
    const uint64_t asked_ms = BEGUN_MS + 50, end_ms = asked_ms + grace_silence_ms(100);
    l.asked_ms = l.asked_again_ms = asked_ms;
    ck_assert(!straggler_is_silent(&l, 0, end_ms - 1));
    ck_assert(straggler_is_silent(&l, 0, end_ms));
    /* an answer to an earlier wait does not count */
    ck_assert(straggler_is_silent(&l, asked_ms - 20, end_ms));
}
END_TEST

START_TEST(a_rank_that_answered_recently_is_not_silent)
{
    struct straggler l = waiting_for(100);
    const uint64_t silence_ms = grace_silence_ms(100);
    l.asked_ms = BEGUN_MS + 50;
    l.asked_again_ms = BEGUN_MS + 90000;
    ck_assert(!straggler_is_silent(&l, BEGUN_MS + 90001, BEGUN_MS + 90001 + silence_ms - 1));
    ck_assert(straggler_is_silent(&l, BEGUN_MS + 90001, BEGUN_MS + 90001 + silence_ms));
}
END_TEST

START_TEST(ranks_that_wait_for_each_other_time_out)
{
    const struct straggler l = waiting_for(60000);
    const uint64_t end_ms = BEGUN_MS + 60000 + grace_ms(60000);
    ck_assert(!straggler_is_hopeless(&l, end_ms - 1));
    ck_assert(straggler_is_hopeless(&l, end_ms));
}
END_TEST

START_TEST(the_rank_that_waits_for_the_straggler_times_out_first)
{
    /* both waits began at the same time: the one that finds silence must be through before the
     * other is without hope */
    for (uint64_t timeout_ms = 1; timeout_ms < 10000000; timeout_ms = timeout_ms * 3 + 1) {
        const uint64_t asked_ms = timeout_ms / 2,
                       silent_ms = asked_ms + grace_silence_ms(timeout_ms);
        const uint64_t told_ms = silent_ms > timeout_ms ? silent_ms : timeout_ms;
        ck_assert_uint_le(told_ms + grace_silence_ms(timeout_ms),
                          timeout_ms + grace_ms(timeout_ms));
    }
}
END_TEST

START_TEST(an_infinite_timeout_does_not_wrap)
{
    struct straggler l = waiting_for(UINT64_MAX);
    ck_assert(!straggler_is_to_ask(&l, BEGUN_MS + 1000000000));
    ck_assert(!straggler_is_over(&l, BEGUN_MS + 1000000000));
    ck_assert(!straggler_is_hopeless(&l, BEGUN_MS + 1000000000));
}
END_TEST

TEST_SUITE(straggler)
{
    Suite *suite = suite_create("straggler");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, others_are_asked_after_half_of_the_timeout_and_again);
    tcase_add_test(tcase, a_rank_is_not_silent_before_it_is_asked);
    tcase_add_test(tcase, a_rank_that_does_not_answer_in_time_is_silent);
    tcase_add_test(tcase, a_rank_that_answered_recently_is_not_silent);
    tcase_add_test(tcase, ranks_that_wait_for_each_other_time_out);
    tcase_add_test(tcase, the_rank_that_waits_for_the_straggler_times_out_first);
    tcase_add_test(tcase, an_infinite_timeout_does_not_wrap);
    suite_add_tcase(suite, tcase);
    return suite;
}
