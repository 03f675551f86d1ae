#include "common/error.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/model/bucket_plan.h"
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)

static struct bucket_plan plan_of(const struct bucket_tensor *t, size_t n, size_t first_limit,
                                  size_t limit)
{
    struct bucket_plan p;
    struct co_error err = {0};
    const struct bucket_limits limits = {
        .first_bytes = first_limit > 0 ? first_limit : BUCKET_FIRST_DEFAULT,
        .bytes = limit > 0 ? limit : BUCKET_BYTES_DEFAULT,
    };
    ck_assert_msg(bucket_plan_init(t, n, NULL, &limits, &p, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(p.n_tensors, n);
    return p;
}

static const struct bucket_limits default_limits = {.first_bytes = BUCKET_FIRST_DEFAULT,
                                                    .bytes = BUCKET_BYTES_DEFAULT};

static struct bucket_plan plan_in_order(const struct bucket_tensor *t, size_t n,
                                        const size_t *order, struct bucket_limits limits)
{
    struct bucket_plan p;
    struct co_error err = {0};
    ck_assert_msg(bucket_plan_init(t, n, order, &limits, &p, &err) == 0, "%s", err.text);
    return p;
}

START_TEST(twelve_linear_layers_give_the_same_buckets_as_torch)
{
    struct bucket_tensor t[24]; /* 12 x Linear(1024): weight, bias, weight, bias, ... */
    for (size_t i = 0; i < 24; i++)
        t[i] = (struct bucket_tensor){.bytes = i % 2 == 0 ? 4 * MIB : 4096, .dtype = DDP_FLOAT32};
    struct bucket_plan p = plan_of(t, 24, 0, 0);

    ck_assert_uint_eq(p.n_buckets, 3);
    ck_assert_uint_eq(p.bucket[0].payload_bytes, 4198400);
    ck_assert_uint_eq(p.bucket[1].payload_bytes, 29388800);
    ck_assert_uint_eq(p.bucket[2].payload_bytes, 16793600);
    for (size_t i = 0; i < 24; i++)
        ck_assert_uint_eq(p.place[i].bucket, i >= 22 ? 0 : i >= 8 ? 1 : 2);
    bucket_plan_fini(&p);
}
END_TEST

START_TEST(a_tensor_at_the_limit_closes_its_bucket_and_one_below_does_not)
{
    const struct bucket_tensor t[] = {{99, DDP_FLOAT32}, {1, DDP_FLOAT32}, {99, DDP_FLOAT32},
                                      {1, DDP_FLOAT32},  {9, DDP_FLOAT32}, {10, DDP_FLOAT32}};
    struct bucket_plan p = plan_of(t, 6, 10, 100);
    ck_assert_uint_eq(p.n_buckets, 3);
    ck_assert_uint_eq(p.place[5].bucket, 0); /* 10 >= 10 */
    ck_assert_uint_eq(p.place[4].bucket, 1); /* 9, 10, 109 >= 100 */
    ck_assert_uint_eq(p.place[3].bucket, 1);
    ck_assert_uint_eq(p.place[2].bucket, 1);
    ck_assert_uint_eq(p.place[1].bucket, 2); /* 1, 100 >= 100 */
    ck_assert_uint_eq(p.place[0].bucket, 2);
    bucket_plan_fini(&p);
}
END_TEST

START_TEST(a_tensor_larger_than_the_limit_is_not_split)
{
    const struct bucket_tensor t[] = {{4, DDP_FLOAT32}, {90 * MIB, DDP_FLOAT32}, {4, DDP_FLOAT32}};
    struct bucket_plan p = plan_of(t, 3, 0, 0);
    ck_assert_uint_eq(p.n_buckets, 2);
    ck_assert_uint_eq(p.bucket[0].n_tensors, 2);
    ck_assert_uint_eq(p.bucket[0].payload_bytes, 90 * MIB + 4);
    ck_assert_uint_eq(p.bucket[1].n_tensors, 1);
    bucket_plan_fini(&p);
}
END_TEST

START_TEST(each_type_has_its_own_buckets_and_small_first_bucket)
{
    const struct bucket_tensor t[] = {{50, DDP_FLOAT64}, {50, DDP_FLOAT32}, {60, DDP_FLOAT64},
                                      {60, DDP_FLOAT32}, {8, DDP_FLOAT64},  {12, DDP_FLOAT32}};
    struct bucket_plan p = plan_of(t, 6, 10, 100);
    ck_assert_uint_eq(p.n_buckets, 4);
    for (size_t i = 0; i < 6; i++)
        ck_assert_int_eq(p.bucket[p.place[i].bucket].dtype, t[i].dtype);
    ck_assert_uint_eq(p.place[5].bucket, 0); /* float32, closed by 12 >= 10 */
    ck_assert_uint_eq(p.place[2].bucket, 1); /* float64, 8 + 60 >= 10: the first limit still */
    ck_assert_uint_eq(p.place[4].bucket, 1);
    ck_assert_uint_eq(p.place[1].bucket, 2); /* float32, 60 + 50 */
    ck_assert_uint_eq(p.place[3].bucket, 2);
    ck_assert_uint_eq(p.place[0].bucket, 3);
    bucket_plan_fini(&p);
}
END_TEST

START_TEST(buckets_are_in_the_order_in_which_they_fill)
{
    /* the float64 bucket never reaches a limit, but is complete before the last float32 one */
    const struct bucket_tensor t[] = {
        {40, DDP_FLOAT32}, {40, DDP_FLOAT32}, {8, DDP_FLOAT64}, {40, DDP_FLOAT32}};
    struct bucket_plan p = plan_of(t, 4, 40, 80);
    ck_assert_uint_eq(p.n_buckets, 3);
    ck_assert_uint_eq(p.place[3].bucket, 0);
    ck_assert_uint_eq(p.place[2].bucket, 1);
    ck_assert_uint_eq(p.place[1].bucket, 2);
    ck_assert_uint_eq(p.place[0].bucket, 2);
    bucket_plan_fini(&p);
}
END_TEST

START_TEST(places_are_aligned_inside_their_bucket_and_do_not_overlap)
{
    enum { N = 500 };
    static struct bucket_tensor t[N];
    srand(7);
    for (size_t i = 0; i < N; i++) {
        t[i].dtype = (enum ddp_dtype)(rand() % 4);
        t[i].bytes = 8 * (size_t)(rand() % 300); /* 0 is among them */
    }
    struct bucket_plan p = plan_of(t, N, 1000, 5000);

    size_t filled[N] = {0}; /* per bucket: where the next place may start */
    size_t n_seen = 0, bytes_unmatched = 0;
    for (size_t i = 0; i < N; i++) { /* in the order of their numbers */
        const struct bucket_place *at = &p.place[i];
        ck_assert_uint_lt(at->bucket, p.n_buckets);
        ck_assert_uint_eq(at->offset % BUCKET_ALIGN, 0);
        ck_assert_uint_ge(at->offset, filled[at->bucket]);
        ck_assert_uint_lt(at->offset - filled[at->bucket], BUCKET_ALIGN);
        filled[at->bucket] = at->offset + t[i].bytes;
    }
    for (size_t b = 0; b < p.n_buckets; b++) {
        ck_assert_uint_eq(p.bucket[b].bytes, filled[b]);
        n_seen += p.bucket[b].n_tensors;
        bytes_unmatched += p.bucket[b].payload_bytes;
    }
    ck_assert_uint_eq(n_seen, N);
    for (size_t i = 0; i < N; i++)
        bytes_unmatched -= t[i].bytes;
    ck_assert_uint_eq(bytes_unmatched, 0);
    bucket_plan_fini(&p);
}
END_TEST

START_TEST(buckets_follow_the_observed_order)
{
    const struct bucket_tensor t[] = {
        {40, DDP_FLOAT32}, {40, DDP_FLOAT32}, {40, DDP_FLOAT32}, {40, DDP_FLOAT32}};
    const size_t order[] = {1, 3, 0, 2};
    struct bucket_limits limits = {.first_bytes = 40, .bytes = 80};
    struct bucket_plan p = plan_in_order(t, 4, order, limits);
    ck_assert_uint_eq(p.n_buckets, 3);
    ck_assert_uint_eq(p.place[1].bucket, 0);
    ck_assert_uint_eq(p.place[3].bucket, 1);
    ck_assert_uint_eq(p.place[0].bucket, 1);
    ck_assert_uint_eq(p.place[2].bucket, 2);
    ck_assert_uint_eq(p.place[0].offset, 0); /* before 3, whenever it was seen */
    ck_assert_uint_eq(p.place[3].offset, BUCKET_ALIGN);

    struct bucket_plan as_made = plan_in_order(t, 4, NULL, limits);
    struct bucket_plan reversed = plan_in_order(t, 4, (size_t[]){3, 2, 1, 0}, limits);
    ck_assert(bucket_plan_same(&as_made, &reversed));
    ck_assert(!bucket_plan_same(&as_made, &p));
    bucket_plan_fini(&p);
    bucket_plan_fini(&as_made);
    bucket_plan_fini(&reversed);
}
END_TEST

START_TEST(runs_are_adjacent_tensors_of_one_bucket)
{
    const struct bucket_tensor t[] = {{40, DDP_FLOAT32}, {40, DDP_FLOAT32}, {40, DDP_FLOAT64},
                                      {0, DDP_FLOAT32},  {40, DDP_FLOAT32}, {40, DDP_FLOAT32},
                                      {40, DDP_FLOAT32}, {0, DDP_FLOAT16}};
    const size_t order[] = {7, 6, 4, 1, 5, 3, 2, 0}; /* float32: 6 4 1 | 5 3 0 */
    struct bucket_plan p =
        plan_in_order(t, 8, order, (struct bucket_limits){.first_bytes = 120, .bytes = 80});
    ck_assert_uint_eq(p.n_buckets, 4);
    const struct bucket *first = &p.bucket[p.place[6].bucket],
                        *other = &p.bucket[p.place[5].bucket];
    ck_assert_uint_eq(first->n_runs, 2); /* 1 and 4; and 6, after the other bucket's 5 */
    ck_assert_uint_eq(p.place[1].run, 0);
    ck_assert_uint_eq(p.place[4].run, 0);
    ck_assert_uint_eq(p.place[6].run, 1);
    ck_assert_uint_eq(other->n_runs, 2); /* 0, and 5; 3 is empty */
    ck_assert_uint_eq(p.place[0].run, 0);
    ck_assert_uint_eq(p.place[5].run, 1);
    ck_assert_uint_eq(p.bucket[p.place[2].bucket].n_runs, 1); /* another type */
    ck_assert_uint_eq(p.bucket[p.place[7].bucket].n_runs, 0); /* all are empty */
    bucket_plan_fini(&p);
}
END_TEST

START_TEST(an_invalid_order_is_refused)
{
    const struct bucket_tensor t[] = {{8, DDP_FLOAT32}, {8, DDP_FLOAT32}, {8, DDP_FLOAT32}};
    static const size_t bad[][3] = {{0, 0, 1}, {0, 1, 3}, {SIZE_MAX, 2, 1}};
    static const size_t missing[] = {2, 2, 0};
    for (size_t k = 0; k < 3; k++) {
        struct bucket_plan p;
        struct co_error err = {0};
        char text[80];
        snprintf(text, sizeof(text), "the order of 3 tensors lacks tensor %zu", missing[k]);
        ck_assert_int_eq(bucket_plan_init(t, 3, bad[k], &default_limits, &p, &err), -EINVAL);
        ck_assert_str_eq(err.text, text);
    }
}
END_TEST

START_TEST(a_limit_of_elements_holds_for_all_types_and_buckets)
{
    const struct bucket_tensor t[] = {{40, DDP_FLOAT32}, {80, DDP_FLOAT64}, {36, DDP_FLOAT32},
                                      {8, DDP_FLOAT64},  {4, DDP_FLOAT32},  {20, DDP_FLOAT16}};
    struct bucket_plan p = plan_in_order(t, 6, NULL, (struct bucket_limits){.elements = 10});
    ck_assert_uint_eq(p.n_buckets, 4);
    ck_assert_uint_eq(p.place[5].bucket, 0); /* 10 of two bytes */
    ck_assert_uint_eq(p.place[4].bucket, 1); /* 1 + 9 */
    ck_assert_uint_eq(p.place[2].bucket, 1);
    ck_assert_uint_eq(p.place[3].bucket, 2); /* 1 + 10 */
    ck_assert_uint_eq(p.place[1].bucket, 2);
    ck_assert_uint_eq(p.place[0].bucket, 3);
    bucket_plan_fini(&p);
}
END_TEST

START_TEST(no_tensors_make_no_buckets)
{
    struct bucket_plan p = plan_of(NULL, 0, 0, 0);
    ck_assert_uint_eq(p.n_buckets, 0);
    bucket_plan_fini(&p);
    bucket_plan_fini(&p); /* a second time does no harm */
}
END_TEST

START_TEST(an_unknown_type_is_refused_by_its_number)
{
    const struct bucket_tensor t[] = {{8, DDP_FLOAT32}, {8, (enum ddp_dtype)17}};
    struct bucket_plan p;
    struct co_error err = {0};
    ck_assert_int_eq(bucket_plan_init(t, 2, NULL, &default_limits, &p, &err), -EINVAL);
    ck_assert_str_eq(err.text, "tensor 1 has the unknown type 17");
}
END_TEST

START_TEST(sizes_above_the_address_space_are_refused)
{
    struct bucket_tensor t[] = {{SIZE_MAX - 7, DDP_FLOAT64}, {8, DDP_FLOAT64}};
    struct bucket_plan p;
    struct co_error err = {0};
    ck_assert_int_eq(bucket_plan_init(t, 2, NULL, &default_limits, &p, &err), -EINVAL);
    ck_assert_str_eq(err.text, "with tensor 0 its bucket exceeds the address space");
    t[1].bytes = SIZE_MAX - 7;
    ck_assert_int_eq(bucket_plan_init(t, 2, NULL, &BUCKET_UNLIMITED, &p, &err), -EINVAL);
}
END_TEST

TEST_SUITE(bucket_plan)
{
    Suite *s = suite_create("bucket_plan");
    TCase *t = tcase_create("plans");
    tcase_add_test(t, twelve_linear_layers_give_the_same_buckets_as_torch);
    tcase_add_test(t, a_tensor_at_the_limit_closes_its_bucket_and_one_below_does_not);
    tcase_add_test(t, a_tensor_larger_than_the_limit_is_not_split);
    tcase_add_test(t, each_type_has_its_own_buckets_and_small_first_bucket);
    tcase_add_test(t, buckets_are_in_the_order_in_which_they_fill);
    tcase_add_test(t, places_are_aligned_inside_their_bucket_and_do_not_overlap);
    tcase_add_test(t, buckets_follow_the_observed_order);
    tcase_add_test(t, runs_are_adjacent_tensors_of_one_bucket);
    tcase_add_test(t, an_invalid_order_is_refused);
    tcase_add_test(t, a_limit_of_elements_holds_for_all_types_and_buckets);
    tcase_add_test(t, no_tensors_make_no_buckets);
    tcase_add_test(t, an_unknown_type_is_refused_by_its_number);
    tcase_add_test(t, sizes_above_the_address_space_are_refused);
    suite_add_tcase(s, t);
    return s;
}
