/* Directories of ddpruns, and the sockets in them: real ones, in a directory made for the test. */
#include "common/error.h"
#include "common/tree.h"
#include "console/job_directory.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char parent[64], path[96];

static void set_up(void)
{
    snprintf(parent, sizeof parent, "/tmp/job-folder-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(parent));
    setenv("XDG_RUNTIME_DIR", parent, 1);
    snprintf(path, sizeof path, "%s/ddprun-abcdef", parent);
    ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void tear_down(void)
{
    co_tree_remove(path);
    rmdir(parent);
}

/* How many of those found are in this test's parent. */
static size_t count_found(void)
{
    struct job_directories found;
    size_t n = 0;
    ck_assert_int_eq(job_directories_find(JOB_DIRECTORY_OURS, &found, NULL), 0);
    for (size_t i = 0; i < found.n; i++)
        n += strncmp(found.paths[i], parent, strlen(parent)) == 0;
    job_directories_fini(&found);
    return n;
}

static int connect_error(void)
{
    struct co_error err = {0};
    int fd = job_directory_connect(path, JOB_DIRECTORY_OURS, &err);
    ck_assert_int_lt(fd, 0);
    ck_assert_str_ne(err.text, "");
    return fd;
}

START_TEST(a_listening_job_is_found_and_reached)
{
    struct co_error err = {0};
    int server = job_directory_listen(path, &err);
    ck_assert_msg(server >= 0, "%s", err.text);
    ck_assert_uint_eq(count_found(), 1);
    int client = job_directory_connect(path, JOB_DIRECTORY_OURS, &err);
    ck_assert_msg(client >= 0, "%s", err.text);
    int accepted = accept(server, NULL, NULL);
    ck_assert_int_ge(accepted, 0);
    ck_assert(job_directory_knows_peer(accepted));
    ck_assert_int_eq(job_directory_peer(client), getpid());
    close(accepted);
    close(client);
    close(server);
}
END_TEST

START_TEST(a_directory_without_a_socket_is_not_a_job)
{
    ck_assert_uint_eq(count_found(), 0);
    ck_assert_int_eq(connect_error(), -ENOENT);
}
END_TEST

START_TEST(a_directory_whose_socket_refuses_is_removed)
{
    close(job_directory_listen(path, NULL));
    ck_assert_uint_eq(count_found(), 1);
    ck_assert_int_eq(connect_error(), -ECONNREFUSED);
    job_directory_remove_dead(path);
    ck_assert_int_lt(access(path, F_OK), 0);
    ck_assert_int_eq(connect_error(), -ENOENT);
    job_directory_remove_dead(path); /* again */
    co_tree_remove(path);
    co_tree_remove(NULL);
}
END_TEST

/* A ddprun of another host refuses connections from here even while it runs. */
START_TEST(a_directory_of_another_host_is_kept)
{
    char boot[128];
    snprintf(boot, sizeof boot, "%s/boot", path);
    close(job_directory_listen(path, NULL));
    FILE *out = fopen(boot, "r+");
    ck_assert_ptr_nonnull(out);
    fputc('x', out);
    fclose(out);
    job_directory_remove_dead(path);
    ck_assert_uint_eq(count_found(), 1);
    ck_assert_int_eq(truncate(boot, 0), 0);
    job_directory_remove_dead(path);
    ck_assert_uint_eq(count_found(), 1);
    ck_assert_int_eq(unlink(boot), 0);
    job_directory_remove_dead(path);
    ck_assert_uint_eq(count_found(), 1);
}
END_TEST

START_TEST(a_directory_that_others_can_open_is_ignored)
{
    close(job_directory_listen(path, NULL));
    ck_assert_int_eq(chmod(path, 0750), 0);
    ck_assert_uint_eq(count_found(), 0);
    ck_assert_int_eq(connect_error(), -EACCES);
    ck_assert_int_lt(job_directory_listen(path, NULL), 0);
    ck_assert_int_eq(chmod(path, 0700), 0);
}
END_TEST

START_TEST(a_link_to_a_directory_is_not_followed)
{
    char link[128];
    snprintf(link, sizeof link, "%s/ddprun-ghijkl", parent);
    close(job_directory_listen(path, NULL));
    ck_assert_int_eq(symlink(path, link), 0);
    ck_assert_uint_eq(count_found(), 1);
    ck_assert_int_lt(job_directory_connect(link, JOB_DIRECTORY_OURS, NULL), 0);
    unlink(link);
}
END_TEST

/* Makes `path` a directory of user `owner` in which user `listener` listens. Only root can do so.
 * returns   the listening descriptor; -1: we are not root */
static int listen_as(uid_t owner, uid_t listener)
{
    struct co_error err = {0};
    if (geteuid() != 0) {
        puts("skipped: only root may act for two users");
        return -1;
    }
    ck_assert_int_eq(chmod(parent, 0711), 0);
    ck_assert_int_eq(chown(path, listener, (gid_t)-1), 0);
    ck_assert_int_eq(seteuid(listener), 0);
    int fd = job_directory_listen(path, &err);
    ck_assert_int_eq(seteuid(0), 0);
    ck_assert_msg(fd >= 0, "%s", err.text);
    ck_assert_int_eq(chown(path, owner, (gid_t)-1), 0);
    return fd;
}

static size_t count_of_all(void)
{
    struct job_directories found;
    size_t n = 0;
    ck_assert_int_eq(job_directories_find(JOB_DIRECTORY_ANY, &found, NULL), 0);
    for (size_t i = 0; i < found.n; i++)
        n += strncmp(found.paths[i], parent, strlen(parent)) == 0;
    job_directories_fini(&found);
    return n;
}

START_TEST(root_reaches_jobs_of_other_users_only_on_request)
{
    const int server = listen_as(65534, 65534);
    if (server < 0)
        return;
    ck_assert_uint_eq(count_found(), 0);
    ck_assert_int_eq(connect_error(), -EACCES);
    ck_assert_uint_eq(count_of_all(), 1);
    const int client = job_directory_connect(path, JOB_DIRECTORY_ANY, NULL);
    ck_assert_int_ge(client, 0);
    ck_assert_uint_eq(job_directory_peer_uid(client), 65534);
    ck_assert_int_eq(chmod(path, 0701), 0);
    ck_assert_uint_eq(count_of_all(), 0);
    ck_assert_int_eq(job_directory_connect(path, JOB_DIRECTORY_ANY, NULL), -EACCES);
    close(client);
    close(server);
    job_directory_remove_dead(path); /* is not root's to remove */
    ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

START_TEST(root_refuses_a_socket_of_another_owner_than_the_directory)
{
    const int server = listen_as(65533, 65534); /* as by a link to it */
    if (server < 0)
        return;
    ck_assert_int_eq(job_directory_connect(path, JOB_DIRECTORY_ANY, NULL), -EACCES);
    close(server);
}
END_TEST

START_TEST(root_refuses_its_own_socket_in_another_users_directory)
{
    const int server = listen_as(65533, 0);
    if (server < 0)
        return;
    ck_assert_int_eq(job_directory_connect(path, JOB_DIRECTORY_ANY, NULL), -EACCES);
    close(server);
}
END_TEST

START_TEST(no_more_than_the_backlog_wait_unaccepted)
{
    enum { MANY = 64 };
    int fds[MANY];
    int n = 0;
    int server = job_directory_listen(path, NULL);
    while (n < MANY && (fds[n] = job_directory_connect(path, JOB_DIRECTORY_OURS, NULL)) >= 0)
        n++;
    ck_assert_int_lt(n, MANY);
    ck_assert_int_eq(fds[n], -EAGAIN);
    while (n > 0)
        close(fds[--n]);
    close(server);
}
END_TEST

START_TEST(a_long_path_can_have_a_socket)
{
    char deep[300], folder[320];
    snprintf(deep, sizeof deep, "%s/", parent);
    size_t at = strlen(deep);
    memset(deep + at, 'x', 200);
    deep[at + 200] = '\0';
    ck_assert_int_eq(mkdir(deep, 0700), 0);
    snprintf(folder, sizeof folder, "%s/ddprun-abcdef", deep);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    struct co_error err = {0};
    int server = job_directory_listen(folder, &err);
    ck_assert_msg(server >= 0, "%s", err.text);
    int client = job_directory_connect(folder, JOB_DIRECTORY_OURS, &err);
    ck_assert_msg(client >= 0, "%s", err.text);
    close(client);
    close(server);
    co_tree_remove(folder);
    rmdir(deep);
}
END_TEST

START_TEST(parents_are_absolute_and_named_once)
{
    const char *parents[JOB_DIRECTORY_MAX_PARENTS];
    setenv("XDG_RUNTIME_DIR", "/tmp", 1);
    setenv("TMPDIR", "relative", 1);
    size_t n = job_directory_parents(parents);
    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(parents[0], "/tmp");
    ck_assert_str_eq(parents[1], "/dev/shm");
    unsetenv("XDG_RUNTIME_DIR");
    setenv("TMPDIR", "/var/tmp", 1);
    n = job_directory_parents(parents);
    ck_assert_uint_eq(n, 3);
    ck_assert_str_eq(parents[2], "/tmp");
}
END_TEST

TEST_SUITE(job_directory)
{
    Suite *suite = suite_create("job_directory");
    TCase *tc = tcase_create("job_directory");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_listening_job_is_found_and_reached);
    tcase_add_test(tc, a_directory_without_a_socket_is_not_a_job);
    tcase_add_test(tc, a_directory_whose_socket_refuses_is_removed);
    tcase_add_test(tc, a_directory_of_another_host_is_kept);
    tcase_add_test(tc, a_directory_that_others_can_open_is_ignored);
    tcase_add_test(tc, a_link_to_a_directory_is_not_followed);
    tcase_add_test(tc, root_reaches_jobs_of_other_users_only_on_request);
    tcase_add_test(tc, root_refuses_a_socket_of_another_owner_than_the_directory);
    tcase_add_test(tc, root_refuses_its_own_socket_in_another_users_directory);
    tcase_add_test(tc, no_more_than_the_backlog_wait_unaccepted);
    tcase_add_test(tc, a_long_path_can_have_a_socket);
    tcase_add_test(tc, parents_are_absolute_and_named_once);
    suite_add_tcase(suite, tc);
    return suite;
}
