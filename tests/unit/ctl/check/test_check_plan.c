/* The pairs of nodes that are tested: each pair once, and each node in one pair at a time. Also the
 * options of `ddpctl check`. */
#include "common/error.h"
#include "ctl/check/check_options.h"
#include "ctl/check/check_plan.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 80 };

static bool pairs[MAX_NODES][MAX_NODES];

/* returns how many pairs there were */
static size_t play(size_t n, size_t round)
{
    bool is_busy[MAX_NODES] = {false};
    size_t a, b, n_pairs = 0;
    for (size_t k = 0; check_plan_pair(n, round, k, &a, &b); k++) {
        if (a == b)
            continue;
        ck_assert_uint_lt(a, b);
        ck_assert_uint_lt(b, n);
        ck_assert_msg(!is_busy[a] && !is_busy[b], "%zu nodes, round %zu: %zu-%zu", n, round, a, b);
        is_busy[a] = is_busy[b] = true;
        ck_assert_msg(!pairs[a][b], "%zu nodes: %zu-%zu again", n, a, b);
        pairs[a][b] = true;
        n_pairs++;
    }
    return n_pairs;
}

START_TEST(each_pair_is_measured_once_and_no_node_twice_at_a_time)
{
    for (size_t n = 0; n <= 32; n++) {
        size_t n_pairs = 0;
        memset(pairs, 0, sizeof pairs);
        for (size_t round = 0; round < check_plan_rounds(n); round++)
            n_pairs += play(n, round);
        ck_assert_uint_eq(n_pairs, n > 0 ? n * (n - 1) / 2 : 0);
    }
}
END_TEST

START_TEST(many_nodes_have_as_many_rounds_as_are_allowed)
{
    for (size_t n = 33; n <= MAX_NODES; n++) {
        memset(pairs, 0, sizeof pairs);
        ck_assert_uint_eq(check_plan_rounds(n), CHECK_ROUNDS_MAX);
        for (size_t round = 0; round < CHECK_ROUNDS_MAX; round++)
            ck_assert_uint_eq(play(n, round), n / 2);
    }
}
END_TEST

START_TEST(each_port_is_tried_from_equally_many_nodes)
{
    static size_t n_tries[1024];
    for (size_t n = 1; n <= 1024; n += n < 70 ? 1 : 159) {
        size_t peers[CHECK_PEERS_MAX], n_peers = 0;
        memset(n_tries, 0, sizeof n_tries);
        for (size_t i = 0; i < n; i++) {
            n_peers = check_plan_peers(n, i, peers);
            ck_assert_uint_le(n_peers, CHECK_PEERS_MAX);
            for (size_t k = 0; k < n_peers; k++) {
                ck_assert_uint_ne(peers[k], i);
                n_tries[peers[k]]++;
            }
        }
        for (size_t i = 0; i < n; i++)
            ck_assert_uint_eq(n_tries[i], n_peers);
        if (n <= CHECK_PEERS_MAX + 1)
            ck_assert_uint_eq(n_peers, n - 1);
    }
}
END_TEST

/* --- words --- */

static int parse(const char *line, struct check_task *task, struct co_error *err)
{
    static char text[8192];
    char *words[16], *rest = NULL;
    int n = 0;
    snprintf(text, sizeof text, "check %s", line);
    for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
        words[n++] = word;
    words[n] = NULL;
    return check_options_parse(n, words, task, err);
}

START_TEST(options_select_nodes_and_tests)
{
    struct check_task task;
    ck_assert_int_eq(parse("", &task, NULL), 0);
    ck_assert(task.hosts == NULL && task.hostfile == NULL && !task.net && !task.json);
    ck_assert_uint_eq(task.timeout_ms, 10000);
    ck_assert_int_eq(parse("-H n1,n2 --net -j -t 1.5 -i eth0 --ssh-command=x", &task, NULL), 0);
    ck_assert_str_eq(task.hosts, "n1,n2");
    ck_assert_str_eq(task.interface, "eth0");
    ck_assert_str_eq(task.ssh_command, "x");
    ck_assert(task.net && task.json);
    ck_assert_uint_eq(task.timeout_ms, 1500);
    ck_assert_int_eq(parse("--hostfile f", &task, NULL), 0);
    ck_assert_str_eq(task.hostfile, "f");
    ck_assert_int_eq(parse("-h n1", &task, NULL), 0);
    ck_assert(task.is_help);
}
END_TEST

static const struct {
    const char *line, *error;
} bad[] = {
    {"n1", "check: too many arguments; usage: ddpctl check [OPTION]..."},
    {"-H n1 --hostfile f", "--hosts and --hostfile cannot be used together"},
    {"-t 0", "invalid value '0' for -t: expected a duration greater than 0 and at most 1h"},
    {"-t 2h", "invalid value '2h' for -t: expected a duration greater than 0 and at most 1h"},
    {"--hosts=", "--hosts requires a value"},
    {"-i=", "-i requires a value"},
};

START_TEST(invalid_arguments_are_refused_with_their_reason)
{
    struct check_task task;
    struct co_error err = {0};
    ck_assert_int_eq(parse(bad[_i].line, &task, &err), -EINVAL);
    ck_assert_str_eq(err.text, bad[_i].error);
}
END_TEST

TEST_SUITE(check_plan)
{
    Suite *suite = suite_create("check_plan");
    TCase *c = tcase_create("all");
    tcase_add_test(c, each_pair_is_measured_once_and_no_node_twice_at_a_time);
    tcase_add_test(c, many_nodes_have_as_many_rounds_as_are_allowed);
    tcase_add_test(c, each_port_is_tried_from_equally_many_nodes);
    tcase_add_test(c, options_select_nodes_and_tests);
    tcase_add_loop_test(c, invalid_arguments_are_refused_with_their_reason, 0,
                        (int)(sizeof bad / sizeof *bad));
    suite_add_tcase(suite, c);
    return suite;
}
