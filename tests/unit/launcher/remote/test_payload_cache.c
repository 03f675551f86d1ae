/* Which payloads of a host may be removed: real files, in a directory of the test. */
#include "launcher/remote/payload.h"

#include "tests/support/suite.h"

#include <check.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OURS  "0.1.0-00000000000000ff"
#define DAY_S (24 * 60 * 60)

static char shelf[64];

static void path_of(const char *name, const char *file, char path[256])
{
    snprintf(path, 256, "%s/%s%s%s", shelf, name, *file != '\0' ? "/" : "", file);
}

static bool is_there(const char *name)
{
    char path[256];
    path_of(name, "", path);
    return access(path, F_OK) == 0;
}

/* Makes a file in a directory, last written `age_s` ago. */
static void put(const char *name, const char *file, int age_s)
{
    char path[256];
    struct timespec times[2];
    path_of(name, "", path);
    mkdir(path, 0700);
    path_of(name, file, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    ck_assert_int_ge(fd, 0);
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= age_s;
    times[1] = times[0];
    ck_assert_int_eq(futimens(fd, times), 0);
    close(fd);
    path_of(name, "", path);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void set_up(void)
{
    snprintf(shelf, sizeof shelf, "/tmp/ddprun-shelf-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(shelf));
    put(OURS, "ddprun", 100 * DAY_S);
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", shelf);
    ck_assert_int_eq(system(command), 0);
}

static void start(void)
{
    char program[256];
    path_of(OURS, "ddprun", program);
    int fd = payload_cache_hold(program);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    payload_cache_tidy(program, fd);
    close(fd);
}

START_TEST(the_latest_payloads_stay_and_older_ones_are_removed)
{
    put("0.1.0-0000000000000001", "ddprun", 5 * DAY_S);
    put("0.0.9-0000000000000002", "ddprun", 2 * DAY_S);
    put("0.2.0-rc1-0000000000000003", "ddprun", 4 * DAY_S);
    put("0.1.0-0000000000000004", "ddprun", 3 * DAY_S);
    start();
    ck_assert(is_there(OURS));
    ck_assert(is_there("0.0.9-0000000000000002") && is_there("0.1.0-0000000000000004"));
    ck_assert(!is_there("0.1.0-0000000000000001") && !is_there("0.2.0-rc1-0000000000000003"));
}
END_TEST

START_TEST(payloads_used_within_a_day_stay)
{
    char name[64];
    for (int i = 0; i < 9; i++) {
        snprintf(name, sizeof name, "0.1.0-000000000000000%d", i);
        put(name, "ddprun", i < 5 ? i : DAY_S + 100 + i);
    }
    start();
    for (int i = 0; i < 9; i++) {
        snprintf(name, sizeof name, "0.1.0-000000000000000%d", i);
        ck_assert_int_eq(is_there(name), i < 5);
    }
}
END_TEST

START_TEST(a_held_payload_is_marked_as_running)
{
    char program[256];
    struct stat st, shelf_st;
    path_of(OURS, "ddprun", program);
    const int held = payload_cache_hold(program);
    put("0.1.0-0000000000000001", "other", 0);
    ck_assert_int_eq(stat(program, &st), 0);
    ck_assert_int_eq(stat(shelf, &shelf_st), 0);
    ck_assert_int_le(labs(shelf_st.st_mtime - st.st_mtime), 3600);
    const int other = open(program, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(flock(other, LOCK_EX | LOCK_NB), -1);
    close(held);
    ck_assert_int_eq(flock(other, LOCK_EX | LOCK_NB), 0);
    close(other);
}
END_TEST

START_TEST(a_running_payload_stays)
{
    char path[256];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "0.1.0-000000000000000%d", i);
        put(path, "ddprun", (10 + i) * DAY_S);
    }
    path_of("0.1.0-0000000000000003", "ddprun", path);
    const int held = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(flock(held, LOCK_SH), 0); /* as one on another host has it */
    start();
    ck_assert(is_there("0.1.0-0000000000000003"));
    ck_assert(!is_there("0.1.0-0000000000000002"));
    close(held);
    start();
    ck_assert(!is_there("0.1.0-0000000000000003"));
}
END_TEST

START_TEST(an_incomplete_payload_is_removed_after_a_day)
{
    put("0.1.0-0000000000000001", "ddprun", 0);
    put("0.1.0-0000000000000002", "ddprun", 0);
    put("0.1.0-0000000000000003", "aB3dEf", 2 * DAY_S);
    put("0.1.0-0000000000000004", "aB3dEf", 100);
    start();
    ck_assert(!is_there("0.1.0-0000000000000003"));
    ck_assert(is_there("0.1.0-0000000000000004"));
}
END_TEST

START_TEST(foreign_files_stay)
{
    static const char *const names[] = {
        "0.1.0",  "-0000000000000001", "0.1.0-000000000000000G", "0.1.0-00000000000000011", "notes",
        "0.1.0-1"};
    char path[256], elsewhere[256];
    put("0.1.0-0000000000000001", "ddprun", 0);
    put("0.1.0-0000000000000002", "ddprun", 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        put(names[i], "ddprun", 50 * DAY_S);
    path_of("0.1.0", "", elsewhere);
    path_of("0.1.0-0000000000000003", "", path); /* a link to a directory */
    ck_assert_int_eq(symlink(elsewhere, path), 0);
    put("0.1.0-0000000000000004", "ddprun", 50 * DAY_S);
    path_of("0.1.0-0000000000000004", "folder", path); /* its content belongs to a user */
    ck_assert_int_eq(mkdir(path, 0700), 0);
    start();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path_of(names[i], "ddprun", path);
        ck_assert_msg(access(path, F_OK) == 0, "%s", names[i]);
    }
    ck_assert(is_there("0.1.0-0000000000000003") && is_there("0.1.0-0000000000000004"));
}
END_TEST

START_TEST(an_installed_ddprun_holds_no_payload)
{
    static const char *const programs[] = {
        "/usr/bin/ddprun",     "ddprun", "/ddprun", "", "/" OURS "/ddprun", "/tmp/" OURS "/other",
        "/tmp/" OURS "/ddprun"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        ck_assert_msg(payload_cache_hold(programs[i]) == -1, "%s", programs[i]);
}
END_TEST

TEST_SUITE(payload_cache)
{
    Suite *suite = suite_create("payload_cache");
    TCase *t = tcase_create("payload_cache");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, the_latest_payloads_stay_and_older_ones_are_removed);
    tcase_add_test(t, payloads_used_within_a_day_stay);
    tcase_add_test(t, a_held_payload_is_marked_as_running);
    tcase_add_test(t, a_running_payload_stays);
    tcase_add_test(t, an_incomplete_payload_is_removed_after_a_day);
    tcase_add_test(t, foreign_files_stay);
    tcase_add_test(t, an_installed_ddprun_holds_no_payload);
    suite_add_tcase(suite, t);
    return suite;
}
