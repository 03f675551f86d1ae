/* When a node checks its health, in virtual time. */
#include "launcher/supervisor/health.h"

#include "common/clock.h"
#include "tests/support/chance.h"
#include "tests/support/machine_checks.h"
#include "tests/support/suite.h"

#include <check.h>
#include <inttypes.h>

enum { LIMIT_MS = 5000 };

static struct health h;
static struct health_orders o;
static uint64_t now_ms;

static void set_up(void)
{
    now_ms = 1000;
    health_init(&h, LIMIT_MS);
}

static void feed(enum health_event_type type)
{
    health_step(&h, type, now_ms, &o);
}

/* The coordinator knows this node as unhealthy. */
static bool is_bad(void)
{
    return h.state == HEALTH_UNHEALTHY || h.state == HEALTH_RETRYING;
}

static void wait_until_due(void)
{
    ck_assert_uint_ne(health_deadline_ms(&h), CO_NEVER_MS);
    now_ms = health_deadline_ms(&h);
    feed(HEALTH_EV_DUE);
}

START_TEST(a_node_without_ranks_is_checked_at_once)
{
    ck_assert_uint_eq(health_deadline_ms(&h), CO_NEVER_MS);
    feed(HEALTH_EV_NEEDED);
    ck_assert(o.begin && !o.cancel && !o.report_fit);
    ck_assert_uint_eq(health_deadline_ms(&h), now_ms + LIMIT_MS);
    feed(HEALTH_EV_GOOD);
    ck_assert(o.report_fit && !o.begin);
}
END_TEST

START_TEST(a_check_that_takes_too_long_has_failed)
{
    feed(HEALTH_EV_NEEDED);
    wait_until_due();
    ck_assert(o.cancel && o.is_late && o.report_unfit);
    ck_assert(is_bad());
}
END_TEST

START_TEST(pauses_between_failed_checks_grow_up_to_a_minute)
{
    static const uint64_t expected_s[] = {2, 4, 8, 16, 32, 60, 60};
    feed(HEALTH_EV_NEEDED);
    for (size_t i = 0; i < sizeof expected_s / sizeof *expected_s; i++) {
        feed(HEALTH_EV_BAD);
        ck_assert(o.report_unfit);
        ck_assert_uint_eq(health_deadline_ms(&h) - now_ms, expected_s[i] * 1000);
        wait_until_due();
        ck_assert(o.begin && is_bad());
    }
    feed(HEALTH_EV_GOOD);
    ck_assert(o.report_fit && !is_bad());
    feed(HEALTH_EV_TAKEN);
    feed(HEALTH_EV_NEEDED);
    feed(HEALTH_EV_BAD);
    ck_assert_uint_eq(health_deadline_ms(&h) - now_ms, 2000);
}
END_TEST

START_TEST(a_node_that_waits_is_checked_again_and_reports_only_what_is_new)
{
    feed(HEALTH_EV_NEEDED);
    feed(HEALTH_EV_GOOD);
    wait_until_due();
    ck_assert(o.begin && !o.report_fit && !o.report_unfit);
    feed(HEALTH_EV_GOOD);
    ck_assert(!o.report_fit);
    wait_until_due();
    feed(HEALTH_EV_BAD);
    ck_assert(o.report_unfit);
}
END_TEST

START_TEST(a_check_is_canceled_when_a_generation_begins)
{
    feed(HEALTH_EV_NEEDED);
    feed(HEALTH_EV_GOOD);
    wait_until_due();
    feed(HEALTH_EV_TAKEN);
    ck_assert(o.cancel && !o.report_unfit);
    ck_assert_uint_eq(health_deadline_ms(&h), CO_NEVER_MS);
}
END_TEST

/* Whatever happens, in whatever order: one check at a time, each with an end; a node is reported as
 * fit only by the result of a check that began after it was needed; what is reported is news, and
 * pauses have a bound. */
START_TEST(random_schedules_keep_the_promises)
{
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        struct chance c = chance_from(seed);
        bool runs = false, needed = false;
        set_up();
        for (int i = 0; i < 60; i++) {
            const enum health_event_type type =
                (enum health_event_type)chance_draw(&c, HEALTH_N_EVENTS);
            now_ms += chance_draw(&c, 100);
            if ((type == HEALTH_EV_GOOD || type == HEALTH_EV_BAD) && !runs)
                continue; /* there is nothing that could answer */
            if (type == HEALTH_EV_DUE && health_deadline_ms(&h) == CO_NEVER_MS)
                continue;
            if (type == HEALTH_EV_DUE && health_deadline_ms(&h) > now_ms)
                now_ms = health_deadline_ms(&h);
            feed(type);
            if (type == HEALTH_EV_GOOD || type == HEALTH_EV_BAD || o.cancel)
                runs = false;
            if (type == HEALTH_EV_NEEDED)
                needed = true;
            if (type == HEALTH_EV_TAKEN)
                needed = false;
            if ((o.begin && (runs || !needed)) || (o.report_fit && (type != HEALTH_EV_GOOD)) ||
                (o.report_fit && !needed) || (o.report_unfit && o.report_fit))
                ck_abort_msg("seed %" PRIu64 ", event %d", seed, i);
            runs |= o.begin;
            const bool has_deadline = health_deadline_ms(&h) != CO_NEVER_MS;
            if (has_deadline != needed || (runs && !has_deadline) ||
                (has_deadline && health_deadline_ms(&h) - now_ms > HEALTH_REPEAT_MS))
                ck_abort_msg("seed %" PRIu64 ", event %d: deadline", seed, i);
        }
    }
}
END_TEST

START_TEST(the_table_is_whole)
{
    assert_whole(&health_machine);
}
END_TEST

START_TEST(the_drawing_is_the_table)
{
    assert_drawn(&health_machine, "health");
}
END_TEST

TEST_SUITE(health)
{
    Suite *suite = suite_create("health");
    TCase *tc = tcase_create("health");
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_test(tc, a_node_without_ranks_is_checked_at_once);
    tcase_add_test(tc, a_check_that_takes_too_long_has_failed);
    tcase_add_test(tc, pauses_between_failed_checks_grow_up_to_a_minute);
    tcase_add_test(tc, a_node_that_waits_is_checked_again_and_reports_only_what_is_new);
    tcase_add_test(tc, a_check_is_canceled_when_a_generation_begins);
    tcase_add_test(tc, random_schedules_keep_the_promises);
    tcase_add_test(tc, the_table_is_whole);
    tcase_add_test(tc, the_drawing_is_the_table);
    suite_add_tcase(suite, tc);
    return suite;
}
