/* reduce_avx2.c - the kernels for 32-byte registers; compiled with -mavx2 and called only where
 * reduce_choose() found it. */
#define VECTOR_BYTES 32
#define KERNELS      reduce_avx2
#define KERNELS_NAME "avx2"
#include "reduce_vectors.inc"
