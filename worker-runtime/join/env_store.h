/* env_store.h - the store that rank 0 serves at MASTER_PORT, if the launcher serves none there:
 * TORCHELASTIC_USE_AGENT_STORE=False, which torchrun sets if TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1.
 *
 * As that of PyTorch's ranks it is not protected: what reaches the port can use it. */
#ifndef DDP_WORKER_RUNTIME_JOIN_ENV_STORE_H
#define DDP_WORKER_RUNTIME_JOIN_ENV_STORE_H

#include <stdint.h>

struct co_error;
struct env_who;

/* Serve it, for the life of the process, if this rank has to. For one thread at a time.
 *
 * returns   0 also if it does not have to; -EADDRINUSE; -ENOMEM, -errno */
int env_store_serve(const struct env_who *who, uint16_t port, struct co_error *err);

#endif
