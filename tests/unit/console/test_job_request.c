/* The words that ddpctl says to ddprun. */
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
    {"", "there is no request ''"},
    {"Status", "there is no request 'Status'"},
    {"status ", "request 'status' has 1 words, not 2"},
    {" status", "there is no request ''"},
    {"status\t", "a request with bytes that are no text"},
    {"stat\xc3\xbcs", "a request with bytes that are no text"},
    {"logs 1", "request 'logs' has 3 words, not 2"},
    {"logs 1 2 3 4 5 6", "request 'logs' has 3 words, not 5"},
    {"logs  1", "the rank '' is no number"},
    {"logs -1 0", "the rank '-1' is no number"},
    {"logs +1 0", "the rank '+1' is no number"},
    {"logs 01 0", "the rank '01' is no number"},
    {"logs 1x 0", "the rank '1x' is not a number"},
    {"logs 10000000 0", "the rank '10000000' is out of bounds: 0 to 9999999"},
    {"logs 1 9223372036854775808",
     "the beginning '9223372036854775808' is out of bounds: 0 to 9223372036854775807"},
    {"stop all 15", "stop 'all': it is job or node"},
    {"stop job 0", "there is no signal 0"},
    {"stack every 0 proc", "the rank 'every' is no number"},
    {"stack all 0", "request 'stack' has 4 words, not 3"},
    {"stack all -1 proc", "the signal '-1' is no number"},
    {"stack all 0 gdb", "stack by 'gdb': it is tools or proc"},
    {"stop job 65", "the signal '65' is out of bounds: 0 to 64"},
};

START_TEST(what_is_no_request_is_named)
{
    struct job_request r = {.rank = 7};
    struct co_error err = {0};
    ck_assert_int_eq(job_request_read(bad[_i].line, strlen(bad[_i].line), &r, &err), -EINVAL);
    ck_assert_str_eq(err.text, bad[_i].error);
    ck_assert_int_eq(r.rank, 7); /* left alone */
}
END_TEST

START_TEST(a_line_of_any_length_is_bounded)
{
    char line[4096];
    struct job_request r;
    struct co_error err = {0};
    memset(line, 'a', sizeof line);
    ck_assert_int_eq(job_request_read(line, sizeof line, &r, &err), -EINVAL);
    ck_assert_str_eq(err.text, "a request of more than 127 bytes");
    ck_assert_int_eq(job_request_read(line, JOB_REQUEST_BYTES - 1, &r, &err), -EINVAL);
    ck_assert_int_eq(strncmp(err.text, "there is no request 'aaa", 24), 0);
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
    tcase_add_loop_test(tc, what_is_no_request_is_named, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(tc, a_line_of_any_length_is_bounded);
    suite_add_tcase(suite, tc);
    return suite;
}
