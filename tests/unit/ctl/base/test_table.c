/* Columns, and text of any kind in them. */
#include "ctl/base/table.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void check(const struct table *t, int indent, int width, const char *wanted)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    ck_assert_int_eq(table_print(t, indent, width, out), 0);
    fclose(out);
    ck_assert_str_eq(text, wanted);
    free(text);
}

static const char *const heads[] = {"NAME", ">N", "TEXT"};

START_TEST(columns_are_as_wide_as_their_content)
{
    struct table t;
    table_init(&t, heads, 3);
    check(&t, 0, 0, "NAME  N  TEXT\n");
    table_add(&t, "a");
    table_add(&t, "%d", 1000);
    table_add(&t, "one");
    table_add(&t, "longer");
    table_add(&t, "7");
    table_add(&t, "a longer one");
    check(&t, 2, 0,
          "  NAME       N  TEXT\n"
          "  a       1000  one\n"
          "  longer     7  a longer one\n");
    table_fini(&t);
}
END_TEST

START_TEST(lines_are_cut_to_the_terminal)
{
    struct table t;
    table_init(&t, heads, 3);
    table_add(&t, "\xc3\xa4\xc3\xb6");
    table_add(&t, "1");
    table_add(&t, "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac");
    check(&t, 0, 11, "NAME  N  TE\n\xc3\xa4\xc3\xb6    1  \xe2\x82\xac\xe2\x82\xac\n");
    check(&t, 2, 1, " \n \n");
    table_fini(&t);
}
END_TEST

static const struct {
    const char *text, *plain;
} texts[] = {
    {"", ""},
    {"a b~", "a b~"},
    {"\033[1;31mred\033[0m", "red"},
    {"\033]0;title\adone", "done"},
    {"\033]0;title\033\\done", "done"},
    {"\033[", ""},
    {"\033]0;endless", ""},
    {"\033", ""},
    {"\033c", ""},
    {"a\tb\nc\rd\177", "a b?c?d?"},
    {"\xc3\xbc\xc2\x9b"
     "2J",
     "\xc3\xbc??2J"},
};

START_TEST(no_control_character_reaches_the_terminal)
{
    char text[64];
    snprintf(text, sizeof text, "%s", texts[_i].text);
    ck_assert_str_eq(table_plain(text), texts[_i].plain);
}
END_TEST

START_TEST(characters_are_counted_not_bytes)
{
    ck_assert_uint_eq(table_width("a\xc3\xbc\xe2\x82\xac"), 3);
    ck_assert_uint_eq(table_cut("a\xc3\xbc\xe2\x82\xac", 2), 3);
    ck_assert_uint_eq(table_cut("ab", 9), 2);
    ck_assert_uint_eq(table_cut("\xff\xfe"
                                "ab",
                                3),
                      3);
}
END_TEST

TEST_SUITE(table)
{
    Suite *suite = suite_create("table");
    TCase *tc = tcase_create("table");
    tcase_add_test(tc, columns_are_as_wide_as_their_content);
    tcase_add_test(tc, lines_are_cut_to_the_terminal);
    tcase_add_loop_test(tc, no_control_character_reaches_the_terminal, 0,
                        (int)(sizeof texts / sizeof *texts));
    tcase_add_test(tc, characters_are_counted_not_bytes);
    suite_add_tcase(suite, tc);
    return suite;
}
