/* nccl_map.c - types and operations in NCCL's names, and errors of NCCL and CUDA in words. */
#include "device.h"

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

bool nccl_map_op(enum ddp_op op, ncclRedOp_t *ret)
{
    static const ncclRedOp_t of[] = {[DDP_SUM] = ncclSum,
                                     [DDP_AVG] = ncclAvg,
                                     [DDP_MIN] = ncclMin,
                                     [DDP_MAX] = ncclMax,
                                     [DDP_PROD] = ncclProd};
    if ((size_t)op >= sizeof of / sizeof *of) /* NCCL has none on bits */
        return false;
    *ret = of[op];
    return true;
}

int nccl_map_nccl_failed(const char *what, ncclResult_t result, ncclComm_t comm,
                         struct co_error *err)
{
    const char *last = ncclGetLastError(comm);
    const int code = result == ncclRemoteError || result == ncclSystemError        ? -EREMOTEIO
                     : result == ncclInvalidArgument || result == ncclInvalidUsage ? -ENOTSUP
                                                                                   : -EIO;
    if (last == NULL || last[0] == '\0')
        return co_fail(err, code, "%s: NCCL reports '%s'; set NCCL_DEBUG=WARN for details", what,
                       ncclGetErrorString(result));
    return co_fail(err, code, "%s: NCCL reports '%s' (%.300s)", what, ncclGetErrorString(result),
                   last);
}

bool nccl_map_is_of_capture(cudaError_t result)
{
    return result >= cudaErrorStreamCaptureUnsupported &&
           result <= cudaErrorStreamCaptureWrongThread;
}

/* An error after which, according to driver_types.h, the process can do no more work with CUDA. */
static bool is_of_context(cudaError_t result)
{
    switch (result) {
    case cudaErrorECCUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
        return true;
    default:
        return false;
    }
}

/* An error that is reported here is not left for a program that queries CUDA after a call of its
 * own. An error from which the context cannot recover stays in any case. */
int nccl_map_cuda(const char *what, cudaError_t result, struct co_error *err)
{
    if (result == cudaSuccess)
        return 0;
    cudaGetLastError();
    const int code = nccl_map_is_of_capture(result) ? -EINVAL
                     : is_of_context(result)        ? -ENODEV
                                                    : -EIO;
    return co_fail(err, code, "%s: CUDA reports '%s' (%s)", what, cudaGetErrorString(result),
                   cudaGetErrorName(result));
}

int nccl_map_ask(ncclComm_t comm, const char *what, struct co_error *err)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t result = comm != NULL ? ncclCommGetAsyncError(comm, &state) : ncclSuccess;
    if (result == ncclSuccess)
        result = state;
    if (result == ncclSuccess)
        return 1;
    return result == ncclInProgress ? 0 : nccl_map_nccl_failed(what, result, comm, err);
}

void nccl_map_keep_first(ncclResult_t *first, ncclResult_t result)
{
    if (*first == ncclSuccess || (*first == ncclInProgress && result != ncclSuccess))
        *first = result;
}
