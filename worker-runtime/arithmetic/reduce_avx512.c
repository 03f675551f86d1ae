/* reduce_avx512.c - the kernels for 64-byte registers; compiled with -mavx512f and its companions,
 * and called only where reduce_choose() found them. */
#include <immintrin.h>

#define VECTOR_BYTES 64
#define KERNELS      reduce_avx512
#define KERNELS_NAME "avx512"
#define LOAD_F16(p)  _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define STORE_F16(p, x)                                                                            \
    _mm256_storeu_si256((__m256i *)(p), _mm512_cvtps_ph((__m512)(x), _MM_FROUND_TO_NEAREST_INT))
#include "reduce_vectors.inc"
