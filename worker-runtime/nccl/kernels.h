/* kernels.h - the plug-in's own kernels: loading them, and putting them on a stream.
 *
 * They are in the plug-in as code for GPUs of compute capability 8, 9 and 10, and as PTX, from
 * which the driver makes code for newer ones. Nothing is loaded before it may be needed; then all
 * kernels at once: CUDA may wait for the whole device to load one, and a kernel of NCCL's may be
 * waiting for a peer by then.
 *
 * Functions that put one on a stream return 0; -EIO with err filled: it was not put there, or the
 * device had failed before. None waits, all may be captured. */
#ifndef DDP_WORKER_RUNTIME_NCCL_KERNELS_H
#define DDP_WORKER_RUNTIME_NCCL_KERNELS_H

#include "kernel_clip.h"

#include "worker-runtime/arithmetic/device_layer.h"

#include <cuda_runtime_api.h>

struct co_error;

#define KERNELS(X)                                                                                 \
    X(PACK, ddp_pack)                                                                              \
    X(UNPACK, ddp_unpack)                                                                          \
    X(SQUARES, ddp_squares)                                                                        \
    X(CLIP_FACTOR, ddp_clip_factor)                                                                \
    X(SCALE, ddp_scale)                                                                            \
    X(MOMENTS, ddp_moments)                                                                        \
    X(SAY_MOMENTS, ddp_say_moments)                                                                \
    X(HEAR_MOMENTS, ddp_hear_moments)                                                              \
    X(RECALL, ddp_recall)                                                                          \
    X(NORMALISE, ddp_normalise)                                                                    \
    X(SUMS, ddp_sums)                                                                              \
    X(SAY_SUMS, ddp_say_sums)                                                                      \
    X(BACKWARD, ddp_backward)

enum kernel {
#define KERNEL_NUMBER(name, symbol) KERNEL_##name,
    KERNELS(KERNEL_NUMBER)
#undef KERNEL_NUMBER
        KERNEL_N
};

struct kernels { /* zeroed at first */
    cudaLibrary_t library;
    cudaKernel_t at[KERNEL_N];
};

/* Load all, on the calling thread's device.
 *
 * ret   written only if cudaSuccess is returned */
cudaError_t kernels_load(struct kernels *ret);
/* What it has returned, in words.
 * returns   -ENOTSUP the GPU is older than they are, or the driver than this CUDA; -EIO */
int kernels_load_failed(cudaError_t result, struct co_error *err);

/* KERNEL_PACK, gradients onto the wire: each value times the factor, in its own type, then rounded
 * to nearest into the wire's; or, where the types are the same, as it is. Without a wire they are
 * changed where they lie; with factor 1 only looked at. found_inf becomes 1 where one was not
 * finite before it was multiplied.
 * KERNEL_UNPACK, and back: each value of the wire, as the gradient's type holds it, times the
 * factor. found_inf becomes 1 where one is not finite in the end.
 *
 * work      copied; work->n is 1 to KERNEL_PIECES
 * shape     the pieces of a bucket lie on the wire one after the other, without gaps; `first` is
 *           the place of the first one, also without a wire: blocks are distributed over all values
 * cost      each value is read once and written once */
int kernels_run_pieces(const struct kernels *k, enum kernel which, const struct kernel_pieces *work,
                       cudaStream_t stream, struct co_error *err);

/* Clipping, as kernel_clip.h has it. KERNEL_SQUARES, of some gradients, and those of all launches
 * before; then the norm and the factor; KERNEL_SCALE, some gradients times the factor.
 *
 * work      copied; work->n is 1 to KERNEL_PIECES, except for kernels_find_factor(), which reads no
 *           gradients. `first` is chosen here
 * cost      each value is read once for the sum; read and written once where it is scaled */
int kernels_run_vector(const struct kernels *k, enum kernel which, struct kernel_clip *work,
                       cudaStream_t stream, struct co_error *err);
int kernels_find_factor(const struct kernels *k, const struct kernel_clip *work,
                        cudaStream_t stream, struct co_error *err);

/* A step of batch normalization: enum device_norm has what it reads and writes.
 *
 * layer     copied; n_parts is chosen here, by the shape alone: the same sums in every run. What a
 *           step does not read or write may be NULL
 * cost      DEVICE_NORM_SAY reads its values twice, the other steps once; 20 to 40 operations of
 *           float64 a value. Channels last (inner is 1) are read with gaps: not tuned
 * returns   also -EINVAL: more channels than a launch has blocks, 2^31 - 1 */
int kernels_norm(const struct kernels *k, enum device_norm step, const struct device_layer *layer,
                 cudaStream_t stream, struct co_error *err);

#endif
