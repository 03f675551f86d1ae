/* Reading what ranks write down, whatever it is; writing what torchrun would. */
#include "launcher/diagnosis/error_file.h"

#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];
static char path[128];

static void set_up(void)
{
    strcpy(dir, "/tmp/ddp-test-error-file-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/error.json", dir);
}

static void tear_down(void)
{
    unlink(path);
    ck_assert_int_eq(rmdir(dir), 0);
}

static void put(const char *bytes, size_t n)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static int read_it(char **message)
{
    struct co_error err;
    char *text = NULL;
    int rc = error_file_read(path, message, &text, &err);
    if (rc < 0 && rc != -ENOENT)
        ck_assert_ptr_nonnull(strstr(err.text, "error.json")); /* each message names the file */
    if (rc == 0)
        free(text);
    return rc;
}

START_TEST(messages_are_found_in_both_forms)
{
    static const char *const files[] = {
        "{\"message\": {\"message\": \"E: seven\", \"extraInfo\": {\"timestamp\": \"1\"}}}",
        "{\"message\": \"E: seven\", \"timestamp\": 1}",
    };
    for (size_t i = 0; i < 2; i++) {
        char *message = NULL;
        put(files[i], strlen(files[i]));
        ck_assert_int_eq(read_it(&message), 0);
        ck_assert_str_eq(message, "E: seven");
        free(message);
    }
}
END_TEST

START_TEST(malformed_files_are_refused)
{
    static const char *const files[] = {
        "{",
        "nonsense",
        "[]",
        "{}",
        "null",
        "3",
        "{\"message\": 3}",
        "{\"message\": {}}",
        "{\"message\": {\"message\": []}}",
        "{\"message\": \"a\"} trailing",
        "\xff\xfe",
        "{\"message\": \"\xc3\x28\"}",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *message = NULL;
        put(files[i], strlen(files[i]));
        ck_assert_int_eq(read_it(&message), -EPROTO);
        ck_assert_ptr_null(message);
    }
}
END_TEST

START_TEST(a_deep_nest_is_refused)
{
    static char nest[100000];
    char *message = NULL;
    memset(nest, '[', sizeof nest);
    put(nest, sizeof nest);
    ck_assert_int_eq(read_it(&message), -EPROTO);
}
END_TEST

START_TEST(a_missing_or_empty_file_has_no_message)
{
    char *message = NULL;
    ck_assert_int_eq(read_it(&message), -ENOENT);
    put("", 0);
    ck_assert_int_eq(read_it(&message), -ENOENT);
}
END_TEST

START_TEST(a_huge_file_is_refused_unread)
{
    char *message = NULL;
    put("{", 1);
    ck_assert_int_eq(truncate(path, (off_t)1 << 40), 0);
    ck_assert_int_eq(read_it(&message), -EFBIG);
}
END_TEST

START_TEST(a_long_message_is_cut)
{
    static char file[ERROR_FILE_MAX_MESSAGE * 2 + 16];
    char *message = NULL;
    strcpy(file, "{\"message\":\"");
    memset(file + strlen(file), 'x', ERROR_FILE_MAX_MESSAGE * 2 - 16);
    strcat(file, "\"}");
    put(file, strlen(file));
    ck_assert_int_eq(read_it(&message), 0);
    ck_assert_uint_eq(strlen(message), ERROR_FILE_MAX_MESSAGE);
    free(message);
}
END_TEST

START_TEST(special_files_are_refused_without_waiting)
{
    char *message = NULL;
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(read_it(&message), -EPROTO);
    unlink(path);
    ck_assert_int_eq(symlink("/etc/passwd", path), 0);
    ck_assert_int_eq(read_it(&message), -ELOOP);
    unlink(path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(read_it(&message), -EPROTO);
    rmdir(path);
}
END_TEST

static void check_written(const char *expected)
{
    char text[1024];
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    ck_assert_str_eq(text, expected);
}

START_TEST(the_root_cause_is_written_with_its_exit_status)
{
    ck_assert_int_eq(error_file_write(path,
                                      "{\"message\":{\"message\":\"E\",\"extraInfo\":{\"a\":1}}}",
                                      "unused", 3, 99, NULL),
                     0);
    check_written("{\"message\":{\"message\":\"E\",\"extraInfo\":{\"a\":1},\"errorCode\":3}}");
    ck_assert_int_eq(
        error_file_write(path, "{\"message\":\"E\",\"timestamp\":1}", "unused", 3, 99, NULL), 0);
    check_written("{\"message\":\"E\",\"timestamp\":1,\"errorCode\":3}");
    ck_assert_int_eq(error_file_write(path, NULL, "rank 1: \"SIGKILL\"", -9, 99, NULL), 0);
    check_written("{\"message\":{\"message\":\"rank 1: \\\"SIGKILL\\\"\",\"extraInfo\":"
                  "{\"timestamp\":\"99\"},\"errorCode\":-9}}");
}
END_TEST

START_TEST(an_unwritable_path_is_named)
{
    struct co_error err;
    ck_assert_int_eq(error_file_write("/nowhere/error.json", NULL, "m", 1, 99, &err), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err.text, "/nowhere/error.json"));
}
END_TEST

TEST_SUITE(error_file)
{
    Suite *suite = suite_create("error_file");
    TCase *c = tcase_create("error_file");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, messages_are_found_in_both_forms);
    tcase_add_test(c, malformed_files_are_refused);
    tcase_add_test(c, a_deep_nest_is_refused);
    tcase_add_test(c, a_missing_or_empty_file_has_no_message);
    tcase_add_test(c, a_huge_file_is_refused_unread);
    tcase_add_test(c, a_long_message_is_cut);
    tcase_add_test(c, special_files_are_refused_without_waiting);
    tcase_add_test(c, the_root_cause_is_written_with_its_exit_status);
    tcase_add_test(c, an_unwritable_path_is_named);
    suite_add_tcase(suite, c);
    return suite;
}
