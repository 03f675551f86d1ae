/* The words by which a program is started on a host; none of them is cut. */
#include "common/error.h"
#include "launcher/hosts/host_list.h"
#include "launcher/hosts/remote_shell.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const arguments[] = {"check", "--here", NULL};
static const struct host far = {.name = "n1", .user = "joe", .port = 2222};
static struct co_error err;
static char **words;

static void tear_down(void)
{
    free(words);
    words = NULL;
}

static int make(const struct remote_shell *way, const struct host *host, const char *program)
{
    return remote_shell_make(way, host, program, arguments, &words, &err);
}

static size_t count(void)
{
    size_t n = 0;
    while (words[n] != NULL)
        n++;
    return n;
}

START_TEST(over_ssh_the_command_is_one_quoted_word)
{
    const struct remote_shell way = {.reach_ms = 2500};
    ck_assert_int_eq(make(&way, &far, "/opt/my tools/it's"), 0);
    ck_assert_str_eq(words[0], "ssh");
    ck_assert_str_eq(words[3], "-oConnectTimeout=3");
    ck_assert_str_eq(words[count() - 3], "-p2222");
    ck_assert_str_eq(words[count() - 2], "joe@n1");
    ck_assert_str_eq(words[count() - 1], "'/opt/my tools/it'\\''s' check --here");
}
END_TEST

START_TEST(a_custom_command_gets_the_host_and_the_program)
{
    char *const command[] = {"rsh", "-q", NULL};
    const struct remote_shell way = {.command = command};
    ck_assert_int_eq(make(&way, &(struct host){.name = "n1"}, "/bin/x"), 0);
    ck_assert_uint_eq(count(), 4);
    ck_assert_str_eq(words[0], "rsh");
    ck_assert_str_eq(words[2], "n1");
    ck_assert_str_eq(words[3], "/bin/x check --here");
}
END_TEST

START_TEST(without_a_shell_the_arguments_are_not_quoted)
{
    ck_assert_int_eq(make(&(struct remote_shell){.by_srun = true}, &far, "/opt/my tools/x"), 0);
    ck_assert_str_eq(words[0], "srun");
    ck_assert_str_eq(words[count() - 3], "/opt/my tools/x");
    free(words);
    ck_assert_int_eq(make(&(struct remote_shell){.by_srun = true}, NULL, "x"), 0);
    ck_assert_uint_eq(count(), 3);
    ck_assert_str_eq(words[0], "x");
    ck_assert_str_eq(words[2], "--here");
}
END_TEST

START_TEST(a_too_long_path_is_refused)
{
    char path[WAY_TEXT_BYTES + 1];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    ck_assert_int_eq(make(&(struct remote_shell){0}, NULL, path), -ENAMETOOLONG);
    ck_assert_int_eq(make(&(struct remote_shell){.by_srun = true}, &far, path), -ENAMETOOLONG);
    ck_assert_int_eq(make(&(struct remote_shell){0}, &far, path), -ENAMETOOLONG);
    path[PATH_MAX - 1] = '\0'; /* a path that there may be */
    ck_assert_int_eq(make(&(struct remote_shell){0}, &far, path), 0);
    ck_assert_uint_eq(strlen(words[count() - 1]), PATH_MAX - 1 + strlen(" check --here"));
    free(words);
    words = NULL;
    memset(path, '\'', PATH_MAX - 1); /* four letters each in quotes */
    ck_assert_int_eq(make(&(struct remote_shell){0}, &far, path), -ENAMETOOLONG);
    ck_assert_str_eq(err.text, "the path of the program to start is too long");
    ck_assert_ptr_null(words);
}
END_TEST

START_TEST(what_ssh_printed_last_controls_no_terminal)
{
    static const char text[] = "banner\nssh: \033[31mno\xc2\x9b 31m h\xc3\xb6st\n";
    char why[64];
    remote_shell_complaint(text, sizeof text - 1, "ddprun: ", why, sizeof why);
    ck_assert_str_eq(why, "ssh: ?[31mno?? 31m h\xc3\xb6st");
}
END_TEST

START_TEST(only_a_host_that_ssh_did_not_reach_may_answer_later)
{
    static const struct {
        int status;
        const char *complaint;
        bool was_unreached;
    } cases[] = {
        {255 << 8, "ssh: Could not resolve hostname a.b.svc: Name or service not known", true},
        {255 << 8, "ssh: Could not resolve hostname a: Temporary failure in name resolution", true},
        {255 << 8, "ssh: connect to host a.b.svc port 2222: Connection refused", true},
        {255 << 8, "ssh: connect to host a port 22: No route to host", true},
        {255 << 8, "root@a: Permission denied (publickey).", false},
        {255 << 8, "Host key verification failed.", false},
        {255 << 8, "ssh: ", false},
        {255 << 8, "", false},
        {127 << 8, "ssh: connect to host a port 22: Connection refused", false},
        {SIGTERM, "ssh: connect to host a port 22: Connection refused", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(remote_shell_was_unreached(cases[i].status, cases[i].complaint) ==
                          cases[i].was_unreached,
                      "status %#x, '%s'", (unsigned)cases[i].status, cases[i].complaint);
}
END_TEST

TEST_SUITE(remote_shell)
{
    Suite *suite = suite_create("way");
    TCase *t = tcase_create("way");
    tcase_add_checked_fixture(t, NULL, tear_down);
    tcase_add_test(t, over_ssh_the_command_is_one_quoted_word);
    tcase_add_test(t, a_custom_command_gets_the_host_and_the_program);
    tcase_add_test(t, without_a_shell_the_arguments_are_not_quoted);
    tcase_add_test(t, a_too_long_path_is_refused);
    tcase_add_test(t, what_ssh_printed_last_controls_no_terminal);
    tcase_add_test(t, only_a_host_that_ssh_did_not_reach_may_answer_later);
    suite_add_tcase(suite, t);
    return suite;
}
