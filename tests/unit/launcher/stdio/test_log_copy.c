/* Log files that are turned over. */
#include "common/error.h"
#include "launcher/stdio/log_files.h"
#include "tests/support/file_tree.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[FILE_TREE_BYTES];
static char path[FILE_TREE_BYTES + 16];
static struct log_copy l;

static void set_up(void)
{
    file_tree_make(root);
    snprintf(path, sizeof path, "%s/log", root);
    l = (struct log_copy){.fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600), .filter_fd = -1};
    ck_assert_int_ge(l.fd, 0);
}

static void tear_down(void)
{
    log_copy_close(&l);
    file_tree_remove(root);
}

static void turn(uint64_t max_bytes, int n_kept)
{
    ck_assert_int_eq(
        log_copy_set_turn(&l, &(struct log_turn){.max_bytes = max_bytes, .n_kept = n_kept}, path),
        0);
}

static void add(const char *text)
{
    ck_assert_int_eq(log_copy_bytes(&l, text, strlen(text), NULL), 0);
}

/* The content of the file; "none" if it does not exist. */
static const char *content(const char *suffix)
{
    static char text[400];
    char name[200];
    snprintf(name, sizeof name, "%s%s", path, suffix);
    int fd = open(name, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n < 0 ? "none" : text;
}

START_TEST(files_end_at_line_ends)
{
    turn(10, 2);
    add("one\ntwo\nthree\nfour\n");
    ck_assert_str_eq(content(".1"), "three\n");
    ck_assert_str_eq(content(".2"), "one\ntwo\n");
    ck_assert_str_eq(content(""), "four\n");
    add("12345\n");
    ck_assert_str_eq(content(""), "12345\n");
    ck_assert_str_eq(content(".1"), "four\n");
    ck_assert_str_eq(content(".2"), "three\n");
    ck_assert_str_eq(content(".3"), "none");
}
END_TEST

START_TEST(a_write_to_a_full_disk_rotates_no_file)
{
    struct co_error err;
    turn(10, 2);
    add("one\ntwo\nno\n");
    ck_assert_str_eq(content(".1"), "one\ntwo\n");
    const int file = l.fd;
    l.fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(l.fd, 0);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(log_copy_bytes(&l, "lost\n", 5, &err), -ENOSPC);
    close(l.fd);
    l.fd = file;
    add("on\n");
    ck_assert_str_eq(
        content(""),
        "no\n\nddprun: warning: output is missing here: the file could not be written\non\n");
    ck_assert_str_eq(content(".1"), "one\ntwo\n");
    ck_assert_str_eq(content(".2"), "none");
}
END_TEST

START_TEST(long_lines_in_pieces_are_cut_at_the_limit)
{
    turn(8, 1);
    add("abc");
    add("defgh"); /* it is full */
    add("ijk\n");
    ck_assert_str_eq(content(".1"), "abcdefgh");
    ck_assert_str_eq(content(""), "ijk\n");
    add("0123456789abcdefXYZ"); /* longer than a file */
    ck_assert_str_eq(content(".1"), "89abcdef");
    ck_assert_str_eq(content(""), "XYZ");
}
END_TEST

START_TEST(zero_old_files_may_be_kept)
{
    turn(4, 0);
    add("one\ntwo\n");
    ck_assert_str_eq(content(""), "two\n");
    ck_assert_str_eq(content(".1"), "none");
}
END_TEST

START_TEST(existing_files_count)
{
    add("12345\n");
    turn(8, 1);
    add("67\n");
    ck_assert_str_eq(content(".1"), "12345\n");
    ck_assert_str_eq(content(""), "67\n");
}
END_TEST

START_TEST(files_are_rotated_only_on_request)
{
    turn(0, 5);
    for (int i = 0; i < 100; i++)
        add("x\n");
    ck_assert_uint_eq(strlen(content("")), 200);
    ck_assert_str_eq(content(".1"), "none");
}
END_TEST

START_TEST(a_file_that_cannot_be_created_is_reported_once)
{
    struct co_error err = {0};
    turn(4, 1);
    add("one\n");
    /* as if its directory had been removed */
    snprintf(l.path, sizeof "/dev/null/x", "/dev/null/x");
    ck_assert_int_eq(log_copy_bytes(&l, "two\n", 4, &err), -ENOTDIR);
    ck_assert_ptr_nonnull(strstr(err.text, "/dev/null/x"));
    ck_assert_int_eq(log_copy_bytes(&l, "three\n", 6, &err), 0);
    ck_assert_str_eq(content(""), "one\n");
}
END_TEST

TEST_SUITE(log_copy)
{
    Suite *suite = suite_create("log_copy");
    TCase *c = tcase_create("log_copy");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, files_end_at_line_ends);
    tcase_add_test(c, a_write_to_a_full_disk_rotates_no_file);
    tcase_add_test(c, long_lines_in_pieces_are_cut_at_the_limit);
    tcase_add_test(c, zero_old_files_may_be_kept);
    tcase_add_test(c, existing_files_count);
    tcase_add_test(c, files_are_rotated_only_on_request);
    tcase_add_test(c, a_file_that_cannot_be_created_is_reported_once);
    suite_add_tcase(suite, c);
    return suite;
}
