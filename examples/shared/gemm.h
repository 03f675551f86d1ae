/* gemm.h - the matrix product, on one thread.
 *
 * All matrices are row-major; the leading dimension is the distance of two rows in elements.
 * Allocates nothing. The inner kernel is plain C on the compiler's vector types, built for several
 * instruction sets; the first call selects the best one that the processor supports. */
#ifndef DDP_EXAMPLES_SHARED_GEMM_H
#define DDP_EXAMPLES_SHARED_GEMM_H

#include <stdbool.h>
#include <stddef.h>

#include "real.h"

struct gemm_matrix {
    const real *at;
    size_t ld;       /* leading dimension, as stored */
    bool transposed; /* the product takes the transpose of what is stored */
};

/* C = A B, or C += A B.
 *
 * m, n, k      C is m x n; A is m x k and B is k x n after transposition; 0 is allowed
 * accumulate   add to C instead of writing it
 * order        each element's k products are added in a fixed order: same inputs, same bits.
 * Another instruction set may round differently */
void gemm(size_t m, size_t n, size_t k, struct gemm_matrix a, struct gemm_matrix b, real *c,
          size_t ldc, bool accumulate);

/* Use this instruction set from now on: "avx512f", "avx2" or "baseline". For tests and comparisons.
 * returns   false, and nothing changes, if the processor lacks it or the name is unknown */
bool gemm_use(const char *isa);

#endif
