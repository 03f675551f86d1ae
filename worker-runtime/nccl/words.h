/* words.h - libddp's types and operations as NCCL calls them, and what NCCL and CUDA say in
 * words. */
#ifndef DDP_NCCL_WORDS_H
#define DDP_NCCL_WORDS_H

#include <ddp/types.h>
#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

struct co_error;

/* Of a known type: its name there, and the bytes of one element. */
ncclDataType_t words_dtype(enum ddp_dtype dtype);
size_t words_size(enum ddp_dtype dtype);

/* returns   whether NCCL has such an operation: not those on bits */
bool words_op(enum ddp_op op, ncclRedOp_t *ret);

/* Fill err with "WHAT: NCCL reports 'unhandled system error' (LAST WARNING)", and the like.
 *
 * comm      NULL where there is none
 * returns   -EIO; -EINVAL words_is_of_capture(). CUDA's last error of this thread is forgotten */
int words_nccl_failed(const char *what, ncclResult_t result, ncclComm_t comm, struct co_error *err);
int words_cuda_failed(const char *what, cudaError_t result, struct co_error *err);

/* Whether CUDA refuses something since a graph is captured: the program's mistake, and no failure
 * of the device. */
bool words_is_of_capture(cudaError_t result);

#endif
