/* Which sets of voters carry a list and a record. All orders of questions and answers:
 * tests/sim/sim_quorum_all.c. */
#include "rendezvous/quorum/quorum.h"

#include "tests/support/suite.h"

#include <check.h>

static struct quorum_list list_of(uint32_t n)
{
    struct quorum_list l = {.n = n};
    for (uint32_t i = 0; i < n; i++)
        l.ids[i] = i + 1;
    return l;
}

static struct quorum_set set_of(uint32_t mask)
{
    struct quorum_set s = {0};
    for (uint32_t i = 0; i < QUORUM_MAX_VOTERS; i++)
        if ((mask >> i & 1) != 0)
            quorum_set_add(&s, i + 1);
    return s;
}

START_TEST(two_sets_that_carry_a_list_have_a_voter_in_common)
{
    for (uint32_t n = 1; n <= QUORUM_MAX_VOTERS; n++) {
        const struct quorum_list l = list_of(n);
        for (uint32_t a = 0; a < 1u << n; a++)
            for (uint32_t b = 0; b < 1u << n; b++) {
                const struct quorum_set x = set_of(a), y = set_of(b);
                ck_assert(!quorum_carries(&x, &l) || !quorum_carries(&y, &l) || (a & b) != 0);
            }
    }
}
END_TEST

START_TEST(the_first_voter_breaks_a_tie)
{
    const struct quorum_list two = list_of(2), four = list_of(4);
    const struct quorum_set first = set_of(1), second = set_of(2);
    const struct quorum_set with_first = set_of(5), without = set_of(6);
    ck_assert(quorum_carries(&first, &two));
    ck_assert(!quorum_carries(&second, &two));
    ck_assert(quorum_carries(&with_first, &four));
    ck_assert(!quorum_carries(&without, &four));
}
END_TEST

START_TEST(no_set_carries_an_empty_list)
{
    const struct quorum_list none = {0};
    const struct quorum_set all = set_of(31);
    ck_assert(!quorum_carries(&all, &none));
}
END_TEST

START_TEST(a_change_that_is_not_settled_requires_both_lists)
{
    struct quorum_record r = {.voters = {1, {5}}, .before = list_of(3)};
    const struct quorum_set newer = set_of(16), both = set_of(16 + 3);
    ck_assert(!quorum_carries_record(&newer, &r));
    ck_assert(quorum_carries_record(&both, &r));
    ck_assert(quorum_record_names(&r, 2));
    r.settled = true;
    ck_assert(quorum_carries_record(&newer, &r));
    ck_assert(!quorum_record_names(&r, 2));
}
END_TEST

START_TEST(records_are_ordered_by_term_then_owner_then_index)
{
    const struct quorum_record a = {.term = {2, 1}, .index = 9}, b = {.term = {2, 3}},
                               c = {.term = {2, 3}, .index = 1};
    ck_assert_int_lt(quorum_record_compare(&a, &b), 0);
    ck_assert_int_lt(quorum_record_compare(&b, &c), 0);
    ck_assert_int_gt(quorum_record_compare(&c, &a), 0);
    ck_assert_int_eq(quorum_record_compare(&a, &a), 0);
}
END_TEST

START_TEST(a_set_keeps_an_id_once_and_never_exceeds_its_capacity)
{
    struct quorum_set s = {0};
    for (uint64_t id = 1; id <= QUORUM_MAX_ASKED + 5; id++) {
        quorum_set_add(&s, id);
        quorum_set_add(&s, id);
    }
    ck_assert_uint_eq(s.n, QUORUM_MAX_ASKED);
}
END_TEST

TEST_SUITE(quorum)
{
    Suite *suite = suite_create("quorum");
    TCase *all = tcase_create("all");
    tcase_add_test(all, two_sets_that_carry_a_list_have_a_voter_in_common);
    tcase_add_test(all, the_first_voter_breaks_a_tie);
    tcase_add_test(all, no_set_carries_an_empty_list);
    tcase_add_test(all, a_change_that_is_not_settled_requires_both_lists);
    tcase_add_test(all, records_are_ordered_by_term_then_owner_then_index);
    tcase_add_test(all, a_set_keeps_an_id_once_and_never_exceeds_its_capacity);
    suite_add_tcase(suite, all);
    return suite;
}
