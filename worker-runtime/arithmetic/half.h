/* half.h - the 16-bit floats and float32, rounded to nearest, ties to even. Pure.
 *
 * The bits are those of the processors' own conversions: a NaN stays one, becomes quiet, and keeps
 * the upper bits of its payload. */
#ifndef DDP_WORKER_RUNTIME_ARITHMETIC_HALF_H
#define DDP_WORKER_RUNTIME_ARITHMETIC_HALF_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__ /* kernels also round by these */
#define HALF_FN static inline __host__ __device__
#else
#define HALF_FN static inline
#endif

HALF_FN uint32_t half_bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

HALF_FN float half_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* --- bfloat16: the upper half of a float32 ---------------------------------------------------- */

HALF_FN float half_from_bf16(uint16_t b)
{
    return half_float_of((uint32_t)b << 16);
}

HALF_FN uint16_t half_to_bf16(float x)
{
    uint32_t bits = half_bits_of(x);
    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* --- float16: 1 sign, 5 exponent (bias 15), 10 mantissa --------------------------------------- */

HALF_FN float half_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1f;
    const uint32_t mantissa = h & 0x3ff;
    if (exponent == 0x1f)
        return half_float_of(sign | 0x7f800000 | mantissa << 13 | (mantissa != 0 ? 0x400000 : 0));
    if (exponent != 0)
        return half_float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    /* subnormal, or 0: mantissa * 2^-24, which float32 holds exactly */
    float magnitude = (float)mantissa * 0x1p-24f;
    return half_float_of(sign | half_bits_of(magnitude));
}

/* `bits`, shifted right by 1 .. 31, to nearest, ties to even. */
HALF_FN uint32_t half_shift_rounded(uint32_t bits, unsigned by)
{
    return (bits + ((1u << (by - 1)) - 1) + (bits >> by & 1)) >> by;
}

HALF_FN uint16_t half_to_f16(float x)
{
    const uint32_t bits = half_bits_of(x), magnitude = bits & 0x7fffffff;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) /* rounds to 2^16 or is more */
        return sign | 0x7c00;
    if (magnitude >= 0x38800000) /* 2^-14: the exponent's bias changes by 112 */
        return (uint16_t)(sign | half_shift_rounded(magnitude - (112u << 23), 13));
    if (magnitude < 0x33000000) /* below 2^-25: rounds to 0 */
        return sign;
    const unsigned exponent = magnitude >> 23; /* subnormal: a multiple of 2^-24 */
    return (uint16_t)(sign | half_shift_rounded((magnitude & 0x7fffff) | 0x800000, 126 - exponent));
}

#endif
