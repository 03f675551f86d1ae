/* exponential.h - exp() and tanh() that a compiler can make of whole vectors at a time; the C
 * library's take most of the time of a small network.
 *
 * Right to some units in the last place, which training does not notice. No infinities: what is too
 * large or small for a number is taken as the last that is not. */
#ifndef DDP_EXAMPLES_SHARED_EXPONENTIAL_H
#define DDP_EXAMPLES_SHARED_EXPONENTIAL_H

#include <stdint.h>

#include "real.h"

#ifdef REAL_DOUBLE
typedef uint64_t real_bits;
#define REAL_MANTISSA 52 /* bits */
#define REAL_BIAS     1023
#define REAL_MOST     ((real)700) /* exp() of it is a number, and of its negative not 0 */
#define REAL_TERMS    13          /* terms of the series; for r up to log(2) / 2 */
#else
typedef uint32_t real_bits;
#define REAL_MANTISSA 23
#define REAL_BIAS     127
#define REAL_MOST     ((real)87)
#define REAL_TERMS    7
#endif
#define REAL_LN2_HIGH ((real)0.693145751953125) /* few bits, so that k times it is exact */
#define REAL_LN2_LOW  ((real)1.42860682030941723212e-6)

union real_and_bits {
    real number;
    real_bits bits;
};

static inline real exponential(real x)
{
    /* adding this leaves a whole number in the lowest bits */
    const real big = (real)1.5 * (real)((real_bits)1 << REAL_MANTISSA);

    x = x > REAL_MOST ? REAL_MOST : x < -REAL_MOST ? -REAL_MOST : x;
    const union real_and_bits whole = {.number = x * (real)1.4426950408889634 + big};
    const real k = whole.number - big;
    const real r = x - k * REAL_LN2_HIGH - k * REAL_LN2_LOW;
    real series = 1;
    for (int i = REAL_TERMS; i > 0; i--)
        series = 1 + series * r * ((real)1 / (real)i);
    const union real_and_bits power = {.bits = (whole.bits + REAL_BIAS) << REAL_MANTISSA};
    return series * power.number;
}

static inline real hyperbolic_tangent(real x)
{
    return 1 - 2 / (exponential(2 * x) + 1);
}

#endif
