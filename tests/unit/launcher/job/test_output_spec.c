/* The texts that specify where output is written. */
#include "launcher/job/output_spec.h"

#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 13 };

START_TEST(streams_are_for_all_or_by_rank)
{
    uint8_t s[RANKS];
    ck_assert_int_eq(output_spec_parse_streams("-t", "3", RANKS, s, NULL), 0);
    ck_assert(s[0] == 3 && s[12] == 3);
    ck_assert_int_eq(output_spec_parse_streams("-t", "0:1,12:2,500:3", RANKS, s, NULL), 0);
    ck_assert(s[0] == 1 && s[1] == 0 && s[12] == 2);
}
END_TEST

START_TEST(bad_streams_are_refused)
{
    static const char *const bad[] = {
        "",     "4",   "-1",   "03",  "0:4",      "0:1,",          ",",    "0:", ":1",    "a:1",
        "0:1 ", "0;1", "0:11", "0,1", "0:1,,1:1", "99999999999:1", "-1:1", " 3", "1024:1"};
    struct co_error err;
    uint8_t s[RANKS];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(output_spec_parse_streams("-t", bad[i], RANKS, s, &err) == -EINVAL, "%s",
                      bad[i]);
        ck_assert_ptr_nonnull(strstr(err.text, "-t"));
    }
}
END_TEST

START_TEST(ranks_to_show)
{
    static const char *const bad[] = {",", "0,", ",0", "a", "-1", "0 1", "0,,1"};
    bool hidden[RANKS];
    ck_assert_int_eq(output_spec_parse_ranks("--f", "0,12", RANKS, hidden, NULL), 0);
    ck_assert(!hidden[0] && hidden[1] && !hidden[12]);
    ck_assert_int_eq(output_spec_parse_ranks("--f", "", RANKS, hidden, NULL), 0);
    ck_assert(!hidden[0] && !hidden[1]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(output_spec_parse_ranks("--f", bad[i], RANKS, hidden, NULL) == -EINVAL, "%s",
                      bad[i]);
}
END_TEST

static void check_split(const char *text, const char *a, const char *b)
{
    char **words = output_spec_split(text);
    ck_assert_ptr_nonnull(words);
    ck_assert_pstr_eq(words[0], a);
    if (a != NULL) {
        ck_assert_pstr_eq(words[1], b);
        if (b != NULL)
            ck_assert_ptr_null(words[2]);
    }
    free(words);
}

START_TEST(words_are_separated_by_commas)
{
    check_split("a,b", "a", "b");
    check_split("a,,b", "a,b", NULL);
    check_split("a,,,b", "a,", "b");
    check_split("", NULL, NULL);
    check_split(",", NULL, NULL);
    check_split("loss: 1,x y", "loss: 1", "x y");
}
END_TEST

static const struct output_label of = {.host = "n2",
                                       .hostname = "n2.example",
                                       .role = "default",
                                       .rank = 9,
                                       .local_rank = 1,
                                       .generation = 3};

static void check_label(const char *format, const char *expected)
{
    char text[64];
    ck_assert_int_eq(output_spec_check_label("--label", format, NULL), 0);
    size_t n = output_spec_label(format, &of, text, sizeof text - 1);
    text[n] = '\0';
    ck_assert_str_eq(text, expected);
}

START_TEST(labels)
{
    check_label(OUTPUT_LABEL_DEFAULT, "n2:9: ");
    check_label("{local_rank}/{generation} {{x}}", "1/3 {x}");
    check_label("", "");
    char text[3];
    ck_assert_uint_eq(output_spec_label("{host}{host}", &of, text, 3), 3);
    static const char *const bad[] = {"{", "}", "{x}", "{rank", "{}", "{role_name}", "a\nb"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(output_spec_check_label("--label", bad[i], NULL) == -EINVAL, "%s", bad[i]);
}
END_TEST

static void check_template(const char *format, const char *expected)
{
    char text[64];
    size_t n = output_spec_template(format, &of, text, sizeof text - 1);
    text[n] = '\0';
    ck_assert_str_eq(text, expected);
}

START_TEST(templates_equal_those_of_torchrun)
{
    check_template("[${role_name}${local_rank}]:", "[default1]:");
    check_template("$rank|${rank}|$$|${host}|$", "9|9|$|${host}|$");
    check_template("${rank", "${rank");
    check_template("${hostname}:${rank}: ", "n2.example:9: ");
}
END_TEST

TEST_SUITE(output_spec)
{
    Suite *suite = suite_create("output_spec");
    TCase *c = tcase_create("output_spec");
    tcase_add_test(c, streams_are_for_all_or_by_rank);
    tcase_add_test(c, bad_streams_are_refused);
    tcase_add_test(c, ranks_to_show);
    tcase_add_test(c, words_are_separated_by_commas);
    tcase_add_test(c, labels);
    tcase_add_test(c, templates_equal_those_of_torchrun);
    suite_add_tcase(suite, c);
    return suite;
}
