/* bucket.c - memory for gradients. */
#include "device.h"

#include "words.h"

#include <errno.h>
#include <string.h>

int bucket_alloc(struct device *d, size_t bytes, void *stream, void **ret, struct co_error *err)
{
    void *at = NULL;
    cudaError_t result = cudaSetDevice(d->index);
    if (result == cudaSuccess)
        result = cudaMalloc(&at, bytes);
    if (result == cudaSuccess)
        result = cudaMemsetAsync(at, 0, bytes, stream);
    if (result == cudaSuccess) {
        *ret = at;
        return 0;
    }
    words_cuda_failed("memory for gradients", result, err);
    cudaFree(at);
    return result == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
}

void bucket_free(struct device *d, void *at)
{
    (void)d;
    cudaFree(at);
}

int bucket_clear(struct device *d, void *at, size_t bytes, void *stream, struct co_error *err)
{
    (void)d;
    const cudaError_t result = bytes > 0 ? cudaMemsetAsync(at, 0, bytes, stream) : cudaSuccess;
    return result == cudaSuccess ? 0 : words_cuda_failed("zeros for gradients", result, err);
}

int bucket_alloc_host(struct device *d, size_t bytes, void **ret, struct co_error *err)
{
    void *at = NULL;
    cudaError_t result = cudaSetDevice(d->index);
    if (result == cudaSuccess)
        result = cudaHostAlloc(&at, bytes, cudaHostAllocDefault);
    if (result != cudaSuccess) {
        words_cuda_failed("pinned memory", result, err);
        return result == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
    }
    memset(at, 0, bytes);
    *ret = at;
    return 0;
}

void bucket_free_host(struct device *d, void *at)
{
    (void)d;
    cudaFreeHost(at);
}
