#include "nccl_map.h"

#include "common/error.h"

#include <errno.h>

ncclDataType_t nccl_map_dtype(enum ddp_dtype dtype)
{
    static const ncclDataType_t of[] = {
        [DDP_FLOAT32] = ncclFloat32, [DDP_FLOAT64] = ncclFloat64, [DDP_INT32] = ncclInt32,
        [DDP_INT64] = ncclInt64,     [DDP_FLOAT16] = ncclFloat16, [DDP_BFLOAT16] = ncclBfloat16,
        [DDP_INT8] = ncclInt8,       [DDP_UINT8] = ncclUint8,     [DDP_UINT32] = ncclUint32,
        [DDP_UINT64] = ncclUint64,
    };
    return of[dtype];
}

size_t nccl_map_size(enum ddp_dtype dtype)
{
    static const size_t of[] = {
        [DDP_FLOAT32] = 4,  [DDP_FLOAT64] = 8, [DDP_INT32] = 4, [DDP_INT64] = 8,  [DDP_FLOAT16] = 2,
        [DDP_BFLOAT16] = 2, [DDP_INT8] = 1,    [DDP_UINT8] = 1, [DDP_UINT32] = 4, [DDP_UINT64] = 8,
    };
    return of[dtype];
}

bool nccl_map_op(enum ddp_op op, ncclRedOp_t *ret)
{
    switch (op) {
    case DDP_SUM:
        *ret = ncclSum;
        return true;
    case DDP_AVG:
        *ret = ncclAvg;
        return true;
    case DDP_MIN:
        *ret = ncclMin;
        return true;
    case DDP_MAX:
        *ret = ncclMax;
        return true;
    case DDP_PROD:
        *ret = ncclProd;
        return true;
    case DDP_BAND:
    case DDP_BOR:
        break;
    }
    return false;
}

int nccl_map_nccl_failed(const char *what, ncclResult_t result, ncclComm_t comm,
                         struct co_error *err)
{
    const char *last = ncclGetLastError(comm);
    if (last == NULL || last[0] == '\0')
        return co_fail(err, -EIO, "%s: NCCL reports '%s'; NCCL_DEBUG=WARN says more", what,
                       ncclGetErrorString(result));
    return co_fail(err, -EIO, "%s: NCCL reports '%s' (%.300s)", what, ncclGetErrorString(result),
                   last);
}

bool nccl_map_is_of_capture(cudaError_t result)
{
    return result >= cudaErrorStreamCaptureUnsupported &&
           result <= cudaErrorStreamCaptureWrongThread;
}

/* What is told here is not left for a program that asks CUDA after a call of its own. An error that
 * the context will not get over stays in any case. */
int nccl_map_cuda_failed(const char *what, cudaError_t result, struct co_error *err)
{
    cudaGetLastError();
    return co_fail(err, nccl_map_is_of_capture(result) ? -EINVAL : -EIO,
                   "%s: CUDA reports '%s' (%s)", what, cudaGetErrorString(result),
                   cudaGetErrorName(result));
}
