/* Processes that SIGKILL does not end. tests/system/nightly/frozen.py has real ones. */
#include "launcher/diagnosis/stuck.h"
#include "tests/support/suite.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char mounts[] =
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "23 22 0:21 / /proc rw,nosuid - proc proc rw\n"
    "40 22 0:50 / /data rw - nfs4 server:/export rw,vers=4.2\n"
    "41 40 7:0 / /data/with\\040blank rw shared:7 master:2 - ext4 /dev/loop0 rw\n"
    "42 22 7:1 / /data2 rw - xfs /dev/loop1 rw\n";

static const char *mount_of(const char *path)
{
    static char mount[STUCK_MOUNT_BYTES];
    stuck_find_mount(mounts, path, mount);
    return mount;
}

START_TEST(a_path_is_on_the_mount_nearest_to_it)
{
    ck_assert_str_eq(mount_of("/data/log"), "/data, nfs4 of server:/export");
    ck_assert_str_eq(mount_of("/data"), "/data, nfs4 of server:/export");
    ck_assert_str_eq(mount_of("/data/with blank/x"), "/data/with blank, ext4 of /dev/loop0");
    ck_assert_str_eq(mount_of("/data2/x"), "/data2, xfs of /dev/loop1");
    ck_assert_str_eq(mount_of("/data3"), "/, ext4 of /dev/vda");
}
END_TEST

START_TEST(bad_lines_of_mounts_are_left_out)
{
    static const char *const bad[] = {"",
                                      "\n\n",
                                      "x",
                                      "1 2 3",
                                      "22 1 254:0 / / rw",
                                      " - ",
                                      "22 1 254:0 / / rw - ext4",
                                      "a b c d / e - ext4 x"};
    char mount[STUCK_MOUNT_BYTES];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        stuck_find_mount(bad[i], "/x", mount);
        ck_assert_msg(mount[0] == '\0', "%s", bad[i]);
    }
}
END_TEST

START_TEST(calls_with_a_descriptor_are_known)
{
    char text[64];
    snprintf(text, sizeof text, "%d 0x3 0x7f00 0x2 0x0 0x0 0x0 0x7ffd 0x7f01", SYS_write);
    ck_assert_int_eq(stuck_parse_fd(text), 3);
    snprintf(text, sizeof text, "%d 0xffffff9c 0x7f00", SYS_openat);
    ck_assert_int_eq(stuck_parse_fd(text), -1);
    snprintf(text, sizeof text, "%d 0xffffffffff", SYS_fsync);
    ck_assert_int_eq(stuck_parse_fd(text), -1);
    ck_assert_int_eq(stuck_parse_fd("running"), -1);
    ck_assert_int_eq(stuck_parse_fd(""), -1);
}
END_TEST

START_TEST(a_child_is_described_until_it_has_ended)
{
    char text[STUCK_TEXT_BYTES] = "";
    const pid_t parents[2] = {0, getpid()}, others[2] = {1, 2};
    const pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    ck_assert(stuck_describe(pid, parents, text));
    ck_assert_ptr_nonnull(strstr(text, ", on /")); /* where it works */
    ck_assert(!stuck_describe(pid, others, text)); /* another process with the pid */
    kill(pid, SIGKILL);
    siginfo_t info;
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    ck_assert(!stuck_describe(pid, parents, text)); /* only its status is left */
    waitpid(pid, NULL, 0);
    ck_assert(!stuck_describe(pid, parents, text));
}
END_TEST

TEST_SUITE(stuck)
{
    Suite *suite = suite_create("stuck");
    TCase *tc = tcase_create("stuck");
    tcase_add_test(tc, a_path_is_on_the_mount_nearest_to_it);
    tcase_add_test(tc, bad_lines_of_mounts_are_left_out);
    tcase_add_test(tc, calls_with_a_descriptor_are_known);
    tcase_add_test(tc, a_child_is_described_until_it_has_ended);
    suite_add_tcase(suite, tc);
    return suite;
}
