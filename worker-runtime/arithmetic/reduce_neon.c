/* reduce_neon.c - the kernels for the 16-byte registers that every aarch64 processor has. */
#include <arm_neon.h>

#define VECTOR_BYTES    16
#define KERNELS         reduce_neon
#define KERNELS_NAME    "neon"
#define LOAD_F16(p)     vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))
#define STORE_F16(p, x) vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)(x))))
#include "reduce_vectors.inc"
