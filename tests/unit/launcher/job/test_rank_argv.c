/* One rank's words: names in braces, and dollars filled in as Python's
 * string.Template.safe_substitute() does. */
#include "launcher/job/job_spec.h"
#include "launcher/job/rank_argv.h"
#include "launcher/job/worker_env.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct job_spec spec;
static struct generation_place place;

/* As a local rank of a node whose first rank is 100. */
static int make_argv(int local_rank, char ***ret)
{
    struct rank_values values;
    struct rank_place rank = {.rank = 100 + local_rank, .local_rank = local_rank};
    rank_values_fill(&values, &spec, &place, &rank);
    return rank_argv_make(&spec, &values, ret, NULL);
}

/* The words of the rank, "|" between them; "as they are" if nothing is to be done. */
static const char *make(int local_rank, int n_program_words, const char *const *words)
{
    static char text[8192];
    char **argv;
    spec.argv = (char **)words;
    spec.n_program_words = n_program_words;
    ck_assert_int_eq(make_argv(local_rank, &argv), 0);
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
    spec = (struct job_spec){.n_local = 1, .has_templates = true, .run_id = "job 7"};
    place = (struct generation_place){.world_size = 1024,
                                      .local_world_size = 8,
                                      .node_rank = 12,
                                      .n_nodes = 128,
                                      .generation = 4294967295,
                                      .master_addr = "node1",
                                      .master_ip = "10.0.0.1",
                                      .master_port = 65535};
}

START_TEST(words_without_a_dollar_are_not_copied)
{
    spec.has_templates = false;
    ck_assert_str_eq(MAKE(0, 1, "program", "a"), "as they are");
}
END_TEST

START_TEST(each_form_of_a_dollar_works_as_in_torchrun)
{
    /* what Python makes of the same text for local rank 12, and what ddprun makes of it if that
     * differs */
    static const struct {
        const char *word, *expected, *ours;
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
        {"$$", "$", "$$"},
        {"$$$", "$$", "$$$"},
        {"$$$$", "$$", "$$$$"},
        {"echo $$ $$. $$x", "echo $ $. $x", "echo $$ $$. $$x"},
        {"$$local_ranks", "$local_ranks", "$$local_ranks"},
        {"$$local_rank", "$local_rank"},
        {"$${local_rank}", "${local_rank}"},
        {"$$${local_rank}", "$12", "$${local_rank}"},
        {"$HOME $1 ${x} $", "$HOME $1 ${x} $"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[100];
        spec.as_torchrun = true;
        snprintf(expected, sizeof expected, "p|%s|end", cases[i].expected);
        ck_assert_str_eq(MAKE(12, 1, "p", cases[i].word, "end"), expected);
        ck_assert_int_eq(rank_argv_has_dollar(cases[i].word, true),
                         strcmp(cases[i].word, cases[i].expected) != 0);
        spec.as_torchrun = false;
        const char *ours = cases[i].ours ?: cases[i].expected;
        snprintf(expected, sizeof expected, "p|%s|end", ours);
        ck_assert_str_eq(MAKE(12, 1, "p", cases[i].word, "end"), expected);
        ck_assert_int_eq(rank_argv_has_dollar(cases[i].word, false),
                         strcmp(cases[i].word, ours) != 0);
    }
}
END_TEST

START_TEST(the_program_path_is_not_a_template)
{
    ck_assert_str_eq(MAKE(3, 1, "./$local_rank", "$local_rank"), "./$local_rank|3");
    ck_assert_str_eq(MAKE(3, 3, "python", "-u", "train_$local_rank.py"), "python|-u|train_3.py");
}
END_TEST

START_TEST(the_local_rank_follows_the_script)
{
    spec.has_templates = false;
    spec.local_rank_arg = "--local_rank";
    ck_assert_str_eq(MAKE(0, 3, "python", "-u", "train.py", "--lr", "$local_rank"),
                     "python|-u|train.py|--local_rank=0|--lr|0");
    ck_assert_str_eq(MAKE(1023, 1, "program"), "program|--local_rank=1023");
    ck_assert_str_eq(MAKE(7, 4, "python", "-u", "-m", "package"),
                     "python|-u|-m|package|--local_rank=7");
}
END_TEST

START_TEST(a_name_in_braces_is_filled_in)
{
    static const struct {
        const char *word, *expected;
    } cases[] = {
        {"{rank}", "103"},           {"{local_rank}", "3"},          {"{world_size}", "1024"},
        {"{local_world_size}", "8"}, {"{node_rank}", "12"},          {"{nnodes}", "128"},
        {"{master_addr}", "node1"},  {"{master_ip}", "10.0.0.1"},    {"{master_port}", "65535"},
        {"{run_id}", "job 7"},       {"{generation}", "4294967295"},
    };
    spec.fills_braces = true;
    ck_assert_uint_eq(sizeof cases / sizeof *cases, N_TEMPLATES);
    for (size_t i = 0; i < N_TEMPLATES; i++) {
        char expected[100];
        snprintf(expected, sizeof expected, "p|-pr|%s|end", cases[i].expected);
        ck_assert_uint_eq(rank_argv_template(cases[i].word), i);
        ck_assert_str_eq(MAKE(3, 1, "p", "-pr", cases[i].word, "end"), expected);
    }
}
END_TEST

START_TEST(braces_that_are_not_a_template_stay)
{
    static const char *const words[] = {"{",        "}",      "{}",           "{ rank }",
                                        "{rank",    "rank}",  "{rank} ",      "{rank}{rank}",
                                        "x={rank}", "{Rank}", "{{rank}}",     "{\"rank\": 1}",
                                        "{world}",  "{0}",    "{master_ip}s", "{role}"};
    spec.fills_braces = true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char expected[100];
        snprintf(expected, sizeof expected, "p|%s", words[i]);
        ck_assert_uint_eq(rank_argv_template(words[i]), N_TEMPLATES);
        ck_assert_str_eq(MAKE(0, 1, "p", words[i]), expected);
    }
}
END_TEST

START_TEST(braces_of_scripts_and_of_the_program_itself_stay)
{
    ck_assert_str_eq(MAKE(0, 1, "p", "{rank}"), "p|{rank}");
    spec.fills_braces = true;
    ck_assert_str_eq(MAKE(0, 4, "{rank}", "-u", "-c", "{rank}", "{rank}"),
                     "{rank}|-u|-c|{rank}|100");
}
END_TEST

START_TEST(templates_have_the_values_of_the_variables)
{
    spec.fills_braces = true;
    spec.virtual_local_rank = true; /* LOCAL_RANK is 0, and torchrun's $local_rank is not */
    ck_assert_str_eq(MAKE(5, 1, "p", "{local_rank}", "$local_rank"), "p|0|5");
    place.master_ip = NULL; /* it could not be found */
    ck_assert_str_eq(MAKE(5, 1, "p", "{master_ip}"), "p|node1");
}
END_TEST

START_TEST(a_wrapped_rank_executes_the_wrapper_first)
{
    struct wrap *wrap;
    struct rank_values v = {.rank = 101};
    ck_assert_int_eq(wrap_parse("--wrap", "101:strace -o 't {rank} {x}' {", &wrap, NULL), 0);
    wrap->path = "/usr/bin/strace";
    spec.wrap = wrap;
    spec.path = "/usr/bin/python3";
    spec.local_rank_arg = "--local_rank";
    spec.fills_braces = false;
    ck_assert_str_eq(MAKE(1, 3, "python", "-u", "a.py", "{rank}", "$$"),
                     "strace|-o|t 101 {x}|{|/usr/bin/python3|-u|a.py|--local_rank=1|{rank}|$$");
    ck_assert_str_eq(rank_argv_path(&spec, &v), "/usr/bin/strace");
    ck_assert(rank_argv_uses(&spec, TEMPLATE_RANK));
    spec.local_rank_arg = NULL;
    ck_assert_str_eq(MAKE(1, 1, "./p"), "strace|-o|t 101 {x}|{|/usr/bin/python3");
    spec.has_templates = false;
    ck_assert_str_eq(MAKE(0, 1, "./p", "{rank}"), "as they are");
    v.rank = 100;
    ck_assert_str_eq(rank_argv_path(&spec, &v), "/usr/bin/python3");
    free(wrap);
}
END_TEST

START_TEST(used_templates_are_known)
{
    char *argv[] = {"{master_ip}", "{rank}", NULL};
    spec.argv = argv;
    spec.n_program_words = 1;
    ck_assert(!rank_argv_uses(&spec, TEMPLATE_RANK));
    spec.fills_braces = true;
    ck_assert(rank_argv_uses(&spec, TEMPLATE_RANK));
    ck_assert(!rank_argv_uses(&spec, TEMPLATE_MASTER_IP));
}
END_TEST

START_TEST(many_long_words_are_filled_in_completely)
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
    ck_assert_int_eq(make_argv(1, &argv), 0);
    for (int i = 1; i <= N; i++) {
        ck_assert_str_eq(argv[i], argv[1]);
        ck_assert_int_eq(strncmp(argv[i], "1,1,1,", 6), 0);
    }
    ck_assert_ptr_null(argv[N + 1]);
    free(argv);
}
END_TEST

TEST_SUITE(rank_argv)
{
    Suite *suite = suite_create("rank_argv");
    TCase *c = tcase_create("rank_argv");
    tcase_add_checked_fixture(c, set_up, NULL);
    tcase_add_test(c, words_without_a_dollar_are_not_copied);
    tcase_add_test(c, each_form_of_a_dollar_works_as_in_torchrun);
    tcase_add_test(c, the_program_path_is_not_a_template);
    tcase_add_test(c, the_local_rank_follows_the_script);
    tcase_add_test(c, a_name_in_braces_is_filled_in);
    tcase_add_test(c, braces_that_are_not_a_template_stay);
    tcase_add_test(c, braces_of_scripts_and_of_the_program_itself_stay);
    tcase_add_test(c, templates_have_the_values_of_the_variables);
    tcase_add_test(c, a_wrapped_rank_executes_the_wrapper_first);
    tcase_add_test(c, used_templates_are_known);
    tcase_add_test(c, many_long_words_are_filled_in_completely);
    suite_add_tcase(suite, c);
    return suite;
}
