/* cudart_launch.c - the plug-in's kernels, on a stream of the double: what kernels.cu deals out to
 * the threads of a GPU is done here block by block and thread by thread, by the same arithmetic.
 *
 * The code for GPUs is only looked at: a kernel is found if its PTX is there. */
#include "cudart.h"

#include "worker-runtime/nccl/kernel_clip.h"
#include "worker-runtime/nccl/kernel_moments.h"
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
    const uint64_t first = k->piece[0].first, end = first + kernel_count(k);
    bool is_bad = false;
    (void)lanes;
    for (unsigned x = 0; x < blocks.x; x++)
        for (uint64_t tile = first + (uint64_t)x * KERNEL_TILE; tile < end;
             tile += (uint64_t)blocks.x * KERNEL_TILE) {
            const struct kernel_piece *p = &k->piece[kernel_find(k, tile)];
            for (uint64_t at = tile; at < tile + KERNEL_TILE && at < end; at++) {
                while (at - p->first >= p->count)
                    p++;
                is_bad |= !one(k, p, at - p->first);
            }
        }
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

/* --- clipping --------------------------------------------------------------------------------- */

static double add_tree(double share[KERNEL_LANES])
{
    for (unsigned half = KERNEL_LANES / 2; half > 0; half /= 2)
        for (unsigned t = 0; t < half; t++)
            share[t] = kernel_plus(share[t], share[t + half]);
    return share[0];
}

static void run_squares(const void *work, dim3 blocks, dim3 lanes)
{
    const struct kernel_clip *k = work;
    double share[KERNEL_LANES];
    for (unsigned b = 0; b < blocks.x; b++) {
        for (unsigned t = 0; t < lanes.x; t++)
            share[t] =
                kernel_lane_squares(k, (uint64_t)b * lanes.x + t, (uint64_t)blocks.x * lanes.x);
        k->part[b] += add_tree(share);
    }
}

static void run_clip_factor(const void *work, dim3 blocks, dim3 lanes)
{
    double share[KERNEL_LANES];
    (void)blocks;
    for (unsigned t = 0; t < lanes.x; t++)
        share[t] = kernel_lane_parts(work, t);
    kernel_find_factor(work, add_tree(share));
}

static void run_scale(const void *work, dim3 blocks, dim3 lanes)
{
    const uint64_t step = (uint64_t)blocks.x * lanes.x;
    for (uint64_t thread = 0; thread < step; thread++)
        kernel_lane_scale(work, thread, step);
}

static size_t list_gradients(const struct kernel_clip *k, bool writes, struct double_range *ret)
{
    for (uint32_t i = 0; i < k->n; i++) {
        const struct kernel_gradient *g = &k->gradient[i];
        ret[i] = (struct double_range){g->at, g->count * size_of(g->dtype), writes};
    }
    return k->n;
}

static size_t list_squares(const void *work, struct double_range *ret)
{
    const struct kernel_clip *k = work;
    size_t n = list_gradients(k, false, ret);
    ret[n++] = (struct double_range){k->part, KERNEL_CLIP_BLOCKS * sizeof *k->part, true};
    return n;
}

static size_t list_clip_factor(const void *work, struct double_range *ret)
{
    const struct kernel_clip *k = work;
    ret[0] = (struct double_range){k->part, KERNEL_CLIP_BLOCKS * sizeof *k->part, false};
    ret[1] = (struct double_range){k->norm, sizeof *k->norm, true};
    ret[2] = (struct double_range){k->factor, sizeof *k->factor, true};
    return 3;
}

static size_t list_scale(const void *work, struct double_range *ret)
{
    const struct kernel_clip *k = work;
    size_t n = list_gradients(k, true, ret);
    ret[n++] = (struct double_range){k->factor, sizeof *k->factor, false};
    return n;
}

/* --- batch normalization ---------------------------------------------------------------------- */

static void run_moments(const void *work, dim3 blocks, dim3 lanes)
{
    const struct device_layer *l = work;
    const uint64_t step = (uint64_t)blocks.y * lanes.x;
    struct device_moments share[KERNEL_LANES];
    for (unsigned c = 0; c < blocks.x; c++)
        for (unsigned y = 0; y < blocks.y; y++) {
            for (unsigned t = 0; t < lanes.x; t++)
                share[t] = kernel_lane_moments(l, c, (uint64_t)y * lanes.x + t, step);
            for (unsigned half = lanes.x / 2; half > 0; half /= 2)
                for (unsigned t = 0; t < half; t++)
                    share[t] = kernel_merge(share[t], share[t + half]);
            l->moments[c * blocks.y + y] = share[0];
        }
}

static void run_sums(const void *work, dim3 blocks, dim3 lanes)
{
    const struct device_layer *l = work;
    const uint64_t step = (uint64_t)blocks.y * lanes.x;
    struct device_sums share[KERNEL_LANES];
    for (unsigned c = 0; c < blocks.x; c++)
        for (unsigned y = 0; y < blocks.y; y++) {
            for (unsigned t = 0; t < lanes.x; t++)
                share[t] = kernel_lane_sums(l, c, (uint64_t)y * lanes.x + t, step);
            for (unsigned half = lanes.x / 2; half > 0; half /= 2)
                for (unsigned t = 0; t < half; t++)
                    share[t] = kernel_add(share[t], share[t + half]);
            l->parts[c * blocks.y + y] = share[0];
        }
}

static void run_values(const struct device_layer *l, dim3 blocks, dim3 lanes,
                       void (*one)(const struct device_layer *l, uint64_t channel, uint64_t k))
{
    const uint64_t step = (uint64_t)blocks.y * lanes.x;
    for (unsigned c = 0; c < blocks.x; c++)
        for (uint64_t first = 0; first < step; first++)
            for (uint64_t k = first; k < l->outer * l->inner; k += step)
                one(l, c, k);
}

static void run_normalise(const void *work, dim3 blocks, dim3 lanes)
{
    run_values(work, blocks, lanes, kernel_normalise);
}

static void run_backward(const void *work, dim3 blocks, dim3 lanes)
{
    run_values(work, blocks, lanes, kernel_backward);
}

static void run_channels(const struct device_layer *l, dim3 blocks, dim3 lanes,
                         void (*one)(const struct device_layer *l, uint64_t channel))
{
    for (uint64_t c = 0; c < (uint64_t)blocks.x * lanes.x && c < l->channels; c++)
        one(l, c);
}

static void run_say_moments(const void *work, dim3 blocks, dim3 lanes)
{
    run_channels(work, blocks, lanes, kernel_say_moments);
}

static void run_hear_moments(const void *work, dim3 blocks, dim3 lanes)
{
    run_channels(work, blocks, lanes, kernel_hear_moments);
}

static void run_recall(const void *work, dim3 blocks, dim3 lanes)
{
    run_channels(work, blocks, lanes, kernel_recall);
}

static void run_say_sums(const void *work, dim3 blocks, dim3 lanes)
{
    run_channels(work, blocks, lanes, kernel_say_sums);
}

/* What a kernel touches of a layer: `bytes` are of all of it. NULL is nothing. */
static void touch(struct double_range *ret, size_t *n, const void *at, size_t bytes, bool writes)
{
    if (at != NULL)
        ret[(*n)++] = (struct double_range){at, bytes, writes};
}

static size_t all_values(const struct device_layer *l)
{
    return l->outer * l->channels * l->inner * size_of(l->dtype);
}

static size_t list_moments(const void *work, struct double_range *ret)
{
    const struct device_layer *l = work;
    size_t n = 0;
    touch(ret, &n, l->x, all_values(l), false);
    touch(ret, &n, l->moments, l->channels * l->n_parts * sizeof *l->moments, true);
    return n;
}

static size_t list_say_moments(const void *work, struct double_range *ret)
{
    const struct device_layer *l = work;
    const size_t each = 1 + 2 * l->channels;
    size_t n = 0;
    touch(ret, &n, l->moments, l->channels * l->n_parts * sizeof *l->moments, false);
    touch(ret, &n, l->all + l->rank * each, each * sizeof *l->all, true);
    return n;
}

static size_t list_hear_moments(const void *work, struct double_range *ret)
{
    const struct device_layer *l = work;
    const size_t running = l->channels * size_of(l->dtype);
    size_t n = 0;
    touch(ret, &n, l->all, l->n_ranks * (1 + 2 * l->channels) * sizeof *l->all, false);
    touch(ret, &n, l->mean, l->channels * sizeof *l->mean, true);
    touch(ret, &n, l->invstd, l->channels * sizeof *l->invstd, true);
    touch(ret, &n, l->count, sizeof *l->count, true);
    touch(ret, &n, l->running_mean, running, true);
    touch(ret, &n, l->running_var, running, true);
    return n;
}

static size_t list_recall(const void *work, struct double_range *ret)
{
    const struct device_layer *l = work;
    const size_t running = l->channels * size_of(l->dtype);
    size_t n = 0;
    touch(ret, &n, l->running_mean, running, false);
    touch(ret, &n, l->running_var, running, false);
    touch(ret, &n, l->mean, l->channels * sizeof *l->mean, true);
    touch(ret, &n, l->invstd, l->channels * sizeof *l->invstd, true);
    return n;
}

/* What goes forward and back reads of a channel. */
static void touch_channels(const struct device_layer *l, struct double_range *ret, size_t *n)
{
    touch(ret, n, l->mean, l->channels * sizeof *l->mean, false);
    touch(ret, n, l->invstd, l->channels * sizeof *l->invstd, false);
    touch(ret, n, l->weight, l->channels * size_of(l->dtype), false);
}

static size_t list_normalise(const void *work, struct double_range *ret)
{
    const struct device_layer *l = work;
    size_t n = 0;
    touch_channels(l, ret, &n);
    touch(ret, &n, l->bias, l->channels * size_of(l->dtype), false);
    touch(ret, &n, l->x, all_values(l), false);
    touch(ret, &n, l->y, all_values(l), true);
    return n;
}

static size_t list_sums(const void *work, struct double_range *ret)
{
    const struct device_layer *l = work;
    size_t n = 0;
    touch(ret, &n, l->x, all_values(l), false);
    touch(ret, &n, l->dy, all_values(l), false);
    touch(ret, &n, l->mean, l->channels * sizeof *l->mean, false);
    touch(ret, &n, l->parts, l->channels * l->n_parts * sizeof *l->parts, true);
    return n;
}

static size_t list_say_sums(const void *work, struct double_range *ret)
{
    const struct device_layer *l = work;
    const size_t gradient = l->channels * size_of(l->dtype);
    size_t n = 0;
    touch(ret, &n, l->parts, l->channels * l->n_parts * sizeof *l->parts, false);
    touch(ret, &n, l->invstd, l->channels * sizeof *l->invstd, false);
    touch(ret, &n, l->sums, 2 * l->channels * sizeof *l->sums, true);
    touch(ret, &n, l->dweight, gradient, true);
    touch(ret, &n, l->dbias, gradient, true);
    return n;
}

static size_t list_backward(const void *work, struct double_range *ret)
{
    const struct device_layer *l = work;
    size_t n = 0;
    touch_channels(l, ret, &n);
    touch(ret, &n, l->sums, 2 * l->channels * sizeof *l->sums, false);
    touch(ret, &n, l->count, sizeof *l->count, false);
    touch(ret, &n, l->x, all_values(l), false);
    touch(ret, &n, l->dy, all_values(l), false);
    touch(ret, &n, l->dx, all_values(l), true);
    return n;
}

/* --- all of them ------------------------------------------------------------------------------ */

#define CLIP(name)                                                                                 \
    {                                                                                              \
        ".entry ddp_" #name "(", sizeof(struct kernel_clip), run_##name, list_##name               \
    }
#define LAYER(name)                                                                                \
    {                                                                                              \
        ".entry ddp_" #name "(", sizeof(struct device_layer), run_##name, list_##name              \
    }

static const struct kernel kernels[] = {
    {".entry ddp_pack(", sizeof(struct kernel_pieces), run_pack, list_pack},
    {".entry ddp_unpack(", sizeof(struct kernel_pieces), run_unpack, list_unpack},
    CLIP(squares),
    CLIP(clip_factor),
    CLIP(scale),
    LAYER(moments),
    LAYER(say_moments),
    LAYER(hear_moments),
    LAYER(recall),
    LAYER(normalise),
    LAYER(sums),
    LAYER(say_sums),
    LAYER(backward),
};
enum { N_KERNELS = sizeof kernels / sizeof *kernels };

/* --- loading ---------------------------------------------------------------------------------- */

struct fatbin { /* how such code begins */
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes; /* after the header */
};

DOUBLE_EXPORT cudaError_t cudaLibraryLoadData(cudaLibrary_t *ret, const void *code,
                                              enum cudaJitOption *jit, void **jit_values,
                                              unsigned n_jit, enum cudaLibraryOption *options,
                                              void **values, unsigned n)
{
    const struct fatbin *f = code;
    (void)jit, (void)jit_values, (void)options, (void)values;
    if (cudart_is_unsafe("cudaLibraryLoadData is called"))
        return cudart_return(cudaErrorStreamCaptureUnsupported);
    if (getenv("NCCL_DOUBLE_OLD_GPU") != NULL)
        return cudart_return(cudaErrorNoKernelImageForDevice);
    if (f->magic != 0xba55ed50 || n_jit > 0 || n > 0) {
        double_report("cudaLibraryLoadData is given no fat binary, or options");
        return cudart_return(cudaErrorInvalidValue);
    }
    pthread_mutex_lock(&cudart_mutex);
    cudart_wait_all(); /* CUDA may */
    pthread_mutex_unlock(&cudart_mutex);
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

/* It loads the kernel, for which CUDA may wait until the device is idle: here it does. */
DOUBLE_EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *ret, const void *kernel)
{
    (void)kernel;
    pthread_mutex_lock(&cudart_mutex);
    cudart_wait_all();
    pthread_mutex_unlock(&cudart_mutex);
    memset(ret, 0, sizeof *ret);
    return cudart_return(cudaSuccess);
}

/* --- launching -------------------------------------------------------------------------------- */

struct launch {
    const struct kernel *kernel;
    dim3 blocks, lanes;
    _Alignas(max_align_t) unsigned char work[];
};

/* A fault: a kernel that does nothing. */
static bool is_idle(const struct kernel *k)
{
    const char *name = getenv("NCCL_DOUBLE_IDLE_KERNEL");
    return name != NULL && strncmp(k->entry + strlen(".entry "), name, strlen(name)) == 0;
}

static void run(void *arg)
{
    const struct launch *l = arg;
    if (!is_idle(l->kernel))
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
    int current;
    const int device = double_device_of(stream);
    cudaGetDevice(&current);
    if (device >= 0 && device != current) {
        double_report("%s is launched by a thread whose device is another one", k->entry);
        return cudart_return(cudaErrorInvalidResourceHandle);
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
