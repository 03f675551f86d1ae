/* State machines seen from outside, by one of this test's own. Those of the project are compared
 * with their drawings by their own tests. */
#include "common/machine.h"

#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>

enum { OPEN, SHUT, LOCKED };
enum { PUSH, WIND, KEY };

/* Like the rows of other machines: the members that the row's action uses follow those that all
 * rows have. */
struct row {
    struct co_machine_row at;
    void *only_if, *does;
};

#define STATES(X)                                                                                  \
    X(OPEN, ring, "one may pass")                                                                  \
    X(SHUT, nothing, "nobody may")                                                                 \
    X(LOCKED, nothing, "nobody can")
#define EVENTS(X) X(PUSH, "somebody leans on it") X(WIND, "it blows") X(KEY, "a key is turned")

static int n_rings;

static void ring(void)
{
    n_rings++;
}

static void nothing(void)
{
}

static const struct co_machine_state states[] = {STATES(CO_MACHINE_STATE)};
static void (*const entries[])(void) = {STATES(CO_MACHINE_ENTRY)};
static const char *const event_names[] = {EVENTS(CO_MACHINE_EVENT)};
static const struct row rows[] = {
    {.at = {SHUT, PUSH, OPEN, "has_strength", "shove"}},
    {.at = {SHUT, PUSH, SHUT, "always", "nothing"}},
    {.at = {OPEN, WIND, SHUT, "always", "bang"}},
    {.at = {SHUT, KEY, LOCKED, "turns", "nothing"}},
    {.at = {LOCKED, KEY, SHUT, "turns", "nothing"}},
    {.at = {OPEN, PUSH, OPEN, "always", "nothing"}},
};
static const struct co_machine_pair ignored[] = {
    {SHUT, WIND},
    {LOCKED, KEY},
    {OPEN, PUSH},
};
static const struct co_machine door =
    CO_MACHINE("door", "house/door.c", states, event_names, rows, ignored);

START_TEST(each_state_has_its_action_on_entry)
{
    ck_assert_uint_eq(sizeof entries / sizeof *entries, 3);
    entries[OPEN]();
    ck_assert_int_eq(n_rings, 1);
    entries[SHUT]();
    entries[LOCKED]();
    ck_assert_int_eq(n_rings, 1);
}
END_TEST

START_TEST(a_row_without_condition_covers_its_event)
{
    ck_assert(co_machine_covers(&door, OPEN, WIND));
    ck_assert(co_machine_covers(&door, SHUT, PUSH));
}
END_TEST

START_TEST(an_ignored_event_is_covered)
{
    ck_assert(co_machine_covers(&door, SHUT, WIND));
    ck_assert(co_machine_ignores(&door, SHUT, WIND));
    ck_assert(!co_machine_ignores(&door, OPEN, WIND));
    ck_assert(!co_machine_ignores(&door, SHUT, PUSH));
}
END_TEST

START_TEST(an_event_without_a_row_is_not_covered)
{
    ck_assert(!co_machine_covers(&door, LOCKED, WIND));
    ck_assert(!co_machine_covers(&door, OPEN, KEY));
}
END_TEST

START_TEST(rows_with_conditions_alone_do_not_cover_an_event)
{
    ck_assert(!co_machine_covers(&door, SHUT, KEY));
}
END_TEST

START_TEST(an_ignored_event_must_have_no_row)
{
    ck_assert(!co_machine_covers(&door, OPEN, PUSH));
    ck_assert(!co_machine_covers(&door, LOCKED, KEY));
}
END_TEST

START_TEST(a_drawing_names_its_table_and_its_test)
{
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    ck_assert_ptr_nonnull(out);
    co_machine_draw(&door, out);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_str_eq(text, "// Made from the table in house/door.c; test_door compares them.\n"
                           "digraph door {\n"
                           "    node [shape=box, style=rounded];\n"
                           "    OPEN [label=\"OPEN\\none may pass\\non entry: ring\"];\n"
                           "    SHUT [label=\"SHUT\\nnobody may\"];\n"
                           "    LOCKED [label=\"LOCKED\\nnobody can\"];\n"
                           "    SHUT -> OPEN [label=\"PUSH, has_strength: shove\"];\n"
                           "    SHUT -> SHUT [label=\"PUSH\"];\n"
                           "    OPEN -> SHUT [label=\"WIND: bang\"];\n"
                           "    SHUT -> LOCKED [label=\"KEY, turns\"];\n"
                           "    LOCKED -> SHUT [label=\"KEY, turns\"];\n"
                           "    OPEN -> OPEN [label=\"PUSH\"];\n"
                           "}\n");
    free(text);
}
END_TEST

TEST_SUITE(machine)
{
    Suite *s = suite_create("machine");
    TCase *t = tcase_create("machine");
    tcase_add_test(t, each_state_has_its_action_on_entry);
    tcase_add_test(t, a_row_without_condition_covers_its_event);
    tcase_add_test(t, an_ignored_event_is_covered);
    tcase_add_test(t, an_event_without_a_row_is_not_covered);
    tcase_add_test(t, rows_with_conditions_alone_do_not_cover_an_event);
    tcase_add_test(t, an_ignored_event_must_have_no_row);
    tcase_add_test(t, a_drawing_names_its_table_and_its_test);
    suite_add_tcase(s, t);
    return s;
}
