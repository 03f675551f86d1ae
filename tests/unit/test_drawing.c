/* Drawings of state machines. The whole ones are compared by the tests of their machines. */
#include "common/drawing.h"

#include <check.h>
#include <stdlib.h>

static char *text;
static size_t n;
static FILE *out;

static void set_up(void)
{
    out = open_memstream(&text, &n);
    ck_assert_ptr_nonnull(out);
}

static void tear_down(void)
{
    free(text);
}

static void expect_drawing(const char *want)
{
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_str_eq(text, want);
}

START_TEST(a_drawing_names_its_table_and_its_test)
{
    co_draw_begin(out, "door", "house/door.c");
    co_draw_end(out);
    expect_drawing("// Made from the table in house/door.c; test_door compares them.\n"
                   "digraph door {\n"
                   "    node [shape=box, style=rounded];\n"
                   "}\n");
}
END_TEST

START_TEST(a_state_says_what_it_means_and_does_on_entry)
{
    co_draw_state(out, "OPEN", "one may pass", "ring");
    co_draw_state(out, "SHUT", "nobody may", "nothing");
    expect_drawing("    OPEN [label=\"OPEN\\none may pass\\non entry: ring\"];\n"
                   "    SHUT [label=\"SHUT\\nnobody may\"];\n");
}
END_TEST

START_TEST(a_row_says_its_condition_and_its_deed_if_it_has_them)
{
    co_draw_row(out, "SHUT", "OPEN", "PUSH", "has_key", "turn_key");
    co_draw_row(out, "OPEN", "SHUT", "WIND", "always", "nothing");
    expect_drawing("    SHUT -> OPEN [label=\"PUSH, has_key: turn_key\"];\n"
                   "    OPEN -> SHUT [label=\"WIND\"];\n");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("drawing");
    TCase *t = tcase_create("drawing");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_drawing_names_its_table_and_its_test);
    tcase_add_test(t, a_state_says_what_it_means_and_does_on_entry);
    tcase_add_test(t, a_row_says_its_condition_and_its_deed_if_it_has_them);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
