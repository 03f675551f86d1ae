/* values.h - inputs that every rank can work out for all ranks, and results by the reference
 * kernels. */
#ifndef DDP_TESTS_UNIT_WORKER_RUNTIME_VALUES_H
#define DDP_TESTS_UNIT_WORKER_RUNTIME_VALUES_H

#include "worker-runtime/arithmetic/half.h"
#include "worker-runtime/arithmetic/reduce.h"

#include <ddp/types.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline uint32_t value_mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* Which values a rank has in the collective number `salt`. */
static inline uint32_t value_base(uint32_t salt, int rank)
{
    return value_mix(salt * 31u + (uint32_t)rank);
}

static inline float value_float(uint32_t bits)
{
    const float power = half_float_of((127 - bits % 31) << 23); /* 2^0 .. 2^-30: no division */
    return (float)(((double)bits - 2147483648.0) * (double)power);
}

/* Element i of them. Floats of many sizes, so that each other order of additions shows; integers
 * that wrap around. */
__attribute__((always_inline)) static inline void value_put_next(void *at, enum ddp_dtype dtype,
                                                                 uint32_t base, size_t i)
{
    const uint32_t bits = value_mix(base + (uint32_t)i);
    switch (dtype) {
    case DDP_FLOAT32:
        *(float *)at = value_float(bits);
        break;
    case DDP_FLOAT64:
        *(double *)at = (double)value_float(bits) * 1.0000000001;
        break;
    case DDP_FLOAT16:
        *(uint16_t *)at = half_to_f16(value_float(bits) / 65536);
        break;
    case DDP_BFLOAT16:
        *(uint16_t *)at = half_to_bf16(value_float(bits));
        break;
    case DDP_INT8:
    case DDP_UINT8:
        *(uint8_t *)at = (uint8_t)(bits >> 24);
        break;
    case DDP_INT32:
    case DDP_UINT32:
        *(uint32_t *)at = bits;
        break;
    default:
        *(uint64_t *)at = (uint64_t)bits * UINT64_C(0x9e3779b97f4a7c15);
    }
}

static inline void value_put(void *at, enum ddp_dtype dtype, uint32_t salt, int rank, size_t i)
{
    value_put_next(at, dtype, value_base(salt, rank), i);
}

/* Elements first, first + 1 ... of them: a loop for each type, which the compiler can vectorize. */
static inline void values_fill_from(void *to, enum ddp_dtype dtype, uint32_t salt, int rank,
                                    size_t first, size_t count)
{
    const uint32_t base = value_base(salt, rank);
    uint8_t *at = to;
#define FILL(type, size)                                                                           \
    case type:                                                                                     \
        for (size_t i = 0; i < count; i++)                                                         \
            value_put_next(at + i * (size), type, base, first + i);                                \
        break
    switch (dtype) {
        FILL(DDP_FLOAT32, 4);
        FILL(DDP_FLOAT64, 8);
        FILL(DDP_FLOAT16, 2);
        FILL(DDP_BFLOAT16, 2);
        FILL(DDP_INT8, 1);
        FILL(DDP_UINT8, 1);
        FILL(DDP_INT32, 4);
        FILL(DDP_UINT32, 4);
        FILL(DDP_INT64, 8);
        FILL(DDP_UINT64, 8);
    }
#undef FILL
}

static inline void values_fill(void *to, enum ddp_dtype dtype, uint32_t salt, int rank,
                               size_t count)
{
    values_fill_from(to, dtype, salt, rank, 0, count);
}

/* What a reduction over n ranks must give, to the bit. free() it. */
static inline void *values_reduced(enum ddp_dtype dtype, enum ddp_op op, uint32_t salt, int n,
                                   size_t count)
{
    size_t bytes = count * ddp_dtype_size(dtype);
    uint8_t *all = malloc(bytes * (size_t)n + 1);
    void *result = malloc(bytes + 1);
    const void *in[64];
    for (int r = 0; r < n; r++) {
        in[r] = all + bytes * (size_t)r;
        values_fill(all + bytes * (size_t)r, dtype, salt, r, count);
    }
    reduce_scalar.fn[dtype][op](in, (unsigned)n, &result, 1, count);
    free(all);
    return result;
}

#endif
