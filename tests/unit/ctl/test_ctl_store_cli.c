/* The words of `ddpctl store`. */
#include "common/error.h"
#include "ctl/ctl_store_cli.h"
#include "tests/support/suite.h"
#include "tests/support/words.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct ctl_store_env env;

static void set_up(void)
{
    env = (struct ctl_store_env){0};
}

/* Words are parted by blanks. returns as ctl_store_cli_parse() */
static int parse(const char *line, struct ctl_store_task *task, struct co_error *err)
{
    int n;
    char **words = words_split("store", line, &n);
    return ctl_store_cli_parse(n, words, &env, task, err);
}

static struct ctl_store_task parsed(const char *line)
{
    struct ctl_store_task task;
    struct co_error err = {0};
    ck_assert_msg(parse(line, &task, &err) == 0, "%s", err.text);
    ck_assert(!task.is_help);
    return task;
}

START_TEST(each_action_has_its_operands)
{
    struct ctl_store_task task = parsed("get k");
    ck_assert_int_eq(task.action, CTL_STORE_GET);
    ck_assert_int_eq(task.n_keys, 1);
    ck_assert_str_eq(task.keys[0], "k");
    ck_assert(!task.raw && !task.is_prefix && !task.is_full);

    task = parsed("set k v");
    ck_assert_int_eq(task.n_keys, 1);
    ck_assert_str_eq(task.value, "v");
    task = parsed("set k -");
    ck_assert_ptr_null(task.value);

    task = parsed("add k");
    ck_assert_int_eq(task.delta, 1);
    task = parsed("add k -9223372036854775808");
    ck_assert_int_eq(task.n_keys, 1);
    ck_assert_int_eq(task.delta, INT64_MIN);

    task = parsed("wait a b c");
    ck_assert_int_eq(task.n_keys, 3);
    ck_assert_str_eq(task.keys[2], "c");
    task = parsed("delete a b");
    ck_assert_int_eq(task.n_keys, 2);
    task = parsed("dump");
    ck_assert_int_eq(task.n_keys, 0);
    task = parsed("dump --full pre");
    ck_assert(task.is_full);
    ck_assert_str_eq(task.keys[0], "pre");
}
END_TEST

START_TEST(options_may_precede_or_follow_the_action)
{
    struct ctl_store_task task = parsed("-e node7:1 --raw delete -t 1.5s --prefix torch.");
    ck_assert_str_eq(task.host, "node7");
    ck_assert_uint_eq(task.port, 1);
    ck_assert_uint_eq(task.timeout_ms, 1500);
    ck_assert(task.raw && task.is_prefix);
    task = parsed("set k --raw"); /* but a value is a value */
    ck_assert_str_eq(task.value, "--raw");
    ck_assert(!task.raw);
    task = parsed("get -- -k");
    ck_assert_str_eq(task.keys[0], "-k");
}
END_TEST

START_TEST(the_endpoint_has_defaults)
{
    struct ctl_store_task task = parsed("dump");
    ck_assert_str_eq(task.host, "127.0.0.1");
    ck_assert_uint_eq(task.port, 29400);
    task = parsed("dump -e [fd00::7]");
    ck_assert_str_eq(task.host, "fd00::7");
    ck_assert_uint_eq(task.port, 29400);
    env.master_addr = "node7";
    task = parsed("dump"); /* an address without a port does not count */
    ck_assert_str_eq(task.host, "127.0.0.1");
    env.master_port = "4711";
    task = parsed("dump");
    ck_assert_str_eq(task.host, "node7");
    ck_assert_uint_eq(task.port, 4711);
    task = parsed("dump -e localhost"); /* MASTER_PORT does not apply to another address */
    ck_assert_str_eq(task.host, "localhost");
    ck_assert_uint_eq(task.port, 29400);
}
END_TEST

START_TEST(a_wait_has_more_time)
{
    ck_assert_uint_eq(parsed("get k").timeout_ms, 10000);
    ck_assert_uint_eq(parsed("wait k").timeout_ms, 300000);
    ck_assert_uint_eq(parsed("wait -t 1 k").timeout_ms, 1000);
}
END_TEST

static const struct {
    const char *line, *error;
} bad[] = {
    {"", "store: no action given; try ddpctl store --help"},
    {"--raw", "store: no action given; try ddpctl store --help"},
    {"got k", "store: unknown action 'got'; try ddpctl store --help"},
    {"get", "store get: missing arguments; usage: ddpctl store get KEY"},
    {"get a b", "store get: too many arguments; usage: ddpctl store get KEY"},
    {"set k", "store set: missing arguments; usage: ddpctl store set KEY VALUE"},
    {"set k v w", "store set: too many arguments; usage: ddpctl store set KEY VALUE"},
    {"add k 1 2", "store add: too many arguments; usage: ddpctl store add KEY [N]"},
    {"add k one", "invalid value 'one' for N: expected a number"},
    {"add k 9223372036854775808", "invalid value '9223372036854775808' for N: expected a number "
                                  "from -9223372036854775808 to 9223372036854775807"},
    {"wait", "store wait: missing arguments; usage: ddpctl store wait KEY..."},
    {"dump a b", "store dump: too many arguments; usage: ddpctl store dump [PREFIX]"},
    {"get --prefix k", "store get: --prefix can be used with delete only"},
    {"delete --prefix a b", "store delete: --prefix takes one KEY"},
    {"get --full k", "store get: --full can be used with dump only"},
    {"get -e :1 k",
     "invalid value ':1' for -e: expected HOST[:PORT], with an IPv6 address in brackets"},
    {"get --endpoint n:x k",
     "invalid value 'n:x' for --endpoint: 'x' is not a port from 0 to 65535"},
    {"get -t soon k",
     "invalid value 'soon' for -t: expected a duration such as 90, 1.5s, 250ms, 10m or 2h"},
    {"get --endpint x k", "unknown option '--endpint': did you mean '--endpoint'?"},
};

START_TEST(wrong_usage_is_named)
{
    struct ctl_store_task task;
    struct co_error err = {0};
    ck_assert_int_eq(parse(bad[_i].line, &task, &err), -EINVAL);
    ck_assert_str_eq(err.text, bad[_i].error);
}
END_TEST

START_TEST(an_invalid_environment_is_named)
{
    struct ctl_store_task task;
    struct co_error err = {0};
    char long_host[400];
    env = (struct ctl_store_env){"node7", "http"};
    ck_assert_int_eq(parse("dump", &task, &err), -EINVAL);
    ck_assert_str_eq(err.text, "invalid value 'http' for MASTER_PORT: expected a number");
    env = (struct ctl_store_env){"", "1"};
    ck_assert_int_eq(parse("dump", &task, &err), -EINVAL);
    ck_assert_str_eq(err.text, "invalid value '' for MASTER_ADDR: expected a host");
    memset(long_host, 'x', sizeof long_host - 1);
    long_host[sizeof long_host - 1] = '\0';
    env = (struct ctl_store_env){long_host, "1"};
    ck_assert_int_eq(parse("dump", &task, &err), -EINVAL);
    ck_assert_int_eq(parse("dump -e node7", &task, &err), 0);
}
END_TEST

START_TEST(help_works_with_invalid_arguments)
{
    struct ctl_store_task task;
    ck_assert_int_eq(parse("--help", &task, NULL), 0);
    ck_assert(task.is_help);
    ck_assert_int_eq(parse("get -h", &task, NULL), 0);
    ck_assert(task.is_help);
}
END_TEST

TEST_SUITE(ctl_store_cli)
{
    Suite *suite = suite_create("ctl_store_cli");
    TCase *tc = tcase_create("ctl_store_cli");
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_test(tc, each_action_has_its_operands);
    tcase_add_test(tc, options_may_precede_or_follow_the_action);
    tcase_add_test(tc, the_endpoint_has_defaults);
    tcase_add_test(tc, a_wait_has_more_time);
    tcase_add_loop_test(tc, wrong_usage_is_named, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(tc, an_invalid_environment_is_named);
    tcase_add_test(tc, help_works_with_invalid_arguments);
    suite_add_tcase(suite, tc);
    return suite;
}
