/* The timers of torch's FileTimerClient: its lines, and others. */
#include "launcher/torch/file_timers.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static struct file_timers t;

static void tear_down(void)
{
    file_timers_fini(&t);
}

/* Process 7 has ended. */
static uint64_t find_process(void *arg, pid_t pid)
{
    (void)arg;
    return pid == 7 ? 0 : (uint64_t)pid + 100;
}

static const struct file_timers_opts opts = {.now_ms = 5000, .find_process = find_process};

static void feed(const char *text)
{
    file_timers_feed(&t, text, strlen(text), &opts);
}

static void set(int pid, const char *scope, double expires_s, int sig)
{
    char line[512];
    snprintf(line, sizeof line,
             "{\"version\": 1, \"pid\": %d, \"scope_id\": \"%s\", \"expiration_time\": %.3f, "
             "\"signal\": %d}\n",
             pid, scope, expires_s, sig);
    feed(line);
}

START_TEST(the_first_timer_to_expire_is_found)
{
    ck_assert_ptr_null(file_timers_first(&t));
    set(4711, "step 1", 1795355966.75, 9);
    set(4712, "step 1", 1795355960, 15);
    set(4711, "step 2", 1795355970, -1);
    ck_assert_uint_eq(t.n, 3);
    const struct file_timer *first = file_timers_first(&t);
    ck_assert_int_eq(first->pid, 4712);
    ck_assert_int_eq(first->signal, 15);
    ck_assert_uint_eq(first->process, 4812);
    file_timers_drop(&t, first);
    first = file_timers_first(&t);
    ck_assert_str_eq(first->scope, "step 1");
    ck_assert(first->expires_s == 1795355966.75);
    ck_assert_uint_eq(first->set_ms, 5000);
    file_timers_drop(&t, first);
    ck_assert_int_eq(file_timers_first(&t)->signal, 0); /* only a message */
    ck_assert_uint_eq(t.n_bad, 0);
}
END_TEST

START_TEST(timers_that_expire_at_once_keep_their_order)
{
    static const char *const scopes[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        set(4711, scopes[i], 100, 9);
    for (int i = 0; i < 4; i++) {
        ck_assert_str_eq(file_timers_first(&t)->scope, scopes[i]);
        file_timers_drop(&t, file_timers_first(&t));
    }
}
END_TEST

START_TEST(a_negative_time_releases_a_timer)
{
    set(4711, "a", 100, 9);
    set(4711, "b", 200, 9);
    set(4712, "a", 300, 9);
    feed("{\"version\": 1, \"pid\": 4711, \"scope_id\": \"a\", \"expiration_time\": -1, "
         "\"signal\": 0}\n");
    ck_assert_uint_eq(t.n, 2);
    ck_assert_str_eq(file_timers_first(&t)->scope, "b");
    set(4711, "unknown", -1, 0);
    ck_assert_uint_eq(t.n, 2);
    ck_assert_uint_eq(t.n_bad, 0);
}
END_TEST

START_TEST(a_timer_that_is_set_again_is_replaced)
{
    set(4711, "a", 100, 9);
    set(4711, "a", 200, 15);
    ck_assert_uint_eq(t.n, 1);
    ck_assert(file_timers_first(&t)->expires_s == 200);
    ck_assert_int_eq(file_timers_first(&t)->signal, 15);
}
END_TEST

START_TEST(the_timers_of_a_process_are_dropped_together)
{
    set(4711, "a", 100, 9);
    set(4712, "a", 150, 9);
    set(4711, "b", 200, 9);
    file_timers_drop_process(&t, 4711);
    ck_assert_uint_eq(t.n, 1);
    ck_assert_int_eq(file_timers_first(&t)->pid, 4712);
}
END_TEST

START_TEST(a_process_that_has_ended_sets_no_timer)
{
    set(7, "a", 100, 9);
    ck_assert_uint_eq(t.n, 0);
    ck_assert_uint_eq(t.n_bad + t.n_refused, 0);
}
END_TEST

START_TEST(lines_may_arrive_in_pieces)
{
    const char *line = "{\"version\": 1, \"pid\": 4711, \"scope_id\": \"a\\u00e4\", "
                       "\"expiration_time\": 100, \"signal\": 9}\n";
    for (const char *c = line; *c != '\0'; c++) {
        ck_assert_uint_eq(t.n, 0);
        file_timers_feed(&t, c, 1, &opts);
    }
    ck_assert_str_eq(file_timers_first(&t)->scope, "a\xc3\xa4");
}
END_TEST

START_TEST(other_lines_are_counted)
{
#define LINE(version, pid, scope, time, sig)                                                       \
    "{\"version\": " version ", \"pid\": " pid ", \"scope_id\": " scope                            \
    ", \"expiration_time\": " time ", \"signal\": " sig "}\n"
    static const char *const bad[] = {
        "\n",
        "x\n",
        "[]\n",
        "{}\n",
        "{\"version\": 1}\n",
        LINE("2", "1", "\"a\"", "1", "9"),
        LINE("1", "0", "\"a\"", "1", "9"),
        LINE("1", "-4711", "\"a\"", "1", "9"),
        LINE("1", "2147483648", "\"a\"", "1", "9"),
        LINE("1", "1.5", "\"a\"", "1", "9"),
        LINE("1", "1", "7", "1", "9"),
        LINE("1", "1", "\"a\\u0000b\"", "1", "9"),
        LINE("1", "1", "\"a\"", "\"1\"", "9"),
        LINE("1", "1", "\"a\"", "NaN", "9"),
        LINE("1", "1", "\"a\"", "1e999", "9"),
        LINE("1", "1", "\"a\"", "1", "65"),
        LINE("1", "1", "\"a\"", "1", "null"),
        LINE("1", "1", "\"a\"", "1", "9} {"),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        feed(bad[i]);
        ck_assert_msg(t.n_bad == i + 1, "%s", bad[i]);
    }
    ck_assert_uint_eq(t.n, 0);
    feed(LINE("1", "1", "\"a\"", "1", "64"));
    ck_assert_uint_eq(t.n, 1);
}
END_TEST

START_TEST(a_line_is_bounded)
{
    char blank = ' ';
    for (int i = 0; i < 3 * FILE_TIMERS_LINE_BYTES; i++)
        file_timers_feed(&t, &blank, 1, &opts);
    ck_assert_uint_eq(t.n_bad, 1);
    set(4711, "a", 100, 9); /* its end is the end of that line */
    ck_assert_uint_eq(t.n, 0);
    set(4711, "a", 100, 9);
    ck_assert_uint_eq(t.n, 1);
}
END_TEST

START_TEST(the_number_of_timers_is_bounded)
{
    char scope[32];
    for (int i = 0; i < FILE_TIMERS_MAX + 3; i++) {
        snprintf(scope, sizeof scope, "%d", i);
        set(4711, scope, 100 + i, 9);
    }
    ck_assert_uint_eq(t.n, FILE_TIMERS_MAX);
    ck_assert_uint_eq(t.n_refused, 3);
    set(4711, "0", 7, 9); /* known */
    ck_assert(file_timers_first(&t)->expires_s == 7);
}
END_TEST

TEST_SUITE(file_timers)
{
    Suite *suite = suite_create("file_timers");
    TCase *tc = tcase_create("file_timers");
    tcase_add_checked_fixture(tc, NULL, tear_down);
    tcase_add_test(tc, the_first_timer_to_expire_is_found);
    tcase_add_test(tc, timers_that_expire_at_once_keep_their_order);
    tcase_add_test(tc, a_negative_time_releases_a_timer);
    tcase_add_test(tc, a_timer_that_is_set_again_is_replaced);
    tcase_add_test(tc, the_timers_of_a_process_are_dropped_together);
    tcase_add_test(tc, a_process_that_has_ended_sets_no_timer);
    tcase_add_test(tc, lines_may_arrive_in_pieces);
    tcase_add_test(tc, other_lines_are_counted);
    tcase_add_test(tc, a_line_is_bounded);
    tcase_add_test(tc, the_number_of_timers_is_bounded);
    suite_add_tcase(suite, tc);
    return suite;
}
