/* kernel_math.h - what kernels do to gradients on their way to the wire and back, value by value.
 *
 * Compiled by nvcc for the device (kernels.cu), and by the C compiler for the tests, where the
 * double runs it in loops: what is tested is what runs. So rounding is the integer arithmetic of
 * half.h, and not a GPU's conversions, whose NaN is another one; and nothing is fused
 * (-fmad=false). The bits are those of the same steps on CPUs, model_average.c's. Pure. */
#ifndef DDP_WORKER_RUNTIME_NCCL_KERNEL_MATH_H
#define DDP_WORKER_RUNTIME_NCCL_KERNEL_MATH_H

#include "worker-runtime/arithmetic/finite.h"
#include "worker-runtime/arithmetic/half.h"

#include <ddp/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL_FN HALF_FN

enum {
    KERNEL_PIECES = 64, /* of one launch: its parameters are to stay below 4 KiB */
    KERNEL_LANES = 256, /* threads of a block, a power of 2: where it has a sum, they share it */
};

struct kernel_piece {
    void *at;       /* `count` values of the gradients' type */
    uint64_t count; /* elements */
    uint64_t first; /* its place on the wire, in elements */
};

struct kernel_pieces { /* what a kernel is given, by value */
    struct kernel_piece piece[KERNEL_PIECES];
    uint32_t n;
    uint32_t dtype;      /* type of the pieces: enum ddp_dtype, a floating-point one */
    uint32_t wire_dtype; /* and of the wire: a 16-bit one, or float32; or the same, and the factor
                            is 1: bits are copied */
    void *wire;          /* NULL: values are changed where they are */
    double factor; /* rounded to float32 for all types but float64; 1: nothing is multiplied */
    uint32_t *found_inf; /* becomes 1 if a value is not finite; NULL: not wanted */
};

enum { KERNEL_TILE = 2048 }; /* values that a block takes at a time */

/* The number of values in all pieces of a launch; the pieces lie on the wire one after the
 * other. */
KERNEL_FN uint64_t kernel_count(const struct kernel_pieces *k)
{
    const struct kernel_piece *last = &k->piece[k->n - 1];
    return last->first + last->count - k->piece[0].first;
}

/* The piece that has the value at that place on the wire; it is there. */
KERNEL_FN uint32_t kernel_find(const struct kernel_pieces *k, uint64_t at)
{
    uint32_t low = 0, high = k->n; /* low begins there or before, high after it */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (k->piece[middle].first <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A value of a type that float32 holds. */
KERNEL_FN float kernel_get(const void *at, uint32_t dtype, uint64_t i)
{
    if (dtype == DDP_FLOAT16)
        return half_from_f16(((const uint16_t *)at)[i]);
    if (dtype == DDP_BFLOAT16)
        return half_from_bf16(((const uint16_t *)at)[i]);
    return ((const float *)at)[i];
}

KERNEL_FN void kernel_set(void *at, uint32_t dtype, uint64_t i, float x)
{
    if (dtype == DDP_FLOAT16)
        ((uint16_t *)at)[i] = half_to_f16(x);
    else if (dtype == DDP_BFLOAT16)
        ((uint16_t *)at)[i] = half_to_bf16(x);
    else
        ((float *)at)[i] = x;
}

/* The value as its type would hold it. */
KERNEL_FN float kernel_round(uint32_t dtype, float x)
{
    if (dtype == DDP_FLOAT16)
        return half_from_f16(half_to_f16(x));
    return dtype == DDP_BFLOAT16 ? half_from_bf16(half_to_bf16(x)) : x;
}

/* A value's bits, in the low ones. */
KERNEL_FN uint64_t kernel_load(const void *at, uint32_t dtype, uint64_t i)
{
    if (dtype == DDP_FLOAT64)
        return ((const uint64_t *)at)[i];
    return dtype == DDP_FLOAT32 ? ((const uint32_t *)at)[i] : ((const uint16_t *)at)[i];
}

KERNEL_FN void kernel_store(void *at, uint32_t dtype, uint64_t i, uint64_t bits)
{
    if (dtype == DDP_FLOAT64)
        ((uint64_t *)at)[i] = bits;
    else if (dtype == DDP_FLOAT32)
        ((uint32_t *)at)[i] = (uint32_t)bits;
    else
        ((uint16_t *)at)[i] = (uint16_t)bits;
}

KERNEL_FN double kernel_wide_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

KERNEL_FN uint64_t kernel_bits_of_wide(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The same for a type that float32 holds. */
KERNEL_FN float kernel_float_of(uint32_t dtype, uint64_t bits)
{
    if (dtype == DDP_FLOAT16)
        return half_from_f16((uint16_t)bits);
    return dtype == DDP_BFLOAT16 ? half_from_bf16((uint16_t)bits) : half_float_of((uint32_t)bits);
}

KERNEL_FN uint64_t kernel_bits_of(uint32_t dtype, float x)
{
    if (dtype == DDP_FLOAT16)
        return half_to_f16(x);
    return dtype == DDP_BFLOAT16 ? half_to_bf16(x) : half_bits_of(x);
}

KERNEL_FN bool kernel_is_finite(uint32_t dtype, uint64_t bits)
{
    return dtype == DDP_FLOAT64 ? finite_f64(kernel_wide_of(bits))
                                : finite_f32(kernel_float_of(dtype, bits));
}

/* A value as it is, even a NaN. */
KERNEL_FN bool kernel_only_moves(const struct kernel_pieces *k)
{
    return k->wire != NULL && k->wire_dtype == k->dtype;
}

/* --- a value's way, in three steps, so that a thread can read several before it writes one --- */

/* Read the i-th gradient of a piece, or, on the way back, what the wire has of it. */
KERNEL_FN uint64_t kernel_take(const struct kernel_pieces *k, const struct kernel_piece *p,
                               uint64_t i, bool is_back)
{
    return is_back && k->wire != NULL ? kernel_load(k->wire, k->wire_dtype, p->first + i)
                                      : kernel_load(p->at, k->dtype, i);
}

/* Of such a value: the gradient times the factor, as the wire holds it.
 * ret_ok   whether it was finite before */
KERNEL_FN uint64_t kernel_to_wire(const struct kernel_pieces *k, uint64_t bits, bool *ret_ok)
{
    *ret_ok = kernel_is_finite(k->dtype, bits);
    if (kernel_only_moves(k))
        return bits;
    if (k->dtype == DDP_FLOAT64) {
        const double x = kernel_wide_of(bits), y = k->factor != 1 ? x * k->factor : x;
        return k->wire != NULL ? kernel_bits_of(k->wire_dtype, (float)y) : kernel_bits_of_wide(y);
    }
    const float x = kernel_float_of(k->dtype, bits);
    const float y = k->factor != 1 ? kernel_round(k->dtype, x * (float)k->factor) : x;
    return kernel_bits_of(k->wire != NULL ? k->wire_dtype : k->dtype, y);
}

/* And back: as the gradient's type holds it, times the factor.
 * ret_ok   whether it is finite now */
KERNEL_FN uint64_t kernel_from_wire(const struct kernel_pieces *k, uint64_t bits, bool *ret_ok)
{
    uint64_t made = bits;
    if (!kernel_only_moves(k) && k->dtype == DDP_FLOAT64) {
        const double x =
            k->wire != NULL ? (double)kernel_float_of(k->wire_dtype, bits) : kernel_wide_of(bits);
        made = kernel_bits_of_wide(k->factor != 1 ? x * k->factor : x);
    } else if (!kernel_only_moves(k)) {
        float x = k->wire != NULL ? kernel_round(k->dtype, kernel_float_of(k->wire_dtype, bits))
                                  : kernel_float_of(k->dtype, bits);
        if (k->factor != 1)
            x = kernel_round(k->dtype, x * (float)k->factor);
        made = kernel_bits_of(k->dtype, x);
    }
    *ret_ok = kernel_is_finite(k->dtype, made);
    return made;
}

/* Write it, where there is anything to be written: of values that are looked at only nothing is. */
KERNEL_FN void kernel_put(const struct kernel_pieces *k, const struct kernel_piece *p, uint64_t i,
                          uint64_t bits, bool is_back)
{
    if (!is_back && k->wire != NULL)
        kernel_store(k->wire, k->wire_dtype, p->first + i, bits);
    else if (k->wire != NULL || k->factor != 1)
        kernel_store(p->at, k->dtype, i, bits);
}

/* The whole way. returns whether it was finite before */
KERNEL_FN bool kernel_pack(const struct kernel_pieces *k, const struct kernel_piece *p, uint64_t i)
{
    bool ok;
    kernel_put(k, p, i, kernel_to_wire(k, kernel_take(k, p, i, false), &ok), false);
    return ok;
}

/* And back. returns whether it is finite now */
KERNEL_FN bool kernel_unpack(const struct kernel_pieces *k, const struct kernel_piece *p,
                             uint64_t i)
{
    bool ok;
    kernel_put(k, p, i, kernel_from_wire(k, kernel_take(k, p, i, true), &ok), true);
    return ok;
}

#endif
