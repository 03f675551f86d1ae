/* The requests that ddpctl sends to ddprun. */
#include "common/error.h"
#include "console/job_request.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static const struct {
    const char *line;
    struct job_request request;
} good[] = {
    {"status\n", {.type = JOB_REQUEST_STATUS}},
    {"logs 0 0\n", {.type = JOB_REQUEST_LOGS}},
    {"logs 9999999 9223372036854775807\n",
     {.type = JOB_REQUEST_LOGS, .rank = 9999999, .from = INT64_MAX}},
    {"stop job 15\n", {.type = JOB_REQUEST_STOP, .whole_job = true, .signal = 15}},
    {"stop node 64\n", {.type = JOB_REQUEST_STOP, .signal = 64}},
    {"restart\n", {.type = JOB_REQUEST_RESTART}},
    {"stack all 0 proc\n", {.type = JOB_REQUEST_STACK, .rank = -1}},
    {"stack 7 12 tools\n", {.type = JOB_REQUEST_STACK, .rank = 7, .signal = 12, .has_tools = true}},
};

START_TEST(a_request_is_read_as_it_was_written)
{
    struct job_request r;
    struct co_error err = {0};
    char line[JOB_REQUEST_BYTES];
    const struct job_request *wanted = &good[_i].request;
    ck_assert_uint_eq(job_request_write(wanted, line), strlen(good[_i].line));
    ck_assert_str_eq(line, good[_i].line);
    ck_assert_msg(job_request_read(line, strlen(line) - 1, &r, &err) == 0, "%s", err.text);
    ck_assert_int_eq(r.type, wanted->type);
    ck_assert_int_eq(r.rank, wanted->rank);
    ck_assert_uint_eq(r.from, wanted->from);
    ck_assert(r.whole_job == wanted->whole_job);
    ck_assert(r.has_tools == wanted->has_tools);
    ck_assert_int_eq(r.signal, wanted->signal);
}
END_TEST

static const struct {
    const char *line, *error;
} bad[] = {
    {"", "unknown request ''; use a ddpctl of the same version"},
    {"Status", "unknown request 'Status'; use a ddpctl of the same version"},
    {"status ", "request 'status' has 1 words, expected 2"},
    {" status", "unknown request ''; use a ddpctl of the same version"},
    {"status\t", "the request contains invalid text"},
    {"stat\xc3\xbcs", "the request contains invalid text"},
    {"logs 1", "request 'logs' has 3 words, expected 2"},
    {"logs 1 2 3 4 5 6", "request 'logs' has 3 words, expected 5"},
    {"logs  1", "invalid value '' for the rank: expected a number"},
    {"logs -1 0", "invalid value '-1' for the rank: expected a number"},
    {"logs +1 0", "invalid value '+1' for the rank: expected a number"},
    {"logs 01 0", "invalid value '01' for the rank: expected a number"},
    {"logs 1x 0", "invalid value '1x' for the rank: expected a number"},
    {"logs 10000000 0",
     "invalid value '10000000' for the rank: expected a number from 0 to 9999999"},
    {"logs 1 9223372036854775808", "invalid value '9223372036854775808' for the beginning: "
                                   "expected a number from 0 to 9223372036854775807"},
    {"stop all 15", "invalid value 'all' for stop: expected job or node"},
    {"stop job 0", "invalid signal 0"},
    {"stack every 0 proc", "invalid value 'every' for the rank: expected a number"},
    {"stack all 0", "request 'stack' has 4 words, expected 3"},
    {"stack all -1 proc", "invalid value '-1' for the signal: expected a number"},
    {"stack all 0 gdb", "invalid value 'gdb' for stack: expected tools or proc"},
    {"stop job 65", "invalid value '65' for the signal: expected a number from 0 to 64"},
};

START_TEST(an_invalid_request_is_refused_with_its_reason)
{
    struct job_request r = {.rank = 7};
    struct co_error err = {0};
    ck_assert_int_eq(job_request_read(bad[_i].line, strlen(bad[_i].line), &r, &err), -EINVAL);
    ck_assert_str_eq(err.text, bad[_i].error);
    ck_assert_int_eq(r.rank, 7); /* left alone */
}
END_TEST

START_TEST(long_lines_are_bounded)
{
    char line[4096];
    struct job_request r;
    struct co_error err = {0};
    memset(line, 'a', sizeof line);
    ck_assert_int_eq(job_request_read(line, sizeof line, &r, &err), -EINVAL);
    ck_assert_str_eq(err.text, "the request exceeds 127 bytes");
    ck_assert_int_eq(job_request_read(line, JOB_REQUEST_BYTES - 1, &r, &err), -EINVAL);
    ck_assert_int_eq(strncmp(err.text, "unknown request 'aaa", 20), 0);
    memset(line, '\0', sizeof line);
    ck_assert_int_eq(job_request_read(line, 3, &r, &err), -EINVAL);
}
END_TEST

TEST_SUITE(job_request)
{
    Suite *suite = suite_create("job_request");
    TCase *tc = tcase_create("job_request");
    tcase_add_loop_test(tc, a_request_is_read_as_it_was_written, 0,
                        (int)(sizeof good / sizeof *good));
    tcase_add_loop_test(tc, an_invalid_request_is_refused_with_its_reason, 0,
                        (int)(sizeof bad / sizeof *bad));
    tcase_add_test(tc, long_lines_are_bounded);
    suite_add_tcase(suite, tc);
    return suite;
}
