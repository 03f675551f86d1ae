/* Completions of a program with a table of its own. What bash offers is tested by
 * tests/system/ctl/completion.sh. */
#include "common/completion.h"
#include "common/options.h"
#include "tests/support/suite.h"

#include <check.h>
#include <string.h>

static const struct co_option table[] = {
    {1, 'c', "count", "N|auto|all", .help = "How many. More."},
    {2, 0, "log", "FILE", .help = "Where [it's] written."},
    {3, 'q', "quiet", .help = "Say less."},
    {4, 0, "color", "always|never", .help = "Colors.", .optional = true},
    {0},
};
static const struct co_completion program = {
    .name = "tool", .function = "_tool", .table = table, .runs_program = true};
static char text[1 << 13];

static const char *completion(const char *shell)
{
    FILE *out = fmemopen(text, sizeof text, "w");
    ck_assert_ptr_nonnull(out);
    ck_assert(co_completion_print(&program, shell, out));
    fclose(out);
    return text;
}

START_TEST(each_shell_has_the_options_and_words_of_the_table)
{
    ck_assert_ptr_nonnull(strstr(completion("bash"), "complete -o default -F _tool tool\n"));
    ck_assert_ptr_nonnull(
        strstr(text, "--count | -c) mapfile -t COMPREPLY < <(compgen -W 'auto all'"));
    ck_assert_ptr_nonnull(strstr(completion("zsh"), "'--log=[Where  it s  written]:value:_files'"));
    ck_assert_ptr_nonnull(
        strstr(completion("fish"), "complete -c tool -s q -l quiet -d 'Say less'\n"));
    ck_assert_str_eq(completion("tcsh"), "# tcsh completion of tool, made of its option table\n"
                                         "complete tool \\\n"
                                         "    'n/--count/(auto all)/' \\\n"
                                         "    'n/--log/f/' \\\n"
                                         "    'c/--/(count log quiet color)/'\n");
}
END_TEST

START_TEST(an_unknown_shell_prints_nothing)
{
    FILE *out = fmemopen(text, sizeof text, "w");
    ck_assert_ptr_nonnull(out);
    ck_assert(!co_completion_print(&program, "ksh", out));
    ck_assert_int_eq(ftell(out), 0);
    fclose(out);
}
END_TEST

TEST_SUITE(completion)
{
    Suite *suite = suite_create("completion");
    TCase *c = tcase_create("completion");
    tcase_add_test(c, each_shell_has_the_options_and_words_of_the_table);
    tcase_add_test(c, an_unknown_shell_prints_nothing);
    suite_add_tcase(suite, c);
    return suite;
}
