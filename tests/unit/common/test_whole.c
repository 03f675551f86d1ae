/* Files that are written as a whole, and names that are not files. */
#include "common/error.h"
#include "common/whole.h"
#include "tests/support/suite.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/whole-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void setup(void)
{
    strcpy(dir, "/tmp/whole-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static int count_files(void)
{
    DIR *d = opendir(dir);
    ck_assert_ptr_nonnull(d);
    int n = 0;
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n - 2;
}

static void teardown(void)
{
    unlink(in_dir("file"));
    unlink(in_dir("pipe"));
    ck_assert_int_eq(rmdir(dir), 0);
}

static void expect_content(const char *path, const char *text)
{
    char got[64] = "";
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    got[fread(got, 1, sizeof got - 1, f)] = '\0';
    fclose(f);
    ck_assert_str_eq(got, text);
}

START_TEST(a_file_is_created_and_then_replaced)
{
    struct co_error err = {0};
    ck_assert_int_eq(co_write_whole(in_dir("file"), "one", 3, &err), 0);
    expect_content(in_dir("file"), "one");
    ck_assert_int_eq(co_write_whole(in_dir("file"), "2", 1, &err), 0);
    expect_content(in_dir("file"), "2");
    ck_assert_int_eq(count_files(), 1);
}
END_TEST

START_TEST(a_reader_keeps_the_old_file)
{
    ck_assert_int_eq(co_write_whole(in_dir("file"), "old", 3, NULL), 0);
    FILE *old = fopen(in_dir("file"), "r");
    ck_assert_int_eq(co_write_whole(in_dir("file"), "new", 3, NULL), 0);
    char got[4] = "";
    ck_assert_uint_eq(fread(got, 1, 3, old), 3);
    fclose(old);
    ck_assert_str_eq(got, "old");
}
END_TEST

START_TEST(a_pipe_is_written_to_and_stays)
{
    ck_assert_int_eq(mkfifo(in_dir("pipe"), 0600), 0);
    ck_assert(!co_may_replace(in_dir("pipe")));
    int fd = open(in_dir("pipe"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ck_assert_int_eq(co_write_whole(in_dir("pipe"), "text", 4, NULL), 0);
    char got[8] = "";
    ck_assert_int_eq(read(fd, got, sizeof got), 4);
    close(fd);
    struct stat st;
    ck_assert_int_eq(stat(in_dir("pipe"), &st), 0);
    ck_assert(S_ISFIFO(st.st_mode));
}
END_TEST

/* What another user may have put into a directory that is open to all: a file that has the name of
 * the draft, or a link. */
START_TEST(a_file_that_another_user_laid_out_is_not_written_to)
{
    char draft[96];
    struct stat laid, made;
    snprintf(draft, sizeof draft, "%s.%ld.tmp", in_dir("file"), (long)getpid());
    int fd = open(draft, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    ck_assert_int_ge(fd, 0);
    if (geteuid() == 0)
        ck_assert_int_eq(fchown(fd, 65534, 65534), 0);
    ck_assert_int_eq(co_write_whole(in_dir("file"), "text", 4, NULL), 0);
    ck_assert_int_eq(fstat(fd, &laid), 0);
    ck_assert_int_eq(stat(in_dir("file"), &made), 0);
    ck_assert_int_eq(laid.st_size, 0);
    ck_assert_uint_ne(laid.st_ino, made.st_ino);
    ck_assert_uint_eq(made.st_uid, geteuid());
    close(fd);
    unlink(draft);
}
END_TEST

/* As /dev/stdout is, when output goes to a file. */
START_TEST(writing_through_a_link_in_dev_keeps_earlier_content)
{
    char path[32];
    int fd = open(in_dir("file"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, "before ", 7), 7);
    snprintf(path, sizeof path, "/dev/fd/%d", fd);
    ck_assert(!co_may_replace(path));
    ck_assert_int_eq(co_write_whole(path, "after", 5, NULL), 0);
    expect_content(in_dir("file"), "before after");
    close(fd);
}
END_TEST

START_TEST(a_missing_file_may_be_replaced_but_a_device_may_not)
{
    ck_assert(!co_may_replace("/dev/null"));
    ck_assert(!co_may_replace(dir));
    ck_assert(co_may_replace(in_dir("file")));
}
END_TEST

START_TEST(a_failure_names_the_file_and_leaves_no_draft)
{
    struct co_error err = {0};
    ck_assert_int_lt(co_write_whole("/nowhere/file", "x", 1, &err), 0);
    ck_assert_str_eq(err.text, "cannot write /nowhere/file: No such file or directory");
    ck_assert_int_lt(co_write_whole(dir, "x", 1, &err), 0);
    ck_assert_int_eq(count_files(), 0);
}
END_TEST

START_TEST(a_file_is_read_to_a_bound_or_to_its_end)
{
    char text[8];
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_eq(co_write_all(fds[1], "abcdef", 6), 0);
    ck_assert_int_eq(co_read_all(fds[0], text, 4), 4);
    ck_assert_mem_eq(text, "abcd", 4);
    close(fds[1]);
    ck_assert_int_eq(co_read_all(fds[0], text, sizeof text), 2);
    ck_assert_mem_eq(text, "ef", 2);
    ck_assert_int_eq(co_write_all(fds[0], "x", 1), -EBADF);
    close(fds[0]);
    ck_assert_int_eq(co_read_all(fds[0], text, 1), -EBADF);
}
END_TEST

START_TEST(a_socket_is_drained_without_waiting_and_its_end_is_seen)
{
    static const char many[40 << 10];
    int pair[2];
    char byte;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ck_assert(co_drain_socket(pair[0]));
    ck_assert_int_eq(co_write_all(pair[1], many, sizeof many), 0);
    ck_assert(co_drain_socket(pair[0]));
    ck_assert_int_eq(recv(pair[0], &byte, 1, MSG_DONTWAIT | MSG_PEEK), 1); /* not all at once */
    close(pair[1]);
    ck_assert(co_drain_socket(pair[0])); /* 8 KiB are left, and then the end */
    ck_assert(!co_drain_socket(pair[0]));
    close(pair[0]);
}
END_TEST

TEST_SUITE(whole)
{
    Suite *s = suite_create("whole");
    TCase *t = tcase_create("files");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_file_is_created_and_then_replaced);
    tcase_add_test(t, a_reader_keeps_the_old_file);
    tcase_add_test(t, a_pipe_is_written_to_and_stays);
    tcase_add_test(t, a_file_that_another_user_laid_out_is_not_written_to);
    tcase_add_test(t, writing_through_a_link_in_dev_keeps_earlier_content);
    tcase_add_test(t, a_missing_file_may_be_replaced_but_a_device_may_not);
    tcase_add_test(t, a_failure_names_the_file_and_leaves_no_draft);
    tcase_add_test(t, a_file_is_read_to_a_bound_or_to_its_end);
    tcase_add_test(t, a_socket_is_drained_without_waiting_and_its_end_is_seen);
    suite_add_tcase(s, t);
    return s;
}
