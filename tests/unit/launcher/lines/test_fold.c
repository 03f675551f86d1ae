/* The same line from several ranks, in time that the test makes. */
#include "common/clock.h"
#include "launcher/lines/fold.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOLD_MS = 100 };

static struct fold *f;

static void set_up(void)
{
    f = fold_create(4, HOLD_MS);
    ck_assert_ptr_nonnull(f);
}

static void tear_down(void)
{
    fold_destroy(f);
}

static void add(int rank, const char *text, uint64_t now_ms)
{
    ck_assert_int_eq(fold_add(f, rank, text, strlen(text), now_ms), 0);
}

/* What may go out: "RANKS:TEXT" each. */
static const char *take(uint64_t now_ms, bool all)
{
    static char text[1000];
    const struct fold_line *line;
    text[0] = '\0';
    while ((line = fold_take(f, now_ms, all)) != NULL) {
        char ranks[40];
        sprintf(text + strlen(text), "%s:%.*s", fold_print_ranks(line, 0, ranks, sizeof ranks),
                (int)line->n, line->text);
    }
    return text;
}

START_TEST(a_line_of_all_ranks_is_printed_at_once)
{
    for (int rank = 0; rank < 4; rank++) {
        ck_assert_str_eq(take(5, false), "");
        add(3 - rank, "epoch 1\n", 5);
    }
    ck_assert_str_eq(take(5, false), "0-3:epoch 1\n");
    ck_assert_str_eq(take(5, true), "");
    ck_assert(fold_due_ms(f) == CO_NEVER_MS);
}
END_TEST

START_TEST(a_line_waits_for_other_ranks_until_the_hold_time)
{
    add(1, "a\n", 1000);
    add(3, "a\n", 1050);
    add(2, "b\n", 1060);
    ck_assert_uint_eq(fold_due_ms(f), 1000 + HOLD_MS);
    ck_assert_str_eq(take(1000 + HOLD_MS - 1, false), "");
    ck_assert_str_eq(take(1000 + HOLD_MS, false), "1,3:a\n");
    ck_assert_uint_eq(fold_due_ms(f), 1060 + HOLD_MS);
    add(0, "a\n", 1120); /* too late */
    ck_assert_str_eq(take(5000, false), "2:b\n0:a\n");
}
END_TEST

START_TEST(lines_of_a_rank_stay_in_order)
{
    add(0, "a\n", 1);
    add(0, "b\n", 1);
    add(1, "b\n", 1);
    add(1, "a\n", 1); /* after its b: not the held a */
    ck_assert_str_eq(take(1, true), "0:a\n0-1:b\n1:a\n");
}
END_TEST

START_TEST(a_line_that_a_rank_writes_twice_is_printed_twice)
{
    add(0, "x\n", 1);
    add(0, "x\n", 1);
    add(1, "x\n", 1);
    add(1, "x\n", 1);
    ck_assert_str_eq(take(1, true), "0-1:x\n0-1:x\n");
}
END_TEST

START_TEST(nothing_overtakes_a_held_line)
{
    add(0, "mine\n", 1);
    for (int rank = 0; rank < 4; rank++)
        add(rank, "all\n", 1);
    ck_assert_str_eq(take(1, false), "");
    ck_assert_str_eq(take(1 + HOLD_MS, false), "0:mine\n0-3:all\n");
}
END_TEST

START_TEST(the_number_of_held_lines_is_bounded)
{
    char text[40];
    int n_taken = 0;
    for (int i = 0; i < 1000; i++) {
        sprintf(text, "line %d\n", i);
        add(i % 4, text, 1);
        while (fold_take(f, 1, false) != NULL)
            n_taken++;
    }
    ck_assert_int_eq(n_taken, 1000 - FOLD_LINES + 1);
    while (fold_take(f, 1, true) != NULL)
        n_taken++;
    ck_assert_int_eq(n_taken, 1000);
    static char large[FOLD_BYTES / 2 + 1];
    memset(large, 'x', sizeof large - 1);
    add(0, large, 1);
    large[0] = 'y';
    add(1, large, 1);
    ck_assert_ptr_null(fold_take(f, 1, false));
    add(2, "z", 1);
    ck_assert_ptr_nonnull(fold_take(f, 1, false));
    ck_assert_ptr_null(fold_take(f, 1, false));
}
END_TEST

START_TEST(long_lists_of_ranks_are_shortened)
{
    struct fold_line line = {.ranks = {0x100f, 1}};
    char text[40];
    ck_assert_str_eq(fold_print_ranks(&line, 0, text, sizeof text), "0-3,12,64");
    ck_assert_str_eq(fold_print_ranks(&line, 96, text, sizeof text), "96-99,108,160");
    ck_assert_str_eq(fold_print_ranks(&line, 96, text, 14), "96-99,108...");
    ck_assert_str_eq(fold_print_ranks(&line, 96, text, 2), ".");
    memset(line.ranks, 0xff, sizeof line.ranks);
    ck_assert_str_eq(fold_print_ranks(&line, 0, text, sizeof text), "0-1023");
}
END_TEST

TEST_SUITE(fold)
{
    Suite *suite = suite_create("fold");
    TCase *c = tcase_create("fold");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, a_line_of_all_ranks_is_printed_at_once);
    tcase_add_test(c, a_line_waits_for_other_ranks_until_the_hold_time);
    tcase_add_test(c, lines_of_a_rank_stay_in_order);
    tcase_add_test(c, a_line_that_a_rank_writes_twice_is_printed_twice);
    tcase_add_test(c, nothing_overtakes_a_held_line);
    tcase_add_test(c, the_number_of_held_lines_is_bounded);
    tcase_add_test(c, long_lists_of_ranks_are_shortened);
    suite_add_tcase(suite, c);
    return suite;
}
