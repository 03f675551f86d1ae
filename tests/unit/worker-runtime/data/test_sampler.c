/* The expected indices are those of torch 2.11's DistributedSampler. */
#include "tests/support/checksum.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/core/group.h"
#include <check.h>
#include <ddp/sampler.h>
#include <stdlib.h>
#include <string.h>

/* A group is only asked for rank and world size, so none is joined. */
static struct ddp_sampler *sampler_of(struct world *w, int world_size, int rank,
                                      const struct ddp_sampler_opts *opts)
{
    struct ddp_sampler *s = NULL;
    *w = (struct world){.group = {.world = w, .world_size = world_size, .rank = rank}};
    int rc = ddp_sampler_create(&w->group, opts, &s);
    ck_assert_msg(rc == 0, "%s", ddp_last_error());
    return s;
}

/* All indices of the sampler's present epoch, taken in batches; the caller frees them. */
static int64_t *take_all(struct ddp_sampler *s, size_t batch, size_t *ret_n)
{
    size_t length = (size_t)ddp_sampler_length(s);
    int64_t *all = malloc((length + 1) * sizeof(*all));
    const int64_t *index;
    *ret_n = 0;
    for (size_t n; (n = ddp_sampler_next(s, batch, &index)) > 0;) {
        ck_assert_uint_le(*ret_n + n, length);
        ck_assert(n == batch || *ret_n + n == length);
        for (size_t i = 0; i < n; i++)
            all[(*ret_n)++] = index[i];
    }
    return all;
}

static const struct vector {
    int64_t n;
    int world_size, rank;
    int64_t epoch, seed;
    bool shuffle, drop_last;
    size_t length;
    int64_t head[8];
    uint64_t weighted;
    uint32_t crc;
} vectors[] = {
    {10, 4, 0, 0, 0, true, false, 3, {4, 3, 6}, 28, 0x2560e90a},
    {10, 4, 3, 0, 0, true, false, 3, {5, 8, 1}, 24, 0xf45bae89},
    {10, 4, 3, 1, 0, true, false, 3, {2, 3, 6}, 26, 0x955dbb5a},
    {10, 4, 1, 0, 0, true, true, 2, {1, 9}, 19, 0x5d9cc1ef},
    {3, 8, 7, 0, 0, true, false, 1, {0}, 0, 0x6522df69},
    {3, 8, 5, 0, 0, false, false, 1, {2}, 2, 0x2707d814},
    {60000,
     3,
     2,
     5,
     7,
     true,
     false,
     20000,
     {35176, 43326, 27340, 41745, 57451, 33064, 59952, 12484},
     6015432167798,
     0x16ad58b1},
    {5, 8, 0, 0, 0, true, true, 0, {0}, 0, 0x00000000},
};

START_TEST(indices_equal_those_of_torch)
{
    const struct vector *v = &vectors[_i];
    struct world w;
    struct ddp_sampler *s = sampler_of(
        &w, v->world_size, v->rank,
        &(struct ddp_sampler_opts){
            .n = v->n, .seed = v->seed, .shuffle = v->shuffle, .drop_last = v->drop_last});
    ck_assert_int_eq(ddp_sampler_length(s), (int64_t)v->length);
    for (size_t batch = 1; batch <= 300; batch += 299) {
        size_t n;
        ddp_sampler_set_epoch(s, v->epoch);
        int64_t *all = take_all(s, batch, &n);
        struct checksum sum = {0};
        ck_assert_uint_eq(n, v->length);
        for (size_t k = 0; k < n; k++) {
            checksum_add(&sum, all[k]);
            if (k < 8)
                ck_assert_int_eq(all[k], v->head[k]);
        }
        ck_assert_uint_eq(sum.weighted, v->weighted);
        ck_assert_uint_eq(sum.crc, v->crc);
        free(all);
    }
    ddp_sampler_destroy(s);
}
END_TEST

START_TEST(the_ranks_together_see_every_sample)
{
    enum { N = 103, RANKS = 8 };
    unsigned seen[N] = {0}, n_taken = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        struct world w;
        struct ddp_sampler *s = sampler_of(
            &w, RANKS, rank, &(struct ddp_sampler_opts){.n = N, .seed = 5, .shuffle = true});
        const int64_t *index;
        ck_assert(ddp_sampler_next_epoch(s, 1));
        for (size_t n; (n = ddp_sampler_next(s, 4, &index)) > 0; n_taken += (unsigned)n)
            for (size_t i = 0; i < n; i++)
                seen[index[i]]++;
        ddp_sampler_destroy(s);
    }
    ck_assert_uint_eq(n_taken, 104); /* 13 each: one sample is given twice */
    for (int i = 0; i < N; i++)
        ck_assert(seen[i] == 1 || seen[i] == 2);
}
END_TEST

START_TEST(epochs_run_from_0_to_the_last_and_reshuffle)
{
    struct world w;
    struct ddp_sampler *s =
        sampler_of(&w, 1, 0, &(struct ddp_sampler_opts){.n = 50, .seed = 1, .shuffle = true});
    const int64_t *index;
    int64_t *before = NULL;
    ck_assert_int_eq(ddp_sampler_epoch(s), -1);
    ck_assert_uint_eq(ddp_sampler_next(s, 10, &index), 0); /* no epoch yet */
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        size_t n;
        ck_assert(ddp_sampler_next_epoch(s, 3));
        ck_assert_int_eq(ddp_sampler_epoch(s), epoch);
        int64_t *all = take_all(s, 7, &n);
        ck_assert_uint_eq(n, 50);
        if (before != NULL)
            ck_assert_mem_ne(all, before, 50 * sizeof(*all));
        free(before);
        before = all;
    }
    free(before);
    ck_assert(!ddp_sampler_next_epoch(s, 3));
    ck_assert_uint_eq(ddp_sampler_next(s, 10, &index), 0);
    ck_assert(!ddp_sampler_next_epoch(s, INT64_MIN));
    ddp_sampler_destroy(s);
}
END_TEST

START_TEST(setting_an_epoch_restarts_it)
{
    struct world w;
    struct ddp_sampler *s =
        sampler_of(&w, 2, 1, &(struct ddp_sampler_opts){.n = 1000, .seed = -12, .shuffle = true});
    size_t n_first, n_again;
    const int64_t *index;
    ddp_sampler_set_epoch(s, 4);
    int64_t *first = take_all(s, 64, &n_first);
    ddp_sampler_set_epoch(s, -9);
    ck_assert_int_eq(ddp_sampler_epoch(s), -9);
    ck_assert_uint_eq(ddp_sampler_next(s, 3, &index), 3);
    ddp_sampler_set_epoch(s, 4);
    int64_t *again = take_all(s, 1000, &n_again);
    ck_assert_uint_eq(n_first, 500);
    ck_assert_uint_eq(n_again, 500);
    ck_assert_mem_eq(first, again, 500 * sizeof(*first));
    free(first);
    free(again);

    ddp_sampler_set_epoch(s, INT64_MAX);
    ck_assert(!ddp_sampler_next_epoch(s, INT64_MAX));
    ddp_sampler_set_epoch(s, INT64_MIN);
    ck_assert(ddp_sampler_next_epoch(s, 0));
    ck_assert_int_eq(ddp_sampler_epoch(s), INT64_MIN + 1);
    ddp_sampler_destroy(s);
}
END_TEST

START_TEST(a_seed_and_an_epoch_of_opposite_sign_cancel_as_in_torch)
{
    struct world w, x;
    struct ddp_sampler *a =
        sampler_of(&w, 1, 0, &(struct ddp_sampler_opts){.n = 1000, .seed = 42, .shuffle = true});
    struct ddp_sampler *b =
        sampler_of(&x, 1, 0, &(struct ddp_sampler_opts){.n = 1000, .seed = -3, .shuffle = true});
    const int64_t *from_a, *from_b;
    ddp_sampler_set_epoch(a, 0);
    ddp_sampler_set_epoch(b, 45);
    ck_assert_uint_eq(ddp_sampler_next(a, 1000, &from_a), 1000);
    ck_assert_uint_eq(ddp_sampler_next(b, 1000, &from_b), 1000);
    ck_assert_mem_eq(from_a, from_b, 1000 * sizeof(*from_a));
    ck_assert_int_eq(from_a[0], 542);
    ddp_sampler_destroy(a);
    ddp_sampler_destroy(b);
}
END_TEST

START_TEST(an_empty_data_set_has_empty_epochs)
{
    struct world w;
    struct ddp_sampler *s =
        sampler_of(&w, 3, 1, &(struct ddp_sampler_opts){.n = 0, .seed = 1, .shuffle = true});
    const int64_t *index;
    ck_assert_int_eq(ddp_sampler_length(s), 0);
    ck_assert(ddp_sampler_next_epoch(s, 2));
    ck_assert_uint_eq(ddp_sampler_next(s, 8, &index), 0);
    ck_assert(ddp_sampler_next_epoch(s, 2));
    ck_assert(!ddp_sampler_next_epoch(s, 2));
    ddp_sampler_destroy(s);
}
END_TEST

START_TEST(batches_are_bounded_by_the_remaining_indices)
{
    struct world w;
    struct ddp_sampler *s = sampler_of(&w, 3, 2, &(struct ddp_sampler_opts){.n = 10});
    const int64_t *index;
    ck_assert(ddp_sampler_next_epoch(s, 1));
    ck_assert_uint_eq(ddp_sampler_next(s, 0, &index), 0);
    ck_assert_uint_eq(ddp_sampler_next(s, 1, &index), 1);
    ck_assert_int_eq(index[0], 2);
    ck_assert_uint_eq(ddp_sampler_next(s, SIZE_MAX, &index), 3);
    ck_assert_int_eq(index[0], 5);
    ck_assert_int_eq(index[1], 8);
    ck_assert_int_eq(index[2], 1); /* place 11 wraps around */
    ck_assert_uint_eq(ddp_sampler_next(s, SIZE_MAX, &index), 0);
    ddp_sampler_destroy(s);
}
END_TEST

START_TEST(the_largest_data_set_costs_nothing_unshuffled)
{
    struct world w;
    struct ddp_sampler *s = sampler_of(&w, 1, 0, &(struct ddp_sampler_opts){.n = UINT32_MAX});
    const int64_t *index;
    ck_assert_int_eq(ddp_sampler_length(s), UINT32_MAX);
    ck_assert(ddp_sampler_next_epoch(s, 1));
    ck_assert_uint_eq(ddp_sampler_next(s, 1000, &index), 1000);
    ck_assert_int_eq(index[999], 999);
    ddp_sampler_destroy(s);
}
END_TEST

START_TEST(sizes_out_of_bounds_are_refused)
{
    static const int64_t bad[] = {-1, INT64_MIN, (int64_t)UINT32_MAX + 1, INT64_MAX};
    struct world w = {.group = {.world = &w, .world_size = 1}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct ddp_sampler *s = NULL;
        int rc = ddp_sampler_create(&w.group, &(struct ddp_sampler_opts){.n = bad[i]}, &s);
        ck_assert_int_eq(rc, DDP_EINVAL);
        ck_assert_ptr_null(s);
        ck_assert_ptr_nonnull(strstr(ddp_last_error(), "0 to 4294967295 samples"));
    }
    ck_assert_int_eq(ddp_sampler_create(&w.group, NULL, NULL), DDP_EINVAL);
    ck_assert_ptr_null(w.group.children);
}
END_TEST

START_TEST(a_group_destroys_its_remaining_samplers)
{
    struct world w;
    struct ddp_sampler *s = sampler_of(&w, 1, 0, &(struct ddp_sampler_opts){.n = 10});
    ck_assert_ptr_nonnull(w.group.children);
    w.group.children->destroy(w.group.children); /* as ddp_finalize() does */
    ck_assert_ptr_null(w.group.children);
    (void)s;
    ddp_sampler_destroy(NULL);
}
END_TEST

TEST_SUITE(sampler)
{
    Suite *s = suite_create("sampler");
    TCase *t = tcase_create("torch");
    tcase_add_loop_test(t, indices_equal_those_of_torch, 0, sizeof(vectors) / sizeof(vectors[0]));
    tcase_add_test(t, a_seed_and_an_epoch_of_opposite_sign_cancel_as_in_torch);
    suite_add_tcase(s, t);
    t = tcase_create("epochs and batches");
    tcase_add_test(t, the_ranks_together_see_every_sample);
    tcase_add_test(t, epochs_run_from_0_to_the_last_and_reshuffle);
    tcase_add_test(t, setting_an_epoch_restarts_it);
    tcase_add_test(t, an_empty_data_set_has_empty_epochs);
    tcase_add_test(t, batches_are_bounded_by_the_remaining_indices);
    tcase_add_test(t, the_largest_data_set_costs_nothing_unshuffled);
    tcase_add_test(t, sizes_out_of_bounds_are_refused);
    tcase_add_test(t, a_group_destroys_its_remaining_samplers);
    suite_add_tcase(s, t);
    return s;
}
