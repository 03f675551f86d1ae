/* The ways to the nodes of `ddpctl check`; here each is a shell whose $0 is the host. */
#include "ctl/probe/check_nodes.h"

#include "common/error.h"
#include "launcher/hosts/host_list.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONG_MS = 60000 };

static char folder[] = "/tmp/check_nodes.XXXXXX", fifo[sizeof folder + 8];
static struct co_error err;

static void set_up(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    setenv("FIFO", fifo, 1);
}

static void tear_down(void)
{
    unlink(fifo);
    rmdir(folder);
}

/* Each is asked once, after its hello. */
static json_t *ask_once(void *arg, size_t node, const json_t *answer)
{
    (void)arg;
    (void)node;
    return json_object_get(answer, "v") != NULL ? json_pack("{s:s}", "do", "time") : NULL;
}

/* script: of all ways; names: in $0; n of them */
static struct check_nodes *reach(const char *script, const char *const *names, size_t n)
{
    static struct host hosts[4];
    static char *command[4];
    struct check_nodes *nodes;
    for (size_t i = 0; i < n; i++)
        snprintf(hosts[i].name, sizeof hosts[i].name, "%s", names[i]);
    command[0] = "sh";
    command[1] = "-c";
    command[2] = (char *)script;
    const struct check_nodes_opts opts = {
        .hosts = hosts,
        .n = n,
        .way = {.command = command, .reach_ms = LONG_MS},
        .program = "ddpctl",
        .last_words_ms = LONG_MS,
    };
    ck_assert_int_eq(check_nodes_open(&opts, &nodes, &err), 0);
    check_nodes_reach(nodes, LONG_MS, ask_once, NULL);
    return nodes;
}

/* "late" closes its output, and writes its reason only after "good" has received the request. */
START_TEST(late_error_output_is_read_while_other_nodes_answer)
{
    static const char *const names[] = {"late", "good"};
    struct check_nodes *nodes =
        reach("if [ $0 = late ]; then exec >&-; cat \"$FIFO\" >&2; exit 3; fi\n"
              "echo 'ddpctl-check {\"v\": 1, \"from\": \"\", \"to\": \"\"}'; read -r request\n"
              "echo 'sorry, no' >\"$FIFO\"; echo 'ddpctl-check {}'; read -r end; exit 0",
              names, 2);
    ck_assert_str_eq(check_nodes_why(nodes, 0), "sorry, no");
    ck_assert_str_eq(check_nodes_why(nodes, 1), "");
    ck_assert(!check_nodes_is_there(nodes, 0) && check_nodes_is_there(nodes, 1));
    check_nodes_close(nodes);
}
END_TEST

START_TEST(without_output_the_exit_status_is_reported)
{
    static const char *const names[] = {"a", "b"};
    struct check_nodes *nodes = reach("[ $0 = a ] && exit 7; kill -9 $$", names, 2);
    ck_assert_str_eq(check_nodes_why(nodes, 0), "ssh exited with status 7");
    ck_assert_str_eq(check_nodes_why(nodes, 1), "ssh exited");
    check_nodes_close(nodes);
}
END_TEST

/* Its error output is closed, it runs on for a while: its status is still waited for. */
START_TEST(an_exit_status_after_closed_output_is_reported)
{
    static const char *const names[] = {"late", "good"};
    struct check_nodes *nodes =
        reach("if [ $0 = late ]; then exec >&- 2>&-; read -r word <\"$FIFO\"; exit 3; fi\n"
              "echo 'ddpctl-check {\"v\": 1, \"from\": \"\", \"to\": \"\"}'; read -r request\n"
              "echo word >\"$FIFO\"; echo 'ddpctl-check {}'; read -r end; exit 0",
              names, 2);
    ck_assert_str_eq(check_nodes_why(nodes, 0), "ssh exited with status 3");
    ck_assert_str_eq(check_nodes_why(nodes, 1), "");
    check_nodes_close(nodes);
}
END_TEST

TEST_SUITE(check_nodes)
{
    Suite *suite = suite_create("check_nodes");
    TCase *c = tcase_create("check_nodes");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 240);
    tcase_add_test(c, late_error_output_is_read_while_other_nodes_answer);
    tcase_add_test(c, without_output_the_exit_status_is_reported);
    tcase_add_test(c, an_exit_status_after_closed_output_is_reported);
    suite_add_tcase(suite, c);
    return suite;
}
