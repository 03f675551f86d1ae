#include "launcher/lines/lines.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tail t;

static void set_up(void)
{
    t = (struct tail){0};
}

static void tear_down(void)
{
    tail_fini(&t);
}

static void add(const char *text)
{
    tail_add(&t, text, strlen(text));
}

static void check(const char *expected)
{
    char *text = tail_copy(&t);
    ck_assert_ptr_nonnull(text);
    ck_assert_str_eq(text, expected);
    free(text);
}

START_TEST(without_input_there_is_no_text)
{
    ck_assert_ptr_null(tail_copy(&t));
    tail_add(&t, "", 0);
    ck_assert_ptr_null(tail_copy(&t));
}
END_TEST

START_TEST(pieces_become_lines)
{
    add("one\ntw");
    add("o");
    check("one\ntwo\n");
    add("\n\nfour\n");
    check("one\ntwo\n\nfour\n");
}
END_TEST

START_TEST(only_the_last_lines_are_kept)
{
    char line[32];
    char expected[4096] = "";
    for (int i = 0; i < 1000; i++) {
        snprintf(line, sizeof line, "line %d\n", i);
        add(line);
        if (i >= 1000 - TAIL_LINES)
            strcat(expected, line);
    }
    check(expected);
}
END_TEST

/* Whatever the pieces' size, the ring holds the end of the whole. */
START_TEST(the_ring_turns_at_any_place)
{
    static char whole[3 * TAIL_BYTES];
    for (size_t i = 0; i < sizeof whole; i++)
        whole[i] = i % 1024 == 1023 ? '\n' : (char)('a' + i / 1024 % 26);
    for (size_t piece = 1; piece < sizeof whole; piece = piece * 3 + 1) {
        tail_fini(&t);
        for (size_t at = 0; at < sizeof whole; at += piece)
            tail_add(&t, whole + at, piece < sizeof whole - at ? piece : sizeof whole - at);
        char *text = tail_copy(&t);
        /* the first line's beginning may be gone, so it is left out */
        ck_assert_uint_eq(strlen(text), TAIL_BYTES - 1024);
        ck_assert_mem_eq(text, whole + sizeof whole - (TAIL_BYTES - 1024), TAIL_BYTES - 1024);
        free(text);
    }
}
END_TEST

START_TEST(a_single_endless_line_is_cut)
{
    static char whole[2 * TAIL_BYTES];
    memset(whole, 'x', sizeof whole);
    tail_add(&t, whole, sizeof whole);
    char *text = tail_copy(&t);
    ck_assert_uint_eq(strlen(text), TAIL_BYTES + 1);
    ck_assert_int_eq(text[TAIL_BYTES], '\n');
    free(text);
}
END_TEST

START_TEST(only_the_last_frame_of_a_progress_bar_is_left)
{
    add("  1%\r 50%\r100%\nnext\r\n\r\r\n");
    check("100%\nnext\n\n");
}
END_TEST

START_TEST(control_bytes_are_replaced)
{
    tail_add(&t, "a\0b\1c\177d\te\033[0mf\303\251\n", 17);
    check("a?b?c?d\te\033[0mf\303\251\n");
}
END_TEST

static void check_since(size_t from, size_t wanted_from, const char *wanted)
{
    size_t at, n;
    char *bytes = tail_since(&t, from, &at, &n);
    ck_assert_uint_eq(at, wanted_from);
    ck_assert_uint_eq(n, strlen(wanted));
    if (n > 0)
        ck_assert_mem_eq(bytes, wanted, n);
    free(bytes);
}

START_TEST(new_bytes_are_returned_unchanged)
{
    check_since(0, 0, "");
    add("one\r\ntw");
    check_since(0, 0, "one\r\ntw");
    check_since(5, 5, "tw");
    check_since(7, 7, "");
    check_since(8, 0, "one\r\ntw"); /* counted of another rank */
}
END_TEST

START_TEST(of_partly_dropped_bytes_the_rest_is_returned)
{
    static char whole[TAIL_BYTES + 1];
    memset(whole, 'a', TAIL_BYTES);
    add(whole);
    add("bc");
    memcpy(whole + TAIL_BYTES - 2, "bc", 2);
    check_since(0, 2, whole);
    check_since(TAIL_BYTES + 1, TAIL_BYTES + 1, "c");
}
END_TEST

TEST_SUITE(tail)
{
    Suite *suite = suite_create("tail");
    TCase *c = tcase_create("tail");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, without_input_there_is_no_text);
    tcase_add_test(c, pieces_become_lines);
    tcase_add_test(c, only_the_last_lines_are_kept);
    tcase_add_test(c, the_ring_turns_at_any_place);
    tcase_add_test(c, a_single_endless_line_is_cut);
    tcase_add_test(c, only_the_last_frame_of_a_progress_bar_is_left);
    tcase_add_test(c, control_bytes_are_replaced);
    tcase_add_test(c, new_bytes_are_returned_unchanged);
    tcase_add_test(c, of_partly_dropped_bytes_the_rest_is_returned);
    suite_add_tcase(suite, c);
    return suite;
}
