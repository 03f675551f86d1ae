/* Messages of the kernel that are about failures. */
#include "launcher/diagnosis/kernel_log.h"

#include "tests/support/file_tree.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct kernel_log *the_log;

static void set_up(void)
{
    the_log = calloc(1, sizeof *the_log);
    ck_assert_ptr_nonnull(the_log);
}

static void tear_down(void)
{
    free(the_log);
}

static void add(const char *record)
{
    kernel_log_add(the_log, record, strlen(record));
}

static void check_text(const char *expected)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    kernel_log_print(the_log, out);
    fclose(out);
    ck_assert_str_eq(text, expected);
    free(text);
}

START_TEST(failures_are_kept_and_the_rest_is_not)
{
    add("6,812,1106524895,-;usb 1-1: new device\n");
    add("4,813,1106524899,-;nfs: server a not answering\n SUBSYSTEM=x\n");
    add("6,814,2000001,-;python3[17]: segfault at 0 ip 00 sp 00 error 4 in libc.so\n");
    add("3,815,3000000,c;NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n");
    check_text("[1106.524899] nfs: server a not answering\n"
               "[2.000001] python3[17]: segfault at 0 ip 00 sp 00 error 4 in libc.so\n"
               "[3.000000] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n");
}
END_TEST

START_TEST(what_a_process_has_written_is_not_kept)
{
    add("12,1,1,-;a warning of the facility user\n");
    add("11,1,1,-;segfault\n");
    check_text("");
}
END_TEST

START_TEST(bad_records_are_left_out)
{
    static const char *const bad[] = {
        "",
        ";",
        ";x",
        "4",
        "4;x",
        "4,1;x",
        "4,1,;x",
        "x,1,1,-;x",
        "-1,1,1,-;x",
        "4,1,1;x",
        "4,1,1,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa;x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        add(bad[i]);
    check_text("");
    kernel_log_add(the_log, "4,1,1,-;no end", 9);
    check_text("[0.000001] n\n");
}
END_TEST

START_TEST(long_and_strange_messages_are_cut_and_cleaned)
{
    char record[2 * KERNEL_LOG_TEXT_BYTES];
    memset(record, 'a', sizeof record);
    memcpy(record, "4,1,0,-;", 8);
    record[8] = '\033';
    record[9] = (char)0x9b;
    kernel_log_add(the_log, record, sizeof record);
    ck_assert_uint_eq(the_log->n, 1);
    ck_assert_uint_eq(strlen(the_log->lines[0].text), KERNEL_LOG_TEXT_BYTES - 1);
    ck_assert_int_eq(strncmp(the_log->lines[0].text, "??aaa", 5), 0);
}
END_TEST

START_TEST(the_last_messages_are_kept)
{
    char record[64];
    for (int i = 0; i < KERNEL_LOG_LINES + 3; i++) {
        snprintf(record, sizeof record, "3,1,%d,-;%d\n", i, i);
        add(record);
    }
    ck_assert_uint_eq(the_log->n, KERNEL_LOG_LINES + 3);
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    kernel_log_print(the_log, out);
    fclose(out);
    static const char begin[] = "(3 earlier messages are left out)\n[0.000003] 3\n[0.000004] 4\n";
    ck_assert_int_eq(strncmp(text, begin, sizeof begin - 1), 0);
    free(text);
}
END_TEST

START_TEST(only_what_is_logged_after_the_open_is_read)
{
    char root[FILE_TREE_BYTES];
    file_tree_make(root);
    ck_assert_int_eq(kernel_log_open(root), -ENOENT);
    file_tree_put(root, "/dev/kmsg", "3,1,1,-;old\n");
    int fd = kernel_log_open(root);
    ck_assert_int_ge(fd, 0);
    kernel_log_read(fd, the_log);
    check_text("");
    char path[FILE_TREE_BYTES + 16];
    snprintf(path, sizeof path, "%s/dev/kmsg", root);
    FILE *out = fopen(path, "a");
    fputs("3,2,2,-;new\n", out);
    fclose(out);
    kernel_log_read(fd, the_log);
    check_text("[0.000002] new\n");
    close(fd);
    file_tree_remove(root);
}
END_TEST

TEST_SUITE(kernel_log)
{
    Suite *suite = suite_create("kernel_log");
    TCase *c = tcase_create("kernel_log");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, failures_are_kept_and_the_rest_is_not);
    tcase_add_test(c, what_a_process_has_written_is_not_kept);
    tcase_add_test(c, bad_records_are_left_out);
    tcase_add_test(c, long_and_strange_messages_are_cut_and_cleaned);
    tcase_add_test(c, the_last_messages_are_kept);
    tcase_add_test(c, only_what_is_logged_after_the_open_is_read);
    suite_add_tcase(suite, c);
    return suite;
}
