/* The archive that Python begins with. tests/system/one_node/worker_server.py runs it. */
#include "launcher/torch/torch_hook.h"

#include "common/error.h"
#include "common/tree.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/test_torch_hook_XXXXXX";
static struct torch_hook hook;
static struct co_error err;
static int n_servers, sum;

static void set_up(void)
{
    strcpy(dir + sizeof dir - 7, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    hook = (struct torch_hook){0};
    n_servers = sum = 0;
}

static void tear_down(void)
{
    torch_hook_close(&hook);
    co_tree_remove(dir);
}

static const char *get(char *const *env, const char *name)
{
    const size_t n = strlen(name);
    for (; *env != NULL; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
            return *env + n + 1;
    return NULL;
}

START_TEST(python_finds_the_archive_first)
{
    char *own[] = {"A=1", "PYTHONPATH=/x:/y", "DDP_WORKER_SERVER=/old", NULL}, *none[] = {NULL};
    char expected[128];
    struct stat st;
    ck_assert_msg(torch_hook_open(&hook, dir, own, &err) == 0, "%s", err.text);
    char *const *env = torch_hook_environment(&hook, own);
    snprintf(expected, sizeof expected, "%s/torch.zip:/x:/y", dir);
    ck_assert_str_eq(get(env, "PYTHONPATH"), expected);
    ck_assert_str_eq(get(env, "DDP_WORKER_SERVER"), dir);
    ck_assert_str_eq(get(env, "A"), "1");
    ck_assert_int_eq(stat(hook.archive, &st), 0);
    ck_assert_uint_eq((size_t)st.st_size, torch_archive_bytes);
    torch_hook_close(&hook);
    ck_assert_int_eq(torch_hook_open(&hook, dir, none, &err), 0);
    snprintf(expected, sizeof expected, "%s/torch.zip", dir);
    ck_assert_str_eq(get(torch_hook_environment(&hook, none), "PYTHONPATH"), expected);
}
END_TEST

START_TEST(without_an_archive_nothing_changes)
{
    char *own[] = {"A=1", NULL};
    ck_assert_ptr_eq(torch_hook_environment(&hook, own), own);
    torch_hook_list(&hook, NULL, NULL);
}
END_TEST

START_TEST(directories_that_cannot_hold_a_socket_are_refused)
{
    char name[128], *none[] = {NULL};
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    ck_assert_int_eq(torch_hook_open(&hook, name, none, &err), -ENAMETOOLONG);
    ck_assert_int_eq(torch_hook_open(&hook, "/tmp/a:b", none, &err), -EINVAL);
    ck_assert_int_eq(torch_hook_open(&hook, "/nonexistent", none, &err), -ENOENT);
    ck_assert_ptr_null(hook.archive);
}
END_TEST

static void on_server(void *arg, pid_t pid, const char *path)
{
    ck_assert_ptr_eq(arg, &hook);
    ck_assert_int_eq(strncmp(path, dir, strlen(dir)), 0);
    n_servers++;
    sum += (int)pid;
}

START_TEST(servers_are_found_by_their_names)
{
    static const char *const files[] = {"torch.1",
                                        "torch.20",
                                        "torch.",
                                        "torch.x",
                                        "torch.3x",
                                        "torch.-4",
                                        "torch.99999999999999999999",
                                        "other",
                                        "torch.05"};
    char path[128], *none[] = {NULL};
    ck_assert_int_eq(torch_hook_open(&hook, dir, none, &err), 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    torch_hook_list(&hook, on_server, &hook);
    ck_assert_int_eq(n_servers, 2);
    ck_assert_int_eq(sum, 21);
}
END_TEST

TEST_SUITE(torch_hook)
{
    Suite *suite = suite_create("torch_hook");
    TCase *c = tcase_create("torch_hook");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, python_finds_the_archive_first);
    tcase_add_test(c, without_an_archive_nothing_changes);
    tcase_add_test(c, directories_that_cannot_hold_a_socket_are_refused);
    tcase_add_test(c, servers_are_found_by_their_names);
    suite_add_tcase(suite, c);
    return suite;
}
