/* gpu_half.h - what the kernels of a training with 16-bit floats compute, one thread's share each:
 * as gpu_layers.h, of which it is a part.
 *
 * The layers compute in `real`, and their values are rounded to 16 bits (amp.h). Gradients and
 * parameters that the ranks exchange are 16-bit floats in memory, if the policy has it so. */
#ifndef DDP_EXAMPLES_GPU_GPU_HALF_H
#define DDP_EXAMPLES_GPU_GPU_HALF_H

#include <string.h>

#include "gpu_layers.h"

enum gpu_half { GPU_REAL, GPU_FLOAT16, GPU_BFLOAT16 }; /* GPU_REAL: no rounding, no 16 bits */

/* Round to nearest, ties to even, by way of float32, as ddp_cast() does. */
GPU_FN float gpu_rounded_bfloat16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x == x) /* else a NaN, which stays one */
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    else
        bits |= 0x400000;
    bits &= 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

GPU_FN float gpu_rounded_float16(float x)
{
    const float size = fabsf(x);
    uint32_t bits;
    if (!(size < 65520)) /* rounds to 2^16, or is infinite or a NaN */
        return x == x ? copysignf(INFINITY, x) : x;
    if (size < 0x1p-14f) /* subnormal: a multiple of 2^-24 */
        return rintf(x * 0x1p24f) * 0x1p-24f;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~(uint32_t)0x1fff;
    memcpy(&x, &bits, sizeof x);
    return x;
}

GPU_FN real gpu_rounded(enum gpu_half half, real x)
{
    return half == GPU_FLOAT16    ? (real)gpu_rounded_float16((float)x)
           : half == GPU_BFLOAT16 ? (real)gpu_rounded_bfloat16((float)x)
                                  : x;
}

/* The bits of a value that is one of the type's. */
GPU_FN uint16_t gpu_bits_of(enum gpu_half half, real rounded)
{
    const float x = (float)rounded, size = fabsf(x);
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (half == GPU_BFLOAT16)
        return (uint16_t)(bits >> 16);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (!(size < 65520))
        return (uint16_t)(sign | (x == x ? 0x7c00 : 0x7e00));
    if (size < 0x1p-14f)
        return (uint16_t)(sign | (uint16_t)(size * 0x1p24f));
    return (uint16_t)(sign | ((bits & 0x7fffffff) - (112u << 23)) >> 13);
}

GPU_FN real gpu_value_of(enum gpu_half half, uint16_t h)
{
    const uint32_t exponent = h >> 10 & 0x1f, mantissa = h & 0x3ff;
    uint32_t bits = (uint32_t)(h & 0x8000) << 16;
    float x;
    if (half == GPU_BFLOAT16)
        bits = (uint32_t)h << 16;
    else if (exponent == 0x1f)
        bits |= 0x7f800000 | mantissa << 13;
    else if (exponent > 0)
        bits |= (exponent + 112) << 23 | mantissa << 13;
    memcpy(&x, &bits, sizeof x);
    if (half == GPU_FLOAT16 && exponent == 0)
        x = copysignf((float)mantissa * 0x1p-24f, x);
    return (real)x;
}

/* --- a thread for each number --- */

struct gpu_round { /* in place */
    unsigned n;
    enum gpu_half half;
    real *at;
};

GPU_FN void gpu_round_at(const struct gpu_round *k, unsigned i)
{
    k->at[i] = gpu_rounded(k->half, k->at[i]);
}

struct gpu_give { /* a gradient, in the type in which it travels */
    unsigned n;
    enum gpu_half half;
    const real *from;
    void *to; /* real or uint16_t */
};

GPU_FN void gpu_give_at(const struct gpu_give *k, unsigned i)
{
    if (k->half == GPU_REAL)
        ((real *)k->to)[i] = k->from[i];
    else
        ((uint16_t *)k->to)[i] = gpu_bits_of(k->half, gpu_rounded(k->half, k->from[i]));
}

struct gpu_master { /* the optimizer's step, of masters */
    unsigned n;
    enum gpu_half half; /* of grad */
    real lr, momentum, inverse;
    const void *grad; /* the average, times the loss scale */
    real *velocity, *master;
};

GPU_FN void gpu_master_at(const struct gpu_master *k, unsigned i)
{
    const real grad = k->half == GPU_REAL ? ((const real *)k->grad)[i]
                                          : gpu_value_of(k->half, ((const uint16_t *)k->grad)[i]);
    k->velocity[i] = k->momentum * k->velocity[i] + grad * k->inverse;
    k->master[i] -= k->lr * k->velocity[i];
}

struct gpu_show { /* masters, as the other ranks and the layers see them */
    unsigned n;
    enum gpu_half half;    /* of seen */
    enum gpu_half compute; /* of what layers multiply; GPU_REAL for a norm's */
    bool keeps_master;     /* else it is also rounded: nothing finer is kept */
    real *master;
    uint16_t *seen; /* NULL with GPU_REAL */
    real *param;
};

GPU_FN void gpu_show_at(const struct gpu_show *k, unsigned i)
{
    const real value = gpu_rounded(k->half, k->master[i]);
    if (k->half != GPU_REAL) {
        k->seen[i] = gpu_bits_of(k->half, value);
        if (!k->keeps_master)
            k->master[i] = value;
    }
    k->param[i] = k->half == GPU_REAL ? gpu_rounded(k->compute, value) : value;
}

#endif
