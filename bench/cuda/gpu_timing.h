/* gpu_timing.h - like timing.h, for programs that call CUDA themselves. */
#ifndef DDP_BENCH_CUDA_GPU_TIMING_H
#define DDP_BENCH_CUDA_GPU_TIMING_H

#include "../programs/timing.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static inline void check_cuda(cudaError_t result, const char *what)
{
    if (result == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
            cudaGetErrorString(result));
    exit(EXIT_FAILURE);
}

#endif
