/* nccl_map.h - libddp's types and operations as NCCL calls them, and what NCCL and CUDA say in
 * words. */
#ifndef DDP_WORKER_RUNTIME_NCCL_NCCL_MAP_H
#define DDP_WORKER_RUNTIME_NCCL_NCCL_MAP_H

#include <ddp/types.h>
#include <nccl.h>
#include <stdbool.h>

struct co_error;

/* Of a known type: its name there. */
ncclDataType_t nccl_map_dtype(enum ddp_dtype dtype);

/* returns   whether NCCL has such an operation: not those on bits */
bool nccl_map_op(enum ddp_op op, ncclRedOp_t *ret);

/* Fill err with "WHAT: NCCL reports 'unhandled system error' (LAST WARNING)", and the like.
 *
 * comm      NULL where there is none
 * returns   -EIO; of CUDA -EINVAL, too: nccl_map_is_of_capture(), and 0 of cudaSuccess. CUDA's last
 *           error of this thread is forgotten */
int nccl_map_nccl_failed(const char *what, ncclResult_t result, ncclComm_t comm,
                         struct co_error *err);
int nccl_map_cuda(const char *what, cudaError_t result, struct co_error *err);

/* What NCCL says of a communicator, NULL for none. returns 1 it is at rest; 0 something goes on;
 * -EIO */
int nccl_map_ask(ncclComm_t comm, const char *what, struct co_error *err);

/* Of several calls: *first is their first failure; those that are under way are none. */
void nccl_map_keep_first(ncclResult_t *first, ncclResult_t result);

/* Whether CUDA refuses something since a graph is captured: the program's mistake, and no failure
 * of the device. */
bool nccl_map_is_of_capture(cudaError_t result);

#endif
