/* reduce_avx2.c - the kernels for 32-byte registers; compiled with -mavx2 -mf16c and called only
 * where reduce_choose() found both. */
#include <immintrin.h>

#define VECTOR_BYTES 32
#define KERNELS      reduce_avx2
#define KERNELS_NAME "avx2"
#define LOAD_F16(p)  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define STORE_F16(p, x)                                                                            \
    _mm_storeu_si128((__m128i *)(p), _mm256_cvtps_ph((__m256)(x), _MM_FROUND_TO_NEAREST_INT))
#include "reduce_vectors.inc"
