#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/arithmetic/half.h"
#include "worker-runtime/core/process.h"

#include <math.h>
#include <stdint.h>

enum { N = 3001 }; /* some blocks, and a rest */

static const enum ddp_dtype floats[] = {DDP_FLOAT32, DDP_FLOAT64, DDP_FLOAT16, DDP_BFLOAT16};
enum { N_FLOATS = sizeof(floats) / sizeof(floats[0]) };

/* Small integers: all types hold them. */
static void fill(void *values, enum ddp_dtype dtype)
{
    static double numbers[N];
    for (size_t i = 0; i < N; i++)
        numbers[i] = (double)(i % 101) - 50;
    if (dtype == DDP_FLOAT64)
        memcpy(values, numbers, sizeof(numbers));
    else
        convert(process_kernels(), values, dtype, numbers, DDP_FLOAT64, N);
}

static double number(size_t i)
{
    return (double)(i % 101) - 50;
}

START_TEST(values_that_both_types_can_hold_are_unchanged)
{
    static double from[N], to[N];
    const enum ddp_dtype a = floats[_i / N_FLOATS], b = floats[_i % N_FLOATS];
    if (a == b)
        return;
    fill(from, a);
    convert(process_kernels(), to, b, from, a, N);
    for (size_t i = 0; i < N; i++)
        ck_assert_double_eq(convert_get(to, b, i), number(i));
}
END_TEST

START_TEST(other_values_are_rounded_to_nearest_or_become_infinite)
{
    const float from[] = {1.0f + 0x1p-11f, 1.0f + 0x1.8p-10f, 1e6f, -1e6f, 65504.0f};
    uint16_t half[5], brain[5];
    convert(process_kernels(), half, DDP_FLOAT16, from, DDP_FLOAT32, 5);
    convert(process_kernels(), brain, DDP_BFLOAT16, from, DDP_FLOAT32, 5);
    ck_assert_double_eq(convert_get(half, DDP_FLOAT16, 0), 1.0); /* a tie goes to even */
    ck_assert_double_eq(convert_get(half, DDP_FLOAT16, 1), 1.0 + 0x1p-9);
    ck_assert_double_eq(convert_get(half, DDP_FLOAT16, 2), INFINITY);
    ck_assert_double_eq(convert_get(half, DDP_FLOAT16, 3), -INFINITY);
    ck_assert_double_eq(convert_get(half, DDP_FLOAT16, 4), 65504.0);
    ck_assert_double_eq(convert_get(brain, DDP_BFLOAT16, 2), 999424.0);
}
END_TEST

START_TEST(scaling_multiplies_each_value_once)
{
    static double values[N];
    const enum ddp_dtype dtype = floats[_i];
    fill(values, dtype);
    convert_scale(process_kernels(), values, dtype, N, 0.25);
    for (size_t i = 0; i < N; i++)
        ck_assert_double_eq(convert_get(values, dtype, i), number(i) * 0.25);
}
END_TEST

START_TEST(the_first_value_that_is_not_finite_is_found)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    static const size_t places[] = {0, 1, 1023, 1024, N - 1};
    static double values[N];
    const enum ddp_dtype dtype = floats[_i];
    const size_t size = ddp_dtype_size(dtype);
    fill(values, dtype);
    ck_assert_uint_eq(convert_find_nonfinite(values, dtype, N), N);
    ck_assert_uint_eq(convert_find_nonfinite(values, dtype, 0), 0);
    for (size_t k = 0; k < 15; k++) {
        const float single = (float)bad[k % 3];
        const size_t at = places[k / 3];
        fill(values, dtype);
        for (size_t j = at; j < N; j += N / 2) { /* the first of several */
            uint8_t *place = (uint8_t *)values + j * size;
            if (dtype == DDP_FLOAT32)
                memcpy(place, &single, size);
            else
                convert(process_kernels(), place, dtype, &single, DDP_FLOAT32, 1);
        }
        ck_assert_uint_eq(convert_find_nonfinite(values, dtype, N), at);
        ck_assert_uint_eq(convert_find_nonfinite(values, dtype, at),
                          at); /* it is not among these */
    }
}
END_TEST

START_TEST(squares_are_added_up)
{
    static double values[N];
    double sum = 0;
    fill(values, floats[_i]);
    for (size_t i = 0; i < N; i++)
        sum += number(i) * number(i);
    ck_assert_double_eq(convert_sum_of_squares(values, floats[_i], N),
                        sum); /* of integers: exact */
    ck_assert_double_eq(convert_sum_of_squares(values, floats[_i], 0), 0);
}
END_TEST

START_TEST(only_four_types_are_floats)
{
    for (int d = -1; d < 12; d++)
        ck_assert_int_eq(convert_is_float((enum ddp_dtype)d), d == 0 || d == 1 || d == 4 || d == 5);
}
END_TEST

TEST_SUITE(convert)
{
    Suite *s = suite_create("convert");
    TCase *t = tcase_create("convert");
    tcase_add_loop_test(t, values_that_both_types_can_hold_are_unchanged, 0, N_FLOATS * N_FLOATS);
    tcase_add_test(t, other_values_are_rounded_to_nearest_or_become_infinite);
    tcase_add_loop_test(t, scaling_multiplies_each_value_once, 0, N_FLOATS);
    tcase_add_loop_test(t, the_first_value_that_is_not_finite_is_found, 0, N_FLOATS);
    tcase_add_loop_test(t, squares_are_added_up, 0, N_FLOATS);
    tcase_add_test(t, only_four_types_are_floats);
    suite_add_tcase(s, t);
    return s;
}
