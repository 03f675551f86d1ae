/* reduce_avx512.c - the kernels for 64-byte registers; compiled with -mavx512f and its companions,
 * and called only where reduce_choose() found them. */
#define VECTOR_BYTES 64
#define KERNELS      reduce_avx512
#define KERNELS_NAME "avx512"
#include "reduce_vectors.inc"
