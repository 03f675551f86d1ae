/* test_int8_block.c - blocks of int8 with a scale each: the kernels of reduce.h. */
#include "tests/support/suite.h"
#include "worker-runtime/arithmetic/int8_block.h"
#include "worker-runtime/arithmetic/reduce.h"

#include <check.h>
#include <math.h>

enum { BLOCK = REDUCE_INT8_BLOCK, MOST = 1280, MOST_BLOCKS = MOST / BLOCK + 1 };

static const size_t lengths[] = {0, 1, 3, 7, 16, 17, 255, 256, 257, 300, 511, 512, 700, 1025, 1279};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

static const struct reduce_kernels *kernels_at(int i)
{
    static const char *const caps[] = {"scalar", "avx2", "avx512"};
    bool known;
    return reduce_choose(caps[i], &known);
}

/* Numbers of all sizes, and blocks with what is special. */
static void fill(float *values, size_t count, uint32_t seed)
{
    static const float special[] = {0.0f,   -0.0f, 1e-45f, 1e-30f, -1e-31f,  3e38f,
                                    -3e38f, 1.0f,  -1.0f,  NAN,    INFINITY, -INFINITY};
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        values[i] = ldexpf((float)(int32_t)seed, (int)(seed >> 8 & 7) - 32);
        const size_t block = i / BLOCK;
        if (block == 1 && (seed >> 16 & 3) == 0)
            values[i] = special[(seed >> 20) % 9];
        if (block == 3 && (seed >> 16 & 63) == 0)
            values[i] = special[(seed >> 20) % 12];
        if (block == 4)
            values[i] = special[(seed >> 20) % 4];
    }
}

struct coded {
    int8_t bytes[MOST + 1];
    float scales[MOST_BLOCKS + 1], rest[MOST + 1], back[MOST + 1];
};

static void code(const struct reduce_kernels *k, const float *values, size_t count,
                 struct coded *ret)
{
    memset(ret, 0x5a, sizeof *ret);
    memcpy(ret->rest, values, count * sizeof *values);
    k->to_int8(ret->bytes, ret->scales, ret->rest, count);
    k->from_int8(ret->back, ret->bytes, ret->scales, count, false);
}

START_TEST(every_kernel_gives_the_bits_of_the_reference)
{
    static struct coded got, expected;
    static float values[MOST + 1];
    const struct reduce_kernels *k = kernels_at(_i);
    for (uint32_t seed = 0; seed < 40; seed++)
        for (size_t l = 0; l < N_LENGTHS; l++) {
            fill(values + seed % 2, lengths[l], seed * 97 + (uint32_t)l);
            code(&reduce_scalar, values + seed % 2, lengths[l], &expected);
            code(k, values + seed % 2, lengths[l], &got);
            ck_assert_msg(memcmp(&got, &expected, sizeof got) == 0, "%s, %zu values, seed %u",
                          k->name, lengths[l], seed);
            k->from_int8(got.back, got.bytes, got.scales, lengths[l], true);
            reduce_scalar.from_int8(expected.back, expected.bytes, expected.scales, lengths[l],
                                    true);
            for (size_t i = 0; i < lengths[l]; i++)
                ck_assert_msg(memcmp(&got.back[i], &expected.back[i], sizeof(float)) == 0 ||
                                  (isnan(got.back[i]) && isnan(expected.back[i])),
                              "%s adds otherwise", k->name);
        }
}
END_TEST

START_TEST(a_value_comes_back_within_half_a_step_and_the_rest_is_what_is_missing)
{
    static struct coded c;
    static float values[MOST];
    for (size_t i = 0; i < MOST; i++)
        values[i] = sinf((float)i) * powf(10, (float)(i / BLOCK));
    code(&reduce_scalar, values, MOST, &c);
    for (size_t i = 0; i < MOST; i++) {
        const float scale = c.scales[i / BLOCK];
        float most = 0;
        for (size_t k = i / BLOCK * BLOCK; k < i / BLOCK * BLOCK + BLOCK; k++)
            most = fmaxf(most, fabsf(values[k]));
        ck_assert(scale == most / 127);
        ck_assert(fabsf(values[i] - c.back[i]) <= scale * 0.50001f);
        ck_assert(fabsf(values[i] - (c.back[i] + c.rest[i])) <= scale * 1e-5f);
    }
}
END_TEST

START_TEST(halves_round_to_even_and_the_largest_is_127)
{
    float values[] = {127, -127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.49f, 0};
    const int8_t expected[] = {127, -127, 0, 2, 2, 0, -2, 0, 0};
    int8_t bytes[9];
    float scale;
    reduce_scalar.to_int8(bytes, &scale, values, 9);
    ck_assert(scale == 1);
    ck_assert_int_eq(memcmp(bytes, expected, 9), 0);
    ck_assert(values[3] == -0.5f && values[7] == 0.49f && values[0] == 0);
}
END_TEST

START_TEST(what_is_too_small_is_kept_for_later)
{
    float values[] = {1e-31f, -1e-45f, 0};
    int8_t bytes[3];
    float scale;
    kernels_at(_i)->to_int8(bytes, &scale, values, 3);
    ck_assert(scale == 0 && bytes[0] == 0 && bytes[1] == 0);
    ck_assert(values[0] == 1e-31f && values[1] == -1e-45f);
}
END_TEST

START_TEST(a_value_that_is_not_finite_spoils_its_block_and_no_other)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static struct coded c;
    static float values[3 * BLOCK];
    for (size_t b = 0; b < 3; b++)
        for (size_t at = BLOCK; at < 2 * BLOCK; at += 37) {
            for (size_t i = 0; i < 3 * BLOCK; i++)
                values[i] = (float)(i % 7);
            values[at] = bad[b];
            code(kernels_at(_i), values, 3 * BLOCK, &c);
            for (size_t i = 0; i < 3 * BLOCK; i++)
                if (i / BLOCK == 1)
                    ck_assert(isnan(c.back[i]) && c.rest[i] == 0);
                else
                    ck_assert(fabsf(c.back[i] - (float)(i % 7)) < 0.03f);
        }
}
END_TEST

TEST_SUITE(int8_block)
{
    Suite *s = suite_create("int8_block");
    TCase *t = tcase_create("int8_block");
    tcase_add_loop_test(t, every_kernel_gives_the_bits_of_the_reference, 0, 3);
    tcase_add_test(t, a_value_comes_back_within_half_a_step_and_the_rest_is_what_is_missing);
    tcase_add_test(t, halves_round_to_even_and_the_largest_is_127);
    tcase_add_loop_test(t, what_is_too_small_is_kept_for_later, 0, 3);
    tcase_add_loop_test(t, a_value_that_is_not_finite_spoils_its_block_and_no_other, 0, 3);
    suite_add_tcase(s, t);
    return s;
}
