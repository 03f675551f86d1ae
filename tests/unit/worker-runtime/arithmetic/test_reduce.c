#include "tests/support/suite.h"
#include "tests/unit/worker-runtime/values.h"
#include "worker-runtime/arithmetic/reduce.h"
#include "worker-runtime/arithmetic/slices.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

enum { MAX_IN = 9, MAX_COUNT = 700 };

static const size_t lengths[] = {0,  1,  2,  3,  7,  8,  15,  16,  17,
                                 31, 32, 33, 63, 64, 65, 127, 300, 699};

static const struct reduce_kernels *kernels_at(int i)
{
    static const char *const caps[] = {"scalar", "avx2", "avx512"};
    bool known;
    return reduce_choose(caps[i], &known);
}

/* Equal to the bit, except for NaNs: which NaN a sum returns is not specified. */
static bool same_f32(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

/* A buffer for each input and output; `skew` elements off the alignment of a cache line. */
static uint8_t pool[2 * MAX_IN][MAX_COUNT * 8 + 64] __attribute__((aligned(64)));

START_TEST(every_kernel_gives_the_same_bits_as_the_reference)
{
    const struct reduce_kernels *k = kernels_at(_i);
    for (int d = 0; d < REDUCE_N_DTYPES; d++) {
        for (int op = 0; op < REDUCE_N_OPS; op++) {
            if (!reduce_is_defined((enum ddp_dtype)d, (enum ddp_op)op))
                continue;
            for (unsigned n = 1; n <= MAX_IN; n += n < 3 ? 1 : 2) {
                for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
                    const size_t size = ddp_dtype_size((enum ddp_dtype)d), count = lengths[l];
                    const void *in[MAX_IN];
                    void *out[2];
                    for (unsigned r = 0; r < n; r++) {
                        in[r] = pool[r] + (r + l) % 3 * size;
                        values_fill((void *)in[r], (enum ddp_dtype)d, (uint32_t)l, (int)r, count);
                    }
                    for (unsigned o = 0; o < 2; o++) {
                        out[o] = pool[MAX_IN + o] + o * size;
                        memset(out[o], 0x5a, (count + 1) * size);
                    }
                    void *expected = values_reduced((enum ddp_dtype)d, (enum ddp_op)op, (uint32_t)l,
                                                    (int)n, count);
                    k->fn[d][op](in, n, out, 2, count);
                    for (unsigned o = 0; o < 2; o++) {
                        const uint8_t *behind = (uint8_t *)out[o] + count * size;
                        ck_assert_msg(memcmp(out[o], expected, count * size) == 0,
                                      "%s, type %d, op %d, %u ranks, %zu elements", k->name, d, op,
                                      n, count);
                        ck_assert_msg(behind[0] == 0x5a, "%s wrote behind the end", k->name);
                    }
                    free(expected);
                }
            }
        }
    }
}
END_TEST

START_TEST(an_output_may_be_one_of_the_inputs)
{
    const struct reduce_kernels *k = kernels_at(_i);
    for (unsigned which = 0; which < 3; which++) {
        const void *in[3];
        void *out[3];
        for (unsigned r = 0; r < 3; r++) {
            in[r] = out[r] = pool[r];
            values_fill(out[r], DDP_FLOAT32, 5, (int)r, 333);
        }
        void *expected = values_reduced(DDP_FLOAT32, DDP_AVG, 5, 3, 333);
        k->fn[DDP_FLOAT32][DDP_AVG](in, 3, &out[which], 1, 333);
        ck_assert_int_eq(memcmp(out[which], expected, 333 * 4), 0);
        free(expected);
    }
}
END_TEST

START_TEST(special_floats_give_the_documented_results)
{
    static const float special[] = {0.0f,      -0.0f, 1.0f,  -1.5f, INFINITY,
                                    -INFINITY, NAN,   3e38f, 1e-45f};
    enum { N = sizeof special / sizeof *special };
    const struct reduce_kernels *k = kernels_at(_i);
    float a[N * N], b[N * N], got[N * N], expected[N * N];
    const void *in[] = {a, b};
    void *out = got, *reference = expected;
    for (int i = 0; i < N * N; i++) {
        a[i] = special[i / N];
        b[i] = special[i % N];
    }
    for (int op = 0; op <= DDP_PROD; op++) {
        k->fn[DDP_FLOAT32][op](in, 2, &out, 1, N * N);
        reduce_scalar.fn[DDP_FLOAT32][op](in, 2, &reference, 1, N * N);
        ck_assert_msg(same_f32(got, expected, N * N), "%s, op %d", k->name, op);
        for (int i = 0; i < N * N; i++)
            if (isnan(a[i]) || isnan(b[i]))
                ck_assert_msg(isnan(got[i]), "%s, op %d lost a NaN", k->name, op);
    }
}
END_TEST

static void put_special(void *at, enum ddp_dtype dtype, float x)
{
    const double f64 = (double)x;
    const uint16_t f16 = half_to_f16(x), bf16 = half_to_bf16(x);
    if (dtype == DDP_FLOAT64)
        memcpy(at, &f64, sizeof f64);
    else if (dtype == DDP_FLOAT32)
        memcpy(at, &x, sizeof x);
    else
        memcpy(at, dtype == DDP_FLOAT16 ? &f16 : &bf16, sizeof f16);
}

/* Each length with a special number at each place in turn, of the second of two inputs: what comes
 * out is compared with the kernel that does not check, and what is found with what came out. */
START_TEST(checked_kernels_give_the_same_bits_and_find_nonfinite_values)
{
    static const float special[] = {1.0f, INFINITY, -INFINITY, NAN, 3e38f, 60000.0f, -0.0f};
    static const enum ddp_dtype floats[] = {DDP_FLOAT32, DDP_FLOAT64, DDP_FLOAT16, DDP_BFLOAT16};
    enum { N_SPECIAL = sizeof special / sizeof *special };
    const struct reduce_kernels *k = kernels_at(_i);
    unsigned n_found = 0, n_not = 0;
    for (int d = 0; d < 4; d++)
        for (int op = 0; op <= DDP_PROD; op++)
            for (size_t l = 1; l < sizeof lengths / sizeof *lengths; l++)
                for (size_t at = 0; at < lengths[l]; at += 1 + lengths[l] / 9) {
                    const enum ddp_dtype dtype = floats[d];
                    const size_t size = ddp_dtype_size(dtype), count = lengths[l];
                    const void *in[] = {pool[0], pool[1]};
                    void *out[] = {pool[2], pool[3]}, *plain = pool[4];
                    for (size_t i = 0; i < count; i++)
                        for (int r = 0; r < 2; r++)
                            put_special(pool[r] + i * size, dtype, (float)(i % 7) + 1);
                    put_special(pool[1] + at * size, dtype, special[(at + l) % N_SPECIAL]);
                    put_special(pool[0] + at * size, dtype, special[(at + l) % N_SPECIAL]);
                    const bool found = k->checked[dtype][op](in, 2, out, 2, count);
                    k->fn[dtype][op](in, 2, &plain, 1, count);
                    ck_assert_int_eq(memcmp(out[0], plain, count * size), 0);
                    ck_assert_int_eq(memcmp(out[1], plain, count * size), 0);
                    ck_assert_msg(found == !reduce_is_finite(dtype, plain, count),
                                  "%s, type %d, op %d, %zu elements, at %zu: %d", k->name, dtype,
                                  op, count, at, found);
                    found ? n_found++ : n_not++;
                }
    ck_assert_uint_gt(n_found, 100);
    ck_assert_uint_gt(n_not, 100);
}
END_TEST

START_TEST(finite_means_finite_in_math_h)
{
    static const float numbers[] = {0.0f, -0.0f, 1e-45f, 3.4e38f, -3.4e38f, 65504.0f, 65520.0f};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const double f64 = (double)numbers[i];
        const uint16_t f16 = half_to_f16(numbers[i]), bf16 = half_to_bf16(numbers[i]);
        ck_assert(reduce_is_finite(DDP_FLOAT32, &numbers[i], 1));
        ck_assert(reduce_is_finite(DDP_FLOAT64, &f64, 1));
        ck_assert_int_eq(reduce_is_finite(DDP_FLOAT16, &f16, 1), fabsf(numbers[i]) < 65520.0f);
        ck_assert_int_eq(reduce_is_finite(DDP_BFLOAT16, &bf16, 1),
                         isfinite(half_from_bf16(bf16)) != 0);
    }
    const float infinite[] = {1, -INFINITY}, nan[] = {NAN, 1};
    ck_assert(!reduce_is_finite(DDP_FLOAT32, infinite, 2));
    ck_assert(!reduce_is_finite(DDP_FLOAT32, nan, 2));
    ck_assert(reduce_is_finite(DDP_FLOAT32, infinite, 1));
    ck_assert(reduce_is_finite(DDP_INT32, infinite, 2));
}
END_TEST

START_TEST(an_average_of_integers_rounds_toward_zero)
{
    const struct reduce_kernels *k = kernels_at(_i);
    int32_t a[40], b[40], got[40];
    const void *in[] = {a, b};
    void *out = got;
    for (int i = 0; i < 40; i++) {
        a[i] = i - 20;
        b[i] = 1;
    }
    k->fn[DDP_INT32][DDP_AVG](in, 2, &out, 1, 40);
    for (int i = 0; i < 40; i++)
        ck_assert_int_eq(got[i], (i - 19) / 2);
}
END_TEST

/* Adds 0 to every bit pattern of a 16-bit float: the result equals the input, except for NaNs,
 * which become quiet. */
START_TEST(sixteen_bit_floats_survive_a_round_trip_through_float32)
{
    enum { N = 65536 };
    static uint16_t all[N], zero[N], got[N];
    const struct reduce_kernels *k = kernels_at(_i);
    const void *in[] = {all, zero};
    void *out = got;
    for (unsigned i = 0; i < N; i++)
        all[i] = (uint16_t)i;
    for (int d = DDP_FLOAT16; d <= DDP_BFLOAT16; d++) {
        const uint16_t infinite = d == DDP_FLOAT16 ? 0x7c00 : 0x7f80;
        const uint16_t quiet = d == DDP_FLOAT16 ? 0x200 : 0x40;
        k->fn[d][DDP_MAX](in, 1, &out, 1, N);
        for (unsigned i = 0; i < N; i++) {
            uint16_t expected = (uint16_t)((i & 0x7fff) > infinite ? i | quiet : i);
            ck_assert_msg(got[i] == expected, "%s, type %d: %#x became %#x", k->name, d, i, got[i]);
        }
    }
}
END_TEST

START_TEST(sixteen_bit_floats_are_rounded_once_to_nearest_ties_to_even)
{
    ck_assert_uint_eq(half_to_f16(65519.99f), 0x7bff);
    ck_assert_uint_eq(half_to_f16(65520.0f), 0x7c00); /* half-way to 2^16: even */
    ck_assert_uint_eq(half_to_f16(-1e9f), 0xfc00);
    ck_assert_uint_eq(half_to_f16(1.0f + 0x1p-11f), 0x3c00);
    ck_assert_uint_eq(half_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02);
    ck_assert_uint_eq(half_to_f16(0x1p-25f), 0); /* half of the least: even */
    ck_assert_uint_eq(half_to_f16(0x1.000002p-25f), 1);
    ck_assert_uint_eq(half_to_f16(0x1.ff8p-15f), 0x3ff);
    ck_assert_uint_eq(half_to_f16(0x1.ffcp-15f), 0x400); /* up to the least normal one */
    ck_assert_uint_eq(half_to_bf16(1.0f + 0x1p-8f), 0x3f80);
    ck_assert_uint_eq(half_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
    ck_assert_uint_eq(half_to_bf16(3.4e38f), 0x7f80);
    /* 1 + 2^-8 + 2^-8: rounded at each step it would stay 1 */
    const uint16_t one = 0x3f80, small = 0x3b80;
    const void *in[] = {&one, &small, &small};
    uint16_t got;
    void *out = &got;
    kernels_at(_i)->fn[DDP_BFLOAT16][DDP_SUM](in, 3, &out, 1, 1);
    ck_assert_uint_eq(got, 0x3f81);
}
END_TEST

START_TEST(averages_of_small_integers_work_with_more_ranks_than_they_can_count)
{
    enum { N = 300, COUNT = 300 };
    static int8_t input[COUNT];
    const struct reduce_kernels *k = kernels_at(_i);
    const void *in[N];
    int8_t got[COUNT];
    void *out = got;
    memset(input, 1, sizeof input);
    for (int r = 0; r < N; r++)
        in[r] = input;
    k->fn[DDP_INT8][DDP_AVG](in, N, &out, 1, COUNT);
    for (int i = 0; i < COUNT; i++)
        ck_assert_int_eq(got[i], (int8_t)N / N);
}
END_TEST

START_TEST(floats_have_no_bits_to_combine)
{
    ck_assert(!reduce_is_defined(DDP_FLOAT32, DDP_BAND));
    ck_assert(!reduce_is_defined(DDP_BFLOAT16, DDP_BOR));
    ck_assert(reduce_is_defined(DDP_UINT8, DDP_BOR));
    ck_assert(!reduce_is_defined((enum ddp_dtype)10, DDP_SUM));
    ck_assert(!reduce_is_defined(DDP_INT8, (enum ddp_op)7));
    for (int i = 0; i < 3; i++)
        for (int d = 0; d < REDUCE_N_DTYPES; d++)
            for (int op = 0; op < REDUCE_N_OPS; op++) {
                const struct reduce_kernels *k = kernels_at(i);
                const bool is_float =
                    d == DDP_FLOAT32 || d == DDP_FLOAT64 || d == DDP_FLOAT16 || d == DDP_BFLOAT16;
                ck_assert_int_eq(k->fn[d][op] != NULL,
                                 reduce_is_defined((enum ddp_dtype)d, (enum ddp_op)op));
                ck_assert_int_eq(k->checked[d][op] != NULL, is_float && k->fn[d][op] != NULL);
            }
}
END_TEST

START_TEST(a_cap_is_known_or_reported_as_unknown)
{
    bool known;
    ck_assert_ptr_eq(reduce_choose("scalar", &known), &reduce_scalar);
    ck_assert(known);
    reduce_choose(NULL, &known);
    ck_assert(known);
    reduce_choose("", &known);
    ck_assert(known);
    reduce_choose("sse9", &known);
    ck_assert(!known);
}
END_TEST

START_TEST(slices_cover_everything_once_and_end_at_cache_lines)
{
    for (size_t count = 0; count < 400; count += 13) {
        for (unsigned n = 1; n < 18; n++) {
            size_t next = 0;
            for (unsigned i = 0; i < n; i++) {
                struct slice s = slice_of(count, 4, i, n);
                ck_assert_uint_eq(s.first, next);
                ck_assert(s.first % 16 == 0 || s.count == 0);
                next += s.count;
            }
            ck_assert_uint_eq(next, count);
        }
    }
    struct slice last = slice_of(SIZE_MAX / 8, 8, 1023, 1024); /* no overflow on the way */
    ck_assert_uint_eq(last.first + last.count, SIZE_MAX / 8);
}
END_TEST

START_TEST(pieces_cover_everything_once)
{
    for (size_t count = 0; count < 50; count++) {
        size_t next = 0, i = 0;
        for (;; i++) {
            struct slice s = slice_piece(count, 7, i);
            ck_assert_uint_eq(s.first, next);
            ck_assert_uint_le(s.count, 7);
            next += s.count;
            if (s.count == 0)
                break;
        }
        ck_assert_uint_eq(next, count);
        ck_assert_uint_eq(slice_piece(count, 7, i + 1).count, 0);
    }
}
END_TEST

TEST_SUITE(reduce)
{
    Suite *suite = suite_create("reduce");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, every_kernel_gives_the_same_bits_as_the_reference, 0, 3);
    tcase_add_loop_test(tcase, an_output_may_be_one_of_the_inputs, 0, 3);
    tcase_add_loop_test(tcase, special_floats_give_the_documented_results, 0, 3);
    tcase_add_loop_test(tcase, checked_kernels_give_the_same_bits_and_find_nonfinite_values, 0, 3);
    tcase_add_test(tcase, finite_means_finite_in_math_h);
    tcase_add_loop_test(tcase, an_average_of_integers_rounds_toward_zero, 0, 3);
    tcase_add_loop_test(tcase, sixteen_bit_floats_survive_a_round_trip_through_float32, 0, 3);
    tcase_add_loop_test(tcase, sixteen_bit_floats_are_rounded_once_to_nearest_ties_to_even, 0, 3);
    tcase_add_loop_test(tcase, averages_of_small_integers_work_with_more_ranks_than_they_can_count,
                        0, 3);
    tcase_add_test(tcase, floats_have_no_bits_to_combine);
    tcase_add_test(tcase, a_cap_is_known_or_reported_as_unknown);
    tcase_add_test(tcase, slices_cover_everything_once_and_end_at_cache_lines);
    tcase_add_test(tcase, pieces_cover_everything_once);
    suite_add_tcase(suite, tcase);
    return suite;
}
