/* One row of a terminal: what of a progress bar is drawn. */
#include "launcher/lines/lines.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static char out[BAR_BYTES];

static void check_drawn(const char *prefix, const char *frame, int columns, const char *expected)
{
    char whole[BAR_BYTES + 100];
    size_t n = lines_draw_bar(prefix, strlen(prefix), frame, strlen(frame), columns, out);
    snprintf(whole, sizeof whole, "\r%s\033[0m\033[K", expected);
    ck_assert_uint_eq(n, strlen(whole));
    ck_assert_mem_eq(out, whole, n);
}

START_TEST(a_frame_that_fits_is_drawn_completely)
{
    check_drawn("n0:0: ", "50%|#####     |", 80, "n0:0: 50%|#####     |");
    check_drawn("", "", 80, "");
    check_drawn("",
                "1234567890123456789012345678901234567890123456789012345678901234567890123456789"
                "0",
                0,
                "1234567890123456789012345678901234567890123456789012345678901234567890123456789");
}
END_TEST

START_TEST(the_last_column_stays_free)
{
    check_drawn("ab", "cdef", 5, "abcd");
    check_drawn("abcdef", "x", 5, "abcd");
    check_drawn("a", "b", 1, "");
}
END_TEST

START_TEST(colors_and_continuation_bytes_take_no_columns)
{
    check_drawn("\033[36ma\033[0m", "\033[1;31mbc", 4, "\033[36ma\033[0m\033[1;31mbc");
    check_drawn("", "\u2588\u2588\u258f \u00e9", 6, "\u2588\u2588\u258f \u00e9");
    check_drawn("", "\u2588\u2588\u258f \u00e9", 4, "\u2588\u2588\u258f");
}
END_TEST

START_TEST(no_escape_sequence_moves_the_cursor)
{
    check_drawn("", "a\tb\bc\033[2Jd\033[5", 80, "a b c [2Jd [5");
    check_drawn("", "\033[A\033\033[m", 80, " [A \033[m");
}
END_TEST

START_TEST(a_frame_of_any_length_is_bounded)
{
    static char frame[70000];
    memset(frame, 'x', sizeof frame);
    size_t n = lines_draw_bar("p", 1, frame, sizeof frame, 100000, out);
    ck_assert_uint_eq(n, 1 + BAR_COLUMNS_MAX - 1 + strlen("\033[0m\033[K"));
    for (size_t i = 0; i + 5 <= sizeof frame; i += 5)
        memcpy(frame + i, "\033[32m", 5);
    n = lines_draw_bar("p", 1, frame, sizeof frame, 80, out);
    ck_assert_uint_le(n, BAR_BYTES);
    memset(frame, 0x80, sizeof frame); /* continuation bytes without end: not a character */
    frame[0] = 'a';
    ck_assert_uint_le(lines_draw_bar("p", 1, frame, sizeof frame, 80, out), BAR_BYTES);
}
END_TEST

TEST_SUITE(progress_bar)
{
    Suite *suite = suite_create("bar");
    TCase *c = tcase_create("bar");
    tcase_add_test(c, a_frame_that_fits_is_drawn_completely);
    tcase_add_test(c, the_last_column_stays_free);
    tcase_add_test(c, colors_and_continuation_bytes_take_no_columns);
    tcase_add_test(c, no_escape_sequence_moves_the_cursor);
    tcase_add_test(c, a_frame_of_any_length_is_bounded);
    suite_add_tcase(suite, c);
    return suite;
}
