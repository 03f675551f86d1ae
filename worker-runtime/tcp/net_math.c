#include "net_math.h"

#include "worker-runtime/arithmetic/half.h"

#include <stdint.h>

bool net_math_is_float(enum ddp_dtype dtype)
{
    return dtype == DDP_FLOAT32 || dtype == DDP_FLOAT64 || dtype == DDP_FLOAT16 ||
           dtype == DDP_BFLOAT16;
}

#define EACH(T, RESULT)                                                                            \
    for (size_t i = 0; i < count; i++) {                                                           \
        const T x = ((T *)at)[i];                                                                  \
        ((T *)at)[i] = (T)(RESULT);                                                                \
    }

void net_math_scale(enum ddp_dtype dtype, void *at, size_t count, double factor)
{
    const float f = (float)factor;
    if (dtype == DDP_FLOAT32)
        EACH(float, x *f)
    else if (dtype == DDP_FLOAT64)
        EACH(double, x *factor)
    else if (dtype == DDP_FLOAT16)
        EACH(uint16_t, half_to_f16(half_from_f16(x) * f))
    else if (dtype == DDP_BFLOAT16)
        EACH(uint16_t, half_to_bf16(half_from_bf16(x) * f))
}

void net_math_divide(enum ddp_dtype dtype, void *at, size_t count, unsigned n)
{
    const int64_t by = n;
    const uint64_t by_unsigned = n;
    switch (dtype) {
    case DDP_INT8:
        EACH(int8_t, x / by)
        break;
    case DDP_UINT8:
        EACH(uint8_t, x / by_unsigned)
        break;
    case DDP_INT32:
        EACH(int32_t, x / by)
        break;
    case DDP_UINT32:
        EACH(uint32_t, x / by_unsigned)
        break;
    case DDP_INT64:
        EACH(int64_t, x / by)
        break;
    case DDP_UINT64:
        EACH(uint64_t, x / by_unsigned)
        break;
    default:
        break;
    }
}
