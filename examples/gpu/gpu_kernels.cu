/* gpu_kernels.cu - a kernel for each function of gpu_layers.h and gpu_half.h. */
#include "gpu_kernels.h"

enum { LANES = 128 }; /* threads of a block: small ones spread a small network over the GPU */

#define DEFINE(name)                                                                               \
    static __global__ void gpu_##name##_kernel(const struct gpu_##name k, unsigned n)              \
    {                                                                                              \
        const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                  \
        if (i < n)                                                                                 \
            gpu_##name##_at(&k, i);                                                                \
    }                                                                                              \
    extern "C" cudaError_t gpu_##name##_run(const struct gpu_##name *k, unsigned n,                \
                                            cudaStream_t stream)                                   \
    {                                                                                              \
        if (n == 0)                                                                                \
            return cudaSuccess;                                                                    \
        gpu_##name##_kernel<<<n / LANES + (n % LANES != 0), LANES, 0, stream>>>(*k, n);            \
        return cudaGetLastError();                                                                 \
    }
GPU_KERNELS(DEFINE)

#define LOAD(name)                                                                                 \
    if (result == cudaSuccess)                                                                     \
        result = cudaFuncGetAttributes(&unused, gpu_##name##_kernel);
extern "C" cudaError_t gpu_kernels_load(void)
{
    cudaFuncAttributes unused; /* to ask for them is what loads a kernel */
    cudaError_t result = cudaSuccess;
    GPU_KERNELS(LOAD)
    return result;
}
