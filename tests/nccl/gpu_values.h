/* gpu_values.h - tensors of any floating-point type, on GPUs and on the host. */
#ifndef DDP_TESTS_NCCL_GPU_VALUES_H
#define DDP_TESTS_NCCL_GPU_VALUES_H

#include "gpu_ranks.h"

#include "worker-runtime/arithmetic/half.h"

static inline void gpu_put(void *values, enum ddp_dtype dtype, size_t i, double x)
{
    if (dtype == DDP_FLOAT64)
        ((double *)values)[i] = x;
    else if (dtype == DDP_FLOAT32)
        ((float *)values)[i] = (float)x;
    else
        ((uint16_t *)values)[i] =
            dtype == DDP_FLOAT16 ? half_to_f16((float)x) : half_to_bf16((float)x);
}

static inline double gpu_get(const void *values, enum ddp_dtype dtype, size_t i)
{
    if (dtype == DDP_FLOAT64)
        return ((const double *)values)[i];
    if (dtype == DDP_FLOAT32)
        return (double)((const float *)values)[i];
    const uint16_t bits = ((const uint16_t *)values)[i];
    return dtype == DDP_FLOAT16 ? half_from_f16(bits) : half_from_bf16(bits);
}

static inline size_t gpu_bytes_of(const struct ddp_tensor *t)
{
    return t->count * ddp_dtype_size(t->dtype);
}

/* Memory of the GPU, not yet written. */
static inline void *gpu_memory(int rank, size_t bytes)
{
    void *at;
    GPU_CHECK(rank, cudaMalloc(&at, bytes > 0 ? bytes : 1));
    return at;
}

#endif
