/* One rank's words: templates filled in as Python's string.Template.safe_substitute() does. */
#include "launcher/job_spec.h"
#include "launcher/rank_argv.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct job_spec spec;

/* The words of the rank, "|" between them; "as they are" if nothing is to be done. */
static const char *make(int local_rank, int n_program_words, const char *const *words)
{
    static char text[8192];
    char **argv;
    spec.argv = (char **)words;
    spec.n_program_words = n_program_words;
    ck_assert_int_eq(rank_argv_make(&spec, local_rank, &argv, NULL), 0);
    if (argv == NULL)
        return "as they are";
    text[0] = '\0';
    for (char **word = argv; *word != NULL; word++) {
        strcat(text, word == argv ? "" : "|");
        strcat(text, *word);
    }
    free(argv);
    return text;
}

#define MAKE(rank, n_program, ...) make(rank, n_program, (const char *const[]){__VA_ARGS__, NULL})

static void set_up(void)
{
    spec = (struct job_spec){.has_templates = true};
}

START_TEST(words_without_a_dollar_are_not_copied)
{
    spec.has_templates = false;
    ck_assert_str_eq(MAKE(0, 1, "program", "a"), "as they are");
}
END_TEST

START_TEST(each_form_of_a_dollar_means_what_it_means_to_torchrun)
{
    /* what Python says to the same text, for local rank 12 */
    static const struct {
        const char *word, *expected;
    } cases[] = {
        {"${local_rank}", "12"},
        {"$local_rank", "12"},
        {"a$local_rank.b${local_rank}c", "a12.b12c"},
        {"$local_ranks", "$local_ranks"},
        {"$local_rank_", "$local_rank_"},
        {"$local_rank9", "$local_rank9"},
        {"$local_rank-9", "12-9"},
        {"${local_ranks}", "${local_ranks}"},
        {"${local_rank", "${local_rank"},
        {"${ local_rank }", "${ local_rank }"},
        {"$$", "$"},
        {"$$$", "$$"},
        {"$$$$", "$$"},
        {"$${local_rank}", "${local_rank}"},
        {"$$${local_rank}", "$12"},
        {"$HOME $1 ${x} $", "$HOME $1 ${x} $"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[100];
        snprintf(expected, sizeof expected, "p|%s|end", cases[i].expected);
        ck_assert_str_eq(MAKE(12, 1, "p", cases[i].word, "end"), expected);
    }
}
END_TEST

START_TEST(the_programs_own_name_is_no_template)
{
    ck_assert_str_eq(MAKE(3, 1, "./$$", "$$"), "./$$|$");
    ck_assert_str_eq(MAKE(3, 3, "python", "-u", "train_$local_rank.py"), "python|-u|train_3.py");
}
END_TEST

START_TEST(the_local_rank_stands_right_behind_the_script)
{
    spec.has_templates = false;
    spec.local_rank_arg = "--local_rank";
    ck_assert_str_eq(MAKE(0, 3, "python", "-u", "train.py", "--lr", "$$"),
                     "python|-u|train.py|--local_rank=0|--lr|$");
    ck_assert_str_eq(MAKE(1023, 1, "program"), "program|--local_rank=1023");
    ck_assert_str_eq(MAKE(7, 4, "python", "-u", "-m", "package"),
                     "python|-u|-m|package|--local_rank=7");
}
END_TEST

START_TEST(many_long_words_are_filled_in_whole)
{
    enum { N = 200 };
    static char word[4000];
    static const char *words[N + 2];
    for (size_t i = 0; i + 1 < sizeof word; i++)
        word[i] = "$local_rank,"[i % 12];
    words[0] = "p";
    for (int i = 1; i <= N; i++)
        words[i] = word;
    char **argv;
    spec.argv = (char **)words;
    spec.n_program_words = 1;
    ck_assert_int_eq(rank_argv_make(&spec, 1, &argv, NULL), 0);
    for (int i = 1; i <= N; i++) {
        ck_assert_str_eq(argv[i], argv[1]);
        ck_assert_int_eq(strncmp(argv[i], "1,1,1,", 6), 0);
    }
    ck_assert_ptr_null(argv[N + 1]);
    free(argv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rank_argv");
    TCase *c = tcase_create("rank_argv");
    tcase_add_checked_fixture(c, set_up, NULL);
    tcase_add_test(c, words_without_a_dollar_are_not_copied);
    tcase_add_test(c, each_form_of_a_dollar_means_what_it_means_to_torchrun);
    tcase_add_test(c, the_programs_own_name_is_no_template);
    tcase_add_test(c, the_local_rank_stands_right_behind_the_script);
    tcase_add_test(c, many_long_words_are_filled_in_whole);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
