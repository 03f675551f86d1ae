#include "rendezvous/relays/poll_time.h"

#include "tests/support/suite.h"

#include <check.h>

enum { US = 1000 };
#define START (UINT64_C(1000000) * US)

static struct poll_time p;

static void set_up(void)
{
    p = (struct poll_time){0};
}

/* A request at `at`, and the reply so much later. returns   when that was */
static uint64_t ask(uint64_t at, uint64_t took)
{
    poll_time_expect(&p, POLL_FOR_REPLY, at);
    poll_time_expect(&p, POLL_FOR_REQUEST, at + took);
    return at + took;
}

START_TEST(the_first_reply_is_slept_for)
{
    ck_assert(!poll_time_is_on(&p, START));
    poll_time_expect(&p, POLL_FOR_REPLY, START);
    ck_assert(!poll_time_is_on(&p, START));
}
END_TEST

START_TEST(after_a_fast_reply_the_next_one_is_polled_for)
{
    uint64_t now = ask(START, 60 * US) + 1000 * US;
    poll_time_expect(&p, POLL_FOR_REPLY, now);
    ck_assert(poll_time_is_on(&p, now));
    ck_assert(poll_time_is_on(&p, now + POLL_TIME_NS));
    ck_assert(!poll_time_is_on(&p, now + POLL_TIME_NS + 1)); /* and slept for after that */
}
END_TEST

START_TEST(after_a_slow_reply_the_next_one_is_slept_for)
{
    uint64_t now = ask(ask(START, 60 * US), 500 * US);
    poll_time_expect(&p, POLL_FOR_REPLY, now);
    ck_assert(!poll_time_is_on(&p, now));
    now = ask(now + 1000 * US, 60 * US); /* a fast one changes that */
    poll_time_expect(&p, POLL_FOR_REPLY, now);
    ck_assert(poll_time_is_on(&p, now));
}
END_TEST

START_TEST(a_request_is_polled_for_only_if_the_last_one_followed_at_once)
{
    uint64_t now = ask(START, 60 * US);
    ck_assert(!poll_time_is_on(&p, now));
    now = ask(now + 20 * US, 60 * US);
    ck_assert(poll_time_is_on(&p, now));
    now = ask(now + 5000 * US, 60 * US);
    ck_assert(!poll_time_is_on(&p, now));
}
END_TEST

/* A SET has no reply, and that to a WAIT is late. */
START_TEST(a_request_without_a_reply_does_not_make_the_next_reply_slow)
{
    uint64_t now = ask(START, 60 * US);
    poll_time_expect(&p, POLL_FOR_REPLY, now);
    now = ask(now + 5000 * US, 60 * US);
    poll_time_expect(&p, POLL_FOR_REPLY, now);
    ck_assert(poll_time_is_on(&p, now));
}
END_TEST

START_TEST(requests_of_several_clients_do_not_prolong_the_polling)
{
    uint64_t now = ask(START, 60 * US);
    poll_time_expect(&p, POLL_FOR_REPLY, now);
    poll_time_expect(&p, POLL_FOR_REPLY, now + 40 * US);
    ck_assert(!poll_time_is_on(&p, now + 60 * US));
}
END_TEST

TEST_SUITE(poll_time)
{
    Suite *suite = suite_create("poll_time");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, NULL);
    tcase_add_test(all, the_first_reply_is_slept_for);
    tcase_add_test(all, after_a_fast_reply_the_next_one_is_polled_for);
    tcase_add_test(all, after_a_slow_reply_the_next_one_is_slept_for);
    tcase_add_test(all, a_request_is_polled_for_only_if_the_last_one_followed_at_once);
    tcase_add_test(all, a_request_without_a_reply_does_not_make_the_next_reply_slow);
    tcase_add_test(all, requests_of_several_clients_do_not_prolong_the_polling);
    suite_add_tcase(suite, all);
    return suite;
}
