/* Why execve failed, with real files that it really refuses. */
#include "common/error.h"
#include "launcher/platform/exec_error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct co_error err;

static char dir[] = "/tmp/ddp-test-exec-error-XXXXXX";

static void set_up_files(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(chdir(dir), 0);
}

static void tear_down_files(void)
{
    static const char *const names[] = {"file", "inner"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (remove(names[i]) < 0)
            ck_assert_int_eq(errno, ENOENT);
    ck_assert_int_eq(rmdir(dir), 0);
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
}

static void put(const char *name, const char *content, size_t n, mode_t mode)
{
    FILE *out = fopen(name, "w");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(content, 1, n, out), n);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_int_eq(chmod(name, mode), 0);
}

/* Execute it for real, which must fail, and have that explained: "CODE text". */
static const char *refused(const char *path)
{
    static char text[CO_ERROR_TEXT_BYTES + 20];
    char *argv[] = {(char *)path, NULL};
    execve(path, argv, argv + 1);
    int rc = exec_error_explain(path, errno, &err);
    ck_assert_int_eq(err.code, rc);
    snprintf(text, sizeof text, "%s %s", strerrorname_np(-rc), err.text);
    return text;
}

START_TEST(a_missing_file_is_reported)
{
    ck_assert_str_eq(refused("./nope"),
                     "ENOENT cannot execute './nope': No such file or directory");
    put("file", "", 0, 0644);
    ck_assert_str_eq(refused("file/x"), "ENOENT cannot execute 'file/x': Not a directory");
}
END_TEST

START_TEST(a_missing_interpreter_is_named)
{
    put("file", "#! /no/such/sh -e\n", 18, 0755);
    ck_assert_str_eq(refused("./file"),
                     "ENOENT cannot execute './file': its first line names the interpreter "
                     "'/no/such/sh', which cannot be found; install it, or correct the line");
    put("file", "#!/bin/sh\r\nexit 3\r\n", 19, 0755);
    ck_assert_str_eq(
        refused("./file"),
        "ENOENT cannot execute './file': its first line ends in CR LF, so that its interpreter "
        "would be '/bin/sh\\r'; save it with LF line ends (sed -i 's/\\r$//' FILE)");
    put("inner", "", 0, 0644);
    put("file", "#!./inner", 9, 0755);
    ck_assert_str_eq(refused("./file"),
                     "EACCES cannot execute './file': its first line names the interpreter "
                     "'./inner', which is not executable; use chmod +x on it");
}
END_TEST

START_TEST(a_missing_permission_is_reported)
{
    put("file", "#!/bin/sh\n", 10, 0644);
    ck_assert_str_eq(refused("./file"), "EACCES cannot execute './file': no execute permission; "
                                        "use chmod +x");
    ck_assert_int_eq(mkdir("inner", 0755), 0);
    ck_assert_str_eq(refused("./inner"), "EACCES './inner' is a directory, not a program; give "
                                         "the file to run");
}
END_TEST

START_TEST(unknown_formats_are_reported)
{
    put("file", "exit 3\n", 7, 0755);
    ck_assert_str_eq(refused("./file"), "EACCES cannot execute './file': it is not a binary "
                                        "program, and has no first line such as "
                                        "#!/bin/sh; add one");
    char header[64] = "\177ELF\2\1\1";
    header[16] = 2;
    header[18] = 0x7f; /* no machine's number */
    put("file", header, sizeof header, 0755);
    ck_assert_str_eq(refused("./file"), "EACCES cannot execute './file': it was built for another "
                                        "machine architecture; build it for "
                                        "this one");
}
END_TEST

START_TEST(other_errors_have_the_systems_text)
{
    put("file", "\177ELF", 4, 0755);
    ck_assert_int_eq(exec_error_explain("./file", ENOENT, &err), -ENOENT);
    ck_assert_str_eq(err.text, "cannot execute './file': its dynamic loader is missing; build it "
                               "on this system, or install "
                               "the loader");
    ck_assert_int_eq(exec_error_explain("./file", E2BIG, &err), -EACCES);
    ck_assert_str_eq(err.text,
                     "cannot execute './file': its arguments and environment are too long; "
                     "pass long lists in a file");
    ck_assert_int_eq(exec_error_explain("./file", ETXTBSY, &err), -EACCES);
    ck_assert_str_eq(err.text, "cannot execute './file': Text file busy");
    ck_assert_int_eq(exec_error_explain("./file", EACCES, &err), -EACCES);
    ck_assert_str_eq(err.text, "cannot execute './file': permission denied");
}
END_TEST

TEST_SUITE(exec_error)
{
    Suite *suite = suite_create("exec_error");
    TCase *c = tcase_create("exec");
    tcase_add_checked_fixture(c, set_up_files, tear_down_files);
    tcase_add_test(c, a_missing_file_is_reported);
    tcase_add_test(c, a_missing_interpreter_is_named);
    tcase_add_test(c, a_missing_permission_is_reported);
    tcase_add_test(c, unknown_formats_are_reported);
    tcase_add_test(c, other_errors_have_the_systems_text);
    suite_add_tcase(suite, c);
    return suite;
}
