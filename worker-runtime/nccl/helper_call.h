/* helper_call.h - a call that may never return, made by a thread of its own while the caller waits
 * for it as long as it likes.
 *
 * Calls that end communicators are known to hang where a device or a peer is in a bad way. A thread
 * that does not come back is left behind: the process goes on to say that it has to be replaced. */
#ifndef DDP_WORKER_RUNTIME_NCCL_HELPER_CALL_H
#define DDP_WORKER_RUNTIME_NCCL_HELPER_CALL_H

#include <stddef.h>
#include <stdint.h>

struct helper_call; /* opaque */

/* Have a thread with this device do work(arg).
 *
 * arg       `bytes` of it are copied: the work may outlive who asked for it
 * returns   NULL: there is no memory, or no thread, and nothing was done */
struct helper_call *helper_call_start(int device, int (*work)(const void *arg), const void *arg,
                                      size_t bytes);

/* Wait for its end.
 *
 * ret_result   what the work returned; written only if 0 is returned
 * returns      0; -ETIMEDOUT it goes on */
int helper_call_wait(struct helper_call *h, uint64_t timeout_ms, int *ret_result);

/* Done with it. One that goes on does so, and nobody will hear of its end. NULL is fine. */
void helper_call_leave(struct helper_call *h);

/* All three. returns 0; -ETIMEDOUT it was left; -ENOMEM nothing was done */
int helper_call_run(int device, int (*work)(const void *arg), const void *arg, size_t bytes,
                    uint64_t timeout_ms, int *ret_result);

#endif
