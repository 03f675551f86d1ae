/* /metrics and the page of a running job, of a node that is made up. */
#include "launcher/diagnosis/ras_report.h"
#include "launcher/job/job_spec.h"
#include "launcher/reporting/health_list.h"
#include "launcher/reporting/job_figures.h"
#include "launcher/reporting/live_page.h"
#include "launcher/reporting/metrics.h"
#include "launcher/reporting/status_json.h"
#include "launcher/supervisor/goodput.h"
#include "launcher/supervisor/pace.h"
#include "launcher/supervisor/supervisor.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct job_spec spec;
static struct supervisor *supervisor;
static struct status_rank ranks[2];
static struct pace pace;
static struct goodput_sums goodput;
static struct status status;
static char *text;

static void set_up(void)
{
    const struct supervisor_limits limits = {.n_ranks = 2, .window = 2};
    supervisor = supervisor_create(&limits);
    ck_assert_ptr_nonnull(supervisor);
    spec = (struct job_spec){.n_local = 2, .run_id = "a\"b\\c\nd", .max_restarts = 3};
    memset(ranks, 0, sizeof ranks);
    pace = (struct pace){.slowest = -1};
    goodput = (struct goodput_sums){.total_ms = 2000, .now = GOODPUT_PRODUCTIVE};
    goodput.sum_ms[GOODPUT_PRODUCTIVE] = 1500;
    goodput.sum_ms[GOODPUT_START] = 500;
    status = (struct status){.spec = &spec,
                             .supervisor = supervisor,
                             .ranks = ranks,
                             .pace = &pace,
                             .goodput = &goodput,
                             .host = "n1",
                             .version = "0.1",
                             .n_nodes = 2,
                             .world = 4,
                             .first_rank = 2,
                             .now_ms = 12000,
                             .begun_ms = 10000};
}

static void tear_down(void)
{
    supervisor_destroy(supervisor);
    free(text);
    text = NULL;
}

static void print(void (*printer)(FILE *out))
{
    size_t size;
    free(text);
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    printer(out);
    ck_assert_int_eq(fclose(out), 0);
}

static void print_metrics(FILE *out)
{
    metrics_print(&status, out);
}

#define ASSERT_HAS(part)   ck_assert_msg(strstr(text, part) != NULL, "no %s in: %s", part, text)
#define ASSERT_LACKS(part) ck_assert_msg(strstr(text, part) == NULL, "%s in: %s", part, text)

START_TEST(labels_are_escaped)
{
    print(print_metrics);
    ASSERT_HAS("\nddprun_info{version=\"0.1\",job=\"a\\\"b\\\\c\\nd\",node=\"0\"} 1\n");
}
END_TEST

START_TEST(seconds_have_their_cause)
{
    print(print_metrics);
    ASSERT_HAS("\nddprun_job_seconds{cause=\"start\"} 0.500\n");
    ASSERT_HAS("\nddprun_job_seconds{cause=\"productive\"} 1.500\n");
    ASSERT_HAS("\nddprun_goodput_ratio 0.75\n");
    ASSERT_HAS("\nddprun_state{state=\"waiting\"} 1\n");
    ASSERT_HAS("\nddprun_state{state=\"running\"} 0\n");
}
END_TEST

START_TEST(what_is_not_known_has_no_line)
{
    print(print_metrics);
    ASSERT_LACKS("ddprun_steps ");
    ASSERT_LACKS("ddprun_rank_steps");
    ASSERT_LACKS("ddprun_slowest_rank");
    ASSERT_LACKS("ddprun_last_step_age_seconds");
    ASSERT_LACKS("ddprun_rank_output_age_seconds");
}
END_TEST

START_TEST(steps_are_those_of_the_ranks_that_report_them)
{
    ranks[1] =
        (struct status_rank){.has_progress = true,
                             .own_ns = 250000000,
                             .output_ms = 11500,
                             .progress = {.steps = 7, .steps_before = 5, .step_ns = 11000000000}};
    pace =
        (struct pace){.n_known = 1, .slowest = 1, .share = 0.25, .steps = 12, .step_ns = 500000000};
    print(print_metrics);
    ASSERT_HAS("\nddprun_steps 12\n");
    ASSERT_HAS("\nddprun_last_step_age_seconds 1\n");
    ASSERT_HAS("\nddprun_rank_steps{rank=\"3\"} 12\n");
    ASSERT_LACKS("ddprun_rank_steps{rank=\"2\"}");
    ASSERT_HAS("\nddprun_rank_own_seconds{rank=\"3\"} 0.25\n");
    ASSERT_HAS("\nddprun_rank_output_age_seconds{rank=\"3\"} 0.5\n");
    ASSERT_HAS("\nddprun_slowest_rank 3\n");
    ASSERT_HAS("\nddprun_step_seconds 0.5\n");
}
END_TEST

START_TEST(communicators_of_nccl_are_counted)
{
    struct ras_rank of_comm[3] = {{.rank = 0, .counts = {[4] = 41}},
                                  {.rank = 1, .counts = {[4] = 40}, .async_error = 2},
                                  {.rank = 2, .is_missing = true}};
    struct ras_comm comm = {.size = 3, .n = 3, .ranks = of_comm};
    const struct ras_report report = {.n = 1, .comms = &comm, .apart_ms = 1000};
    print(print_metrics);
    ASSERT_LACKS("ddprun_nccl");
    status.nccl = &report;
    print(print_metrics);
    ASSERT_HAS("\nddprun_nccl_communicators 1\n");
    ASSERT_HAS("\nddprun_nccl_lagging_ranks 1\n");
    ASSERT_HAS("\nddprun_nccl_missing_ranks 1\n");
    ASSERT_HAS("\nddprun_nccl_rank_errors 1\n");
}
END_TEST

static struct message_figures_rank other_ranks[] = {
    {.rank = 4,
     .pid = 77,
     .phase = MESSAGE_PHASE_RUNS,
     .age_ms = 61000,
     .has_steps = true,
     .steps = 20,
     .silent_ms = MESSAGE_MAX_MS},
    {.rank = 5,
     .pid = 78,
     .phase = MESSAGE_PHASE_ENDED,
     .status = 9,
     .restarts = 2,
     .silent_ms = 3},
};
static struct job_figures_node other_nodes[] = {
    {0}, {.heard_ms = 11000, .host = "<n2>", .n = 2, .ranks = other_ranks}, {0}};
static struct job_figures others = {.n_nodes = 3, .begun_ms = 10000, .nodes = other_nodes};

START_TEST(the_ranks_of_other_nodes_are_in_the_metrics_until_they_are_stale)
{
    status.others = &others;
    print(print_metrics);
    ASSERT_HAS("\nddprun_node_age_seconds{node=\"1\",host=\"<n2>\"} 1.000\n");
    ASSERT_HAS("\nddprun_node_age_seconds{node=\"2\",host=\"\"} 2.000\n");
    ASSERT_HAS("\nddprun_steps 20\n");
    ASSERT_HAS("\nddprun_rank_up{rank=\"3\"} 0\nddprun_rank_up{rank=\"4\"} 1\nddprun_rank_up{rank="
               "\"5\"} 0\n");
    ASSERT_HAS("\nddprun_rank_restarts_total{rank=\"5\"} 2\n");
    ASSERT_HAS("\nddprun_rank_output_age_seconds{rank=\"5\"} 0.003\n");
    ASSERT_LACKS("ddprun_rank_output_age_seconds{rank=\"4\"}");
    status.now_ms = 11000 + JOB_FIGURES_STALE_MS;
    print(print_metrics);
    ASSERT_HAS("\nddprun_node_age_seconds{node=\"1\",host=\"<n2>\"} 15.000\n");
    ASSERT_LACKS("{rank=\"4\"}");
    ASSERT_LACKS("ddprun_steps ");
}
END_TEST

static struct live_failure failure;

static void print_live(FILE *out)
{
    live_page_print(&status, &failure, out);
}

START_TEST(the_live_page_escapes_what_ranks_write)
{
    ranks[0].last_line = "<script>alert(1)</script>";
    failure = (struct live_failure){.tail = "a<b>&\n\x1b[1m", .rank = 3, .generation = 2};
    status.waiting = "waiting for <n2>";
    print(print_live);
    ASSERT_HAS("&lt;script&gt;alert(1)");
    ASSERT_HAS("waiting for &lt;n2&gt;");
    ASSERT_HAS("Last lines of rank 3, which failed in generation 2</h2>\n<pre "
               "id=\"tail\">a&lt;b&gt;&amp;\n");
    ASSERT_LACKS("<script>");
    ASSERT_LACKS("\x1b");
}
END_TEST

START_TEST(the_live_page_shows_other_nodes_and_when_they_were_heard)
{
    failure = (struct live_failure){0};
    status.others = &others;
    print(print_live);
    ASSERT_HAS("<tr><td>node 1 on &lt;n2&gt;</td><td class=\"n\">4</td><td "
               "class=\"n\">77</td><td>running</td><td class=\"n\">1 min 1 s</td><td "
               "class=\"n\">0</td><td class=\"n\">20</td><td class=\"n\">-</td></tr>\n");
    ASSERT_HAS("<td class=\"bad\">killed by SIGKILL (Killed)</td>");
    ASSERT_HAS("<tr><td>node 2</td><td colspan=\"7\">no report for 2.00 s</td></tr>\n");
    status.now_ms = 11000 + JOB_FIGURES_STALE_MS;
    print(print_live);
    ASSERT_HAS("<tr><td>node 1 on &lt;n2&gt;</td><td colspan=\"7\" class=\"bad\">no report for ");
    ASSERT_LACKS("<td class=\"n\">77</td>");
}
END_TEST

START_TEST(the_live_page_shows_nodes_that_are_unhealthy_now)
{
    struct health_list list = {.n = 0};
    failure = (struct live_failure){0};
    status.unhealthy = &list;
    print(print_live);
    ASSERT_LACKS("id=\"unhealthy\"");
    health_list_note(&list, "n3", MESSAGE_UNFIT, "<b>GPU 3</b> needs a reset");
    health_list_note(&list, "n4", MESSAGE_UNFIT, "no disk");
    health_list_note(&list, "n4", MESSAGE_FIT, "");
    print(print_live);
    ASSERT_HAS("<table id=\"unhealthy\"><tr><th>node</th><th>reason</th>");
    ASSERT_HAS("<tr><td>n3</td><td class=\"bad\">&lt;b&gt;GPU 3&lt;/b&gt; needs a reset</td>"
               "<td class=\"n\">1</td></tr>\n</table>\n");
    ASSERT_LACKS("no disk");
    health_list_fini(&list);
}
END_TEST

START_TEST(the_live_page_shows_no_tail_before_a_failure)
{
    failure = (struct live_failure){0};
    print(print_live);
    ASSERT_LACKS("id=\"tail\"");
    ASSERT_HAS("not started");
}
END_TEST

START_TEST(the_live_page_marks_a_slow_rank)
{
    failure = (struct live_failure){0};
    ranks[0].own_ns = 1000000;
    pace = (struct pace){.n_known = 2, .slowest = 0, .share = 0.04, .steps = 1, .step_ns = 1};
    print(print_live);
    ASSERT_HAS("<td class=\"n\">1 ms</td>");
    pace.share = 0.05;
    print(print_live);
    ASSERT_HAS("<td class=\"n bad\">1 ms</td>");
}
END_TEST

TEST_SUITE(metrics)
{
    Suite *suite = suite_create("metrics");
    TCase *tc = tcase_create("metrics");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, labels_are_escaped);
    tcase_add_test(tc, seconds_have_their_cause);
    tcase_add_test(tc, what_is_not_known_has_no_line);
    tcase_add_test(tc, steps_are_those_of_the_ranks_that_report_them);
    tcase_add_test(tc, communicators_of_nccl_are_counted);
    tcase_add_test(tc, the_ranks_of_other_nodes_are_in_the_metrics_until_they_are_stale);
    tcase_add_test(tc, the_live_page_shows_other_nodes_and_when_they_were_heard);
    tcase_add_test(tc, the_live_page_escapes_what_ranks_write);
    tcase_add_test(tc, the_live_page_shows_nodes_that_are_unhealthy_now);
    tcase_add_test(tc, the_live_page_shows_no_tail_before_a_failure);
    tcase_add_test(tc, the_live_page_marks_a_slow_rank);
    suite_add_tcase(suite, tc);
    return suite;
}
