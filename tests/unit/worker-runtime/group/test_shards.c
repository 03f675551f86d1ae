/* test_shards.c - which rank has which part of a state, and of which step. */
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/group/shards.h"

#include <errno.h>

static struct shards_shape shape_of(size_t total, int n_ranks, int rank)
{
    return (struct shards_shape){
        .total = total, .n_arrays = 2, .element_bytes = 4, .n_ranks = n_ranks, .rank = rank};
}

START_TEST(shards_are_adjacent_and_cover_everything)
{
    for (int n = 1; n < 9; n++)
        for (size_t total = 0; total <= 20 * SHARDS_ALIGN; total += SHARDS_ALIGN) {
            const struct shards_shape s = shape_of(total, n, 0);
            size_t sum = 0;
            for (int r = 0; r < n; r++) {
                ck_assert_uint_eq(shards_first(&s, r), sum);
                ck_assert_uint_le(shards_count(&s, r), shards_count(&s, 0));
                ck_assert_uint_eq(shards_count(&s, r) % SHARDS_ALIGN, 0);
                sum += shards_count(&s, r);
            }
            ck_assert_uint_eq(sum, total);
        }
}
END_TEST

START_TEST(four_ranks_have_a_quarter_each)
{
    const struct shards_shape s = shape_of(64 * SHARDS_ALIGN, 4, 1);
    struct shards held;
    ck_assert_int_eq(shards_init(&held, &s, 1, false), 0);
    ck_assert_uint_eq(shards_held_bytes(&held), 64 * SHARDS_ALIGN * 2 * 4 / 4);
    shards_fini(&held);
    ck_assert_int_eq(shards_init(&held, &s, 2, true), 0);
    ck_assert_int_eq(held.buddy.of_rank, 0);
    ck_assert_uint_eq(shards_held_bytes(&held), (size_t)64 * SHARDS_ALIGN * 2 * 4);
    shards_fini(&held);
}
END_TEST

START_TEST(the_last_completed_version_stays_while_the_next_is_made)
{
    const struct shards_shape s = shape_of(SHARDS_ALIGN, 1, 0);
    struct shards held;
    ck_assert_int_eq(shards_init(&held, &s, 2, false), 0);
    struct shard *own = &held.own;
    for (uint64_t step = 0; step < 5; step++) {
        struct shard_version *now = shard_find(own, step), *next = shard_next(own, step);
        ck_assert_ptr_nonnull(now);
        ck_assert_ptr_ne(now, next);
        ck_assert_ptr_null(shard_find(own, step + 1));
        shard_done(next, step + 1, step + 1);
        ck_assert_ptr_eq(shard_find(own, step), now); /* both, until the step after */
        ck_assert_ptr_eq(shard_find(own, step + 1), next);
    }
    shards_fini(&held);
}
END_TEST

START_TEST(steps_that_change_nothing_share_a_version)
{
    const struct shards_shape s = shape_of(SHARDS_ALIGN, 1, 0);
    struct shards held;
    ck_assert_int_eq(shards_init(&held, &s, 2, false), 0);
    shard_keep(&held.own, 0);
    shard_keep(&held.own, 1);
    struct shard_version *now = shard_find(&held.own, 2);
    ck_assert_ptr_nonnull(now);
    ck_assert_ptr_eq(shard_find(&held.own, 0), now);
    ck_assert_uint_eq(now->n_updates, 0);
    ck_assert_ptr_ne(shard_next(&held.own, 2), now);
    shards_fini(&held);
}
END_TEST

START_TEST(a_single_version_is_written_in_its_place)
{
    const struct shards_shape s = shape_of(SHARDS_ALIGN, 1, 0);
    struct shards held;
    ck_assert_int_eq(shards_init(&held, &s, 1, false), 0);
    ck_assert_ptr_eq(shard_next(&held.own, 0), shard_find(&held.own, 0));
    shards_fini(&held);
    shards_fini(&held);
}
END_TEST

TEST_SUITE(shards)
{
    Suite *s = suite_create("shards");
    TCase *t = tcase_create("shards");
    tcase_add_test(t, shards_are_adjacent_and_cover_everything);
    tcase_add_test(t, four_ranks_have_a_quarter_each);
    tcase_add_test(t, the_last_completed_version_stays_while_the_next_is_made);
    tcase_add_test(t, steps_that_change_nothing_share_a_version);
    tcase_add_test(t, a_single_version_is_written_in_its_place);
    suite_add_tcase(s, t);
    return s;
}
