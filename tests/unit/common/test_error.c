/* The text of errors. */
#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

START_TEST(failing_writes_code_and_text)
{
    struct co_error err = {0};
    ck_assert_int_eq(co_fail(&err, -EINVAL, "slots '%s' is no number", "eight"), -EINVAL);
    ck_assert_int_eq(err.code, -EINVAL);
    ck_assert_str_eq(err.text, "slots 'eight' is no number");
}
END_TEST

START_TEST(callers_add_a_prefix)
{
    struct co_error err = {0};
    co_fail(&err, -EINVAL, "slots 'eight' is no number");
    ck_assert_int_eq(co_fail_in(&err, "%s:%d", "hosts.txt", 7), -EINVAL);
    ck_assert_int_eq(co_fail_in(&err, "job %s", "j"), -EINVAL);
    ck_assert_str_eq(err.text, "job j: hosts.txt:7: slots 'eight' is no number");
}
END_TEST

START_TEST(without_an_error_object_only_the_code_is_returned)
{
    ck_assert_int_eq(co_fail(NULL, -ENOMEM, "no memory for %d ranks", 4), -ENOMEM);
    ck_assert_int_eq(co_fail_in(NULL, "here"), -EIO);
}
END_TEST

START_TEST(an_empty_error_is_an_io_error)
{
    struct co_error err = {0};
    ck_assert_int_eq(co_fail_in(&err, "here"), -EIO);
    ck_assert_str_eq(err.text, "here: ");
}
END_TEST

START_TEST(a_text_may_contain_the_old_one)
{
    struct co_error err = {0};
    co_fail(&err, -EINVAL, "no number");
    co_fail(&err, -EINVAL, "%s, said twice: %s", err.text, err.text);
    ck_assert_str_eq(err.text, "no number, said twice: no number");
}
END_TEST

START_TEST(long_texts_are_cut_and_end)
{
    char text[2 * CO_ERROR_TEXT_BYTES];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    struct co_error err = {0};
    co_fail(&err, -EINVAL, "%s", text);
    ck_assert_uint_eq(strlen(err.text), CO_ERROR_TEXT_BYTES - 1);
    co_fail_in(&err, "front");
    ck_assert_uint_eq(strlen(err.text), CO_ERROR_TEXT_BYTES - 1);
    ck_assert_int_eq(strncmp(err.text, "front: xxx", 10), 0);
    co_fail_in(&err, "%s", text);
    ck_assert_uint_eq(strlen(err.text), CO_ERROR_TEXT_BYTES - 1);
    ck_assert_int_eq(strncmp(err.text, "xxx", 3), 0);
}
END_TEST

TEST_SUITE(error)
{
    Suite *suite = suite_create("error");
    TCase *c = tcase_create("error");
    tcase_add_test(c, failing_writes_code_and_text);
    tcase_add_test(c, callers_add_a_prefix);
    tcase_add_test(c, without_an_error_object_only_the_code_is_returned);
    tcase_add_test(c, an_empty_error_is_an_io_error);
    tcase_add_test(c, a_text_may_contain_the_old_one);
    tcase_add_test(c, long_texts_are_cut_and_end);
    suite_add_tcase(suite, c);
    return suite;
}
