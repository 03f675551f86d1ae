/* A job's history: from lines of events to lists, and to a page. */
#include "common/escape.h"
#include "history/history.h"
#include "history/history_page.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct history h;

static void set_up(void)
{
    history_init(&h, NULL);
}

static void tear_down(void)
{
    history_fini(&h);
}

static void add(const char *line)
{
    ck_assert_int_eq(history_add(&h, line, strlen(line)), 0);
}

/* An event of job7, `at_s` seconds after 1000 s. */
static void event(double at_s, const char *name, int generation, const char *more)
{
    char line[512];
    snprintf(line, sizeof line,
             "{\"v\":1,\"t\":%.3f,\"ms\":0,\"ev\":\"%s\",\"job\":\"job7\",\"gen\":%d,\"node\":0,"
             "\"host\":\"n1\"%s%s}\n",
             1000 + at_s, name, generation, *more != '\0' ? "," : "", more);
    add(line);
}

static void add_a_job_with_a_restart(void)
{
    event(0, "job_start", 0, "\"argv\":[\"a.py\",\"<b>\"],\"ranks\":2,\"max_restarts\":1");
    event(0.1, "rank_start", 0, "\"rank\":0,\"pid\":10");
    event(0.1, "rank_start", 0, "\"rank\":1,\"pid\":11");
    event(1, "pace", 0, "\"steps\":5,\"step_ms\":2.5,\"slowest\":1,\"share\":0.5");
    event(2, "rank_exit", 0, "\"rank\":1,\"pid\":11,\"code\":null,\"signal\":\"SIGSEGV\"");
    event(2, "stop", 0, "\"why\":\"failure\",\"rank\":1");
    event(2.1, "rank_exit", 0, "\"rank\":0,\"pid\":10,\"code\":null,\"signal\":\"SIGTERM\"");
    event(2.1, "restart", 0, "\"rank\":1,\"wait_ms\":0,\"counted\":true");
    event(2.2, "rank_start", 1, "\"rank\":0,\"pid\":12");
    event(2.2, "rank_start", 1, "\"rank\":1,\"pid\":13");
    event(3, "rank_exit", 1, "\"rank\":0,\"pid\":12,\"code\":3,\"signal\":null,\"lost_peer\":true");
    event(3, "something_new", 1, "");
}

START_TEST(each_run_of_a_rank_has_its_outcome)
{
    add_a_job_with_a_restart();
    ck_assert_int_eq(history_finish(&h), 0);
    ck_assert_str_eq(h.job, "job7");
    ck_assert_str_eq(h.program, "a.py <b>");
    ck_assert_uint_eq(h.n_runs, 4);
    ck_assert_int_eq(h.runs[0].fate, FATE_STOPPED);
    ck_assert_int_eq(h.runs[1].fate, FATE_FAILED);
    ck_assert_str_eq(h.runs[1].signal, "SIGSEGV");
    ck_assert_int_eq(h.runs[2].fate, FATE_CONSEQUENCE);
    ck_assert_int_eq(h.runs[3].fate, FATE_RUNS);
    ck_assert(!h.has_end);
    ck_assert_int_eq(history_n_ranks(&h), 2);
    ck_assert_int_eq(history_n_generations(&h), 2);
    ck_assert_uint_eq(h.n_paces, 1);
    ck_assert_uint_eq(h.n_unread, 0);
}
END_TEST

START_TEST(the_worst_outcome_of_several_nodes_counts)
{
    event(5, "job_end", 0, "\"code\":0");
    event(4, "job_end", 0, "\"code\":75");
    event(6, "job_end", 0, "\"code\":1");
    ck_assert_int_eq(history_finish(&h), 0);
    ck_assert(h.has_end);
    ck_assert_int_eq(h.code, 75);
    ck_assert(h.marks[0].at_s < h.marks[1].at_s && h.marks[1].at_s < h.marks[2].at_s);
}
END_TEST

static void event_of(double at_s, const char *name, const char *host, const char *node,
                     const char *more)
{
    char line[512];
    snprintf(line, sizeof line,
             "{\"v\":1,\"t\":%.3f,\"ms\":0,\"ev\":\"%s\",\"job\":\"job7\",\"gen\":0,\"node\":%s,"
             "\"host\":\"%s\",%s}",
             1000 + at_s, name, node, host, more);
    add(line);
}

START_TEST(nodes_that_start_and_end_together_are_one_line)
{
    event_of(0, "job_start", "n1", "null", "\"argv\":[],\"ranks\":2");
    event_of(0.2, "rdzv", "n1", "0", "\"nodes\":2,\"world\":3");
    event_of(5, "job_end", "n1", "0", "\"code\":9");
    event_of(9, "job_start", "n1", "null", "\"argv\":[],\"ranks\":2"); /* once more */
    event_of(0.1, "job_start", "n2", "null", "\"argv\":[],\"ranks\":1");
    event_of(5.1, "job_end", "n2", "1", "\"code\":9");
    event_of(5.2, "job_end", "n3", "2", "\"code\":0");
    ck_assert_int_eq(history_finish(&h), 0);
    ck_assert_uint_eq(h.n_marks, 5);
    ck_assert_str_eq(h.marks[0].text, "2 nodes started with 3 ranks");
    ck_assert_int_eq(h.marks[0].node, -1);
    ck_assert_str_eq(h.marks[1].text, "n1 is node 0 of 2, in a world of 3 ranks");
    ck_assert_int_eq(h.marks[1].node, 0);
    ck_assert_str_eq(h.marks[2].text, "2 nodes exited with status 9");
    ck_assert(h.marks[2].is_trouble);
    ck_assert_str_eq(h.marks[3].text, "n3 exited with status 0");
    ck_assert_str_eq(h.marks[4].text, "n1 started with 2 ranks");
}
END_TEST

START_TEST(events_of_other_jobs_are_left_out)
{
    event(0, "job_start", 0, "\"argv\":[],\"ranks\":1");
    add("{\"ev\":\"job_start\",\"job\":\"job8\",\"t\":1000}");
    ck_assert_uint_eq(h.n_others, 1);
    history_fini(&h);
    history_init(&h, "job8");
    event(0, "job_start", 0, "\"argv\":[],\"ranks\":1");
    ck_assert_uint_eq(h.n_events, 0);
}
END_TEST

static const char *const bad[] = {
    "x",
    "[]",
    "{",
    "{}",
    "null",
    "{\"ev\":1,\"t\":1}",
    "{\"ev\":\"stop\"}",
    "{\"ev\":\"stop\",\"t\":-1}",
    "{\"ev\":\"stop\",\"t\":1e300}",
    "{\"ev\":\"stop\",\"t\":\"1\"}",
    "{\"ev\":\"rank_exit\",\"t\":1000,\"rank\":7}",
    "{\"ev\":\"rank_start\",\"t\":1000,\"rank\":-7}",
    "{\"ev\":\"rank_start\",\"t\":1000,\"rank\":99999999999}",
    "\xff\xfe",
};

START_TEST(unreadable_lines_are_counted)
{
    add(bad[_i]);
    ck_assert_uint_eq(h.n_unread, 1);
    ck_assert_uint_eq(h.n_runs, 0);
    add("");
    add("\n");
    ck_assert_uint_eq(h.n_unread, 1);
}
END_TEST

START_TEST(the_number_of_events_is_bounded)
{
    for (int i = 0; i < HISTORY_MAX_EVENTS + 10; i++)
        event(0, "save", 0, "\"state\":\"asked\"");
    ck_assert_uint_eq(h.n_events, HISTORY_MAX_EVENTS);
    ck_assert_uint_eq(h.n_beyond, 10);
}
END_TEST

START_TEST(an_exit_ends_the_latest_run_of_its_pid)
{
    event(0, "rank_start", 0, "\"rank\":0,\"pid\":10");
    event(1, "rank_start", 1, "\"rank\":0,\"pid\":10");
    event(2, "rank_exit", 1, "\"rank\":0,\"pid\":11,\"code\":0");
    event(2, "rank_exit", 1, "\"rank\":1,\"pid\":10,\"code\":0");
    ck_assert_uint_eq(h.n_unread, 2);
    event(2, "rank_exit", 1, "\"rank\":0,\"pid\":10,\"code\":0");
    ck_assert(!h.runs[0].has_ended && h.runs[1].has_ended);
    event(3, "rank_exit", 0, "\"rank\":0,\"pid\":10,\"code\":1");
    ck_assert_int_eq(h.runs[0].code, 1);
    event(4, "rank_exit", 0, "\"rank\":0,\"pid\":10,\"code\":1");
    ck_assert_uint_eq(h.n_unread, 3);
    event(5, "rank_start", 2, "\"rank\":0,\"pid\":10");
    event(6, "rank_exit", 2, "\"rank\":0,\"pid\":10,\"code\":2");
    ck_assert_int_eq(h.runs[2].code, 2);
    ck_assert_uint_eq(h.n_unread, 3);
}
END_TEST

START_TEST(a_stop_counts_for_its_node_from_then_on)
{
    char more[80];
    for (int rank = 0; rank < 3; rank++) {
        snprintf(more, sizeof more, "\"rank\":%d,\"pid\":1", rank);
        event(0, "rank_start", 0, more);
    }
    event(1, "rank_start", 1, "\"rank\":0,\"pid\":2");
    event(9, "stop", 0, "\"why\":\"failure\",\"rank\":2");
    event(5, "stop", 0, "\"why\":\"order\",\"text\":\"\"");
    event(4, "rank_exit", 0, "\"rank\":0,\"pid\":1,\"code\":1");
    event(6, "rank_exit", 0, "\"rank\":1,\"pid\":1,\"code\":1");
    event(8, "rank_exit", 0, "\"rank\":2,\"pid\":1,\"code\":1");
    event(10, "rank_exit", 1, "\"rank\":0,\"pid\":2,\"code\":1");
    ck_assert_int_eq(history_finish(&h), 0);
    ck_assert_int_eq(h.runs[0].fate, FATE_FAILED); /* before it */
    ck_assert_int_eq(h.runs[1].fate, FATE_STOPPED);
    ck_assert_int_eq(h.runs[2].fate, FATE_FAILED); /* it is about this one */
    ck_assert_int_eq(h.runs[3].fate, FATE_FAILED); /* of another generation */
}
END_TEST

START_TEST(node_events_have_texts)
{
    event(0, "shrink", 0, "\"rank\":3,\"lrank\":3,\"counted\":false");
    event(1, "leaving", 0, "\"state\":\"announced\",\"signal\":\"SIGUSR1\",\"grace_ms\":1000");
    event(2, "leaving", 0, "\"state\":\"saved\",\"signal\":\"SIGUSR1\"");
    event(3, "leaving", 0, "\"state\":\"new\",\"signal\":\"SIGUSR1\"");
    ck_assert_int_eq(history_finish(&h), 0);
    ck_assert_uint_eq(h.n_marks, 4);
    ck_assert_str_eq(h.marks[0].kind, "shrink");
    ck_assert(h.marks[0].is_trouble && !h.marks[1].is_trouble);
    ck_assert_str_eq(h.marks[0].text, "rank 3 failed: continuing without it (not counted)");
    ck_assert_str_eq(h.marks[1].kind, "leaving");
    ck_assert_ptr_nonnull(strstr(h.marks[1].text, "before they are stopped (SIGUSR1)"));
    ck_assert_ptr_nonnull(strstr(h.marks[2].text, "all ranks saved their state in time"));
    ck_assert_str_eq(h.marks[3].text, "n1: leaving, new");
}
END_TEST

/* Each look at all runs, or at all stops, would take minutes with a sanitizer. */
START_TEST(many_runs_and_stops_are_read)
{
    char more[64];
    const int n = HISTORY_MAX_EVENTS / 4;
    for (int i = 0; i < n; i++) {
        snprintf(more, sizeof more, "\"rank\":%d,\"pid\":7", i % 2);
        event(1, "rank_start", 0, more);
    }
    for (int i = 0; i < n; i++) {
        event(2, "stop", 0, "\"why\":\"failure\",\"rank\":1");
        event(3, "rank_exit", 0, "\"rank\":2,\"pid\":7,\"code\":1");
    }
    for (int i = 0; i < n; i++)
        event(3, "rank_exit", 0, "\"rank\":0,\"pid\":7,\"code\":1");
    ck_assert_int_eq(history_finish(&h), 0);
    ck_assert_uint_eq(h.n_unread, n + n / 2);
    ck_assert_int_eq(h.runs[0].fate, FATE_STOPPED);
    ck_assert_int_eq(h.runs[1].fate, FATE_RUNS);
}
END_TEST

static const struct history_live *live; /* NULL: the page of a file */

static char *print(void)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    ck_assert_int_eq(history_finish(&h), 0);
    ck_assert_int_eq(history_page_print(&h, "0.1", live, out), 0);
    fclose(out);
    return text;
}

START_TEST(a_page_is_complete_and_loads_nothing_else)
{
    add_a_job_with_a_restart();
    char *page = print();
    ck_assert_ptr_nonnull(strstr(page, "<h1>Job job7</h1>"));
    ck_assert_ptr_nonnull(strstr(page, "a.py &lt;b&gt;"));
    ck_assert_ptr_nonnull(strstr(page, "killed by SIGSEGV"));
    ck_assert_ptr_nonnull(strstr(page, "rank 1 failed: stopping its peers"));
    ck_assert_ptr_nonnull(strstr(page, "<svg id=\"steps\""));
    ck_assert_ptr_nonnull(strstr(page, "default-src 'none'"));
    ck_assert_ptr_null(strstr(page, "http://"));
    ck_assert_ptr_null(strstr(page, "https://"));
    ck_assert_ptr_null(strstr(page, "<script"));
    ck_assert_ptr_null(strstr(page, "nan"));
    free(page);
}
END_TEST

START_TEST(failures_are_shown_in_the_order_of_their_times)
{
    for (int rank = 0; rank < 3; rank++) {
        char text[64];
        snprintf(text, sizeof text, "\"rank\":%d,\"pid\":%d", rank, 10 + rank);
        event(0, "rank_start", 0, text);
    }
    event(2, "rank_exit", 0, "\"rank\":2,\"pid\":12,\"code\":7");
    event(3, "rank_exit", 0, "\"rank\":0,\"pid\":10,\"code\":8");
    event(3, "rank_exit", 0, "\"rank\":1,\"pid\":11,\"code\":9");
    char *page = print();
    const char *first = strstr(page, "exit status 7"), *second = strstr(page, "exit status 8"),
               *third = strstr(page, "exit status 9");
    ck_assert(first != NULL && second != NULL && third != NULL);
    ck_assert(first < second && second < third);
    free(page);
}
END_TEST

static void print_now(void *arg, FILE *out)
{
    fprintf(out, "<p>%s</p>\n", (const char *)arg);
}

START_TEST(the_page_of_a_running_job_can_be_made_again_and_again)
{
    char now[] = "now";
    const struct history_live running = {.print = print_now, .arg = now};
    live = &running;
    for (int i = 0; i < 3; i++) {
        event(i, "rank_start", i, "\"rank\":0,\"pid\":10");
        history_set_now(&h, 1010 + i);
        char *page = print();
        ck_assert_ptr_nonnull(strstr(page, "Running for 1"));
        ck_assert_ptr_nonnull(strstr(page, "<p>now</p>"));
        ck_assert_ptr_nonnull(strstr(page, "script-src 'sha256-"));
        ck_assert_ptr_nonnull(strstr(page, "rank 0, generation 0: running after 1"));
        ck_assert_ptr_null(strstr(page, "unknown"));
        free(page);
        ck_assert_uint_eq(h.n_runs, i + 1);
    }
    live = NULL;
}
END_TEST

START_TEST(the_goodput_is_that_of_the_first_node_and_of_the_last_event)
{
    char more[256];
    for (int i = 1; i <= 3; i++) {
        snprintf(more, sizeof more,
                 "\"ratio\":0.5,\"by_steps\":true,\"total_s\":%d,\"seconds\":{\"start\":%d,"
                 "\"<b>\":1,\"hang\":-1,\"restart\":1e300,\"productive\":\"x\"}",
                 2 * i, i);
        event(i, "goodput", 0, more);
    }
    event(2, "goodput", 0, "\"total_s\":77");
    add("{\"ev\":\"goodput\",\"t\":1009,\"job\":\"job7\",\"node\":1,\"total_s\":99}");
    char *page = print();
    ck_assert_double_eq(h.goodput.total_s, 6);
    ck_assert_int_eq(h.goodput.n_causes, 2);
    ck_assert_ptr_nonnull(strstr(page, "<h2>Goodput</h2>\n<p><b>50.0 %</b> of 6.00 s</p>"));
    ck_assert_ptr_nonnull(strstr(page, "start 3.00 s"));
    ck_assert_ptr_null(strstr(page, "<b>:"));
    free(page);
}
END_TEST

START_TEST(no_text_leaves_its_element)
{
    add("{\"ev\":\"job_start\",\"t\":1000,\"job\":\"</title><script>alert(1)</script>\","
        "\"host\":\"\\\"><img src=x>\",\"argv\":[\"<script>\",null,7],\"ranks\":1}");
    add("{\"ev\":\"rank_start\",\"t\":1000,\"job\":\"</title><script>alert(1)</script>\","
        "\"host\":\"'><b>\",\"rank\":0,\"pid\":1}");
    add("{\"ev\":\"<script>\",\"t\":1001,\"job\":\"</title><script>alert(1)</script>\"}");
    char *page = print();
    ck_assert_ptr_null(strstr(page, "<script"));
    ck_assert_ptr_null(strstr(page, "<img"));
    ck_assert_ptr_null(strstr(page, "<b>"));
    ck_assert_ptr_nonnull(strstr(page, "&lt;script&gt;"));
    free(page);
}
END_TEST

START_TEST(pages_of_huge_jobs_are_bounded)
{
    char more[64];
    for (int i = 0; i < 30000; i++) {
        snprintf(more, sizeof more, "\"rank\":%d,\"pid\":%d", i % 5000, i);
        event(i, "rank_start", i / 5000, more);
    }
    char *page = print();
    ck_assert_uint_lt(strlen(page), 10 << 20);
    ck_assert_ptr_nonnull(strstr(page, "2048 of 5000 ranks"));
    free(page);
}
END_TEST

START_TEST(a_history_of_one_moment_makes_a_page)
{
    event(0, "job_start", 0, "\"argv\":[],\"ranks\":1");
    char *page = print();
    ck_assert_ptr_null(strstr(page, "nan"));
    ck_assert_ptr_null(strstr(page, "inf"));
    free(page);
}
END_TEST

static const struct {
    const char *text, *html;
} texts[] = {
    {"", ""},
    {"a & b", "a &amp; b"},
    {"<\"'>", "&lt;&quot;&#39;&gt;"},
    {"\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80"},
    {"a\x1b[0m\x7f", "a\xef\xbf\xbd[0m\xef\xbf\xbd"},
    {"\xff"
     "a",
     "\xef\xbf\xbd"
     "a"},
    {"\xc3", "\xef\xbf\xbd"},
    {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xe0\x80\xaf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xc2\x9b", "\xef\xbf\xbd"},
    {"line\nnext\t", "line\nnext\t"},
};

START_TEST(text_is_escaped_in_html)
{
    char *html = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&html, &n);
    co_escape_html(texts[_i].text, out);
    fclose(out);
    ck_assert_str_eq(html, texts[_i].html);
    free(html);
}
END_TEST

TEST_SUITE(history)
{
    Suite *suite = suite_create("history");
    TCase *tc = tcase_create("history");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, each_run_of_a_rank_has_its_outcome);
    tcase_add_test(tc, the_worst_outcome_of_several_nodes_counts);
    tcase_add_test(tc, nodes_that_start_and_end_together_are_one_line);
    tcase_add_test(tc, events_of_other_jobs_are_left_out);
    tcase_add_loop_test(tc, unreadable_lines_are_counted, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(tc, the_number_of_events_is_bounded);
    tcase_add_test(tc, an_exit_ends_the_latest_run_of_its_pid);
    tcase_add_test(tc, a_stop_counts_for_its_node_from_then_on);
    tcase_add_test(tc, node_events_have_texts);
    tcase_add_test(tc, many_runs_and_stops_are_read);
    tcase_add_test(tc, a_page_is_complete_and_loads_nothing_else);
    tcase_add_test(tc, failures_are_shown_in_the_order_of_their_times);
    tcase_add_test(tc, the_page_of_a_running_job_can_be_made_again_and_again);
    tcase_add_test(tc, the_goodput_is_that_of_the_first_node_and_of_the_last_event);
    tcase_add_test(tc, no_text_leaves_its_element);
    tcase_add_test(tc, pages_of_huge_jobs_are_bounded);
    tcase_add_test(tc, a_history_of_one_moment_makes_a_page);
    tcase_add_loop_test(tc, text_is_escaped_in_html, 0, (int)(sizeof texts / sizeof *texts));
    suite_add_tcase(suite, tc);
    return suite;
}
