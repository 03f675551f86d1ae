/* --wrap: which ranks, and which words. */
#include "common/error.h"
#include "launcher/job/rank_argv.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The words, each in angle brackets. */
static const char *words_of(const char *text)
{
    static char words[400];
    struct wrap *w;
    struct co_error err;
    ck_assert_msg(wrap_parse("--wrap", text, &w, &err) == 0, "%s", err.text);
    words[0] = '\0';
    for (char **word = w->words; *word != NULL; word++)
        sprintf(words + strlen(words), "<%s>", *word);
    free(w);
    return words;
}

START_TEST(a_command_is_split_as_a_shell_splits_it)
{
    ck_assert_str_eq(words_of("gdb -ex run --args"), "<gdb><-ex><run><--args>");
    ck_assert_str_eq(words_of("0:gdb -ex 'run -v' --args"), "<gdb><-ex><run -v><--args>");
    ck_assert_str_eq(words_of("  a\t\"b c\"'d e'f \n"), "<a><b cd ef>");
    ck_assert_str_eq(words_of("a \\  \\\\ \\'"), "<a>< ><\\><'>");
    ck_assert_str_eq(words_of("a '\\n' \"\\\"\""), "<a><\\n><\">");
    ck_assert_str_eq(words_of("a '' \"\""), "<a><><>");
    ck_assert_str_eq(words_of("a\\"), "<a\\>");
    ck_assert_str_eq(words_of("perf stat -e cache:u"), "<perf><stat><-e><cache:u>");
    ck_assert_str_eq(words_of("a -x 0:b"), "<a><-x><0:b>");
}
END_TEST

static bool covers(const char *text, int rank)
{
    struct wrap *w;
    ck_assert_int_eq(wrap_parse("--wrap", text, &w, NULL), 0);
    bool answer = wrap_covers(w, rank);
    free(w);
    return answer;
}

START_TEST(the_list_selects_ranks_or_all)
{
    ck_assert(covers("x", 0) && covers("x", 100000));
    ck_assert(covers("3:x", 3) && !covers("3:x", 2) && !covers("3:x", 4));
    ck_assert(covers("0,4-6,9:x", 5) && covers("0,4-6,9:x", 9) && !covers("0,4-6,9:x", 8));
    ck_assert(!wrap_covers(NULL, 0));
}
END_TEST

START_TEST(invalid_values_are_refused)
{
    static const char *const bad[] = {"",     " ",     "0:",     "0: ",  "''",      "0:''",
                                      "'a",   "a \"b", "0:a 'b", ":a",   "1-0:a",   ",:a",
                                      "1,:a", "-1:a",  "1--2:a", "1-:a", "1-2-3:a", "12345678:a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct wrap *w = NULL;
        struct co_error err = {0};
        ck_assert_msg(wrap_parse("--wrap", bad[i], &w, &err) == -EINVAL, "'%s'", bad[i]);
        ck_assert_ptr_nonnull(strstr(err.text, "--wrap"));
        ck_assert_ptr_null(w);
    }
}
END_TEST

START_TEST(words_and_ranges_are_bounded)
{
    char text[1000] = "a";
    struct wrap *w;
    for (int i = 1; i < WRAP_WORDS_MAX; i++)
        strcat(text, " a");
    ck_assert_int_eq(wrap_parse("--wrap", text, &w, NULL), 0);
    ck_assert_int_eq(w->n_words, WRAP_WORDS_MAX);
    free(w);
    strcat(text, " a");
    ck_assert_int_eq(wrap_parse("--wrap", text, &w, NULL), -EINVAL);
    strcpy(text, "0");
    for (int i = 0; i < WRAP_RANGES_MAX; i++)
        strcat(text, ",1");
    strcat(text, ":a");
    ck_assert_int_eq(wrap_parse("--wrap", text, &w, NULL), -EINVAL);
    ck_assert_int_eq(wrap_parse("--wrap", text + 2, &w, NULL), 0);
    free(w);
}
END_TEST

TEST_SUITE(wrap)
{
    Suite *suite = suite_create("wrap");
    TCase *c = tcase_create("wrap");
    tcase_add_test(c, a_command_is_split_as_a_shell_splits_it);
    tcase_add_test(c, the_list_selects_ranks_or_all);
    tcase_add_test(c, invalid_values_are_refused);
    tcase_add_test(c, words_and_ranges_are_bounded);
    suite_add_tcase(suite, c);
    return suite;
}
