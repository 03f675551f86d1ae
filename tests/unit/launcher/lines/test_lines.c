/* Lines out of a stream: whole, prefixed, in order, whatever the pieces they came in. */
#include "launcher/lines/lines.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct lines l;
static char out[LINES_BYTES + LINES_PREFIX_MAX];

static void add(const char *text)
{
    size_t room;
    char *to = lines_room(&l, &room);
    ck_assert_ptr_nonnull(to);
    ck_assert_uint_ge(room, strlen(text));
    memcpy(to, text, strlen(text));
    lines_add(&l, strlen(text));
}

static void check_taken(const char *expected, bool at_end)
{
    ck_assert_int_eq(lines_has_some(&l, at_end), *expected != '\0');
    size_t n = lines_take(&l, "p:", 2, out, sizeof out, at_end);
    ck_assert_uint_eq(n, strlen(expected));
    ck_assert_mem_eq(out, expected, n);
}

static void tear_down(void)
{
    lines_fini(&l);
}

START_TEST(complete_lines_are_taken)
{
    check_taken("", true);
    add("one\ntw");
    check_taken("p:one\n", false);
    check_taken("", false);
    add("o");
    check_taken("", false);
    add("\n\nthree");
    check_taken("p:two\np:\n", false);
    check_taken("p:three", true);
    check_taken("", true);
}
END_TEST

START_TEST(any_split_gives_the_same_lines)
{
    const char *text = "a\n\nbcd\ne";
    for (size_t split = 0; split <= strlen(text); split++) {
        char first[16] = "";
        memcpy(first, text, split);
        add(first);
        size_t n = lines_take(&l, "-", 1, out, sizeof out, false);
        add(text + split);
        n += lines_take(&l, "-", 1, out + n, sizeof out - n, true);
        ck_assert_uint_eq(n, strlen("-a\n-\n-bcd\n-e"));
        ck_assert_mem_eq(out, "-a\n-\n-bcd\n-e", n);
        lines_fini(&l);
    }
}
END_TEST

START_TEST(a_line_longer_than_the_bound_is_split)
{
    size_t room;
    memset(lines_room(&l, &room), 'x', LINES_BYTES);
    ck_assert_uint_eq(room, LINES_BYTES);
    lines_add(&l, LINES_BYTES);
    ck_assert_uint_eq(lines_take(&l, "p:", 2, out, sizeof out, false), LINES_BYTES + 2);
    ck_assert(l.in_line);
    add("end\nnext\n");
    check_taken("end\np:next\n", false); /* no prefix in the middle of a line */
    ck_assert(!l.in_line);
}
END_TEST

START_TEST(lines_that_do_not_fit_are_left)
{
    add("one\ntwo\n");
    ck_assert_uint_eq(lines_take(&l, "p:", 2, out, 8, false), 6);
    check_taken("p:two\n", false);
}
END_TEST

START_TEST(only_the_newest_frame_of_a_bar_is_left)
{
    const char *frame;
    add("\r10%\r20%");
    check_taken("", false);
    ck_assert_uint_eq(lines_frame(&l, &frame), 3);
    ck_assert_mem_eq(frame, "20%", 3);
    add("\r30%\r");
    ck_assert_uint_eq(lines_frame(&l, &frame), 3);
    ck_assert_mem_eq(frame, "30%", 3);
    add("40");
    add("%\ndone\n");
    check_taken("p:40%\np:done\n", false);
    ck_assert_uint_eq(lines_frame(&l, &frame), 0);
    add("no bar");
    ck_assert_uint_eq(lines_frame(&l, &frame), 0);
    add("\r");
    ck_assert_uint_eq(lines_frame(&l, &frame), 6);
    check_taken("p:no bar\r", true);
}
END_TEST

START_TEST(line_ends_of_other_systems_are_not_bars)
{
    add("one\r\ntwo\r");
    check_taken("p:one\r\n", false);
    add("\n\r\n\r\r\nthree\rfour\r\n");
    check_taken("p:two\r\np:\r\np:\r\r\np:four\r\n", false);
}
END_TEST

START_TEST(a_bar_never_fills_the_buffer)
{
    const char *frame;
    for (int i = 0; i < 20000; i++)
        add("\rstep 123456789 of 1000000000");
    ck_assert_uint_eq(lines_frame(&l, &frame), strlen("step 123456789 of 1000000000"));
    check_taken("", false);
    add("\n");
    check_taken("p:step 123456789 of 1000000000\n", false);
}
END_TEST

START_TEST(any_split_gives_the_same_bars)
{
    const char *text = "a\r\rbc\nd\re\r\nf\r";
    const char *expected = "-bc\n-e\r\n-f\r";
    for (size_t split = 0; split <= strlen(text); split++) {
        char first[32] = "";
        memcpy(first, text, split);
        add(first);
        size_t n = lines_take(&l, "-", 1, out, sizeof out, false);
        add(text + split);
        n += lines_take(&l, "-", 1, out + n, sizeof out - n, true);
        ck_assert_uint_eq(n, strlen(expected));
        ck_assert_mem_eq(out, expected, n);
        lines_fini(&l);
    }
}
END_TEST

TEST_SUITE(lines)
{
    Suite *suite = suite_create("lines");
    TCase *c = tcase_create("lines");
    tcase_add_checked_fixture(c, NULL, tear_down);
    tcase_add_test(c, complete_lines_are_taken);
    tcase_add_test(c, any_split_gives_the_same_lines);
    tcase_add_test(c, a_line_longer_than_the_bound_is_split);
    tcase_add_test(c, lines_that_do_not_fit_are_left);
    tcase_add_test(c, only_the_newest_frame_of_a_bar_is_left);
    tcase_add_test(c, line_ends_of_other_systems_are_not_bars);
    tcase_add_test(c, a_bar_never_fills_the_buffer);
    tcase_add_test(c, any_split_gives_the_same_bars);
    suite_add_tcase(suite, c);
    return suite;
}
