/* kernel_math.h - what kernels do to gradients on their way to the wire and back, value by value.
 *
 * Compiled by nvcc for the device (kernels.cu), and by the C compiler for the tests, where the
 * double runs it in loops: what is tested is what runs. So rounding is the integer arithmetic of
 * half.h, and not a GPU's conversions, whose NaN is another one; and nothing is fused
 * (-fmad=false). The bits are those of the same steps on CPUs, model_average.c's. Pure. */
#ifndef DDP_NCCL_KERNEL_MATH_H
#define DDP_NCCL_KERNEL_MATH_H

#include "worker-runtime/finite.h"
#include "worker-runtime/half.h"

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
    uint32_t dtype;      /* enum ddp_dtype, a floating-point one: of the pieces, */
    uint32_t wire_dtype; /* and of the wire: a 16-bit one, or float32; or the same, and the factor
                            is 1: bits are copied */
    void *wire;          /* NULL: values are changed where they are */
    double factor; /* rounded to float32 for all types but float64; 1: nothing is multiplied */
    uint32_t *found_inf; /* becomes 1 if a value is not finite; NULL: nobody asks */
};

enum { KERNEL_TILE = 2048 }; /* values that a block takes at a time */

/* Of all pieces of a launch, which lie on the wire one behind the other. */
KERNEL_FN uint64_t kernel_count(const struct kernel_pieces *k)
{
    const struct kernel_piece *last = &k->piece[k->n - 1];
    return last->first + last->count - k->piece[0].first;
}

/* The piece that has the value at that place on the wire; it is there. */
KERNEL_FN uint32_t kernel_find(const struct kernel_pieces *k, uint64_t at)
{
    uint32_t low = 0, high = k->n; /* low begins there or before, high behind it */
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

KERNEL_FN bool kernel_is_finite(const void *at, uint32_t dtype, uint64_t i)
{
    if (dtype == DDP_FLOAT64)
        return finite_f64(((const double *)at)[i]);
    return finite_f32(kernel_get(at, dtype, i));
}

/* A value as it is: a NaN, too. */
KERNEL_FN void kernel_copy(void *to, uint64_t to_i, const void *from, uint64_t from_i,
                           uint32_t dtype)
{
    if (dtype == DDP_FLOAT64)
        ((double *)to)[to_i] = ((const double *)from)[from_i];
    else if (dtype == DDP_FLOAT32)
        ((float *)to)[to_i] = ((const float *)from)[from_i];
    else
        ((uint16_t *)to)[to_i] = ((const uint16_t *)from)[from_i];
}

KERNEL_FN bool kernel_only_moves(const struct kernel_pieces *k)
{
    return k->wire != NULL && k->wire_dtype == k->dtype;
}

/* The n-th gradient of a piece times the factor, onto the wire, or where it is.
 * returns whether it was finite before */
KERNEL_FN bool kernel_pack(const struct kernel_pieces *k, const struct kernel_piece *p, uint64_t i)
{
    if (kernel_only_moves(k)) {
        kernel_copy(k->wire, p->first + i, p->at, i, k->dtype);
        return kernel_is_finite(p->at, k->dtype, i);
    }
    if (k->dtype == DDP_FLOAT64) {
        double *at = (double *)p->at + i;
        const double x = *at, y = k->factor != 1 ? x * k->factor : x;
        if (k->wire != NULL)
            kernel_set(k->wire, k->wire_dtype, p->first + i, (float)y);
        else if (k->factor != 1)
            *at = y;
        return finite_f64(x);
    }
    const float x = kernel_get(p->at, k->dtype, i);
    const float y = k->factor != 1 ? kernel_round(k->dtype, x * (float)k->factor) : x;
    if (k->wire != NULL)
        kernel_set(k->wire, k->wire_dtype, p->first + i, y);
    else if (k->factor != 1)
        kernel_set(p->at, k->dtype, i, y);
    return finite_f32(x);
}

/* And back: from the wire, or where it is, then times the factor.
 * returns whether it is finite now */
KERNEL_FN bool kernel_unpack(const struct kernel_pieces *k, const struct kernel_piece *p,
                             uint64_t i)
{
    if (kernel_only_moves(k)) {
        kernel_copy(p->at, i, k->wire, p->first + i, k->dtype);
        return kernel_is_finite(p->at, k->dtype, i);
    }
    if (k->dtype == DDP_FLOAT64) {
        double *at = (double *)p->at + i;
        const double x =
            k->wire != NULL ? (double)kernel_get(k->wire, k->wire_dtype, p->first + i) : *at;
        const double y = k->factor != 1 ? x * k->factor : x;
        if (k->wire != NULL || k->factor != 1)
            *at = y;
        return finite_f64(y);
    }
    float x = k->wire != NULL
                  ? kernel_round(k->dtype, kernel_get(k->wire, k->wire_dtype, p->first + i))
                  : kernel_get(p->at, k->dtype, i);
    if (k->factor != 1)
        x = kernel_round(k->dtype, x * (float)k->factor);
    if (k->wire != NULL || k->factor != 1)
        kernel_set(p->at, k->dtype, i, x);
    return finite_f32(x);
}

#endif
