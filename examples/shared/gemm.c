/* gemm.c - cut the product into tiles that fit the registers, and the inner dimension into
 * stretches that fit the first-level cache. */
#include "gemm.h"

#include <string.h>

enum {
    MAX_ROWS = 16, /* of a tile in any kernel */
    MAX_COLS = 128 / sizeof(real),
    STRETCH = 192, /* of the inner dimension: 192 x 128 bytes of B stay in the cache */
};

typedef void kernel_fn(size_t k, const real *a, size_t a_row, size_t a_col, const real *b,
                       size_t ldb, real *c, size_t ldc, bool accumulate);

struct kernel {
    const char *isa;
    kernel_fn *run;
    size_t rows, cols; /* of a tile */
};

#define KERNEL_NAME kernel_baseline
#define KERNEL_TARGET
#define KERNEL_BYTES 16
#define KERNEL_ROWS  6
#include "gemm_kernel.inc"

#if defined(__x86_64__)
#define KERNEL_NAME   kernel_avx2
#define KERNEL_TARGET __attribute__((target("avx2,fma")))
#define KERNEL_BYTES  32
#define KERNEL_ROWS   6
#include "gemm_kernel.inc"

#define KERNEL_NAME   kernel_avx512f
#define KERNEL_TARGET __attribute__((target("avx512f,avx2,fma")))
#define KERNEL_BYTES  64
#define KERNEL_ROWS   14
#include "gemm_kernel.inc"
#endif

/* Best first. The last one runs everywhere. */
static const struct kernel kernels[] = {
#if defined(__x86_64__)
    {"avx512f", kernel_avx512f, 14, 2 * 64 / sizeof(real)},
    {"avx2", kernel_avx2, 6, 2 * 32 / sizeof(real)},
#endif
    {"baseline", kernel_baseline, 6, 2 * 16 / sizeof(real)},
};
enum { N_KERNELS = sizeof(kernels) / sizeof(kernels[0]) };

static const struct kernel *chosen; /* NULL before the first call */

static bool can_run(const struct kernel *kn)
{
#if defined(__x86_64__)
    if (kn->run == kernel_avx512f)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma");
    if (kn->run == kernel_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return kn == &kernels[N_KERNELS - 1];
}

static const struct kernel *best_kernel(void)
{
    const struct kernel *kn = kernels;

    while (!can_run(kn))
        kn++;
    return kn;
}

bool gemm_use(const char *isa)
{
    for (const struct kernel *kn = kernels; kn < kernels + N_KERNELS; kn++) {
        if (strcmp(kn->isa, isa) == 0 && can_run(kn)) {
            chosen = kn;
            return true;
        }
    }
    return false;
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Copy rows x cols elements of `from` into a full tile of zeros and numbers, cols_full wide. */
static void pack(const real *from, size_t row_step, size_t col_step, size_t rows, size_t cols,
                 size_t cols_full, real *to)
{
    for (size_t i = 0; i < rows; i++, to += cols_full) {
        for (size_t j = 0; j < cols; j++)
            to[j] = from[i * row_step + j * col_step];
        for (size_t j = cols; j < cols_full; j++)
            to[j] = 0;
    }
}

/* One tile that sticks out of C: compute it aside, keep what belongs to C. */
static void edge_tile(const struct kernel *kn, size_t rows, size_t cols, size_t k, const real *a,
                      size_t a_row, size_t a_col, const real *b, size_t ldb, real *c, size_t ldc,
                      bool accumulate)
{
    _Alignas(64) real tile[MAX_ROWS * MAX_COLS];
    _Alignas(64) real a_full[STRETCH * MAX_ROWS];

    if (rows < kn->rows) {
        pack(a, a_col, a_row, k, rows, kn->rows, a_full);
        a = a_full;
        a_row = 1;
        a_col = kn->rows;
    }
    kn->run(k, a, a_row, a_col, b, ldb, tile, kn->cols, false);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            c[i * ldc + j] = tile[i * kn->cols + j] + (accumulate ? c[i * ldc + j] : 0);
}

void gemm(size_t m, size_t n, size_t k, struct gemm_matrix a, struct gemm_matrix b, real *c,
          size_t ldc, bool accumulate)
{
    const struct kernel *kn = chosen = chosen != NULL ? chosen : best_kernel();
    size_t a_row = a.transposed ? 1 : a.ld, a_col = a.transposed ? a.ld : 1;
    size_t b_row = b.transposed ? 1 : b.ld, b_col = b.transposed ? b.ld : 1;
    _Alignas(64) real panel[STRETCH * MAX_COLS];

    if (k == 0 && !accumulate)
        for (size_t i = 0; i < m; i++)
            memset(c + i * ldc, 0, n * sizeof(real));
    for (size_t j = 0; j < n; j += kn->cols) {
        size_t cols = min_size(kn->cols, n - j);
        for (size_t p = 0; p < k; p += STRETCH) {
            size_t len = min_size(STRETCH, k - p);
            const real *bp = b.at + p * b_row + j * b_col;
            size_t ldb = b_row;
            if (cols < kn->cols || b.transposed) {
                pack(bp, b_row, b_col, len, cols, kn->cols, panel);
                bp = panel;
                ldb = kn->cols;
            }
            for (size_t i = 0; i < m; i += kn->rows) {
                size_t rows = min_size(kn->rows, m - i);
                const real *ap = a.at + i * a_row + p * a_col;
                real *ct = c + i * ldc + j;
                if (rows == kn->rows && cols == kn->cols)
                    kn->run(len, ap, a_row, a_col, bp, ldb, ct, ldc, accumulate || p > 0);
                else
                    edge_tile(kn, rows, cols, len, ap, a_row, a_col, bp, ldb, ct, ldc,
                              accumulate || p > 0);
            }
        }
    }
}
