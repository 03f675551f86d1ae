/* test_gemm.c - the blocked product against three plain loops. */
#include "examples/shared/gemm.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>

/* Small whole numbers: every sum is exact, so that no tolerance is needed. */
static real *numbers(size_t n, unsigned seed)
{
    real *p = malloc((n + 1) * sizeof(real));

    ck_assert_ptr_nonnull(p);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (real)((int)(seed >> 24) % 17 - 8);
    }
    return p;
}

static real element(struct gemm_matrix m, size_t row, size_t column)
{
    return m.transposed ? m.at[column * m.ld + row] : m.at[row * m.ld + column];
}

/* Multiplies, compares every element, and checks that the memory around C did not change. */
static void compare(size_t m, size_t n, size_t k, bool a_transposed, bool b_transposed,
                    bool accumulate)
{
    const size_t beside = 3, ldc = n + beside;
    struct gemm_matrix a = {.ld = (a_transposed ? m : k) + 2, .transposed = a_transposed};
    struct gemm_matrix b = {.ld = (b_transposed ? k : n) + 1, .transposed = b_transposed};
    real *a_at = numbers(a.ld * (a_transposed ? k : m), 1);
    real *b_at = numbers(b.ld * (b_transposed ? n : k), 2);
    real *c = numbers(ldc * (m + 1), 3), *before = numbers(ldc * (m + 1), 3);

    a.at = a_at;
    b.at = b_at;
    gemm(m, n, k, a, b, c, ldc, accumulate);
    for (size_t i = 0; i < m + 1; i++) {
        for (size_t j = 0; j < ldc; j++) {
            real want = before[i * ldc + j];
            if (i < m && j < n) {
                want = accumulate ? want : 0;
                for (size_t p = 0; p < k; p++)
                    want += element(a, i, p) * element(b, p, j);
            }
            ck_assert_msg(
                c[i * ldc + j] == want,
                "%zu x %zu x %zu, transposed %d %d, accumulate %d: [%zu][%zu] is %g, not %g", m, n,
                k, a_transposed, b_transposed, accumulate, i, j, (double)c[i * ldc + j],
                (double)want);
        }
    }
    free(a_at);
    free(b_at);
    free(c);
    free(before);
}

static void compare_grid(void)
{
    static const size_t sides[] = {0, 1, 6, 15, 29, 65};
    static const size_t depths[] = {0, 1, 25, 193, 400};
    enum { N_SIDES = sizeof(sides) / sizeof(*sides), N_DEPTHS = sizeof(depths) / sizeof(*depths) };

    for (size_t i = 0; i < N_SIDES; i++)
        for (size_t j = 0; j < N_SIDES; j++)
            for (size_t p = 0; p < N_DEPTHS; p++)
                for (int flags = 0; flags < 8; flags++)
                    compare(sides[i], sides[j], depths[p], flags & 1, flags & 2, flags & 4);
}

START_TEST(the_default_kernel_equals_the_plain_loops)
{
    compare(196, 32, 400, false, false, true); /* the second layer's products, forward and back */
    compare(400, 32, 196, true, false, true);
    compare(196, 400, 32, false, true, false);
}
END_TEST

START_TEST(every_kernel_of_this_processor_equals_the_plain_loops)
{
    static const char *const names[] = {"baseline", "avx2", "avx512f"};

    ck_assert(gemm_use("baseline"));
    for (int i = 0; i < 3; i++)
        if (gemm_use(names[i]))
            compare_grid();
}
END_TEST

START_TEST(an_unknown_instruction_set_is_refused)
{
    ck_assert(!gemm_use("mmx"));
    compare(14, 32, 100, false, false, false);
}
END_TEST

TEST_SUITE(gemm)
{
    Suite *suite = suite_create("gemm");
    TCase *tests = tcase_create("gemm");

    tcase_set_timeout(tests, 100);
    tcase_add_test(tests, the_default_kernel_equals_the_plain_loops);
    tcase_add_test(tests, every_kernel_of_this_processor_equals_the_plain_loops);
    tcase_add_test(tests, an_unknown_instruction_set_is_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
