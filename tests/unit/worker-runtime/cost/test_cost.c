/* test_cost.c - the cost model: limits, the choice, and the steps of doubling. */
#include "tests/support/suite.h"
#include "worker-runtime/cost/cost.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct cost_network net = COST_NETWORK_DEFAULT;

/* `have` lists the vectors of each node, in their order in its memory. */
START_TEST(doubling_brings_the_vectors_of_all_nodes_to_all)
{
    const unsigned n = (unsigned)_i;
    unsigned *have = calloc((size_t)n * n, sizeof *have);
    for (unsigned node = 0; node < n; node++)
        have[node * n] = node;
    for (unsigned k = 0; k < cost_doubling_steps(n); k++) {
        for (unsigned node = 0; node < n; node++) {
            const struct cost_step s = cost_doubling_step(n, node, k);
            const struct cost_step theirs = cost_doubling_step(n, s.from, k);
            ck_assert_uint_eq(theirs.to, node); /* both list each other */
            ck_assert_uint_eq(theirs.n_more, s.n_more);
            ck_assert_uint_ne(s.from, node);
            ck_assert_uint_le(s.n_have + s.n_more, n);
            ck_assert_uint_le(s.n_more, s.n_have);
            memcpy(have + node * n + s.n_have, have + s.from * n, s.n_more * sizeof *have);
        }
    }
    for (unsigned node = 0; node < n; node++)
        for (unsigned i = 0; i < n; i++)
            ck_assert_uint_eq(have[node * n + i], (node + i) % n);
    free(have);
}
END_TEST

/* Block b of node i is for node i - b at first; at the end, of node i + b for node i. A block is
 * numbered by where it is from and where it goes. */
START_TEST(passing_brings_the_parts_of_all_nodes_to_their_nodes)
{
    const unsigned n = (unsigned)_i;
    unsigned *at = calloc((size_t)n * n, sizeof *at), *next = calloc((size_t)n * n, sizeof *at);
    for (unsigned node = 0; node < n; node++)
        for (unsigned b = 0; b < n; b++)
            at[node * n + b] = node * n + (node + n - b) % n;
    for (unsigned k = 0; k < cost_doubling_steps(n); k++) {
        memcpy(next, at, (size_t)n * n * sizeof *at);
        for (unsigned node = 0; node < n; node++) {
            const unsigned from = cost_doubling_step(n, node, k).from;
            unsigned passed = 0;
            for (unsigned b = 0; b < n; b++)
                if ((b >> k) % 2 == 1 && ++passed > 0)
                    next[node * n + b] = at[from * n + b];
            ck_assert_uint_eq(passed, cost_passed_blocks(n, k));
            ck_assert_uint_le(2 * passed, n); /* as much as the area holds */
        }
        memcpy(at, next, (size_t)n * n * sizeof *at);
    }
    for (unsigned node = 0; node < n; node++)
        for (unsigned b = 0; b < n; b++)
            ck_assert_uint_eq(at[node * n + b], (node + b) % n * n + node);
    free(at);
    free(next);
}
END_TEST

/* The same formulas in floating point: no integer overflows at the limits. */
START_TEST(no_cost_overflows)
{
    static const unsigned nodes[] = {2, 3, 4, 1000, 4096, COST_NODES_MOST};
    const struct cost_network most = {UINT32_MAX, UINT32_MAX, 2000, 2000};
    for (unsigned i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        const double n = nodes[i], bytes = (double)(COST_MEMORY_MOST / nodes[i]);
        const double ns = (double)UINT32_MAX * 1000,
                     all = ns + (n - 1) * (ns + bytes * 2000) + n * bytes * 2000;
        const double got =
            (double)cost_of(COST_WHOLE, nodes[i], COST_MEMORY_MOST / nodes[i], &most);
        ck_assert(fabs(got - all) <= all / 1e6);
    }
    const double parts =
        2 * (10000e3 + 1048575.0 * 6500e3 + 200.0 * COST_BYTES_MOST) + 20.0 * COST_BYTES_MOST;
    ck_assert(fabs((double)cost_of(COST_PARTS, COST_NODES_MOST, COST_BYTES_MOST, &net) - parts) <=
              parts / 1e5);
}
END_TEST

START_TEST(the_cheapest_algorithm_is_chosen)
{
    for (unsigned n = 2; n <= 4096; n += n < 70 ? 1 : 61)
        for (size_t bytes = 0; bytes <= COST_BYTES_MOST; bytes = bytes * 3 / 2 + 1) {
            const enum cost_algo algo = cost_choose(n, bytes, &net);
            ck_assert(cost_fits_memory(algo, n, bytes));
            for (int other = COST_WHOLE; other <= COST_PARTS; other++)
                if (cost_fits_memory((enum cost_algo)other, n, bytes))
                    ck_assert_uint_le(cost_of(algo, n, bytes, &net),
                                      cost_of((enum cost_algo)other, n, bytes, &net));
        }
}
END_TEST

/* Each algorithm is chosen up to one size, or from one size on. */
START_TEST(algorithms_follow_each_other_as_vectors_get_longer)
{
    for (unsigned n = 2; n <= 4096; n = n * 5 / 4 + 1) {
        enum cost_algo last = COST_WHOLE;
        for (size_t bytes = 4; bytes <= COST_BYTES_MOST; bytes = bytes * 5 / 4) {
            const enum cost_algo algo = cost_choose(n, bytes, &net);
            ck_assert_int_ge(algo, last);
            last = algo;
        }
        ck_assert_int_eq(last, COST_PARTS);
    }
}
END_TEST

static const struct {
    unsigned n;
    size_t bytes;
    enum cost_algo algo;
} choices[] = {
    {3, 64 << 10, COST_WHOLE},
    {3, 256 << 10, COST_PARTS},
    {4, 64 << 10, COST_WHOLE},
    {4, 256 << 10, COST_PARTS},
    {8, 4, COST_WHOLE},
    {64, 4, COST_DOUBLING},
    {1024, 4, COST_DOUBLING},
    {4096, 4, COST_DOUBLING},
    {16, 64 << 10, COST_PASSING},
    {4096, 1 << 20, COST_PASSING},
    {4096, 64 << 20, COST_PARTS},
    {0, 4, COST_PARTS},
    {1, 4, COST_PARTS},
    {2, SIZE_MAX, COST_PARTS},
    {UINT32_MAX, 4, COST_PARTS},
    {4096, (32 << 20) + 1, COST_PARTS}, /* more memory than the limit */
};

START_TEST(the_choice_is_the_measured_one_and_safe_at_the_limits)
{
    ck_assert_int_eq(cost_choose(choices[_i].n, choices[_i].bytes, &net), choices[_i].algo);
}
END_TEST

TEST_SUITE(cost)
{
    Suite *suite = suite_create("cost");
    TCase *tcase = tcase_create("all");
    tcase_add_loop_test(tcase, doubling_brings_the_vectors_of_all_nodes_to_all, 1, 70);
    tcase_add_loop_test(tcase, passing_brings_the_parts_of_all_nodes_to_their_nodes, 1, 70);
    tcase_add_test(tcase, no_cost_overflows);
    tcase_add_test(tcase, the_cheapest_algorithm_is_chosen);
    tcase_add_test(tcase, algorithms_follow_each_other_as_vectors_get_longer);
    tcase_add_loop_test(tcase, the_choice_is_the_measured_one_and_safe_at_the_limits, 0,
                        sizeof choices / sizeof *choices);
    suite_add_tcase(suite, tcase);
    return suite;
}
