/* convert.c - whole gradients, a block of values at a time. convert() is the common way: any type
 * becomes float32 in a block that stays in the cache, and that becomes any other type. */
#include "convert.h"

#include "half.h"

#include <math.h>
#include <string.h>

bool convert_is_float(enum ddp_dtype dtype)
{
    return dtype == DDP_FLOAT32 || dtype == DDP_FLOAT64 || dtype == DDP_FLOAT16 ||
           dtype == DDP_BFLOAT16;
}

double convert_get(const void *values, enum ddp_dtype dtype, size_t i)
{
    switch (dtype) {
    case DDP_FLOAT64:
        return ((const double *)values)[i];
    case DDP_FLOAT16:
        return half_from_f16(((const uint16_t *)values)[i]);
    case DDP_BFLOAT16:
        return half_from_bf16(((const uint16_t *)values)[i]);
    default:
        return ((const float *)values)[i];
    }
}

/* --- other types: by way of float32, in blocks that stay in the cache ------------------------- */

enum { BLOCK = 1024 };

static void to_floats(const struct reduce_kernels *k, float *to, const void *from,
                      enum ddp_dtype dtype, size_t first, size_t n)
{
    if (dtype == DDP_FLOAT64)
        for (size_t i = 0; i < n; i++)
            to[i] = (float)((const double *)from)[first + i];
    else if (dtype == DDP_FLOAT16 || dtype == DDP_BFLOAT16)
        k->widen[dtype](to, (const uint16_t *)from + first, n);
    else
        memcpy(to, (const float *)from + first, n * sizeof(*to));
}

static void from_floats(const struct reduce_kernels *k, void *to, enum ddp_dtype dtype,
                        size_t first, const float *from, size_t n)
{
    if (dtype == DDP_FLOAT64)
        for (size_t i = 0; i < n; i++)
            ((double *)to)[first + i] = (double)from[i];
    else if (dtype == DDP_FLOAT16 || dtype == DDP_BFLOAT16)
        k->narrow[dtype]((uint16_t *)to + first, from, n);
    else
        memcpy((float *)to + first, from, n * sizeof(*from));
}

void convert(const struct reduce_kernels *k, void *to, enum ddp_dtype to_dtype, const void *from,
             enum ddp_dtype from_dtype, size_t count)
{
    float block[BLOCK];
    if (from_dtype == to_dtype) {
        if (count > 0)
            memcpy(to, from, count * ddp_dtype_size(to_dtype));
        return;
    }
    for (size_t at = 0; at < count; at += BLOCK) {
        const size_t n = count - at < BLOCK ? count - at : BLOCK;
        to_floats(k, block, from, from_dtype, at, n);
        from_floats(k, to, to_dtype, at, block, n);
    }
}

/* --- factors ---------------------------------------------------------------------------------- */

static void scale_half(const struct reduce_kernels *k, void *values, enum ddp_dtype dtype,
                       size_t count, float factor)
{
    float block[BLOCK];
    for (size_t at = 0; at < count; at += BLOCK) {
        const size_t n = count - at < BLOCK ? count - at : BLOCK;
        to_floats(k, block, values, dtype, at, n);
        for (size_t i = 0; i < n; i++)
            block[i] *= factor;
        from_floats(k, values, dtype, at, block, n);
    }
}

void convert_scale(const struct reduce_kernels *k, void *values, enum ddp_dtype dtype, size_t count,
                   double factor)
{
    if (dtype == DDP_FLOAT64) {
        for (size_t i = 0; i < count; i++)
            ((double *)values)[i] *= factor;
    } else if (dtype == DDP_FLOAT32) {
        const float f = (float)factor;
        for (size_t i = 0; i < count; i++)
            ((float *)values)[i] *= f;
    } else {
        scale_half(k, values, dtype, count, (float)factor);
    }
}

/* --- looking ---------------------------------------------------------------------------------- */

size_t convert_find_nonfinite(const void *values, enum ddp_dtype dtype, size_t count)
{
    const size_t size = ddp_dtype_size(dtype);
    for (size_t at = 0; at < count; at += BLOCK) {
        const size_t n = count - at < BLOCK ? count - at : BLOCK;
        if (reduce_is_finite(dtype, (const uint8_t *)values + at * size, n))
            continue;
        for (size_t i = at; i < at + n; i++)
            if (!isfinite(convert_get(values, dtype, i)))
                return i;
    }
    return count;
}

double convert_sum_of_squares(const void *values, enum ddp_dtype dtype, size_t count)
{
    double sum[4] = {0}; /* side by side: one addition need not wait for another */
    for (size_t i = 0; i < count; i++) {
        const double x = convert_get(values, dtype, i);
        sum[i % 4] += x * x;
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
