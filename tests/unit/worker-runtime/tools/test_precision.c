/* test_precision.c - conversions, levels, and parameters in two types. */
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/arithmetic/half.h"
#include "worker-runtime/arithmetic/reduce.h"

#include <math.h>

static const enum ddp_dtype halves[] = {DDP_FLOAT16, DDP_BFLOAT16};

static const struct reduce_kernels *kernels_at(int i)
{
    static const char *const caps[] = {"scalar", "avx2", "avx512"};
    bool known;
    return reduce_choose(caps[i], &known);
}

START_TEST(every_16_bit_value_survives_a_round_trip_through_float32)
{
    enum { N = 65536 };
    static uint16_t half[N], back[N];
    static float wide[N];
    const struct reduce_kernels *k = kernels_at(_i);
    for (int i = 0; i < N; i++)
        half[i] = (uint16_t)i;
    for (int d = 0; d < 2; d++) {
        k->widen[halves[d]](wide, half, N);
        k->narrow[halves[d]](back, wide, N);
        for (int i = 0; i < N; i++)
            ck_assert(back[i] == half[i] || isnan(wide[i]));
    }
}
END_TEST

START_TEST(every_kernel_rounds_as_the_reference_does)
{
    enum { N = 4099 };
    static float wide[N];
    static uint16_t half[N + 1], expected[N + 1];
    const struct reduce_kernels *k = kernels_at(_i);
    uint32_t bits = 12345;
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < N; i++) { /* all magnitudes, specials among them */
            bits = bits * 1664525 + 1013904223;
            const uint32_t of = i % 64 == 0 ? bits | 0x7f800000 : bits;
            memcpy(&wide[i], &of, sizeof of);
        }
        for (int d = 0; d < 2; d++) {
            const size_t count = (size_t)(N - round);
            half[count] = 0xabcd;
            k->narrow[halves[d]](half, wide, count);
            reduce_scalar.narrow[halves[d]](expected, wide, count);
            ck_assert_int_eq(memcmp(half, expected, count * sizeof *half), 0);
            ck_assert_uint_eq(half[count], 0xabcd);
        }
    }
}
END_TEST

START_TEST(a_cast_between_floats_rounds_and_anything_else_is_refused)
{
    const double from[] = {1.0 / 3, 1e10, -0.1};
    float to[3];
    double same[3];
    uint16_t half[3];
    ck_assert_int_eq(ddp_cast(to, DDP_FLOAT32, from, DDP_FLOAT64, 3), 0);
    ck_assert_float_eq(to[0], (float)(1.0 / 3));
    ck_assert_int_eq(ddp_cast(same, DDP_FLOAT64, from, DDP_FLOAT64, 3), 0);
    ck_assert_double_eq(same[0], 1.0 / 3);
    ck_assert_int_eq(ddp_cast(half, DDP_FLOAT16, to, DDP_FLOAT32, 3), 0);
    ck_assert_uint_eq(half[1], 0x7c00);
    ck_assert_int_eq(ddp_cast(NULL, DDP_FLOAT16, NULL, DDP_FLOAT32, 0), 0);
    ck_assert_int_eq(ddp_cast(NULL, DDP_FLOAT16, to, DDP_FLOAT32, 1), DDP_EINVAL);
    ck_assert_int_eq(ddp_cast(half, DDP_INT8, to, DDP_FLOAT32, 1), DDP_EINVAL);
    ck_assert_int_eq(ddp_cast(half, DDP_FLOAT16, to, (enum ddp_dtype)77, 1), DDP_EINVAL);
}
END_TEST

START_TEST(levels_equal_those_of_amp)
{
    struct ddp_precision p;
    struct ddp_scaler s;
    ck_assert_int_eq(ddp_precision_init(&p, DDP_O0, DDP_FLOAT16), 0);
    ck_assert(p.compute == DDP_FLOAT32 && p.param == DDP_FLOAT32 && !p.is_scaled);
    ddp_precision_scaler(&p, &s);
    ck_assert(s.scale == 1 && s.is_fixed);
    ck_assert_int_eq(ddp_precision_init(&p, DDP_O1, DDP_BFLOAT16), 0);
    ck_assert(p.compute == DDP_BFLOAT16 && p.param == DDP_FLOAT32 && p.is_scaled);
    ck_assert_int_eq(ddp_precision_init(&p, DDP_O2, DDP_FLOAT16), 0);
    ck_assert(p.param == DDP_FLOAT16 && p.keep_norm_fp32 && p.master_weights && p.is_scaled);
    ddp_precision_scaler(&p, &s);
    ck_assert(s.scale == 65536 && !s.is_fixed && s.max_scale == 0x1p24f);
    ck_assert_int_eq(ddp_precision_init(&p, DDP_O3, DDP_FLOAT16), 0);
    ck_assert(p.param == DDP_FLOAT16 && !p.keep_norm_fp32 && !p.master_weights && !p.is_scaled);
    ck_assert_int_eq(ddp_precision_init(&p, (enum ddp_opt_level)4, DDP_FLOAT16), DDP_EINVAL);
    ck_assert_int_eq(ddp_precision_init(&p, DDP_O2, DDP_FLOAT32), DDP_EINVAL);
}
END_TEST

/* --- parameters in two types ------------------------------------------------------------------ */

static float weight[2], weight_grad[2], gamma_[1], gamma_grad[1];

static struct ddp_tensor masters[] = {
    {.name = "w", .param = weight, .grad = weight_grad, .count = 2, .dtype = DDP_FLOAT32},
    {.name = "gamma", .param = gamma_, .grad = gamma_grad, .count = 1, .dtype = DDP_FLOAT32},
};
static const bool is_norm[] = {false, true};

static struct ddp_mixed *mixed_at(enum ddp_opt_level level)
{
    struct ddp_precision p;
    struct ddp_mixed *x;
    weight[0] = 1 + 0x1p-14f; /* finer than a float16 */
    weight[1] = 2;
    gamma_[0] = 1 + 0x1p-20f;
    ck_assert_int_eq(ddp_precision_init(&p, level, DDP_FLOAT16), 0);
    ck_assert_int_eq(ddp_mixed_create(&p, masters, 2, is_norm, &x), 0);
    return x;
}

START_TEST(o2_gives_the_network_16_bits_and_keeps_float32_masters)
{
    struct ddp_mixed *x = mixed_at(DDP_O2);
    struct ddp_tensor *seen = ddp_mixed_tensors(x);
    ck_assert_int_eq(seen[0].dtype, DDP_FLOAT16);
    ck_assert_float_eq(half_from_f16(*(uint16_t *)seen[0].param), 1);
    ck_assert_ptr_eq(seen[1].param, gamma_); /* a norm layer's stays */
    ck_assert_float_eq(weight[0], 1 + 0x1p-14f);
    weight[0] += 0x1p-10f;
    ddp_mixed_give_params(x);
    ck_assert_float_eq(half_from_f16(*(uint16_t *)seen[0].param), 1 + 0x1p-10f);
    ddp_mixed_destroy(x);
}
END_TEST

START_TEST(o3_keeps_only_16_bits)
{
    struct ddp_mixed *x = mixed_at(DDP_O3);
    ck_assert_int_eq(ddp_mixed_tensors(x)[1].dtype, DDP_FLOAT16);
    ck_assert_float_eq(weight[0], 1);
    ck_assert_float_eq(gamma_[0], 1);
    ddp_mixed_destroy(x);
}
END_TEST

START_TEST(masters_get_unscaled_gradients)
{
    uint16_t half_grad[2] = {half_to_f16(512), half_to_f16(-3)};
    struct ddp_mixed *x = mixed_at(DDP_O2);
    struct ddp_scaler s;
    int found = 0;
    ck_assert_int_eq(ddp_scaler_init(&s, &(struct ddp_scaler_opts){.init_scale = 256}), 0);
    ck_assert_int_eq(ddp_mixed_take_gradients(x, &s, &found), DDP_EINVAL); /* none is there yet */
    ddp_mixed_tensors(x)[0].grad = half_grad;
    gamma_grad[0] = 128;
    ck_assert_int_eq(ddp_mixed_take_gradients(x, &s, &found), 0);
    ck_assert_int_eq(found, 0);
    ck_assert_float_eq(weight_grad[0], 2);
    ck_assert_float_eq(weight_grad[1], -3.0f / 256);
    ck_assert_float_eq(gamma_grad[0], 0.5f);
    half_grad[1] = 0x7c00;
    ck_assert_int_eq(ddp_mixed_take_gradients(x, &s, &found), 0);
    ck_assert_int_eq(found, 1);
    ddp_mixed_destroy(x);
}
END_TEST

START_TEST(tensors_that_cannot_be_masters_are_refused)
{
    struct ddp_precision p;
    struct ddp_mixed *x;
    uint16_t half[1] = {0};
    struct ddp_tensor t = {
        .name = "t", .param = half, .grad = half, .count = 1, .dtype = DDP_FLOAT16};
    ck_assert_int_eq(ddp_precision_init(&p, DDP_O2, DDP_FLOAT16), 0);
    ck_assert_int_eq(ddp_mixed_create(&p, &t, 1, NULL, &x), DDP_EINVAL);
    t = masters[0];
    t.grad = NULL;
    ck_assert_int_eq(ddp_mixed_create(&p, &t, 1, NULL, &x), DDP_EINVAL);
    ck_assert_int_eq(ddp_mixed_create(&p, NULL, 0, NULL, &x), DDP_EINVAL);
    ddp_mixed_destroy(NULL);
}
END_TEST

TEST_SUITE(precision)
{
    Suite *s = suite_create("precision");
    TCase *t = tcase_create("precision");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_16_bit_value_survives_a_round_trip_through_float32, 0, 3);
    tcase_add_loop_test(t, every_kernel_rounds_as_the_reference_does, 0, 3);
    tcase_add_test(t, a_cast_between_floats_rounds_and_anything_else_is_refused);
    tcase_add_test(t, levels_equal_those_of_amp);
    tcase_add_test(t, o2_gives_the_network_16_bits_and_keeps_float32_masters);
    tcase_add_test(t, o3_keeps_only_16_bits);
    tcase_add_test(t, masters_get_unscaled_gradients);
    tcase_add_test(t, tensors_that_cannot_be_masters_are_refused);
    suite_add_tcase(s, t);
    return s;
}
