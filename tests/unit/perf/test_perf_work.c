/* How many bytes go in and come out of each collective. */
#include "perf/perf_work.h"
#include "tests/support/suite.h"

#include <check.h>

static struct perf_work work_of(enum perf_collective c, uint64_t bytes, unsigned rank, unsigned n)
{
    const struct perf_spec spec = {.collective = c, .dtype = DDP_FLOAT32, .root = 1};
    return perf_work_of(&spec, bytes, rank, n);
}

static void has(enum perf_collective c, unsigned rank, size_t count, size_t n_in, size_t n_out,
                size_t in_place)
{
    const struct perf_work w = work_of(c, 4000, rank, 4);
    ck_assert_uint_eq(w.count, count);
    ck_assert_uint_eq(w.n_in, n_in);
    ck_assert_uint_eq(w.n_out, n_out);
    ck_assert_uint_eq(w.in_place, in_place);
    ck_assert_uint_eq(w.bytes, 4000);
}

START_TEST(bytes_count_the_larger_buffer)
{
    has(PERF_ALL_REDUCE, 2, 1000, 1000, 1000, 0);
    has(PERF_REDUCE, 1, 1000, 1000, 1000, 0);
    has(PERF_REDUCE, 2, 1000, 1000, 0, 0);
    has(PERF_BROADCAST, 1, 1000, 1000, 1000, 0);
    has(PERF_BROADCAST, 2, 1000, 0, 1000, 0);
    has(PERF_REDUCE_SCATTER, 2, 250, 1000, 250, 500);
    has(PERF_ALL_GATHER, 3, 250, 250, 1000, 750);
    has(PERF_GATHER, 1, 250, 250, 1000, 250);
    has(PERF_GATHER, 2, 250, 250, 0, 0);
    has(PERF_SCATTER, 1, 250, 1000, 250, 250);
    has(PERF_SCATTER, 2, 250, 0, 250, 0);
    has(PERF_ALL_TO_ALL, 2, 250, 1000, 1000, 0);
    has(PERF_SEND_RECV, 2, 1000, 1000, 1000, 0);
}
END_TEST

START_TEST(elements_that_do_not_fit_are_left_out)
{
    const struct perf_work w = work_of(PERF_ALL_GATHER, 4007, 0, 3);
    ck_assert_uint_eq(w.count, 333);
    ck_assert_uint_eq(w.bytes, 333 * 3 * 4);
}
END_TEST

START_TEST(each_rank_has_at_least_one_element)
{
    const struct perf_work w = work_of(PERF_ALL_TO_ALL, 1, 0, 4);
    ck_assert_uint_eq(w.count, 1);
    ck_assert_uint_eq(w.bytes, 16);
}
END_TEST

START_TEST(a_barrier_has_no_bytes)
{
    const struct perf_work w = work_of(PERF_BARRIER, 4000, 0, 4);
    ck_assert_uint_eq(w.count, 0);
    ck_assert_uint_eq(w.bytes, 0);
    ck_assert(!w.is_in_place);
}
END_TEST

START_TEST(sizes_grow_by_factor_or_step_up_to_the_largest)
{
    struct perf_spec spec = {.max_bytes = 100, .factor = 4};
    ck_assert_uint_eq(perf_work_next(&spec, 4), 16);
    ck_assert_uint_eq(perf_work_next(&spec, 16), 64);
    ck_assert_uint_eq(perf_work_next(&spec, 64), 0);
    spec.step_bytes = 50;
    ck_assert_uint_eq(perf_work_next(&spec, 50), 100);
    ck_assert_uint_eq(perf_work_next(&spec, 100), 0);
    spec = (struct perf_spec){.max_bytes = PERF_MAX_BYTES, .factor = 1024};
    ck_assert_uint_eq(perf_work_next(&spec, PERF_MAX_BYTES), 0);
    spec.collective = PERF_BARRIER;
    ck_assert_uint_eq(perf_work_next(&spec, 1), 0);
}
END_TEST

START_TEST(short_calls_are_made_more_often)
{
    struct perf_spec spec = {0};
    ck_assert_uint_eq(perf_work_iterations(&spec, 0), 1000);
    ck_assert_uint_eq(perf_work_iterations(&spec, 4), 1000);
    ck_assert_uint_eq(perf_work_iterations(&spec, 1 << 20), 64);
    ck_assert_uint_eq(perf_work_iterations(&spec, 1 << 30), 20);
    spec.n_iterations = 3;
    ck_assert_uint_eq(perf_work_iterations(&spec, 4), 3);
}
END_TEST

START_TEST(bus_bandwidth_counts_the_moved_bytes)
{
    ck_assert_double_eq(perf_work_bus_factor(PERF_ALL_REDUCE, 4), 1.5);
    ck_assert_double_eq(perf_work_bus_factor(PERF_ALL_GATHER, 4), 0.75);
    ck_assert_double_eq(perf_work_bus_factor(PERF_BROADCAST, 4), 1);
    ck_assert_double_eq(perf_work_bus_factor(PERF_ALL_REDUCE, 1), 0);
    ck_assert_double_eq(perf_work_bus_factor(PERF_BARRIER, 4), 0);
}
END_TEST

TEST_SUITE(perf_work)
{
    Suite *suite = suite_create("perf_work");
    TCase *tc = tcase_create("sizes");
    tcase_add_test(tc, bytes_count_the_larger_buffer);
    tcase_add_test(tc, elements_that_do_not_fit_are_left_out);
    tcase_add_test(tc, each_rank_has_at_least_one_element);
    tcase_add_test(tc, a_barrier_has_no_bytes);
    tcase_add_test(tc, sizes_grow_by_factor_or_step_up_to_the_largest);
    tcase_add_test(tc, short_calls_are_made_more_often);
    tcase_add_test(tc, bus_bandwidth_counts_the_moved_bytes);
    suite_add_tcase(suite, tc);
    return suite;
}
