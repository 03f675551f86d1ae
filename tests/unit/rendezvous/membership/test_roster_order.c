/* Natural order of names; which nodes take part, and in which order. */
#include "rendezvous/membership/roster_order.h"

#include "rendezvous/membership/message.h"
#include "tests/support/chance.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 64 };

static struct roster_order_entry entries[MAX];
static struct roster_order_seat seats[MAX];
static uint8_t instances[MAX][MESSAGE_INSTANCE_BYTES];
static size_t n, n_seats, segment;

static void set_up(void)
{
    n = n_seats = segment = 0;
}

static struct roster_order_entry *add(const char *name, int32_t node_rank, int32_t seat)
{
    struct roster_order_entry *e = &entries[n];
    instances[n][0] = (uint8_t)n;
    *e = (struct roster_order_entry){.slot = (uint32_t)n,
                                     .name = name,
                                     .instance = instances[n],
                                     .arrival = n,
                                     .key = roster_order_key(node_rank, name),
                                     .node_rank = node_rank,
                                     .expected = ROSTER_ORDER_NONE,
                                     .seat = seat,
                                     .before = ROSTER_ORDER_NONE};
    n++;
    return e;
}

/* A node had this seat. */
static void add_seat(const char *name, int32_t node_rank)
{
    seats[n_seats] = (struct roster_order_seat){.key = roster_order_key(node_rank, name),
                                                .index = (int32_t)n_seats};
    n_seats++;
}

static void assert_order(size_t max, const char *expected)
{
    char text[1024] = "";
    size_t n_in = roster_order_make(entries, n, seats, n_seats, max, segment);
    for (size_t i = 0; i < n_in; i++) {
        strcat(text, i > 0 ? " " : "");
        strcat(text, entries[i].name);
    }
    ck_assert_str_eq(text, expected);
}

START_TEST(names_with_numbers_are_in_natural_order)
{
    static const char *const sorted[] = {"",
                                         "a",
                                         "a1",
                                         "a2",
                                         "a10",
                                         "a10b",
                                         "a10b2",
                                         "a99999999999999999999",
                                         "a100000000000000000000",
                                         "b",
                                         "node7",
                                         "node66",
                                         "node100-2",
                                         "node100-10"};
    for (size_t i = 0; i < sizeof sorted / sizeof *sorted; i++) {
        for (size_t k = 0; k < sizeof sorted / sizeof *sorted; k++) {
            int by = roster_order_compare(sorted[i], sorted[k]);
            ck_assert_msg((i < k) == (by < 0) && (i == k) == (by == 0), "'%s' and '%s'", sorted[i],
                          sorted[k]);
        }
    }
    ck_assert_int_eq(roster_order_compare("node7", "node07"),
                     -roster_order_compare("node07", "node7"));
    ck_assert_int_ne(roster_order_compare("node7", "node07"), 0);
}
END_TEST

START_TEST(the_first_generation_has_the_natural_order)
{
    add("node66", -1, -1);
    add("node7", -1, -1);
    add("node10", -1, -1);
    assert_order(9, "node7 node10 node66");
}
END_TEST

START_TEST(node_ranks_precede_names)
{
    add("a", -1, -1);
    add("c", 1, -1);
    add("b", 0, -1);
    assert_order(9, "b c a");
}
END_TEST

START_TEST(a_host_file_precedes_names)
{
    add("a", -1, -1)->expected = 2;
    add("b", -1, -1)->expected = 0;
    add("c", -1, -1);
    assert_order(9, "b a c");
}
END_TEST

START_TEST(the_node_that_keeps_rank_0_is_first)
{
    add("a", 0, -1);
    add("z", 5, -1)->keeps_rank_0 = true;
    assert_order(9, "z a");
}
END_TEST

START_TEST(places_of_the_generation_before_precede_newcomers)
{
    add("a", -1, -1);
    add("b", -1, -1)->before = 5;
    add("c", -1, -1)->before = 2;
    add("d", -1, 0); /* a survivor */
    assert_order(9, "d c b a");
    n = 0;
    add("a", -1, -1);
    add("b", -1, -1)->before = 5;
    add("c", -1, -1)->before = 2;
    assert_order(2, "c b");
}
END_TEST

START_TEST(equal_names_have_a_defined_order)
{
    struct roster_order_entry *late = add("localhost", -1, -1), *early = add("localhost", -1, -1);
    late->instance = instances[1];
    early->instance = instances[0];
    uint32_t first = early->slot;
    ck_assert_uint_eq(roster_order_make(entries, n, seats, 0, 9, 0), 2);
    ck_assert_uint_eq(entries[0].slot, first);
}
END_TEST

START_TEST(survivors_keep_their_order_and_newcomers_fill_holes)
{
    add_seat("d", -1);
    add_seat("c", -1);
    add_seat("b", -1);
    add_seat("a", -1);
    add("a", -1, 3);
    add("z", -1, -1);
    add("d", -1, 0);
    add("b", -1, 2);
    assert_order(9, "d z b a");
}
END_TEST

START_TEST(without_a_hole_newcomers_are_last)
{
    add_seat("m", -1);
    add_seat("n", -1);
    add("m", -1, 0);
    add("n", -1, 1);
    add("a", -1, -1);
    add("b", -1, -1);
    assert_order(9, "m n a b");
}
END_TEST

START_TEST(remaining_holes_are_closed)
{
    add_seat("a", -1);
    add_seat("b", -1);
    add_seat("c", -1);
    add_seat("d", -1);
    add("a", -1, 0);
    add("d", -1, 3);
    assert_order(9, "a d");
}
END_TEST

START_TEST(a_newcomer_does_not_get_rank_0_if_a_node_survived)
{
    add_seat("a", -1);
    add_seat("b", -1);
    add_seat("c", -1);
    add("c", -1, 2);
    add("a", -1, -1); /* it was rank 0, and comes back as another stay */
    assert_order(9, "c a");
}
END_TEST

START_TEST(a_returning_node_gets_its_place)
{
    add_seat("a", -1);
    add_seat("b", -1);
    add_seat("c", -1);
    add_seat("d", -1);
    add("a", -1, 0);
    add("aa", -1, -1);
    add("d", -1, -1);
    add("c", -1, -1);
    assert_order(9, "a aa c d");
}
END_TEST

START_TEST(a_node_rank_takes_its_place_for_any_name)
{
    add_seat("a", 0);
    add_seat("b", 1);
    add_seat("c", 2);
    add("a", 0, 0);
    add("x", 2, -1);
    add("y", 1, -1);
    assert_order(9, "a y x");
}
END_TEST

START_TEST(many_of_one_name_take_the_places_of_that_name)
{
    for (int i = 0; i < 20; i++)
        add_seat("localhost", -1);
    add("localhost", -1, 0);
    for (int i = 0; i < 19; i++)
        add("localhost", -1, -1);
    ck_assert_uint_eq(roster_order_make(entries, n, seats, n_seats, 99, 0), 20);
    ck_assert_uint_eq(entries[0].slot, 0);
    for (uint32_t i = 0; i < 20; i++)
        ck_assert_int_eq(entries[i].seat, (int32_t)i);
}
END_TEST

START_TEST(survivors_precede_newcomers_and_early_ones_late_ones)
{
    add_seat("x", -1);
    add_seat("y", -1);
    add("c", -1, -1);
    add("b", -1, -1);
    add("y", -1, 1);
    add("a", -1, -1);
    add("x", -1, 0);
    assert_order(3, "x y c");
}
END_TEST

START_TEST(without_survivors_the_order_starts_over)
{
    add_seat("x", -1);
    add("b", -1, -1);
    add("a", -1, -1);
    assert_order(9, "a b");
}
END_TEST

/* --- Segments: the first letter of a name is its domain --- */

static struct roster_order_entry *put(const char *name, int32_t seat)
{
    struct roster_order_entry *e = add(name, -1, seat);
    e->domain = (uint32_t)name[0];
    return e;
}

static void put_seat(const char *name)
{
    add_seat(name, -1);
    seats[n_seats - 1].domain = (uint32_t)name[0];
}

static void begin_segments(size_t size)
{
    set_up();
    segment = size;
}

START_TEST(nodes_of_a_domain_are_consecutive)
{
    begin_segments(2);
    put("b1", -1)->node_rank = 0;
    put("a1", -1)->node_rank = 1;
    put("b2", -1)->node_rank = 2;
    put("a2", -1)->node_rank = 3;
    assert_order(8, "b1 b2 a1 a2");
}
END_TEST

START_TEST(only_whole_segments_take_part)
{
    begin_segments(2);
    put("a1", -1);
    put("a2", -1);
    put("a3", -1);
    put("b1", -1);
    put("c1", -1);
    put("c2", -1);
    assert_order(8, "a1 a2 c1 c2");
    begin_segments(4);
    put("a1", -1);
    put("a2", -1);
    put("a3", -1);
    put("b1", -1);
    assert_order(8, "");
}
END_TEST

START_TEST(segments_with_survivors_have_precedence)
{
    begin_segments(2);
    put("a1", -1);
    put("a2", -1);
    put("b1", -1);
    put("b2", 1);
    put("c1", 2);
    put("c2", 3);
    put_seat("b1x");
    put_seat("b2");
    put_seat("c1");
    put_seat("c2");
    assert_order(4, "b2 b1 c1 c2");
    begin_segments(2);
    put("a1", -1);
    put("a2", -1);
    put("b1", -1);
    put("b2", 1);
    put("c1", 2);
    put("c2", 3);
    put_seat("b1x");
    put_seat("b2");
    put_seat("c1");
    put_seat("c2");
    assert_order(2, "c1 c2"); /* two survivors are more than one */
}
END_TEST

START_TEST(of_segments_without_survivors_the_first_that_was_whole_takes_part)
{
    begin_segments(2);
    put("a1", -1);
    put("b1", -1);
    put("b2", -1);
    put("a2", -1);
    assert_order(2, "b1 b2");
}
END_TEST

START_TEST(a_spare_of_its_domain_fills_a_hole_before_others)
{
    begin_segments(2);
    put("a1", 0);
    put("a3", -1);
    put("b1", 2);
    put("b2", 3);
    put("c1", 5);
    put("c3", -1);
    for (int i = 0; i < 6; i++)
        put_seat((const char *const[]){"a1", "a2", "b1", "b2", "c4", "c1"}[i]);
    assert_order(6, "a1 a3 b1 b2 c3 c1");
}
END_TEST

START_TEST(a_new_domain_gets_the_place_of_a_lost_one)
{
    begin_segments(2);
    put("a1", 0);
    put("a2", 1);
    put("c1", 4);
    put("c2", 5);
    put("d1", -1);
    put("d2", -1);
    for (int i = 0; i < 6; i++)
        put_seat((const char *const[]){"a1", "a2", "b1", "b2", "c1", "c2"}[i]);
    assert_order(6, "a1 a2 d1 d2 c1 c2");
}
END_TEST

START_TEST(a_domain_that_grows_keeps_its_nodes_in_front)
{
    begin_segments(2);
    put("a1", 0);
    put("a2", 1);
    put("c1", 4);
    put("c2", 5);
    put("c0", -1);
    put("c9", -1);
    for (int i = 0; i < 6; i++)
        put_seat((const char *const[]){"a1", "a2", "b1", "b2", "c1", "c2"}[i]);
    assert_order(6, "a1 a2 c1 c2 c0 c9");
}
END_TEST

START_TEST(a_survivor_has_rank_0_and_survivors_keep_their_order)
{
    begin_segments(2);
    put("a0", -1);
    put("a2", 1);
    put("b1", 2);
    put("b2", 3);
    put("c1", -1);
    put("c2", -1);
    for (int i = 0; i < 6; i++)
        put_seat((const char *const[]){"a1", "a2", "b1", "b2", "c1", "c2"}[i]);
    assert_order(6, "a2 a0 b1 b2 c1 c2");
}
END_TEST

START_TEST(a_returning_node_of_a_domain_has_its_place_again)
{
    begin_segments(2);
    put("a1", 0);
    put("a2", 1);
    put("b3", -1);
    put("b1", -1);
    put("b2", 3);
    for (int i = 0; i < 4; i++)
        put_seat((const char *const[]){"a1", "a2", "b1", "b2"}[i]);
    assert_order(4, "a1 a2 b1 b2"); /* and not b3, which has waited for longer */
}
END_TEST

START_TEST(the_domain_of_the_node_that_keeps_rank_0_is_first)
{
    begin_segments(2);
    put("a1", 0);
    put("a2", 1);
    put("b1", -1);
    put("b2", -1)->keeps_rank_0 = true;
    put_seat("a1");
    put_seat("a2");
    assert_order(4, "b2 b1 a1 a2");
    begin_segments(2);
    put("a1", 0);
    put("a2", 1);
    put("b1", -1);
    put("b2", -1)->keeps_rank_0 = true;
    put_seat("a1");
    put_seat("a2");
    assert_order(2, "b2 b1");
}
END_TEST

START_TEST(places_before_a_takeover_keep_domains_together)
{
    begin_segments(2);
    put("a1", -1)->before = 2;
    put("a2", -1)->before = 3;
    put("b1", -1)->before = 0;
    put("b2", -1)->before = 1;
    assert_order(4, "b1 b2 a1 a2");
}
END_TEST

/* For random nodes and survivors. */
static void check_segments(size_t n_in, size_t max)
{
    int32_t last = -1;
    ck_assert_uint_le(n_in, max);
    ck_assert_uint_eq(n_in % segment, 0);
    for (size_t i = 0, end; i < n_in; i = end) {
        for (end = i; end < n_in && entries[end].domain == entries[i].domain; end++)
            if (entries[end].survives) {
                ck_assert_int_gt((int32_t)entries[end].arrival, last); /* here: the seat */
                last = (int32_t)entries[end].arrival;
            }
        ck_assert_uint_eq((end - i) % segment, 0);
        for (size_t k = end; k < n_in; k++)
            ck_assert_uint_ne(entries[k].domain, entries[i].domain);
    }
    ck_assert(n_in == 0 || last < 0 || entries[0].survives);
}

START_TEST(random_generations_consist_of_whole_segments)
{
    static char texts[MAX][8];
    struct chance chance = chance_from(7);
    for (int round = 0; round < 5000; round++) {
        size_t n_in = 0;
        int32_t seat = 0;
        begin_segments(1 + chance_draw(&chance, 4));
        const uint32_t n_domains = 1 + (uint32_t)chance_draw(&chance, 4);
        const size_t max = segment * (1 + chance_draw(&chance, 5));
        for (uint32_t d = 0; d < n_domains; d++)
            for (size_t k = segment * chance_draw(&chance, 3); k > 0 && n_in < max; k--, n_in++) {
                snprintf(texts[n], sizeof texts[n], "%c%d", (char)('a' + d), (int)n);
                put_seat(texts[n]);
                if (chance_draw(&chance, 3) > 0)
                    put(texts[n], seat)->arrival = (uint64_t)seat;
                else if (chance_draw(&chance, 2) > 0)
                    put(texts[n], -1)->arrival = 1000 + n;
                seat++;
            }
        while (n < 30 && chance_draw(&chance, 12) > 0) {
            snprintf(texts[n], sizeof texts[n], "%c%d",
                     (char)('a' + chance_draw(&chance, n_domains + 1)), (int)n + 100);
            put(texts[n], -1)->arrival = 1000 + n;
        }
        check_segments(roster_order_make(entries, n, seats, n_seats, max, segment), max);
    }
}
END_TEST

TEST_SUITE(roster_order)
{
    Suite *suite = suite_create("roster_order");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, NULL);
    tcase_add_test(all, names_with_numbers_are_in_natural_order);
    tcase_add_test(all, the_first_generation_has_the_natural_order);
    tcase_add_test(all, node_ranks_precede_names);
    tcase_add_test(all, a_host_file_precedes_names);
    tcase_add_test(all, the_node_that_keeps_rank_0_is_first);
    tcase_add_test(all, places_of_the_generation_before_precede_newcomers);
    tcase_add_test(all, equal_names_have_a_defined_order);
    tcase_add_test(all, survivors_keep_their_order_and_newcomers_fill_holes);
    tcase_add_test(all, without_a_hole_newcomers_are_last);
    tcase_add_test(all, remaining_holes_are_closed);
    tcase_add_test(all, a_newcomer_does_not_get_rank_0_if_a_node_survived);
    tcase_add_test(all, a_returning_node_gets_its_place);
    tcase_add_test(all, a_node_rank_takes_its_place_for_any_name);
    tcase_add_test(all, many_of_one_name_take_the_places_of_that_name);
    tcase_add_test(all, survivors_precede_newcomers_and_early_ones_late_ones);
    tcase_add_test(all, without_survivors_the_order_starts_over);
    tcase_add_test(all, nodes_of_a_domain_are_consecutive);
    tcase_add_test(all, only_whole_segments_take_part);
    tcase_add_test(all, segments_with_survivors_have_precedence);
    tcase_add_test(all, of_segments_without_survivors_the_first_that_was_whole_takes_part);
    tcase_add_test(all, a_spare_of_its_domain_fills_a_hole_before_others);
    tcase_add_test(all, a_new_domain_gets_the_place_of_a_lost_one);
    tcase_add_test(all, a_domain_that_grows_keeps_its_nodes_in_front);
    tcase_add_test(all, a_survivor_has_rank_0_and_survivors_keep_their_order);
    tcase_add_test(all, a_returning_node_of_a_domain_has_its_place_again);
    tcase_add_test(all, the_domain_of_the_node_that_keeps_rank_0_is_first);
    tcase_add_test(all, places_before_a_takeover_keep_domains_together);
    tcase_add_test(all, random_generations_consist_of_whole_segments);
    suite_add_tcase(suite, all);
    return suite;
}
