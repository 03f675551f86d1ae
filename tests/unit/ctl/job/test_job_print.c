/* A job's status for human eyes; also one that is not as it should be. */
#include "ctl/job/job_print.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const char whole[] =
    "{\"v\":1,\"job\":\"job7\",\"pid\":70,\"host\":\"n1\",\"program\":[\"/a/train.py\",\"--lr\"],"
    "\"state\":\"running\",\"waiting\":null,\"generation\":1,\"age_ms\":61000,\"node\":0,"
    "\"nodes\":2,\"world\":4,\"ranks\":["
    "{\"rank\":0,\"pid\":71,\"state\":\"running\",\"age_ms\":520,\"started_ms\":10,"
    "\"came_ms\":250,\"joined_ms\":310,\"exit_code\":null,\"signal\":null,\"restarts\":1,\"last_"
    "line\":\"loss 1\","
    "\"cpu_percent\":98.6,\"rss_bytes\":1288490189,\"process_state\":\"S\"},"
    "{\"rank\":1,\"pid\":72,\"state\":\"ended\",\"age_ms\":400,\"started_ms\":12,"
    "\"came_ms\":300,\"exit_code\":null,\"signal\":11,\"restarts\":0,\"last_line\":null}]}";

static char *print(int (*printer)(const json_t *, int, FILE *), const char *status, int width)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    json_t *json = json_loads(status, 0, NULL);
    ck_assert_ptr_nonnull(json);
    ck_assert_int_eq(printer(json, width, out), 0);
    json_decref(json);
    fclose(out);
    return text;
}

START_TEST(an_unreachable_peer_is_a_line_above_the_table)
{
    char *text =
        print(job_print_status,
              "{\"job\":\"j\",\"ranks\":[{\"rank\":3,\"unreachable\":\"cannot connect to "
              "rank 5\\n\"},{\"rank\":4,\"unreachable\":null},{\"rank\":5,\"unreachable\":7}]}",
              0);
    const char *line = strstr(text, "\n  rank 3 cannot connect to rank 5");
    ck_assert_ptr_nonnull(line);
    ck_assert_ptr_nonnull(strstr(line, "RANK"));
    ck_assert_ptr_null(strstr(text, "rank 4"));
    ck_assert_ptr_null(strstr(text, "rank 5 "));
    free(text);
}
END_TEST

START_TEST(unhealthy_nodes_are_lines_above_the_table)
{
    char *text = print(job_print_status,
                       "{\"job\":\"j\",\"ranks\":[],\"unhealthy\":[{\"node\":\"n3\",\"reason\":"
                       "\"no disk\\u001b[31m\"},{\"node\":7},5]}",
                       0);
    ck_assert_ptr_nonnull(strstr(text, "\n  node n3 is unhealthy: no disk"));
    ck_assert_ptr_null(strchr(text, '\x1b'));
    free(text);
}
END_TEST

START_TEST(ranks_that_lag_in_nccl_are_lines_above_the_table)
{
    char *text = print(
        job_print_status,
        "{\"job\":\"j\",\"ranks\":[],\"nccl\":{\"nccl\":\"2.28.9\",\"count\":1,\"age_ms\":3000,"
        "\"communicators\":[{\"hash\":\"0x5b\",\"size\":3,\"lagging\":[{\"rank\":1,\"job_rank\":9,"
        "\"op\":\"AllReduce\",\"count\":40,\"most\":41}],\"missing\":[{\"rank\":2,\"job_rank\":"
        "null,"
        "\"pid\":47,\"host\":\"10.0.0.7\",\"dead\":true}],\"errors\":[{\"rank\":0,\"async_error\":"
        "2}]}]}}",
        0);
    ck_assert_ptr_nonnull(strstr(text, "\n  NCCL communicator 0x5b of 3 ranks: rank 9 lags: it has "
                                       "started 40 AllReduce, others 41\n"));
    ck_assert_ptr_nonnull(strstr(text,
                                 "\n  NCCL communicator 0x5b of 3 ranks: its rank 2 (pid 47 on "
                                 "10.0.0.7) does not answer: NCCL considers it dead\n"));
    ck_assert_ptr_nonnull(strstr(text, ": its rank 0 has reported NCCL error 2\n"));
    free(text);
    text = print(job_print_status,
                 "{\"job\":\"j\",\"ranks\":[],\"nccl\":{\"nccl\":\"2.28.9\",\"count\":2,\"age_ms\":"
                 "3000,\"communicators\":[{},{\"lagging\":3}]}}",
                 0);
    ck_assert_ptr_nonnull(
        strstr(text, "\n  NCCL 2.28.9, 3.00 s ago: 2 communicators, no rank lags\n"));
    free(text);
    text = print(job_print_status,
                 "{\"job\":\"j\",\"ranks\":[],\"nccl\":{\"trouble\":\"all\\u001b stopped\"}}", 0);
    ck_assert_ptr_nonnull(strstr(text, "\n  NCCL's RAS, 0.00 s ago: all"));
    ck_assert_ptr_null(strchr(text, '\033'));
    free(text);
}
END_TEST

START_TEST(a_node_and_its_ranks)
{
    char *text = print(job_print_status, whole, 0);
    ck_assert_str_eq(text,
                     "job job7: running, generation 1, uptime 1 min 1 s; node 0 of 2 on n1, pid "
                     "70\n  train.py --lr\n  RANK  PID  STATE    UPTIME  RESTARTS   CPU   MEMORY  "
                     "LAST LINE\n     0   71  running  0.52 s         1  99 %  1.2 GiB  loss 1\n   "
                     "  1   72  SIGSEGV  0.40 s         0     -        -  -\n");
    free(text);
    text = print(job_print_status, whole, 20);
    ck_assert_int_eq(strncmp(text, "job job7: running, g\n  train.py --lr\n", 37), 0);
    free(text);
}
END_TEST

START_TEST(a_start_report_names_the_slowest_rank)
{
    char *text = print(job_print_start, whole, 0);
    ck_assert_ptr_nonnull(
        strstr(text, "  RANK    EXEC  IMPORT  RENDEZVOUS    INIT  FIRST STEP\n     0  0.01 s  0.25 "
                     "s           -  0.31 s           -\n     1  0.01 s  0.30 s           -       "
                     "-           -\n  slowest: rank 1 reached the rendezvous 0.05 s after the "
                     "first one\n  last: rank 0 joined its peers after 0.31 s\n"));
    free(text);
}
END_TEST

START_TEST(the_rendezvous_ends_when_the_last_rank_joins)
{
    static const char start[] = "{\"v\":1,\"world\":2,\"ranks\":["
                                "{\"rank\":0,\"started_ms\":1,\"came_ms\":4000},"
                                "{\"rank\":1,\"started_ms\":2,\"came_ms\":900}]}";
    char *text = print(job_print_start, start, 0);
    ck_assert_ptr_nonnull(strstr(
        text, "     0  0.00 s  4.00 s      4.00 s     -           -\n     1  0.00 s  0.90 s      "
              "4.00 s     -           -\n  slowest: rank 0 reached the rendezvous 3.10 s after the "
              "first one\n  last: rank 0 reached the rendezvous after 4.00 s\n"));
    free(text);
}
END_TEST

START_TEST(a_list_includes_jobs_that_do_not_answer)
{
    char *text = NULL;
    size_t n = 0;
    json_t *status = json_loads(whole, 0, NULL);
    const struct job_print_row rows[] = {
        {NULL, "/tmp/ddprun-abc", 69}, {NULL, NULL, 0}, {status, "/tmp/ddprun-def", 70}};
    FILE *out = open_memstream(&text, &n);
    ck_assert_int_eq(job_print_list(rows, 3, false, 0, out), 0);
    fclose(out);
    ck_assert_str_eq(
        text, "JOB   PID  STATE      NODE  RANKS  GEN     UPTIME  PROGRAM\n?      69  no answer    "
              " -      -    -          -  /tmp/ddprun-abc\n?       -  no answer     -      -    -  "
              "        -  -\njob7   70  running     0/2    1/4    1  1 min 1 s  train.py --lr\n");
    free(text);
    json_decref(status);
}
END_TEST

static const char *const odd[] = {
    "{}",
    "{\"v\":1,\"ranks\":7,\"program\":\"x\",\"job\":1}",
    "{\"v\":1,\"ranks\":[1,null,{},[],{\"rank\":\"x\",\"pid\":1.5,\"last_line\":[]}],"
    "\"program\":[1,null,\"\\u001b[2J\"],\"waiting\":\"\\u001b[2Jwait\"}",
    "{\"ranks\":[{\"rank\":-9223372036854775808,\"age_ms\":9223372036854775807,"
    "\"rss_bytes\":9223372036854775807,\"signal\":9999,\"cpu_percent\":1e308}]}",
};

START_TEST(a_malformed_answer_is_shown_as_far_as_possible)
{
    char *text = print(job_print_status, odd[_i], 80);
    ck_assert_ptr_null(strchr(text, '\033'));
    ck_assert_ptr_nonnull(strstr(text, "RANK"));
    free(text);
    free(print(job_print_start, odd[_i], 80));
}
END_TEST

START_TEST(sizes_have_units)
{
    char buf[JOB_TEXT_BYTES];
    ck_assert_str_eq(job_print_size(512, buf), "512 B");
    ck_assert_str_eq(job_print_size(1536, buf), "1.5 KiB");
    ck_assert_str_eq(job_print_size(200 << 20, buf), "200 MiB");
}
END_TEST

TEST_SUITE(job_print)
{
    Suite *suite = suite_create("job_print");
    TCase *tc = tcase_create("job_print");
    tcase_add_test(tc, ranks_that_lag_in_nccl_are_lines_above_the_table);
    tcase_add_test(tc, a_node_and_its_ranks);
    tcase_add_test(tc, an_unreachable_peer_is_a_line_above_the_table);
    tcase_add_test(tc, unhealthy_nodes_are_lines_above_the_table);
    tcase_add_test(tc, a_start_report_names_the_slowest_rank);
    tcase_add_test(tc, the_rendezvous_ends_when_the_last_rank_joins);
    tcase_add_test(tc, a_list_includes_jobs_that_do_not_answer);
    tcase_add_loop_test(tc, a_malformed_answer_is_shown_as_far_as_possible, 0,
                        (int)(sizeof odd / sizeof *odd));
    tcase_add_test(tc, sizes_have_units);
    suite_add_tcase(suite, tc);
    return suite;
}
