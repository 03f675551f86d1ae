/* kernels.cu - the kernels: how a GPU deals out what kernel_math.h computes. kernels.h is for their
 * callers, and tests/nccl/double/cudart_launch.c does on a CPU what is done here. */
#include "kernel_clip.h"
#include "kernel_moments.h"

/* A tile of one piece, as most are: each thread has all its values on their way before it waits for
 * the first. returns whether all are finite */
template <bool is_back>
static __device__ bool whole_tile(const struct kernel_pieces &k, const struct kernel_piece *p,
                                  uint64_t from)
{
    uint64_t bits[KERNEL_TILE / KERNEL_LANES];
    bool all_ok = true, ok;
#pragma unroll
    for (unsigned j = 0; j < KERNEL_TILE / KERNEL_LANES; j++)
        bits[j] = kernel_take(&k, p, from + j * KERNEL_LANES + threadIdx.x, is_back);
#pragma unroll
    for (unsigned j = 0; j < KERNEL_TILE / KERNEL_LANES; j++) {
        bits[j] = is_back ? kernel_from_wire(&k, bits[j], &ok) : kernel_to_wire(&k, bits[j], &ok);
        all_ok &= ok;
        kernel_put(&k, p, from + j * KERNEL_LANES + threadIdx.x, bits[j], is_back);
    }
    return all_ok;
}

/* All pieces are one row of values, as on the wire, and blocks share it in tiles: next to a long
 * piece short ones do not occupy blocks that have nothing to do. */
template <bool is_back> static __device__ bool each_value(const struct kernel_pieces &k)
{
    const uint64_t first = k.piece[0].first, end = first + kernel_count(&k);
    bool is_bad = false;
    for (uint64_t tile = first + (uint64_t)blockIdx.x * KERNEL_TILE; tile < end;
         tile += (uint64_t)gridDim.x * KERNEL_TILE) {
        const struct kernel_piece *p = &k.piece[kernel_find(&k, tile)];
        if (tile - p->first + KERNEL_TILE <= p->count) {
            is_bad |= !whole_tile<is_back>(k, p, tile - p->first);
            continue;
        }
        for (unsigned at = threadIdx.x; at < KERNEL_TILE && tile + at < end; at += blockDim.x) {
            while (tile + at - p->first >= p->count)
                p++;
            is_bad |= !(is_back ? kernel_unpack : kernel_pack)(&k, p, tile + at - p->first);
        }
    }
    return is_bad;
}

/* One word for all: only the first thread of a block that has found something writes it, and always
 * the same value. */
static __device__ void tell(const struct kernel_pieces &k, bool is_bad)
{
    if (__syncthreads_or(is_bad) && threadIdx.x == 0 && k.found_inf != NULL)
        *k.found_inf = 1;
}

extern "C" __global__ void ddp_pack(const __grid_constant__ struct kernel_pieces k)
{
    tell(k, each_value<false>(k));
}

extern "C" __global__ void ddp_unpack(const __grid_constant__ struct kernel_pieces k)
{
    tell(k, each_value<true>(k));
}

/* --- sums ------------------------------------------------------------------------------------- */

/* The block's shares become one, as a tree: the order is that of the threads. */
template <typename T> static __device__ T merge_lanes(T own, T (*merge)(T, T))
{
    __shared__ T share[KERNEL_LANES];
    share[threadIdx.x] = own;
    __syncthreads();
    for (unsigned half = KERNEL_LANES / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            share[threadIdx.x] = merge(share[threadIdx.x], share[threadIdx.x + half]);
        __syncthreads();
    }
    return share[0];
}

/* --- clipping: all blocks share all gradients ------------------------------------------------- */

#define THREAD  ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS ((uint64_t)gridDim.x * blockDim.x)

extern "C" __global__ void ddp_squares(const __grid_constant__ struct kernel_clip k)
{
    const double sum = merge_lanes(kernel_lane_squares(&k, THREAD, THREADS), kernel_plus);
    if (threadIdx.x == 0)
        k.part[blockIdx.x] += sum;
}

/* One block. */
extern "C" __global__ void ddp_clip_factor(const __grid_constant__ struct kernel_clip k)
{
    const double sum = merge_lanes(kernel_lane_parts(&k, threadIdx.x), kernel_plus);
    if (threadIdx.x == 0)
        kernel_find_factor(&k, sum);
}

extern "C" __global__ void ddp_scale(const __grid_constant__ struct kernel_clip k)
{
    kernel_lane_scale(&k, THREAD, THREADS);
}

/* --- batch normalization: blocks are channels, and parts of a channel ------------------------- */

#define FIRST ((uint64_t)blockIdx.y * blockDim.x + threadIdx.x)
#define STEP  ((uint64_t)gridDim.y * blockDim.x)

extern "C" __global__ void ddp_moments(const __grid_constant__ struct device_layer l)
{
    const struct device_moments m =
        merge_lanes(kernel_lane_moments(&l, blockIdx.x, FIRST, STEP), kernel_merge);
    if (threadIdx.x == 0)
        l.moments[blockIdx.x * gridDim.y + blockIdx.y] = m;
}

extern "C" __global__ void ddp_sums(const __grid_constant__ struct device_layer l)
{
    const struct device_sums s =
        merge_lanes(kernel_lane_sums(&l, blockIdx.x, FIRST, STEP), kernel_add);
    if (threadIdx.x == 0)
        l.parts[blockIdx.x * gridDim.y + blockIdx.y] = s;
}

extern "C" __global__ void ddp_normalise(const __grid_constant__ struct device_layer l)
{
    for (uint64_t k = FIRST; k < l.outer * l.inner; k += STEP)
        kernel_normalise(&l, blockIdx.x, k);
}

extern "C" __global__ void ddp_backward(const __grid_constant__ struct device_layer l)
{
    for (uint64_t k = FIRST; k < l.outer * l.inner; k += STEP)
        kernel_backward(&l, blockIdx.x, k);
}

/* --- a thread a channel ----------------------------------------------------------------------- */

#define CHANNEL THREAD

extern "C" __global__ void ddp_say_moments(const __grid_constant__ struct device_layer l)
{
    if (CHANNEL < l.channels)
        kernel_say_moments(&l, CHANNEL);
}

extern "C" __global__ void ddp_hear_moments(const __grid_constant__ struct device_layer l)
{
    if (CHANNEL < l.channels)
        kernel_hear_moments(&l, CHANNEL);
}

extern "C" __global__ void ddp_recall(const __grid_constant__ struct device_layer l)
{
    if (CHANNEL < l.channels)
        kernel_recall(&l, CHANNEL);
}

extern "C" __global__ void ddp_say_sums(const __grid_constant__ struct device_layer l)
{
    if (CHANNEL < l.channels)
        kernel_say_sums(&l, CHANNEL);
}
