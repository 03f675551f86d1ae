/* device.h - groups whose data lies on GPUs, moved by NCCL.
 *
 * Collectives and messages that are given a stream work on memory of this rank's GPU: they are put
 * into the stream's order and return, and are complete when what the program puts there after them
 * begins. Joining needs no option for this: the first call with a stream loads libddp-nccl.so,
 * takes the GPU and makes the group's communicator. That first call is collective, as all of them
 * are; DDP_BACKEND=nccl has ddp_init() do it, and fail where it cannot be. Messages, and
 * ddp_stream_wait(), return DDP_EINVAL before it.
 *
 *   GPU        of those that the process sees (CUDA_VISIBLE_DEVICES): the one there is, else that
 *              of the local rank's number
 *   stream     a cudaStream_t. The default stream is named by cudaStreamLegacy or
 *              cudaStreamPerThread: NULL stands for memory of the CPU. The latter is the calling
 *              thread's own, and costs two events a call more
 *   threads    as in collective.h; a call makes the rank's GPU the calling thread's current
 *              device
 *   memory     of cudaMalloc() and its like, or of the host and known to CUDA
 *   failures   of a peer end the kernels that wait for it, and are returned by the next call of the
 *              group with a stream, as in collective.h. Calls of CUDA know nothing of peers:
 *              wait by ddp_stream_wait(), not by cudaStreamSynchronize(); and call it before
 *              cudaFree(), which waits for all kernels
 *   graphs     may capture all calls with a stream, once the group has a communicator; of a model
 *              see ddp_model_replayed(). All ranks capture a call, and launch its graph, or none
 *              does. A graph is of its generation; a launch does not check the peers. Destroy it
 *              before its group ends: NCCL does not let a communicator go before its graphs
 *              (docs/design/nccl.md)
 *   DDP_ERESPAWN  this process cannot use its GPU any more, or the failure is its own: return from
 *              main, or call ddp_fatal(), which exits with status 75; ddprun --max-restarts starts
 *              another process in its place
 *
 * Unlike on CPUs: sums depend on NCCL's algorithm, not on rank order; a NaN may get lost in DDP_MIN
 * and DDP_MAX; DDP_BAND, DDP_BOR and ddp_all_reduce_checked() return DDP_EUNSUPPORTED; messages
 * have tag 0 and wait for each other in the stream; if ranks call different things, this is not
 * detected, and they get DDP_ETIMEOUT. */
#ifndef DDP_DEVICE_H
#define DDP_DEVICE_H

#include <ddp/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Wait until all that was put on a stream is done.
 *
 * timeout_ms   0: as any other call
 * returns      0
 *              DDP_EINVAL        the group has no communicator yet, or a graph is captured
 *              DDP_ETIMEOUT      the time is over; the job is broken
 *              DDP_ERESPAWN      CUDA or NCCL failed here
 *              DDP_EPEER, DDP_RETRY  as a collective; what is on the stream has ended */
int ddp_stream_wait(struct ddp_group *g, void *stream, uint64_t timeout_ms);

/* The group's ncclComm_t, for callers that use NCCL directly. Collective the first time. It belongs
 * to the group; it is non-blocking: a call that returns ncclInProgress is under way once
 * ncclCommGetAsyncError() returns ncclSuccess.
 *
 * returns   0; DDP_EUNSUPPORTED, and what a collective returns */
int ddp_nccl_comm(struct ddp_group *g, void **ret_comm);

/* The number of this rank's GPU among those that the process sees, and the calling thread's current
 * device from now on. Not collective.
 *
 * returns   0; DDP_EUNSUPPORTED no GPU; the text names what is missing */
int ddp_device(struct ddp_group *g, int *ret_index);

#ifdef __cplusplus
}
#endif
#endif
