/* cudart_launch.c - the plug-in's kernels, on a stream of the double: what kernels.cu deals out to
 * the threads of a GPU is done here block by block and thread by thread, by the same arithmetic.
 *
 * The code for GPUs is only looked at: a kernel is found if its PTX is there. */
#include "cudart.h"

#include "nccl/kernel_math.h"
#include <stdlib.h>
#include <string.h>

enum { RANGES = 2 * KERNEL_PIECES + 1 };

struct kernel { /* what a cudaKernel_t points to */
    const char *entry;
    size_t bytes; /* of its one parameter */
    void (*run)(const void *work, dim3 blocks, dim3 lanes);
    size_t (*list)(const void *work, struct double_range ret[RANGES]);
};

/* --- gradients -------------------------------------------------------------------------------- */

static void run_pieces(const struct kernel_pieces *k, dim3 blocks, dim3 lanes,
                       bool (*one)(const struct kernel_pieces *k, const struct kernel_piece *p,
                                   uint64_t i))
{
    const uint64_t step = (uint64_t)blocks.x * lanes.x;
    bool is_bad = false;
    for (unsigned y = 0; y < blocks.y; y++)
        for (uint64_t thread = 0; thread < step; thread++)
            for (uint64_t i = thread; i < k->piece[y].count; i += step)
                is_bad |= !one(k, &k->piece[y], i);
    if (is_bad && k->found_inf != NULL)
        *k->found_inf = 1;
}

static void run_pack(const void *work, dim3 blocks, dim3 lanes)
{
    run_pieces(work, blocks, lanes, kernel_pack);
}

static void run_unpack(const void *work, dim3 blocks, dim3 lanes)
{
    run_pieces(work, blocks, lanes, kernel_unpack);
}

static size_t size_of(uint32_t dtype)
{
    return dtype == DDP_FLOAT64 ? 8 : dtype == DDP_FLOAT32 ? 4 : 2;
}

static size_t list_pieces(const struct kernel_pieces *k, bool is_pack, struct double_range *ret)
{
    const bool has_wire = k->wire != NULL, scales = k->factor != 1;
    const size_t size = size_of(k->dtype), wire_size = size_of(k->wire_dtype);
    size_t n = 0;
    for (uint32_t i = 0; i < k->n; i++) {
        const struct kernel_piece *p = &k->piece[i];
        const bool writes = has_wire ? !is_pack : scales;
        ret[n++] = (struct double_range){p->at, p->count * size, writes};
        if (has_wire)
            ret[n++] = (struct double_range){(char *)k->wire + p->first * wire_size,
                                             p->count * wire_size, is_pack};
    }
    if (k->found_inf != NULL)
        ret[n++] = (struct double_range){k->found_inf, sizeof *k->found_inf, true};
    return n;
}

static size_t list_pack(const void *work, struct double_range *ret)
{
    return list_pieces(work, true, ret);
}

static size_t list_unpack(const void *work, struct double_range *ret)
{
    return list_pieces(work, false, ret);
}

static const struct kernel kernels[] = {
    {".entry ddp_pack(", sizeof(struct kernel_pieces), run_pack, list_pack},
    {".entry ddp_unpack(", sizeof(struct kernel_pieces), run_unpack, list_unpack},
};
enum { N_KERNELS = sizeof kernels / sizeof *kernels };

/* --- loading ---------------------------------------------------------------------------------- */

struct fatbin { /* how such code begins */
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes; /* behind the header */
};

DOUBLE_EXPORT cudaError_t cudaLibraryLoadData(cudaLibrary_t *ret, const void *code,
                                              enum cudaJitOption *jit, void **jit_values,
                                              unsigned n_jit, enum cudaLibraryOption *options,
                                              void **values, unsigned n)
{
    const struct fatbin *f = code;
    (void)jit, (void)jit_values, (void)options, (void)values;
    if (getenv("NCCL_DOUBLE_OLD_GPU") != NULL)
        return cudart_return(cudaErrorNoKernelImageForDevice);
    if (f->magic != 0xba55ed50 || n_jit > 0 || n > 0) {
        double_report("cudaLibraryLoadData is given no fat binary, or options");
        return cudart_return(cudaErrorInvalidValue);
    }
    *ret = (cudaLibrary_t)(void *)code;
    return cudart_return(cudaSuccess);
}

DOUBLE_EXPORT cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    (void)library;
    return cudart_return(cudaSuccess);
}

DOUBLE_EXPORT cudaError_t cudaLibraryGetKernel(cudaKernel_t *ret, cudaLibrary_t library,
                                               const char *name)
{
    const struct fatbin *f = (const void *)library;
    for (int i = 0; i < N_KERNELS; i++) {
        const char *own = kernels[i].entry + strlen(".entry ");
        if (strncmp(own, name, strlen(name)) != 0 || own[strlen(name)] != '(')
            continue;
        if (memmem(f, f->header_bytes + f->bytes, kernels[i].entry, strlen(kernels[i].entry)) ==
            NULL)
            break;
        *ret = (cudaKernel_t)(void *)&kernels[i];
        return cudart_return(cudaSuccess);
    }
    double_report("there is no kernel '%s'", name);
    return cudart_return(cudaErrorSymbolNotFound);
}

DOUBLE_EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *ret, const void *kernel)
{
    (void)kernel;
    memset(ret, 0, sizeof *ret);
    return cudart_return(cudaSuccess);
}

/* --- launching -------------------------------------------------------------------------------- */

struct launch {
    const struct kernel *kernel;
    dim3 blocks, lanes;
    _Alignas(max_align_t) unsigned char work[];
};

static void run(void *arg)
{
    const struct launch *l = arg;
    l->kernel->run(l->work, l->blocks, l->lanes);
}

DOUBLE_EXPORT cudaError_t cudaLaunchKernel(const void *kernel, dim3 blocks, dim3 lanes, void **args,
                                           size_t shared_bytes, cudaStream_t stream)
{
    const struct kernel *k = kernel;
    struct double_range range[RANGES];
    const size_t bytes = sizeof(struct launch) + k->bytes;
    (void)shared_bytes;
    if (blocks.x == 0 || blocks.y == 0 || blocks.y > 65535 || blocks.z != 1 || lanes.x > 1024) {
        double_report("a kernel is launched on %u x %u blocks of %u threads", blocks.x, blocks.y,
                      lanes.x);
        return cudart_return(cudaErrorInvalidConfiguration);
    }
    struct launch *l = malloc(bytes);
    if (l == NULL)
        return cudart_return(cudaErrorMemoryAllocation);
    *l = (struct launch){k, blocks, lanes};
    memcpy(l->work, args[0], k->bytes);
    const cudaError_t result = double_queue(stream, "a kernel of libddp-nccl.so", run, l, bytes,
                                            range, k->list(l->work, range));
    free(l);
    return result;
}
