/* int8_block.h - what a block of int8 with one scale is; see reduce.h. Pure.
 *
 * Rounding to nearest, ties to even, is an addition: 1.5 * 2^23 plus a number of at most 2^22
 * leaves the number, rounded, in the lowest bits. */
#ifndef DDP_WORKER_RUNTIME_ARITHMETIC_INT8_BLOCK_H
#define DDP_WORKER_RUNTIME_ARITHMETIC_INT8_BLOCK_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INT8_MAGNITUDE  0x7fffffffu /* of a float's bits: their order is that of the numbers */
#define INT8_INFINITE   0x7f800000u /* this and more: infinite, or a NaN */
#define INT8_LEAST      0x0d800000u /* 2^-100: below it the inverse of a scale would overflow */
#define INT8_ROUND      12582912.0f
#define INT8_ROUND_BITS 0x4b400000

struct int8_scale {
    float scale, inverse;
    bool is_usual; /* the block has values between 2^-100 and infinity */
};

static inline uint32_t int8_magnitude(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & INT8_MAGNITUDE;
}

/* max   of the magnitudes of a block */
static inline struct int8_scale int8_scale_of(uint32_t max)
{
    float x;
    memcpy(&x, &max, sizeof x);
    if (max >= INT8_INFINITE)
        return (struct int8_scale){.scale = NAN};
    if (max < INT8_LEAST)
        return (struct int8_scale){.scale = 0};
    return (struct int8_scale){.scale = x / 127, .inverse = 127 / x, .is_usual = true};
}

/* Zeros; what is too small is left for later, what is not finite goes, as a scale. */
static inline void int8_unusual(int8_t *to, float *values, size_t n, struct int8_scale s)
{
    memset(to, 0, n);
    if (s.scale != 0)
        memset(values, 0, n * sizeof *values);
}

static inline int8_t int8_one(float *value, struct int8_scale s)
{
    const float shifted = *value * s.inverse + INT8_ROUND;
    int32_t q;
    memcpy(&q, &shifted, sizeof q);
    q -= INT8_ROUND_BITS;
    *value = *value - (float)q * s.scale;
    return (int8_t)q;
}

#endif
