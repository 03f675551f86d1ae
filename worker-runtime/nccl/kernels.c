/* kernels.c - loads the kernels of kernels.cu, and launches them with as many blocks as the work is
 * worth. */
#include "device.h"

#include "kernel_moments.h"

#include "common/error.h"

#include <errno.h>

/* kernels.fatbin, as bin2c writes it. */
extern const unsigned long long kernels_image[];

enum {
    LANES = KERNEL_LANES,
    EACH = 4,          /* values of a thread, as long as there are enough threads */
    MOST_BLOCKS = 2048 /* for pieces: some for each multiprocessor, whatever the GPU */
};

/* --- loading ---------------------------------------------------------------------------------- */

static const char *const names[] = {
#define KERNEL_NAME(name, symbol) #symbol,
    KERNELS(KERNEL_NAME)
#undef KERNEL_NAME
};

int kernels_load_failed(cudaError_t result, struct co_error *err)
{
    nccl_map_cuda("cannot load the kernels of libddp-nccl.so", result, err);
    const bool is_other = result == cudaErrorNoKernelImageForDevice ||
                          result == cudaErrorUnsupportedPtxVersion ||
                          result == cudaErrorInvalidPtx || result == cudaErrorJitCompilerNotFound;
    return is_other ? -ENOTSUP : -EIO;
}

cudaError_t kernels_load(struct kernels *ret)
{
    struct kernels loaded = {0};
    cudaError_t result =
        cudaLibraryLoadData(&loaded.library, kernels_image, NULL, NULL, 0, NULL, NULL, 0);
    if (result != cudaSuccess)
        return result;
    for (int i = 0; i < KERNEL_N && result == cudaSuccess; i++) {
        struct cudaFuncAttributes unused;
        result = cudaLibraryGetKernel(&loaded.at[i], loaded.library, names[i]);
        if (result == cudaSuccess) /* to ask for these loads a kernel: else its first launch does */
            result = cudaFuncGetAttributes(&unused, (const void *)loaded.at[i]);
    }
    if (result == cudaSuccess)
        *ret = loaded;
    else
        cudaLibraryUnload(loaded.library);
    return result;
}

/* --- launching -------------------------------------------------------------------------------- */

static int launch(const struct kernels *k, enum kernel which, dim3 blocks, const void *work,
                  cudaStream_t stream, struct co_error *err)
{
    const dim3 lanes = {LANES, 1, 1};
    void *args[] = {(void *)work};
    const cudaError_t result =
        cudaLaunchKernel((const void *)k->at[which], blocks, lanes, args, 0, stream);
    return nccl_map_cuda(names[which], result, err);
}

int kernels_run_pieces(const struct kernels *k, enum kernel which, const struct kernel_pieces *work,
                       cudaStream_t stream, struct co_error *err)
{
    const uint64_t tiles = (kernel_count(work) + KERNEL_TILE - 1) / KERNEL_TILE;
    const unsigned blocks = tiles < MOST_BLOCKS ? (unsigned)tiles : MOST_BLOCKS;
    return blocks > 0 ? launch(k, which, (dim3){blocks, 1, 1}, work, stream, err) : 0;
}

/* --- clipping --------------------------------------------------------------------------------- */

/* The gradients are treated as one vector: where one ends the next thread continues with the next
 * one. */
int kernels_run_vector(const struct kernels *k, enum kernel which, struct kernel_clip *work,
                       cudaStream_t stream, struct co_error *err)
{
    uint64_t count = 0, at = 0;
    for (uint32_t i = 0; i < work->n; i++)
        count += work->gradient[i].count;
    const uint64_t wanted = (count + LANES * EACH - 1) / (LANES * EACH);
    const unsigned blocks = wanted < KERNEL_CLIP_BLOCKS ? (unsigned)wanted : KERNEL_CLIP_BLOCKS;
    for (uint32_t i = 0; i < work->n && blocks > 0; i++) {
        work->gradient[i].first = (uint32_t)(at % ((uint64_t)blocks * LANES));
        at += work->gradient[i].count;
    }
    return blocks > 0 ? launch(k, which, (dim3){blocks, 1, 1}, work, stream, err) : 0;
}

int kernels_find_factor(const struct kernels *k, const struct kernel_clip *work,
                        cudaStream_t stream, struct co_error *err)
{
    return launch(k, KERNEL_CLIP_FACTOR, (dim3){1, 1, 1}, work, stream, err);
}

/* --- batch normalization ---------------------------------------------------------------------- */

static uint32_t parts_of(const struct device_layer *l)
{
    const uint64_t values = l->outer * l->inner, each = (uint64_t)LANES * EACH;
    const uint64_t n = (values + each - 1) / each;
    if (n <= 1)
        return 1;
    return n < DEVICE_LAYER_PARTS ? (uint32_t)n : DEVICE_LAYER_PARTS;
}

int kernels_norm(const struct kernels *k, enum device_norm step, const struct device_layer *layer,
                 cudaStream_t stream, struct co_error *err)
{
    static const struct {
        enum kernel values, channels; /* KERNEL_N: none */
    } of[] = {
        [DEVICE_NORM_SAY] = {KERNEL_MOMENTS, KERNEL_SAY_MOMENTS},
        [DEVICE_NORM_HEAR] = {KERNEL_N, KERNEL_HEAR_MOMENTS},
        [DEVICE_NORM_RECALL] = {KERNEL_N, KERNEL_RECALL},
        [DEVICE_NORM_APPLY] = {KERNEL_NORMALISE, KERNEL_N},
        [DEVICE_NORM_SUM] = {KERNEL_SUMS, KERNEL_SAY_SUMS},
        [DEVICE_NORM_BACK] = {KERNEL_BACKWARD, KERNEL_N},
    };
    struct device_layer l = *layer;
    if (l.channels > INT32_MAX)
        return co_fail(err, -EINVAL, "%llu channels are too many for a kernel",
                       (unsigned long long)l.channels);
    l.n_parts = parts_of(&l);
    const dim3 blocks = {(unsigned)l.channels, l.n_parts, 1};
    const dim3 rows = {(unsigned)((l.channels + LANES - 1) / LANES), 1, 1};
    int code = 0;
    if (of[step].values != KERNEL_N)
        code = launch(k, of[step].values, blocks, &l, stream, err);
    if (code == 0 && of[step].channels != KERNEL_N)
        code = launch(k, of[step].channels, rows, &l, stream, err);
    return code;
}
