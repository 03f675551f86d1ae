/* The parser of command lines, with an option table of its own, and its error messages. */
#include "common/error.h"
#include "common/options.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1, COLOR, QUIET, COMPACT, LETTERLESS, COUNTRY, SHADE, SHAPE, BRIEF, ABOUT };

static const struct co_option table[] = {
    {COUNT, 'c', "count", "N", "X_COUNT", "How many.", "Numbers", .topic = "numbers",
     .brief = "Number."},
    {COLOR, 0, "color", "NAME",
     .help = "Which color: a long explanation, that does not fit into "
             "one line of the help and has to be continued on another.",
     .subject = "Looks", .topic = "looks"},
    {COLOR, 0, "colour", "NAME"},
    {QUIET, 'q', "quiet", .help = "Say less.", .brief = "Less."},
    {COMPACT, 'C', "com-pact", .help = "Say it shorter."},
    {COUNTRY, 0, "country", "NAME", .help = "Where.", .weak = true},
    {SHADE, 0, "shade", "NAME", .help = "How dark.", .weak = true, .optional = true},
    {SHAPE, 0, "shape", "NAME", .help = "Which.", .weak = true},
    {BRIEF, 0, "brief", "NAME", .value_max = 5},
    {ABOUT, 'a', "about", "TOPIC", .help = "What it is.", .optional = true, .takes_next = true},
    {LETTERLESS, 0, "a-very-long-option-name-of-some-note", "VALUE", .help = "Long."},
    {0},
};

/* The walk as text: "count=3 quiet | rest of the words", or the error. */
static const char *walk(int argc, const char *const *argv)
{
    static char text[8192];
    struct co_option_walk w;
    struct co_option_found f;
    struct co_error err = {0};
    int rc;
    text[0] = '\0';
    co_options_start(&w, table, argc, (char **)argv);
    while ((rc = co_options_next(&w, &f, &err)) > 0) {
        char one[5000];
        snprintf(one, sizeof one, f.value != NULL ? "%s(%s)=%s " : "%s(%s) ", f.option->name,
                 f.spelled, f.value);
        strncat(text, one, sizeof text - strlen(text) - 1);
    }
    if (rc < 0) {
        ck_assert_int_eq(rc, -EINVAL);
        ck_assert_int_eq(err.code, -EINVAL);
        return strcpy(text, err.text);
    }
    strcat(text, "|");
    for (int i = w.at; i < argc; i++) {
        strcat(text, " ");
        strcat(text, argv[i]);
    }
    return text;
}

#define WALK(...)                                                                                  \
    walk(sizeof((const char *[]){"prog", __VA_ARGS__}) / sizeof(char *),                           \
         (const char *[]){"prog", __VA_ARGS__})

START_TEST(weak_options_yield_a_shared_prefix)
{
    ck_assert_str_eq(WALK("--coun=3"), "count(--count)=3 |");
    ck_assert_str_eq(WALK("--count=3"), "count(--count)=3 |");
    ck_assert_str_eq(WALK("--countr=x"), "country(--country)=x |");
    ck_assert_str_eq(WALK("--sha=x"), "ambiguous option '--sha': use one of --shade, --shape");
}
END_TEST

START_TEST(an_optional_value_is_never_the_next_word)
{
    ck_assert_str_eq(WALK("--shade", "x"), "shade(--shade) | x");
    ck_assert_str_eq(WALK("--shade=x", "y"), "shade(--shade)=x | y");
    ck_assert_str_eq(WALK("--shade=", "y"), "shade(--shade)= | y");
    ck_assert_str_eq(WALK("--shad"), "shade(--shade) |");
}
END_TEST

START_TEST(values_are_attached_or_follow)
{
    ck_assert_str_eq(WALK("--count=3"), "count(--count)=3 |");
    ck_assert_str_eq(WALK("--count", "3"), "count(--count)=3 |");
    ck_assert_str_eq(WALK("-c", "3"), "count(-c)=3 |");
    ck_assert_str_eq(WALK("-c3"), "count(-c)=3 |");
    ck_assert_str_eq(WALK("-c=3"), "count(-c)=3 |");
    ck_assert_str_eq(WALK("--color=a=b"), "color(--color)=a=b |");
    ck_assert_str_eq(WALK("--color="), "color(--color)= |");
    ck_assert_str_eq(WALK("--color", ""), "color(--color)= |");
    ck_assert_str_eq(WALK("--count", "-1"), "count(--count)=-1 |");
    ck_assert_str_eq(WALK("--color", "-"), "color(--color)=- |");
    ck_assert_str_eq(WALK("--color=--quiet"), "color(--color)=--quiet |");
}
END_TEST

START_TEST(dashes_and_underscores_are_alike)
{
    ck_assert_str_eq(WALK("--com_pact"), "com-pact(--com-pact) |");
    ck_assert_str_eq(WALK("--a_very-long_option-name_of-some_note=1"),
                     "a-very-long-option-name-of-some-note"
                     "(--a-very-long-option-name-of-some-note)=1 |");
    ck_assert_str_eq(WALK("--com_p"), "com-pact(--com-pact) |");
}
END_TEST

START_TEST(flags_share_a_dash)
{
    ck_assert_str_eq(WALK("-qq"), "quiet(-q) quiet(-q) |");
    ck_assert_str_eq(WALK("-qCc3", "x"), "quiet(-q) com-pact(-C) count(-c)=3 | x");
    ck_assert_str_eq(WALK("-qc", "3", "x"), "quiet(-q) count(-c)=3 | x");
}
END_TEST

START_TEST(a_prefix_of_one_option_is_accepted)
{
    ck_assert_str_eq(WALK("--cou", "3"), "count(--count)=3 |");
    ck_assert_str_eq(WALK("--q"), "quiet(--quiet) |");
    /* two spellings of one option */
    ck_assert_str_eq(WALK("--colo", "red"), "color(--color)=red |");
    ck_assert_str_eq(WALK("--colour", "red"), "colour(--colour)=red |");
}
END_TEST

START_TEST(a_prefix_of_several_options_is_ambiguous)
{
    ck_assert_str_eq(
        WALK("--co", "3"),
        "ambiguous option '--co': use one of --count, --color, --colour, --com-pact, --country");
}
END_TEST

START_TEST(parsing_ends_at_the_first_other_word)
{
    ck_assert_str_eq(WALK("-q", "x", "-q"), "quiet(-q) | x -q");
    ck_assert_str_eq(WALK("-", "-q"), "| - -q");
    ck_assert_str_eq(WALK("", "-q"), "|  -q");
    ck_assert_str_eq(WALK("-q", "--", "-q", "--"), "quiet(-q) | -q --");
    ck_assert_str_eq(WALK("--"), "|");
    ck_assert_str_eq(walk(1, (const char *[]){"prog"}), "|");
    ck_assert_str_eq(walk(0, NULL), "|");
}
END_TEST

START_TEST(parsing_that_has_ended_stays_where_it_is)
{
    char *argv[] = {"prog", "--", "-q"};
    struct co_option_walk w;
    struct co_option_found f;
    co_options_start(&w, table, 3, argv);
    ck_assert_int_eq(co_options_next(&w, &f, NULL), 0);
    ck_assert_int_eq(co_options_next(&w, &f, NULL), 0);
    ck_assert_int_eq(w.at, 2);
}
END_TEST

START_TEST(unknown_options_name_the_nearest)
{
    ck_assert_str_eq(WALK("--cuont=3"), "unknown option '--cuont': did you mean '--count'?");
    ck_assert_str_eq(WALK("--counts"), "unknown option '--counts': did you mean '--count'?");
    ck_assert_str_eq(WALK("--com.pact"), "unknown option '--com.pact': did you mean '--com-pact'?");
    ck_assert_str_eq(
        WALK("--a_very_logn"),
        "unknown option '--a_very_logn': did you mean '--a-very-long-option-name-of-some-note'?");
    ck_assert_str_eq(WALK("--something-else"), "unknown option '--something-else'; try --help");
    ck_assert_str_eq(WALK("--=3"), "unknown option '--'; try --help");
    ck_assert_str_eq(WALK("-x"), "unknown option '-x'; try --help");
    ck_assert_str_eq(WALK("-qx"), "unknown option '-x'; try --help");
}
END_TEST

START_TEST(a_long_name_after_one_dash_is_an_error)
{
    ck_assert_str_eq(WALK("-count", "3"), "unknown option '-count': did you mean '--count'?");
    ck_assert_str_eq(WALK("-count=3"), "unknown option '-count': did you mean '--count'?");
    ck_assert_str_eq(WALK("-counts"), "count(-c)=ounts |");
}
END_TEST

START_TEST(missing_values_are_named)
{
    ck_assert_str_eq(WALK("--count"), "option '--count' requires a value: N");
    ck_assert_str_eq(WALK("-c"), "option '-c' requires a value: N");
    ck_assert_str_eq(WALK("--count", "-q"), "option '--count' requires a value (N), but '-q' looks "
                                            "like an option; use --count=VALUE to pass it");
    ck_assert_str_eq(WALK("-c", "--", "x"), "option '-c' requires a value (N), but '--' looks like "
                                            "an option; use --count=VALUE to pass it");
}
END_TEST

START_TEST(flags_take_no_value)
{
    ck_assert_str_eq(WALK("--quiet=1"), "option '--quiet' does not take a value ('1')");
    ck_assert_str_eq(WALK("-q=1"), "option '-q' does not take a value ('1')");
}
END_TEST

START_TEST(lengths_are_bounded)
{
    char word[CO_OPTION_VALUE_MAX + 20];
    memset(word, 'x', sizeof word - 1);
    word[0] = word[1] = '-';
    word[sizeof word - 1] = '\0';
    const char *said = walk(2, (const char *[]){"prog", word});
    ck_assert_uint_lt(strlen(said), 100);

    memcpy(word, "--color=", 8);
    word[8 + CO_OPTION_VALUE_MAX + 1] = '\0';
    ck_assert_str_eq(walk(2, (const char *[]){"prog", word}),
                     "the value of option '--color' is too long: expected at most 4096 bytes");
    word[8 + CO_OPTION_VALUE_MAX] = '\0';
    ck_assert_int_eq(strncmp(walk(2, (const char *[]){"prog", word}), "color(--color)=xxx", 18), 0);
    ck_assert_int_eq(strncmp(WALK("--brief", "12345"), "brief(--brief)=12345", 20), 0);
    ck_assert_str_eq(WALK("--brief", "123456"),
                     "the value of option '--brief' is too long: expected at most 5 bytes");
}
END_TEST

START_TEST(the_number_of_options_is_bounded)
{
    char word[CO_OPTIONS_MAX + 3];
    memset(word, 'q', sizeof word);
    word[0] = '-';
    word[CO_OPTIONS_MAX + 2] = '\0';
    char *argv[] = {"prog", word};
    struct co_option_walk w;
    struct co_option_found f;
    struct co_error err = {0};
    co_options_start(&w, table, 2, argv);
    for (int i = 0; i < CO_OPTIONS_MAX; i++)
        ck_assert_int_eq(co_options_next(&w, &f, &err), 1);
    ck_assert_int_eq(co_options_next(&w, &f, &err), -EINVAL);
    ck_assert_str_eq(err.text, "too many options: at most 1000 are allowed");
}
END_TEST

START_TEST(the_help_is_the_table)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    co_options_print_help(table, out);
    fclose(out);
    ck_assert_str_eq(
        text, "Numbers:\n"
              "  -c, --count N           How many. [X_COUNT]\n"
              "\n"
              "Looks:\n"
              "      --color NAME        Which color: a long explanation, that does not fit\n"
              "                          into one line of the help and has to be continued on\n"
              "                          another.\n"
              "  -q, --quiet             Say less.\n"
              "  -C, --com-pact          Say it shorter.\n"
              "      --country NAME      Where.\n"
              "      --shade[=NAME]      How dark.\n"
              "      --shape NAME        Which.\n"
              "  -a, --about [TOPIC]     What it is.\n"
              "      --a-very-long-option-name-of-some-note VALUE\n"
              "                          Long.\n");
    free(text);
}
END_TEST

static const char *printed(const char *topic)
{
    static char text[1000];
    FILE *out = fmemopen(text, sizeof text, "w");
    ck_assert_ptr_nonnull(out);
    if (topic == NULL)
        co_options_print_brief(table, out);
    else if (*topic == '\0')
        co_options_print_topics(table, out);
    else
        fputs(co_options_print_group(table, topic, out) ? "" : "unknown", out);
    fclose(out);
    return text;
}

START_TEST(the_help_can_be_printed_in_parts)
{
    ck_assert_str_eq(printed("numbers"), "Numbers:\n"
                                         "  -c, --count N           How many. [X_COUNT]\n");
    ck_assert_ptr_nonnull(strstr(printed("looks"), "Looks:\n      --color NAME "));
    ck_assert_str_eq(printed("Looks"), "unknown");
    ck_assert_str_eq(printed(NULL), "  -c, --count N           Number.\n"
                                    "  -q, --quiet             Less.\n");
    ck_assert_str_eq(printed(""), "  numbers        Numbers\n"
                                  "  looks          Looks\n");
}
END_TEST

START_TEST(an_optional_value_can_be_the_next_word_where_the_table_allows_it)
{
    ck_assert_str_eq(WALK("--about", "me", "you"), "about(--about)=me | you");
    ck_assert_str_eq(WALK("--about=me", "you"), "about(--about)=me | you");
    ck_assert_str_eq(WALK("--about", "-q"), "about(--about) quiet(-q) |");
    ck_assert_str_eq(WALK("--about"), "about(--about) |");
    ck_assert_str_eq(WALK("-a", "me"), "about(-a) | me");
}
END_TEST

TEST_SUITE(options)
{
    Suite *suite = suite_create("options");
    TCase *c = tcase_create("options");
    tcase_add_test(c, weak_options_yield_a_shared_prefix);
    tcase_add_test(c, an_optional_value_is_never_the_next_word);
    tcase_add_test(c, values_are_attached_or_follow);
    tcase_add_test(c, dashes_and_underscores_are_alike);
    tcase_add_test(c, flags_share_a_dash);
    tcase_add_test(c, a_prefix_of_one_option_is_accepted);
    tcase_add_test(c, a_prefix_of_several_options_is_ambiguous);
    tcase_add_test(c, parsing_ends_at_the_first_other_word);
    tcase_add_test(c, parsing_that_has_ended_stays_where_it_is);
    tcase_add_test(c, unknown_options_name_the_nearest);
    tcase_add_test(c, a_long_name_after_one_dash_is_an_error);
    tcase_add_test(c, missing_values_are_named);
    tcase_add_test(c, flags_take_no_value);
    tcase_add_test(c, lengths_are_bounded);
    tcase_add_test(c, the_number_of_options_is_bounded);
    tcase_add_test(c, the_help_is_the_table);
    tcase_add_test(c, the_help_can_be_printed_in_parts);
    tcase_add_test(c, an_optional_value_can_be_the_next_word_where_the_table_allows_it);
    suite_add_tcase(suite, c);
    return suite;
}
