/* Known answers: what is right is counted as right, and every wrong element is counted. */
#include "perf/perf_values.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1000, RANKS = 3 };

static const enum ddp_dtype all_dtypes[] = {DDP_FLOAT32, DDP_FLOAT64,  DDP_INT32, DDP_INT64,
                                            DDP_FLOAT16, DDP_BFLOAT16, DDP_INT8,  DDP_UINT8,
                                            DDP_UINT32,  DDP_UINT64};
enum { N_DTYPES = sizeof all_dtypes / sizeof *all_dtypes };

/* What a copying collective writes: block b of rank's `out`, from `from`'s `in`. */
static void copy_block(const struct perf_values *v, unsigned from, size_t first, void *out,
                       size_t block)
{
    const size_t size = ddp_dtype_size(v->dtype);
    uint8_t *in = malloc(RANKS * COUNT * size);
    perf_values_fill(v, from, in, RANKS * COUNT);
    memcpy((uint8_t *)out + block * COUNT * size, in + first * size, COUNT * size);
    free(in);
}

START_TEST(results_of_copies_are_correct)
{
    struct perf_values v = {.dtype = all_dtypes[_i], .n = RANKS, .root = 1};
    uint8_t *out = malloc(RANKS * COUNT * ddp_dtype_size(v.dtype));

    v.collective = PERF_BROADCAST;
    copy_block(&v, 1, 0, out, 0);
    ck_assert_uint_eq(perf_values_count_wrong(&v, 2, out, COUNT), 0);
    v.collective = PERF_SEND_RECV;
    copy_block(&v, 1, 0, out, 0);
    ck_assert_uint_eq(perf_values_count_wrong(&v, 2, out, COUNT), 0);
    v.collective = PERF_SCATTER;
    copy_block(&v, 1, 2 * COUNT, out, 0);
    ck_assert_uint_eq(perf_values_count_wrong(&v, 2, out, COUNT), 0);
    v.collective = PERF_ALL_GATHER;
    for (unsigned b = 0; b < RANKS; b++)
        copy_block(&v, b, 0, out, b);
    ck_assert_uint_eq(perf_values_count_wrong(&v, 0, out, COUNT), 0);
    v.collective = PERF_ALL_TO_ALL;
    for (unsigned b = 0; b < RANKS; b++)
        copy_block(&v, b, COUNT, out, b);
    ck_assert_uint_eq(perf_values_count_wrong(&v, 1, out, COUNT), 0);
    free(out);
}
END_TEST

START_TEST(each_wrong_element_is_counted)
{
    const struct perf_values v = {
        .collective = PERF_ALL_GATHER, .dtype = all_dtypes[_i], .n = RANKS};
    const size_t size = ddp_dtype_size(v.dtype);
    uint8_t *out = malloc(RANKS * COUNT * size);
    for (unsigned b = 0; b < RANKS; b++)
        copy_block(&v, b, 0, out, b);
    for (size_t i = 0; i < 7; i++) /* as if it came from the next element */
        memcpy(out + i * 97 * size, out + (i * 97 + 1) * size, size);
    ck_assert_uint_eq(perf_values_count_wrong(&v, 0, out, COUNT), 7);
    perf_values_spoil(&v, out, RANKS * COUNT);
    ck_assert_uint_eq(perf_values_count_wrong(&v, 0, out, COUNT), RANKS * COUNT);
    free(out);
}
END_TEST

START_TEST(blocks_in_the_wrong_order_are_counted)
{
    const struct perf_values v = {
        .collective = PERF_ALL_GATHER, .dtype = all_dtypes[_i], .n = RANKS};
    uint8_t *out = malloc(RANKS * COUNT * ddp_dtype_size(v.dtype));
    for (unsigned b = 0; b < RANKS; b++)
        copy_block(&v, RANKS - 1 - b, 0, out, b);
    ck_assert_uint_eq(perf_values_count_wrong(&v, 0, out, COUNT), 2 * COUNT);
    free(out);
}
END_TEST

START_TEST(reductions_of_floats_have_known_answers)
{
    const struct perf_values v = {
        .collective = PERF_ALL_REDUCE, .dtype = DDP_FLOAT32, .op = (enum ddp_op)_i, .n = RANKS};
    float in[RANKS][COUNT], out[COUNT];
    for (unsigned r = 0; r < RANKS; r++)
        perf_values_fill(&v, r, in[r], COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        const float a = in[0][i], b = in[1][i], c = in[2][i];
        const float least = a < b ? a : b, most = a > b ? a : b;
        const float answers[] = {[DDP_SUM] = a + b + c,
                                 [DDP_AVG] = a / 3 + b / 3 + c / 3,
                                 [DDP_MIN] = least < c ? least : c,
                                 [DDP_MAX] = most > c ? most : c,
                                 [DDP_PROD] = a * b * c};
        out[i] = answers[_i];
    }
    ck_assert_uint_eq(perf_values_count_wrong(&v, 0, out, COUNT), 0);
    out[0] = out[0] * 1.001f;
    out[COUNT - 1] = 0.0f / 0.0f;
    ck_assert_uint_eq(perf_values_count_wrong(&v, 0, out, COUNT), 2);
}
END_TEST

START_TEST(reductions_of_integers_wrap_around)
{
    const unsigned n = 100; /* whose sum does not fit */
    const struct perf_values v = {
        .collective = PERF_ALL_REDUCE, .dtype = DDP_INT8, .op = (enum ddp_op)_i, .n = n};
    int8_t out[COUNT] = {0};
    for (unsigned r = 0; r < n; r++) {
        int8_t in[COUNT];
        perf_values_fill(&v, r, in, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            const int8_t a = out[i], b = in[i];
            const int answers[] = {
                [DDP_SUM] = a + b,         [DDP_AVG] = a + b,  [DDP_MIN] = a < b ? a : b,
                [DDP_MAX] = a > b ? a : b, [DDP_PROD] = a * b, [DDP_BAND] = a & b,
                [DDP_BOR] = a | b};
            out[i] = r == 0 ? b : (int8_t)answers[_i];
        }
    }
    for (size_t i = 0; i < COUNT && v.op == DDP_AVG; i++)
        out[i] = (int8_t)(out[i] / (int)n);
    ck_assert_uint_eq(perf_values_count_wrong(&v, 0, out, COUNT), 0);
}
END_TEST

TEST_SUITE(perf_values)
{
    Suite *suite = suite_create("perf_values");
    TCase *tc = tcase_create("answers");
    tcase_add_loop_test(tc, results_of_copies_are_correct, 0, N_DTYPES);
    tcase_add_loop_test(tc, each_wrong_element_is_counted, 0, N_DTYPES);
    tcase_add_loop_test(tc, blocks_in_the_wrong_order_are_counted, 0, N_DTYPES);
    tcase_add_loop_test(tc, reductions_of_floats_have_known_answers, DDP_SUM, DDP_PROD + 1);
    tcase_add_loop_test(tc, reductions_of_integers_wrap_around, DDP_SUM, DDP_BOR + 1);
    suite_add_tcase(suite, tc);
    return suite;
}
