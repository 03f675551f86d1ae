/* kernels.cu - the kernels: how a GPU deals out what kernel_math.h computes. kernels.h is for their
 * callers, and tests/nccl/double/cudart_launch.c does on a CPU what is done here. */
#include "kernel_math.h"

/* A row of blocks for each piece: short pieces leave theirs at once. */
#define EACH_VALUE(k, p, i)                                                                        \
    const struct kernel_piece *p = &(k).piece[blockIdx.y];                                         \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p->count;               \
         i += (uint64_t)gridDim.x * blockDim.x)

/* One word for all: nobody but the first thread of a block that has found something writes it, and
 * always the same. */
static __device__ void tell(const struct kernel_pieces &k, bool is_bad)
{
    if (__syncthreads_or(is_bad) && threadIdx.x == 0 && k.found_inf != NULL)
        *k.found_inf = 1;
}

extern "C" __global__ void ddp_pack(const __grid_constant__ struct kernel_pieces k)
{
    bool is_bad = false;
    EACH_VALUE(k, p, i)
    is_bad |= !kernel_pack(&k, p, i);
    tell(k, is_bad);
}

extern "C" __global__ void ddp_unpack(const __grid_constant__ struct kernel_pieces k)
{
    bool is_bad = false;
    EACH_VALUE(k, p, i)
    is_bad |= !kernel_unpack(&k, p, i);
    tell(k, is_bad);
}
