/* What lines begin with: ours, and torchrun's templates. */
#include "common/error.h"
#include "launcher/label.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct co_error err;

/* The label of rank 13, or what is wrong with the format. */
static const char *make(const char *format)
{
    static char text[2 * LABEL_MAX];
    const struct label_values values = {
        .host = "n1", .role = "trainer", .rank = 13, .local_rank = 5, .generation = 4294967295u};
    char *label = NULL;
    int rc = label_make(format, &values, &label, &err);
    ck_assert_int_eq(label_make(format, NULL, NULL, NULL), rc);
    snprintf(text, sizeof text, "%s", rc == 0 ? label : err.text);
    free(label);
    return text;
}

static const char *template(const char *text)
{
    static char format[2 * LABEL_MAX];
    char *made = NULL;
    int rc = label_from_template(text, &made, &err);
    snprintf(format, sizeof format, "%s", rc == 0 ? made : err.text);
    free(made);
    return format;
}

START_TEST(names_in_braces_are_filled_in)
{
    ck_assert_str_eq(make(LABEL_DEFAULT), "n1:13: ");
    ck_assert_str_eq(make(LABEL_TORCHRUN), "[trainer5]:");
    ck_assert_str_eq(make("{generation}/{rank}{rank}"), "4294967295/1313");
    ck_assert_str_eq(make("{{rank}} {{{rank}}}\t"), "{rank} {13}\t");
    ck_assert_str_eq(make(""), "");
    ck_assert_str_eq(make("\303\251"), "\303\251");
}
END_TEST

START_TEST(wrong_formats_are_told)
{
    ck_assert_str_eq(make("{hots}"),
                     "'{hots}' is none of {host}, {rank}, {local_rank}, {role} and {generation}");
    ck_assert_str_eq(make("{}"),
                     "'{}' is none of {host}, {rank}, {local_rank}, {role} and {generation}");
    ck_assert_str_eq(make("a{rank"),
                     "a '{' stands alone: names are written {rank}, and braces {{ }}");
    ck_assert_str_eq(make("a{ra{nk}"),
                     "a '{' stands alone: names are written {rank}, and braces {{ }}");
    ck_assert_str_eq(make("a}"), "a '}' stands alone: names are written {rank}, and braces {{ }}");
    ck_assert_str_eq(make("a\n"), "it holds a control character");
    ck_assert_str_eq(make("\177"), "it holds a control character");
    ck_assert_int_eq(err.code, -EINVAL);
}
END_TEST

START_TEST(formats_have_a_bound)
{
    char format[LABEL_MAX + 2];
    memset(format, 'x', sizeof format);
    format[LABEL_MAX + 1] = '\0';
    ck_assert_str_eq(make(format), "it is longer than 512 bytes");
    ck_assert_str_eq(template(format), "it is longer than 512 bytes");
    format[LABEL_MAX] = '\0';
    ck_assert_str_eq(make(format), format);
    ck_assert_str_eq(template(format), format);
    memset(format, '{', LABEL_MAX);
    ck_assert_str_eq(template(format), "it is longer than 512 bytes"); /* each becomes two */
}
END_TEST

START_TEST(templates_of_torchrun_become_formats)
{
    ck_assert_str_eq(template("[${role_name}${local_rank}]:"), LABEL_TORCHRUN);
    ck_assert_str_eq(template("$rank,$rank2 $local_rank"), "{rank},$rank2 {local_rank}");
    ck_assert_str_eq(template("$$rank ${other} ${rank $ $1 ${1a} {x}"),
                     "$rank ${{other}} ${{rank $ $1 ${{1a}} {{x}}");
    ck_assert_str_eq(template("100%$"), "100%$");
    ck_assert_str_eq(template(""), "");
    ck_assert_str_eq(template("a\033"), "it holds a control character");
    ck_assert_str_eq(make(template("<${rank}> ${other} {")), "<13> ${other} {");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("label");
    TCase *c = tcase_create("label");
    tcase_add_test(c, names_in_braces_are_filled_in);
    tcase_add_test(c, wrong_formats_are_told);
    tcase_add_test(c, formats_have_a_bound);
    tcase_add_test(c, templates_of_torchrun_become_formats);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
