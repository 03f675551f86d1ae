/* gpu_kernels.h - the kernels of gpu_layers.h and gpu_half.h, put on a stream:
 * gpu_X_run(k, n, stream) has n threads do gpu_X_at(k, i). It waits for nothing; n == 0 does
 * nothing.
 *
 * returns   cudaSuccess, or why CUDA has not taken it */
#ifndef DDP_EXAMPLES_GPU_GPU_KERNELS_H
#define DDP_EXAMPLES_GPU_GPU_KERNELS_H

#include <cuda_runtime_api.h>

#include "gpu_half.h"
#include "gpu_layers.h"

#define GPU_KERNELS(X)                                                                             \
    X(images)                                                                                      \
    X(conv)                                                                                        \
    X(conv_dx)                                                                                     \
    X(conv_dw)                                                                                     \
    X(sum)                                                                                         \
    X(moments)                                                                                     \
    X(norm)                                                                                        \
    X(norm_back)                                                                                   \
    X(pool)                                                                                        \
    X(pool_sums)                                                                                   \
    X(pool_back)                                                                                   \
    X(fc)                                                                                          \
    X(fc_dw)                                                                                       \
    X(fc_dx)                                                                                       \
    X(loss)                                                                                        \
    X(right)                                                                                       \
    X(add)                                                                                         \
    X(sgd)                                                                                         \
    X(round)                                                                                       \
    X(give)                                                                                        \
    X(master)                                                                                      \
    X(show)

#ifdef __cplusplus
extern "C" {
#endif

#define DECLARE(name)                                                                              \
    cudaError_t gpu_##name##_run(const struct gpu_##name *k, unsigned n, cudaStream_t stream);
GPU_KERNELS(DECLARE)
#undef DECLARE

/* Load all of them, on the current device. Otherwise CUDA loads each one at its first launch, and
 * may then wait for the whole device: also for an NCCL kernel whose peer has died. */
cudaError_t gpu_kernels_load(void);

#ifdef __cplusplus
}
#endif
#endif
