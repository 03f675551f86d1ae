/* test_call.c - how a call is described, and two that differ. */
#include "common/error.h"
#include "tests/support/suite.h"
#include "worker-runtime/core/call.h"

#include <errno.h>

static const struct call barrier = {.kind = CALL_BARRIER};
static const struct call sum = {
    .kind = CALL_ALL_REDUCE, .dtype = DDP_INT32, .op = DDP_SUM, .count = 1};

static const char *mismatch(const struct call *a, uint32_t number_a, const struct call *b,
                            uint32_t number_b)
{
    static struct co_error err;
    ck_assert_int_eq(call_fail_mismatch(&(struct call_side){"rank 1", a, number_a},
                                        &(struct call_side){"rank 0", b, number_b}, &err),
                     -EPROTO);
    return err.text;
}

START_TEST(a_mismatch_names_both_calls)
{
    ck_assert_str_eq(mismatch(&sum, 7, &barrier, 7),
                     "rank 1 called ddp_all_reduce(int32, sum, 1) as call #7 where rank 0 called "
                     "ddp_barrier(); make the same calls in the same order on all ranks");
    ck_assert_str_eq(mismatch(&sum, 8, &barrier, 7),
                     "rank 1 called ddp_all_reduce(int32, sum, 1) as call #8 where rank 0 called "
                     "ddp_barrier() as call #7; make the same calls in the same order on all "
                     "ranks");
}
END_TEST

START_TEST(a_mismatch_of_the_same_call_names_threads_as_the_reason)
{
    ck_assert_str_eq(
        mismatch(&sum, 1, &sum, 1),
        "rank 1 called ddp_all_reduce(int32, sum, 1) as call #1 where rank 0 called "
        "ddp_all_reduce(int32, sum, 1): the same call, so several threads of a rank may be "
        "using the group");
    ck_assert_str_eq(
        mismatch(&sum, 2, &sum, 1),
        "rank 1 called ddp_all_reduce(int32, sum, 1) as call #2 where rank 0 called "
        "ddp_all_reduce(int32, sum, 1) as call #1: the same call, so several threads of a "
        "rank may be using the group");
}
END_TEST

TEST_SUITE(call)
{
    Suite *s = suite_create("call");
    TCase *c = tcase_create("call");
    tcase_add_test(c, a_mismatch_names_both_calls);
    tcase_add_test(c, a_mismatch_of_the_same_call_names_threads_as_the_reason);
    suite_add_tcase(s, c);
    return s;
}
