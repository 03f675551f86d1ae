/* The words of the commands that ask a job. */
#include "common/error.h"
#include "ctl/ctl_job_cli.h"
#include "tests/support/suite.h"
#include "tests/support/words.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Words are parted by blanks. returns as ctl_job_cli_parse() */
static int parse(const char *line, struct ctl_job_task *task, struct co_error *err)
{
    int n;
    char **words = words_split("", line, &n);
    return ctl_job_cli_parse(n, words, task, err);
}

static struct ctl_job_task parsed(const char *line)
{
    struct ctl_job_task task;
    struct co_error err = {0};
    ck_assert_msg(parse(line, &task, &err) == 0, "%s", err.text);
    ck_assert(!task.is_help);
    return task;
}

START_TEST(each_command_has_its_operands)
{
    struct ctl_job_task task = parsed("ps");
    ck_assert_int_eq(task.command, CTL_PS);
    ck_assert_ptr_null(task.job);
    ck_assert_uint_eq(task.watch_ms, 0);
    ck_assert_uint_eq(task.timeout_ms, 5000);
    task = parsed("status");
    ck_assert_ptr_null(task.job);
    task = parsed("status job7");
    ck_assert_str_eq(task.job, "job7");
    task = parsed("top");
    ck_assert_uint_eq(task.watch_ms, 1000);
    ck_assert(!task.once);
    task = parsed("top -d 0.5 --once -o cpu job7");
    ck_assert_uint_eq(task.watch_ms, 500);
    ck_assert(task.once);
    ck_assert_int_eq(task.order, TOP_BY_CPU);
    task = parsed("report -o page.html events.jsonl --run-id job7");
    ck_assert_str_eq(task.job, "events.jsonl");
    ck_assert_str_eq(task.output, "page.html");
    ck_assert_str_eq(task.run_id, "job7");
    task = parsed("logs 3");
    ck_assert_int_eq(task.rank, 3);
    ck_assert_ptr_null(task.job);
    task = parsed("logs 3 job7");
    ck_assert_str_eq(task.job, "job7");
    task = parsed("stop");
    ck_assert_int_eq(task.signal, SIGTERM);
    ck_assert(!task.this_node);
    task = parsed("stack all");
    ck_assert_int_eq(task.rank, -1);
    ck_assert_int_eq(task.signal, 0); /* ddpctl sends a signal only on request */
    ck_assert(!task.no_tools);
    ck_assert_uint_eq(task.timeout_ms, 90000);
    task = parsed("stack 3 -n -s USR2 job7");
    ck_assert_int_eq(task.rank, 3);
    ck_assert_int_eq(task.signal, SIGUSR2);
    ck_assert(task.no_tools);
    ck_assert_str_eq(task.job, "job7");
    task = parsed("restart job7");
    ck_assert_int_eq(task.command, CTL_RESTART);
}
END_TEST

START_TEST(options_may_be_anywhere)
{
    struct ctl_job_task task = parsed("logs --json 3 -f job7 -t 1.5s");
    ck_assert(task.json && task.follow);
    ck_assert_int_eq(task.rank, 3);
    ck_assert_str_eq(task.job, "job7");
    ck_assert_uint_eq(task.timeout_ms, 1500);
    task = parsed("status -- --start");
    ck_assert_str_eq(task.job, "--start");
    ck_assert(!task.start);
    task = parsed("status --start --watch=250ms job7");
    ck_assert(task.start);
    ck_assert_uint_eq(task.watch_ms, 250);
    task = parsed("status --watch job7"); /* its value only follows '=' */
    ck_assert_str_eq(task.job, "job7");
    ck_assert_uint_eq(task.watch_ms, 1000);
    task = parsed("ps --watch=0");
    ck_assert_uint_gt(task.watch_ms, 0); /* a machine has other things to do */
    task = parsed("stop -s INT --node");
    ck_assert_int_eq(task.signal, SIGINT);
    ck_assert(task.this_node);
}
END_TEST

START_TEST(a_signal_has_a_name_or_a_number)
{
    ck_assert_int_eq(ctl_job_cli_signal("USR1"), SIGUSR1);
    ck_assert_int_eq(ctl_job_cli_signal("SIGUSR1"), SIGUSR1);
    ck_assert_int_eq(ctl_job_cli_signal("10"), 10);
    ck_assert_int_eq(ctl_job_cli_signal("0"), 0);
    ck_assert_int_eq(ctl_job_cli_signal("65"), 0);
    ck_assert_int_eq(ctl_job_cli_signal("usr1"), 0);
    ck_assert_int_eq(ctl_job_cli_signal(""), 0);
}
END_TEST

static const struct {
    const char *line, *error;
} bad[] = {
    {"ps job7", "ps: too many arguments; usage: ddpctl ps "},
    {"status a b", "status: too many arguments; usage: ddpctl status [JOB]"},
    {"status a b c", "status: too many arguments; usage: ddpctl status [JOB]"},
    {"logs", "logs: missing arguments; usage: ddpctl logs RANK [JOB]"},
    {"logs all", "invalid value 'all' for RANK: expected a number"},
    {"report", "report: missing arguments; usage: ddpctl report JOB|FILE"},
    {"stack", "stack: missing arguments; usage: ddpctl stack RANK|all [JOB]"},
    {"stack every", "invalid value 'every' for RANK: expected a number"},
    {"logs job7", "invalid value 'job7' for RANK: expected a number"},
    {"logs -1", "unknown option '-1'; try --help"},
    {"logs 10000000", "invalid value '10000000' for RANK: expected a number from 0 to 9999999"},
    {"top --order size",
     "invalid value 'size' for --order: expected one of rank, cpu, memory, own"},
    {"stop --signal FOO",
     "invalid value 'FOO' for --signal: expected a signal such as TERM, SIGUSR1 or 9"},
    {"status --follow", "unknown option '--follow'; try --help"},
    {"ps --timeout soon",
     "invalid value 'soon' for --timeout: expected a duration such as 90, 1.5s, 250ms, 10m or 2h"},
    {"ps --watch=now",
     "invalid value 'now' for --watch: expected a duration such as 90, 1.5s, 250ms, 10m or 2h"},
};

START_TEST(wrong_usage_is_named)
{
    struct ctl_job_task task;
    struct co_error err = {0};
    ck_assert_int_eq(parse(bad[_i].line, &task, &err), -EINVAL);
    ck_assert_str_eq(err.text, bad[_i].error);
}
END_TEST

START_TEST(help_works_with_invalid_arguments)
{
    struct ctl_job_task task;
    ck_assert_int_eq(parse("logs --help", &task, NULL), 0);
    ck_assert(task.is_help);
    ck_assert_int_eq(parse("status a b -h", &task, NULL), 0);
    ck_assert(task.is_help);
}
END_TEST

TEST_SUITE(ctl_job_cli)
{
    Suite *suite = suite_create("ctl_job_cli");
    TCase *tc = tcase_create("ctl_job_cli");
    tcase_add_test(tc, each_command_has_its_operands);
    tcase_add_test(tc, options_may_be_anywhere);
    tcase_add_test(tc, a_signal_has_a_name_or_a_number);
    tcase_add_loop_test(tc, wrong_usage_is_named, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(tc, help_works_with_invalid_arguments);
    suite_add_tcase(suite, tc);
    return suite;
}
