/* What kernels do to clip gradients, thread by thread, against the sums and factors on CPUs. */
#include "tests/support/suite.h"
#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/nccl/kernel_clip.h"

#include <check.h>
#include <math.h>

enum { N_TYPES = 4, MOST = 5000, STEP = 768 };

static const enum ddp_dtype types[N_TYPES] = {DDP_FLOAT32, DDP_FLOAT64, DDP_FLOAT16, DDP_BFLOAT16};

/* Gradients of other lengths, some of them empty, dealt out to STEP threads as one vector. */
static const uint64_t counts[] = {1, 0, 767, 768, MOST, 5, 0, 769, 3};
enum { N = sizeof counts / sizeof *counts };

struct net {
    _Alignas(double) char values[N][MOST * 8];
    double part[KERNEL_CLIP_BLOCKS], norm, factor;
    struct kernel_clip k;
};

static void fill(struct net *n, enum ddp_dtype dtype)
{
    uint64_t at = 0;
    n->k = (struct kernel_clip){.n = N, .part = n->part, .norm = &n->norm, .factor = &n->factor};
    for (int i = 0; i < N; i++) {
        float floats[MOST];
        for (uint64_t k = 0; k < counts[i]; k++)
            floats[k] = (float)((at + k) % 251) / 64 - 2;
        convert(process_kernels(), n->values[i], dtype, floats, DDP_FLOAT32, counts[i]);
        n->k.gradient[i] = (struct kernel_gradient){
            .at = n->values[i], .count = counts[i], .dtype = dtype, .first = at % STEP};
        at += counts[i];
    }
}

/* --- squares ---------------------------------------------------------------------------------- */

START_TEST(each_value_belongs_to_one_thread_and_threads_take_turns)
{
    static struct net n;
    fill(&n, DDP_FLOAT32);
    uint64_t taken = 0, n_wrong = 0;
    for (int i = 0; i < N; i++)
        for (uint64_t k = 0; k < counts[i]; k++, taken++)
            for (uint64_t thread = 0; thread < STEP; thread++) {
                const uint64_t first = kernel_first_of(&n.k.gradient[i], thread, STEP);
                const bool takes = k >= first && (k - first) % STEP == 0;
                n_wrong += takes != (thread == taken % STEP);
            }
    ck_assert_uint_eq(n_wrong, 0);
}
END_TEST

START_TEST(sums_of_squares_equal_those_on_cpus)
{
    static struct net n;
    double sum = 0, want = 0;
    fill(&n, types[_i]);
    for (int i = 0; i < N; i++)
        want += convert_sum_of_squares(n.values[i], types[_i], counts[i]);
    for (uint64_t thread = 0; thread < STEP; thread++)
        sum = kernel_plus(sum, kernel_lane_squares(&n.k, thread, STEP));
    ck_assert(want > 1000 && fabs(sum - want) <= want * 1e-14);
}
END_TEST

START_TEST(the_partial_sums_of_all_blocks_are_added_up)
{
    static struct net n;
    double sum = 0;
    fill(&n, DDP_FLOAT32);
    for (int b = 0; b < KERNEL_CLIP_BLOCKS; b++)
        n.part[b] = b + 1;
    for (uint32_t thread = 0; thread < KERNEL_LANES; thread++)
        sum += kernel_lane_parts(&n.k, thread);
    ck_assert(sum == KERNEL_CLIP_BLOCKS * (KERNEL_CLIP_BLOCKS + 1) / 2);
}
END_TEST

/* --- the factor ------------------------------------------------------------------------------- */

static double factor_of(double max_norm, double sum, double *ret_norm)
{
    double factor = -1;
    const struct kernel_clip k = {.max_norm = max_norm, .norm = ret_norm, .factor = &factor};
    kernel_find_factor(&k, sum);
    return factor;
}

START_TEST(the_factor_equals_that_of_ddp_model_clip)
{
    double norm;
    ck_assert(factor_of(1, 25, &norm) == 1 / (5 + 1e-6) && norm == 5);
    ck_assert(factor_of(5, 25, &norm) == 5 / (5 + 1e-6));
    ck_assert(factor_of(6, 25, &norm) == 1 && norm == 5);
    ck_assert(factor_of(1, 0, &norm) == 1 && norm == 0);
    ck_assert(factor_of(1e-7, 0, &norm) == 1e-7 / 1e-6);
    ck_assert(factor_of(1, INFINITY, &norm) == 1 && isinf(norm));
    ck_assert(factor_of(1, NAN, &norm) == 1 && isnan(norm));
}
END_TEST

/* --- scaling ---------------------------------------------------------------------------------- */

START_TEST(values_are_scaled_to_the_same_bits_as_on_cpus)
{
    static const double factors[] = {1.0 / 3, 0x1p-9, 1};
    static struct net n, want;
    fill(&n, types[_i % N_TYPES]);
    fill(&want, types[_i % N_TYPES]);
    n.factor = factors[_i / N_TYPES];
    for (int i = 0; i < N; i++)
        convert_scale(process_kernels(), want.values[i], types[_i % N_TYPES], counts[i], n.factor);
    for (uint64_t thread = 0; thread < STEP; thread++)
        kernel_lane_scale(&n.k, thread, STEP);
    ck_assert_int_eq(memcmp(n.values, want.values, sizeof n.values), 0);
}
END_TEST

TEST_SUITE(kernel_clip)
{
    Suite *s = suite_create("kernel_clip");
    TCase *t = tcase_create("values");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, each_value_belongs_to_one_thread_and_threads_take_turns);
    tcase_add_loop_test(t, sums_of_squares_equal_those_on_cpus, 0, N_TYPES);
    tcase_add_test(t, the_partial_sums_of_all_blocks_are_added_up);
    tcase_add_test(t, the_factor_equals_that_of_ddp_model_clip);
    tcase_add_loop_test(t, values_are_scaled_to_the_same_bits_as_on_cpus, 0, 3 * N_TYPES);
    suite_add_tcase(s, t);
    return s;
}
