/* How ranks agree on a communicator: from the requests of all of them to one plan. */
#include "tests/support/suite.h"
#include "worker-runtime/device/device_plan.h"

#include <check.h>
#include <string.h>

enum { MOST = 2048 };
static struct device_note note[MOST];
static struct device_plan plan;

static void set_up(void)
{
    memset(note, 0, sizeof note);
    for (int r = 0; r < MOST; r++)
        note[r] = (struct device_note){.ok = 1, .can_scale = 1};
}

static void tear_down(void)
{
    device_plan_fini(&plan);
}

/* Rank r of the new ones was old[r] of n_old. */
static void keep(const int *old, int n, int n_old, uint64_t tag)
{
    for (int r = 0; r < n; r++) {
        note[r].tag = tag;
        note[r].rank = old[r];
        note[r].n = n_old;
    }
}

static void expect_way(int n, enum device_way way)
{
    device_plan_fini(&plan);
    ck_assert_int_eq(device_plan_init(&plan, note, n), 0);
    ck_assert_int_eq(plan.way, way);
}

START_TEST(ranks_without_a_communicator_make_a_new_one)
{
    expect_way(4, DEVICE_NEW);
    ck_assert_int_eq(plan.n_roots, 1);
}
END_TEST

START_TEST(a_rank_without_a_device_is_named)
{
    note[2].ok = 0;
    expect_way(4, DEVICE_NOT);
    ck_assert_int_eq(plan.bad, 2);
}
END_TEST

START_TEST(an_invalid_value_does_not_count_as_yes)
{
    note[1].ok = 7;
    expect_way(2, DEVICE_NOT);
    ck_assert_int_eq(plan.bad, 1);
}
END_TEST

START_TEST(the_survivors_of_a_communicator_shrink_it)
{
    keep((const int[]){0, 2, 3}, 3, 6, 42);
    expect_way(3, DEVICE_SHRINK);
    ck_assert_int_eq(plan.n_lost, 3);
    ck_assert_int_eq(plan.lost[0], 1);
    ck_assert_int_eq(plan.lost[1], 4);
    ck_assert_int_eq(plan.lost[2], 5);
}
END_TEST

START_TEST(a_new_rank_makes_all_ranks_start_over)
{
    keep((const int[]){0, 2}, 2, 3, 42);
    note[1].tag = 0;
    expect_way(2, DEVICE_NEW);
}
END_TEST

START_TEST(ranks_of_different_communicators_start_over)
{
    keep((const int[]){0, 2}, 2, 3, 42);
    note[1].tag = 43;
    expect_way(2, DEVICE_NEW);
    keep((const int[]){0, 2}, 2, 3, 42);
    note[1].n = 4;
    expect_way(2, DEVICE_NEW);
}
END_TEST

START_TEST(without_a_loss_the_communicator_is_not_shrunk)
{
    keep((const int[]){0, 1}, 2, 2, 42);
    expect_way(2, DEVICE_NEW);
}
END_TEST

START_TEST(ranks_in_another_order_start_over)
{
    keep((const int[]){2, 0}, 2, 3, 42);
    expect_way(2, DEVICE_NEW);
    keep((const int[]){1, 1}, 2, 3, 42);
    expect_way(2, DEVICE_NEW);
}
END_TEST

START_TEST(numbers_out_of_bounds_are_ignored)
{
    keep((const int[]){0, 3}, 2, 3, 42);
    expect_way(2, DEVICE_NEW);
    keep((const int[]){-1, 2}, 2, 3, 42);
    expect_way(2, DEVICE_NEW);
    keep((const int[]){0, 1}, 2, DEVICE_MOST_RANKS + 1, 42);
    expect_way(2, DEVICE_NEW);
    keep((const int[]){0, 1}, 2, -5, 42);
    expect_way(2, DEVICE_NEW);
}
END_TEST

START_TEST(more_than_256_ranks_have_several_roots)
{
    static const struct {
        int n, n_roots;
    } want[] = {{1, 1}, {256, 1}, {257, 2}, {512, 2}, {513, 3}, {2048, 8}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        expect_way(want[i].n, DEVICE_NEW);
        ck_assert_int_eq(plan.n_roots, want[i].n_roots);
    }
    note[1000].can_scale = 0;
    expect_way(2048, DEVICE_NEW);
    ck_assert_int_eq(plan.n_roots, 1);
}
END_TEST

/* Every rank belongs to the block of one root, blocks differ by one at most, and the root is its
 * first rank. */
START_TEST(roots_are_the_first_ranks_of_even_blocks)
{
    for (int n = 1; n < 1500; n += 7)
        for (int n_roots = 1; n_roots <= n && n_roots < 9; n_roots++) {
            ck_assert_int_eq(device_plan_root(0, n, n_roots), 0);
            int shortest = n, longest = 0;
            for (int k = 0; k < n_roots; k++) {
                const int next = k + 1 < n_roots ? device_plan_root(k + 1, n, n_roots) : n;
                const int length = next - device_plan_root(k, n, n_roots);
                shortest = length < shortest ? length : shortest;
                longest = length > longest ? length : longest;
            }
            ck_assert_int_ge(shortest, 1);
            ck_assert_int_le(longest - shortest, 1);
        }
}
END_TEST

START_TEST(a_tag_distinguishes_communicators)
{
    uint8_t ids[256] = {1};
    const uint64_t first = device_plan_tag_new(ids, sizeof ids);
    ids[255] = 1;
    ck_assert_uint_ne(device_plan_tag_new(ids, sizeof ids), first);
    keep((const int[]){0, 2}, 2, 3, first);
    expect_way(2, DEVICE_SHRINK);
    const uint64_t lost_1 = device_plan_tag_shrunk(first, &plan);
    keep((const int[]){0, 1}, 2, 3, first);
    expect_way(2, DEVICE_SHRINK);
    ck_assert_uint_ne(device_plan_tag_shrunk(first, &plan), lost_1);
    ck_assert_uint_ne(lost_1, first);
}
END_TEST

TEST_SUITE(device_plan)
{
    Suite *s = suite_create("device_plan");
    TCase *t = tcase_create("plan");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, ranks_without_a_communicator_make_a_new_one);
    tcase_add_test(t, a_rank_without_a_device_is_named);
    tcase_add_test(t, an_invalid_value_does_not_count_as_yes);
    tcase_add_test(t, the_survivors_of_a_communicator_shrink_it);
    tcase_add_test(t, a_new_rank_makes_all_ranks_start_over);
    tcase_add_test(t, ranks_of_different_communicators_start_over);
    tcase_add_test(t, without_a_loss_the_communicator_is_not_shrunk);
    tcase_add_test(t, ranks_in_another_order_start_over);
    tcase_add_test(t, numbers_out_of_bounds_are_ignored);
    tcase_add_test(t, more_than_256_ranks_have_several_roots);
    tcase_add_test(t, roots_are_the_first_ranks_of_even_blocks);
    tcase_add_test(t, a_tag_distinguishes_communicators);
    suite_add_tcase(s, t);
    return s;
}
