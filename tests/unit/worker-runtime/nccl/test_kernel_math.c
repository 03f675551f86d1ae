/* What kernels do to gradients, against what is done to them on CPUs: convert.c, by the processor's
 * own conversions where it has some. */
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/nccl/kernel_math.h"

#include <math.h>

enum { HALVES = 65536, AROUND = 5, N_FACTORS = 5 };

static const double factors[N_FACTORS] = {1, 0.25, 1.0 / 3, 65536, -0x1p-20};
static const uint32_t halves[] = {DDP_FLOAT16, DDP_BFLOAT16};

static struct kernel_pieces work(void *at, uint64_t count, uint32_t dtype, void *wire,
                                 uint32_t wire_dtype, double factor)
{
    return (struct kernel_pieces){.piece = {{at, count, 0}},
                                  .n = 1,
                                  .dtype = dtype,
                                  .wire_dtype = wire_dtype,
                                  .wire = wire,
                                  .factor = factor};
}

/* The number of values that are not finite. */
static size_t run(const struct kernel_pieces *k, bool is_pack)
{
    size_t n_bad = 0;
    for (uint64_t i = 0; i < k->piece[0].count; i++)
        n_bad += is_pack ? !kernel_pack(k, &k->piece[0], i) : !kernel_unpack(k, &k->piece[0], i);
    return n_bad;
}

static void scale(void *values, uint32_t dtype, size_t count, double factor)
{
    if (factor != 1)
        convert_scale(process_kernels(), values, (enum ddp_dtype)dtype, count, factor);
}

static size_t count_nonfinite(const void *values, uint32_t dtype, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += !isfinite(convert_get(values, (enum ddp_dtype)dtype, i));
    return n;
}

static void all_halves(uint16_t *ret)
{
    for (unsigned i = 0; i < HALVES; i++)
        ret[i] = (uint16_t)i;
}

/* float32s for which rounding decides: the widened 16-bit values, the midpoints between them, and
 * the floats next to both. */
static void around_halves(uint32_t dtype, float *ret)
{
    for (unsigned i = 0; i < HALVES; i++) {
        const uint16_t half = (uint16_t)i;
        uint32_t bits, middle = dtype == DDP_BFLOAT16 ? 0x8000 : 0x1000;
        float x;
        convert(process_kernels(), &x, DDP_FLOAT32, &half, (enum ddp_dtype)dtype, 1);
        memcpy(&bits, &x, sizeof bits);
        const uint32_t near[AROUND] = {bits, bits + 1, bits + middle - 1, bits + middle,
                                       bits + middle + 1};
        memcpy(ret + (size_t)i * AROUND, near, sizeof near);
    }
}

/* --- packing ---------------------------------------------------------------------------------- */

START_TEST(every_16_bit_value_widens_as_on_cpus)
{
    static uint16_t at[HALVES], want_at[HALVES];
    static float wire[HALVES], want[HALVES];
    const uint32_t dtype = halves[_i % 2];
    const double factor = factors[_i / 2];
    all_halves(at);
    all_halves(want_at);
    const struct kernel_pieces k = work(at, HALVES, dtype, wire, DDP_FLOAT32, factor);
    const size_t n_bad = count_nonfinite(at, dtype, HALVES);
    scale(want_at, dtype, HALVES, factor);
    convert(process_kernels(), want, DDP_FLOAT32, want_at, (enum ddp_dtype)dtype, HALVES);
    ck_assert_uint_eq(run(&k, true), n_bad);
    ck_assert_int_eq(memcmp(wire, want, sizeof want), 0);
}
END_TEST

START_TEST(every_16_bit_value_is_scaled_in_place_as_on_cpus)
{
    static uint16_t at[HALVES], want[HALVES];
    const uint32_t dtype = halves[_i % 2];
    const double factor = factors[_i / 2];
    all_halves(at);
    all_halves(want);
    const struct kernel_pieces k = work(at, HALVES, dtype, NULL, dtype, factor);
    scale(want, dtype, HALVES, factor);
    run(&k, true);
    ck_assert_int_eq(memcmp(at, want, sizeof want), 0);
    all_halves(at);
    ck_assert_uint_eq(run(&k, false), count_nonfinite(want, dtype, HALVES));
    ck_assert_int_eq(memcmp(at, want, sizeof want), 0);
}
END_TEST

START_TEST(float32_is_rounded_to_nearest_even_as_on_cpus)
{
    static float at[HALVES * AROUND], want_at[HALVES * AROUND];
    static uint16_t wire[HALVES * AROUND], want[HALVES * AROUND];
    const uint32_t dtype = halves[_i % 2];
    const double factor = factors[_i / 2];
    around_halves(dtype, at);
    memcpy(want_at, at, sizeof at);
    const struct kernel_pieces k = work(at, HALVES * AROUND, DDP_FLOAT32, wire, dtype, factor);
    scale(want_at, DDP_FLOAT32, HALVES * AROUND, factor);
    convert(process_kernels(), want, (enum ddp_dtype)dtype, want_at, DDP_FLOAT32, HALVES * AROUND);
    const size_t n_bad = count_nonfinite(at, DDP_FLOAT32, HALVES * AROUND);
    ck_assert_uint_eq(run(&k, true), n_bad);
    ck_assert_int_eq(memcmp(wire, want, sizeof want), 0);
}
END_TEST

/* --- unpacking -------------------------------------------------------------------------------- */

START_TEST(every_16_bit_value_is_read_from_the_wire_as_on_cpus)
{
    static uint16_t wire[HALVES];
    static double at[HALVES], want[HALVES]; /* enough for either type */
    const uint32_t wire_dtype = halves[_i % 2], dtype = _i / 2 % 2 ? DDP_FLOAT64 : DDP_FLOAT32;
    const double factor = factors[_i / 4];
    all_halves(wire);
    const struct kernel_pieces k = work(at, HALVES, dtype, wire, wire_dtype, factor);
    convert(process_kernels(), want, (enum ddp_dtype)dtype, wire, (enum ddp_dtype)wire_dtype,
            HALVES);
    scale(want, dtype, HALVES, factor);
    ck_assert_uint_eq(run(&k, false), count_nonfinite(want, dtype, HALVES));
    ck_assert_int_eq(memcmp(at, want, HALVES * ddp_dtype_size((enum ddp_dtype)dtype)), 0);
}
END_TEST

START_TEST(float32_is_read_from_the_wire_rounded_as_on_cpus)
{
    static float wire[HALVES * AROUND];
    static uint16_t at[HALVES * AROUND], want[HALVES * AROUND];
    const uint32_t dtype = halves[_i % 2];
    const double factor = factors[_i / 2];
    around_halves(dtype, wire);
    const struct kernel_pieces k = work(at, HALVES * AROUND, dtype, wire, DDP_FLOAT32, factor);
    convert(process_kernels(), want, (enum ddp_dtype)dtype, wire, DDP_FLOAT32, HALVES * AROUND);
    scale(want, dtype, HALVES * AROUND, factor);
    ck_assert_uint_eq(run(&k, false), count_nonfinite(want, dtype, HALVES * AROUND));
    ck_assert_int_eq(memcmp(at, want, sizeof want), 0);
}
END_TEST

/* --- float64 ---------------------------------------------------------------------------------- */

START_TEST(float64_is_converted_through_float32_as_on_cpus)
{
    static float floats[HALVES * AROUND];
    static double at[HALVES], want_at[HALVES];
    static uint16_t wire[HALVES], want[HALVES];
    const uint32_t dtype = halves[_i % 2];
    const double factor = factors[_i / 2];
    around_halves(dtype, floats);
    for (size_t i = 0; i < HALVES; i++) /* also between two float32s, and larger than all of them */
        at[i] = (double)floats[i * AROUND + i % AROUND] * (i % 7 == 0    ? 1 + 0x1p-30
                                                           : i % 11 == 0 ? 1e30
                                                                         : 1);
    memcpy(want_at, at, sizeof at);
    const struct kernel_pieces k = work(at, HALVES, DDP_FLOAT64, wire, dtype, factor);
    scale(want_at, DDP_FLOAT64, HALVES, factor);
    convert(process_kernels(), want, (enum ddp_dtype)dtype, want_at, DDP_FLOAT64, HALVES);
    const size_t n_bad = count_nonfinite(at, DDP_FLOAT64, HALVES);
    ck_assert_uint_eq(run(&k, true), n_bad);
    ck_assert_int_eq(memcmp(wire, want, sizeof want), 0);
}
END_TEST

/* --- onto a wire of the same type ------------------------------------------------------------- */

/* All bit patterns, including NaNs, there and back; after other values on the wire. */
START_TEST(unconverted_values_keep_their_bits)
{
    static const uint32_t dtypes[] = {DDP_FLOAT16, DDP_BFLOAT16, DDP_FLOAT32, DDP_FLOAT64};
    static double at[HALVES], wire[HALVES + 1], want[HALVES];
    const uint32_t dtype = dtypes[_i];
    const size_t size = ddp_dtype_size((enum ddp_dtype)dtype);
    for (unsigned i = 0; i < HALVES; i++) { /* the upper bits have each pattern, the lower most */
        const uint64_t bits = (uint64_t)i << (8 * size - 16) | (uint64_t)(i * 40503u) % 65521 * 3;
        memcpy((char *)at + i * size, &bits, size);
    }
    if (size == 2)
        all_halves((uint16_t *)(void *)at);
    memcpy(want, at, sizeof at);
    struct kernel_pieces k = work(at, HALVES, dtype, wire, dtype, 1);
    k.piece[0].first = 1;
    const size_t n_bad = count_nonfinite(at, dtype, HALVES);
    ck_assert_uint_eq(run(&k, true), n_bad);
    ck_assert_int_eq(memcmp((char *)wire + size, want, HALVES * size), 0);
    memset(at, 0, sizeof at);
    ck_assert_uint_eq(run(&k, false), n_bad);
    ck_assert_int_eq(memcmp(at, want, HALVES * size), 0);
    ck_assert_uint_gt(n_bad, 0);
}
END_TEST

START_TEST(an_empty_launch_writes_nothing)
{
    static const double values[3] = {1, INFINITY, 3};
    const struct kernel_pieces k = work((void *)values, 3, DDP_FLOAT64, NULL, DDP_FLOAT64, 1);
    ck_assert_uint_eq(run(&k, true), 1); /* they are in memory that cannot be written */
    ck_assert_uint_eq(run(&k, false), 1);
}
END_TEST

/* Pieces of all sizes, including empty ones, in a launch that is not the bucket's first. */
START_TEST(each_place_on_the_wire_is_found_in_its_piece)
{
    struct kernel_pieces k = {.n = KERNEL_PIECES};
    uint64_t first = 77;
    for (uint32_t i = 0; i < k.n; i++) {
        k.piece[i] = (struct kernel_piece){NULL, i % 3 == 1 ? 0 : i * i, first};
        first += k.piece[i].count;
    }
    ck_assert_uint_eq(kernel_count(&k), first - 77);
    for (uint64_t at = 77; at < first; at++) {
        const struct kernel_piece *p = &k.piece[kernel_find(&k, at)];
        ck_assert(p->first <= at && at < p->first + p->count);
    }
    k.n = 1;
    ck_assert_uint_eq(kernel_find(&k, 77), 0);
}
END_TEST

TEST_SUITE(kernel_math)
{
    Suite *s = suite_create("kernel_math");
    TCase *t = tcase_create("values");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, every_16_bit_value_widens_as_on_cpus, 0, 2 * N_FACTORS);
    tcase_add_loop_test(t, every_16_bit_value_is_scaled_in_place_as_on_cpus, 0, 2 * N_FACTORS);
    tcase_add_loop_test(t, float32_is_rounded_to_nearest_even_as_on_cpus, 0, 2 * N_FACTORS);
    tcase_add_loop_test(t, every_16_bit_value_is_read_from_the_wire_as_on_cpus, 0, 4 * N_FACTORS);
    tcase_add_loop_test(t, float32_is_read_from_the_wire_rounded_as_on_cpus, 0, 2 * N_FACTORS);
    tcase_add_loop_test(t, float64_is_converted_through_float32_as_on_cpus, 0, 2 * N_FACTORS);
    tcase_add_loop_test(t, unconverted_values_keep_their_bits, 0, 4);
    tcase_add_test(t, an_empty_launch_writes_nothing);
    tcase_add_test(t, each_place_on_the_wire_is_found_in_its_piece);
    suite_add_tcase(s, t);
    return s;
}
