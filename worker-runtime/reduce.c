/* reduce.c - which kernels this processor runs. */
#include "reduce.h"

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
    if (cap == NULL || cap[0] == '\0' || strcmp(cap, "avx512") == 0)
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
#endif
    return &reduce_scalar;
}
