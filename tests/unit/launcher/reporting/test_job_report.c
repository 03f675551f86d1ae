/* The file of --report, of results of several nodes. */
#include "common/error.h"
#include "launcher/reporting/job_report.h"
#include "launcher/reporting/node_result.h"
#include "launcher/reporting/report.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/membership/member.h"
#include "tests/support/suite.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct job_report report;
static struct job_report_end end;
static json_t *written;
static char text[65536]; /* the file, of small ones */

static void set_up(void)
{
    report = (struct job_report){0};
    end = (struct job_report_end){.run_id = "job7",
                                  .host = "n1",
                                  .program = "train.py",
                                  .outcome = "rank_failed",
                                  .exit_code = 9,
                                  .has_others = true,
                                  .node = "n2",
                                  .text = "rank 2 on n2: exit status 9",
                                  .rank = 2,
                                  .n_restarts = 1,
                                  .n_generations = 4,
                                  .duration_ms = 8044};
    written = NULL;
}

static void tear_down(void)
{
    job_report_fini(&report);
    json_decref(written);
}

static void add(uint32_t generation, uint32_t node, uint32_t first, size_t n, const char *cause)
{
    struct message_result_rank *ranks = calloc(n + 1, sizeof *ranks);
    ck_assert_ptr_nonnull(ranks);
    for (uint32_t i = 0; i < n; i++)
        ranks[i] = (struct message_result_rank){.rank = first + i,
                                                .local_rank = (uint16_t)i,
                                                .pid = 100,
                                                .has_ended = true,
                                                .status = 9 << 8,
                                                .duration_ms = 1001};
    const struct message m = {.type = MESSAGE_RESULT,
                              .generation = generation,
                              .result = {.kind = MESSAGE_RESULT_RANKS,
                                         .node_index = node,
                                         .host = node == 0 ? "n1" : "n2",
                                         .cause = cause,
                                         .n_ranks = n,
                                         .ranks = ranks}};
    ck_assert_int_eq(job_report_add(&report, &m), 0);
    free(ranks);
}

static void write_it(void)
{
    char path[] = "/tmp/test_job_report.XXXXXX";
    struct co_error err;
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_msg(job_report_write(&report, &end, path, &err) == 0, "%s", err.text);
    close(fd);
    FILE *in = fopen(path, "r");
    ck_assert_ptr_nonnull(in);
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    fclose(in);
    written = json_load_file(path, 0, NULL);
    unlink(path);
    ck_assert_ptr_nonnull(written);
}

static const json_t *get(const char *key)
{
    return json_object_get(written, key);
}

static json_int_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_integer(value), "%s", key);
    return json_integer_value(value);
}

START_TEST(ranks_of_all_nodes_are_sorted_and_the_cause_is_complete)
{
    add(3, 1, 2, 2, "{\"rank\":2,\"stderr\":\"oops\\n\"}");
    add(3, 0, 0, 2, "");
    write_it();
    ck_assert_uint_eq(json_array_size(get("ranks")), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *rank = json_array_get(get("ranks"), i);
        ck_assert_int_eq(number(rank, "rank"), (int)i);
        ck_assert_int_eq(number(rank, "node"), i / 2);
        ck_assert_str_eq(json_string_value(json_object_get(rank, "host")), i < 2 ? "n1" : "n2");
        ck_assert_int_eq(number(rank, "exit_code"), 9);
    }
    ck_assert_str_eq(json_string_value(json_object_get(get("root_cause"), "stderr")), "oops\n");
    ck_assert_int_eq(number(written, "restarts"), 1);
    ck_assert_int_eq(number(written, "generations"), 4);
}
END_TEST

START_TEST(times_have_three_decimals)
{
    add(0, 0, 0, 1, "");
    write_it();
    ck_assert_ptr_nonnull(strstr(text, "\"duration_s\": 8.044,"));
    ck_assert_ptr_nonnull(strstr(text, "\"duration_s\": 1.001\n"));
}
END_TEST

START_TEST(ranks_of_an_earlier_generation_do_not_count)
{
    add(1, 1, 2, 2, "");
    add(3, 0, 0, 2, "");
    add(2, 1, 2, 2, "");
    add(MESSAGE_NO_GENERATION, 1, 2, 2, "");
    write_it();
    ck_assert_uint_eq(json_array_size(get("ranks")), 2);
}
END_TEST

START_TEST(no_more_ranks_are_kept_than_the_bound)
{
    for (uint32_t i = 0; i < JOB_REPORT_MAX_RANKS / MESSAGE_MAX_LOCAL + 2; i++)
        add(0, i, i * MESSAGE_MAX_LOCAL, MESSAGE_MAX_LOCAL, "");
    ck_assert_uint_eq(report.n_ranks, JOB_REPORT_MAX_RANKS);
}
END_TEST

/* The node was lost before it could report. */
START_TEST(without_its_node_the_cause_comes_from_the_verdict)
{
    static const char *const bad[] = {"", "x", "[]", "{", "null"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        add(0, 1, 0, 0, bad[i]);
    write_it();
    ck_assert_int_eq(number(get("root_cause"), "rank"), 2);
    ck_assert_int_eq(number(get("root_cause"), "exit_code"), 9);
    ck_assert(json_is_null(json_object_get(get("root_cause"), "stderr")));
}
END_TEST

START_TEST(a_job_in_which_no_rank_failed_has_no_cause)
{
    end.outcome = "too_few";
    end.rank = -1;
    end.n_restarts = -1;
    add(0, 1, 0, 1, "{\"rank\":2}");
    write_it();
    ck_assert(json_is_null(get("root_cause")));
    ck_assert(json_is_null(get("restarts")));
    ck_assert(json_is_null(json_object_get(get("verdict"), "rank")));
}
END_TEST

START_TEST(a_file_name_may_have_the_nodes_rank)
{
    ck_assert(!job_report_is_by_node("r.json"));
    ck_assert(job_report_is_by_node("r.{node_rank}.json"));
    char *path = job_report_path("{node_rank}/r.{node_rank}.json", 12);
    ck_assert_str_eq(path, "12/r.12.json");
    free(path);
    path = job_report_path("r.{rank}.json", 12);
    ck_assert_str_eq(path, "r.{rank}.json");
    free(path);
}
END_TEST

/* --- a node's own --- */

/* Of a rank that failed with this on its standard error. */
static void make_result(const char *tail, const char *error, struct node_result *ret)
{
    struct supervisor_orders o;
    const struct supervisor_limits limits = {.n_ranks = 1, .window = 1, .has_others = true};
    struct supervisor *s = supervisor_create(&limits);
    ck_assert_ptr_nonnull(s);
    const struct supervisor_event events[] = {
        {SUPERVISOR_EV_NEXT, .n_ranks = 1},
        {SUPERVISOR_EV_STARTED, .pid = 7},
        {SUPERVISOR_EV_EXITED, .status = 9 << 8, .empty = true},
    };
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        struct supervisor_event e = events[i];
        supervisor_step(s, &e, &o);
    }
    const struct member_end job_end = {
        .by_roster = true, .outcome = MESSAGE_RANK_FAILED, .exit_code = 9, .rank = 2, .text = ""};
    const struct report_job job = {.first_rank = 2, .end = &job_end};
    const struct report r = {
        .supervisor = s, .host = "n2\n", .program = "p", .tail = tail, .error = error, .job = &job};
    const struct node_result_place place = {
        .run_id = "job7", .takes_part = true, .generation = 3, .node_index = 1};
    ck_assert_int_eq(node_result_make(&r, &place, ret), 0);
    supervisor_destroy(s);
}

START_TEST(the_output_of_a_rank_is_sent_as_json)
{
    struct node_result n = {0};
    make_result("caf\xc3\xa9 \x1b[31m\x7f \xc2\x9b \x01\xff\n", "it \"broke\"", &n);
    ck_assert(n.has_cause);
    ck_assert_str_eq(n.host, "n2?");
    for (const unsigned char *c = (const unsigned char *)n.cause; *c != '\0'; c++)
        ck_assert(*c >= ' ' && *c != 0x7f);
    ck_assert_int_eq(job_report_add(&report, &n.message), 0);
    write_it();
    ck_assert_int_eq(number(get("root_cause"), "rank"), 2);
    ck_assert_int_eq(number(get("root_cause"), "node"), 1);
    ck_assert_str_eq(json_string_value(json_object_get(get("root_cause"), "error")),
                     "it \"broke\"");
    node_result_fini(&n);
}
END_TEST

/* Each byte is six of JSON. */
START_TEST(a_long_cause_keeps_the_last_lines)
{
    static char tail[16385], error[4097];
    struct node_result n = {0};
    memset(tail, '\x01', sizeof tail - 1);
    memset(error, '\x01', sizeof error - 1);
    memcpy(tail + sizeof tail - 11, "\nlast line", 10);
    make_result(tail, NULL, &n);
    ck_assert_uint_lt(strlen(n.cause), MESSAGE_CAUSE_BYTES);
    ck_assert_ptr_nonnull(strstr(n.cause, "last line"));
    make_result(tail, error, &n);
    ck_assert_uint_lt(strlen(n.cause), MESSAGE_CAUSE_BYTES);
    node_result_fini(&n);
}
END_TEST

TEST_SUITE(job_report)
{
    Suite *suite = suite_create("job_report");
    TCase *t = tcase_create("job_report");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, ranks_of_all_nodes_are_sorted_and_the_cause_is_complete);
    tcase_add_test(t, times_have_three_decimals);
    tcase_add_test(t, ranks_of_an_earlier_generation_do_not_count);
    tcase_add_test(t, no_more_ranks_are_kept_than_the_bound);
    tcase_add_test(t, without_its_node_the_cause_comes_from_the_verdict);
    tcase_add_test(t, a_job_in_which_no_rank_failed_has_no_cause);
    tcase_add_test(t, a_file_name_may_have_the_nodes_rank);
    tcase_add_test(t, the_output_of_a_rank_is_sent_as_json);
    tcase_add_test(t, a_long_cause_keeps_the_last_lines);
    suite_add_tcase(suite, t);
    return suite;
}
