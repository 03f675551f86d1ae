/* gpu_memory.c - what all files of the network on a GPU need: its memory, and texts of errors. */
#include "gpu_priv.h"

int gpu_check(cudaError_t result, const char *what, struct failure *why)
{
    if (result == cudaSuccess)
        return 0;
    return failure_set(why, "%s on the GPU: %s (%s)", what, cudaGetErrorString(result),
                       cudaGetErrorName(result));
}

void *gpu_take(struct gpu_net *net, size_t bytes, cudaError_t *result)
{
    struct gpu_priv *in = net->inside;
    void *at = NULL;
    if (*result == cudaSuccess && in->n_memory == GPU_MOST_MEMORY)
        *result = cudaErrorMemoryAllocation;
    if (*result == cudaSuccess)
        *result = cudaMalloc(&at, bytes > 0 ? bytes : 1);
    if (*result != cudaSuccess)
        return NULL;
    in->memory[in->n_memory++] = at;
    return at;
}
