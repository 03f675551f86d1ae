#include "common/error.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/model/bucket_plan.h"

static const struct bucket_tensor tensors[] = {
    {8, DDP_FLOAT32}, {8, DDP_FLOAT32}, {8, DDP_FLOAT32}, {8, DDP_FLOAT32}};
static struct bucket_plan plan; /* buckets of two: 3 and 2, 1 and 0 */
static struct bucket_ready ready;

static void setup(void)
{
    const struct bucket_limits limits = {.first_bytes = 16, .bytes = 16};
    struct co_error err = {0};
    ck_assert_int_eq(bucket_plan_init(tensors, 4, NULL, &limits, &plan, &err), 0);
    ck_assert_uint_eq(plan.n_buckets, 2);
    ck_assert_int_eq(bucket_ready_init(&ready, &plan), 0);
}

static void teardown(void)
{
    bucket_ready_fini(&ready);
    bucket_ready_fini(&ready); /* a second time does no harm */
    bucket_plan_fini(&plan);
}

START_TEST(a_bucket_is_complete_with_its_last_gradient)
{
    ck_assert(bucket_ready_say(&ready, 3));
    ck_assert(bucket_ready_say(&ready, 0));
    ck_assert(!bucket_ready_is_complete(&ready, 0));
    ck_assert(!bucket_ready_is_complete(&ready, 1));
    ck_assert(bucket_ready_say(&ready, 2));
    ck_assert(bucket_ready_is_complete(&ready, 0));
    ck_assert(!bucket_ready_is_complete(&ready, 1));
    ck_assert(bucket_ready_say(&ready, 1));
    ck_assert(bucket_ready_is_complete(&ready, 1));
}
END_TEST

START_TEST(a_gradient_reported_twice_counts_once)
{
    ck_assert(!bucket_ready_is_said(&ready, 3));
    ck_assert(bucket_ready_say(&ready, 3));
    ck_assert(bucket_ready_is_said(&ready, 3));
    ck_assert(!bucket_ready_say(&ready, 3));
    ck_assert_uint_eq(ready.n_said, 1);
    ck_assert(!bucket_ready_is_complete(&ready, 0));
}
END_TEST

START_TEST(the_order_of_a_step_is_kept_and_the_next_one_starts_over)
{
    static const size_t order[] = {2, 0, 3, 1};
    for (int step = 0; step < 2; step++) {
        for (size_t k = 0; k < 4; k++)
            ck_assert(bucket_ready_say(&ready, order[k]));
        ck_assert_uint_eq(ready.n_said, 4);
        for (size_t k = 0; k < 4; k++)
            ck_assert_uint_eq(ready.order[k], order[k]);
        bucket_ready_begin(&ready);
        ck_assert_uint_eq(ready.n_said, 0);
        ck_assert(!bucket_ready_is_complete(&ready, 0));
    }
}
END_TEST

TEST_SUITE(bucket_plan_ready)
{
    Suite *s = suite_create("bucket_plan_ready");
    TCase *t = tcase_create("ready");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_bucket_is_complete_with_its_last_gradient);
    tcase_add_test(t, a_gradient_reported_twice_counts_once);
    tcase_add_test(t, the_order_of_a_step_is_kept_and_the_next_one_starts_over);
    suite_add_tcase(s, t);
    return s;
}
