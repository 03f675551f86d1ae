/* reduce.c - which kernels this processor runs. */
#include "reduce.h"

#include <string.h>

size_t ddp_dtype_size(enum ddp_dtype dtype)
{
    switch (dtype) {
    case DDP_FLOAT32:
    case DDP_INT32:
        return 4;
    case DDP_FLOAT64:
    case DDP_INT64:
        return 8;
    default:
        return 0;
    }
}

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
    if (limit >= AVX2 && __builtin_cpu_supports("avx2"))
        return &reduce_avx2;
#endif
    return &reduce_scalar;
}
