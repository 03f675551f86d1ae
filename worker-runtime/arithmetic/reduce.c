/* reduce.c - which kernels this processor runs. */
#include "reduce.h"

#include "finite.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

size_t ddp_dtype_size(enum ddp_dtype dtype)
{
    return reduce_size(dtype);
}

bool reduce_is_defined(enum ddp_dtype dtype, enum ddp_op op)
{
    return (unsigned)dtype < REDUCE_N_DTYPES && (unsigned)op < REDUCE_N_OPS &&
           reduce_scalar.fn[dtype][op] != NULL;
}

#define DEFINE_IS_FINITE(T, type)                                                                  \
    static bool is_finite_##type(const T *in, size_t count)                                        \
    {                                                                                              \
        bool all = true;                                                                           \
        for (size_t i = 0; i < count; i++)                                                         \
            all &= finite_##type(in[i]);                                                           \
        return all;                                                                                \
    }
DEFINE_IS_FINITE(float, f32)
DEFINE_IS_FINITE(double, f64)
DEFINE_IS_FINITE(uint16_t, f16)
DEFINE_IS_FINITE(uint16_t, bf16)

bool reduce_is_finite(enum ddp_dtype dtype, const void *in, size_t count)
{
    switch (dtype) {
    case DDP_FLOAT32:
        return is_finite_f32(in, count);
    case DDP_FLOAT64:
        return is_finite_f64(in, count);
    case DDP_FLOAT16:
        return is_finite_f16(in, count);
    case DDP_BFLOAT16:
        return is_finite_bf16(in, count);
    default:
        return true;
    }
}

#if defined(__x86_64__)
/* Conversions of float16, which no older compiler's __builtin_cpu_supports() knows. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}
#endif

const struct reduce_kernels *reduce_choose(const char *cap, bool *ret_known)
{
    enum { SCALAR, AVX2, AVX512 } limit = AVX512;

    *ret_known = true;
    if (cap == NULL || cap[0] == '\0' || strcmp(cap, "avx512") == 0 || strcmp(cap, "neon") == 0)
        limit = AVX512;
    else if (strcmp(cap, "avx2") == 0)
        limit = AVX2;
    else if (strcmp(cap, "scalar") == 0)
        limit = SCALAR;
    else
        *ret_known = false;
#if defined(__x86_64__)
    if (limit >= AVX512 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return &reduce_avx512;
    if (limit >= AVX2 && __builtin_cpu_supports("avx2") && has_f16c())
        return &reduce_avx2;
#elif defined(__aarch64__)
    if (limit > SCALAR)
        return &reduce_neon;
#endif
    return &reduce_scalar;
}
