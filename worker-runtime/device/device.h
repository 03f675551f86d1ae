/* device.h - the device side of a group: a communicator of the ranks' GPUs, in addition to the
 * group's own back end. The first call with a stream makes it (device_plugin.h has what moves
 * data).
 *
 * What the ranks must agree on to make it goes over the back end of the CPUs, which ends when a
 * peer dies. The same holds for every message about a broken job. Functions return public
 * statuses. */
#ifndef DDP_WORKER_RUNTIME_DEVICE_DEVICE_H
#define DDP_WORKER_RUNTIME_DEVICE_DEVICE_H

#include "worker-runtime/arithmetic/device_layer.h"
#include "worker-runtime/core/backend.h"
#include "worker-runtime/core/group.h"

extern const struct stream_ops device_stream_ops;

/* `sub` of g was split off: split g's communicator in the same way, if it has one.
 *
 * sub   NULL: this rank is in none */
int device_split(struct ddp_group *g, int color, int key, struct ddp_group *sub);

/* Make the group's communicator, if it has none. Collective. */
int device_open(struct ddp_group *g);

/* Where DDP_BACKEND=nccl wants that: make the world's communicator now. Collective. */
int device_begin(struct ddp_group *world);

/* Give a group's back, if it has one. Before its back end goes. */
void device_close(struct ddp_group *g);

/* --- device_calls.c --------------------------------------------------------------------------- */

/* Whether this process may continue with another generation. returns DDP_OK; DDP_ERESPAWN */
int device_check(void);

/* Of this rank alone. returns 0; DDP_EINVAL; DDP_EUNSUPPORTED there is no GPU */
int device_check_memory(const struct ddp_group *g, const void *p, const char *which);
/* Zeroed in the order of the stream.
 *
 * for_nccl   such as the plug-in's enlist() takes, if there is some
 * returns    also DDP_ENOMEM */
int device_alloc(const struct ddp_group *g, size_t bytes, bool for_nccl, void *stream, void **ret);
/* After everything that may touch it: in a broken job that is ended first. NULL is fine. */
void device_free(struct ddp_group *g, void *at, void *stream);
int device_clear(const struct ddp_group *g, void *at, size_t bytes, void *stream);
/* Zeroed memory of the host for the plug-in's take_words(). returns also DDP_ENOMEM */
int device_alloc_host(const struct ddp_group *g, size_t bytes, void **ret);
void device_free_host(const struct ddp_group *g, void *at); /* after device_free(). NULL is fine */

/* What device_norm() and device_clip() need, and averages that do more than NCCL's. Waits for what
 * is on the stream.
 * returns   also DDP_EUNSUPPORTED: no such GPU; as ddp_stream_wait() */
int device_load_kernels(struct ddp_group *g, void *stream);
/* As the plug-in's. */
struct device_clip;
int device_clip(const struct ddp_group *g, const struct device_clip *c);
int device_norm(const struct ddp_group *g, enum device_norm step, const struct device_layer *layer,
                void *stream);

/* Wait for what is on the stream, as ddp_stream_wait() does, and also without a communicator.
 * returns as it */
int device_wait(struct ddp_group *g, void *stream);

/* Wait for what is on the stream and for averages; if the job is broken, end what waits there for a
 * peer that died, and wait until it has ended. After that CUDA's own waits also end.
 *
 * returns   false: something on the stream has not ended in its time */
bool device_end_waits(struct ddp_group *g, void *stream);

/* Whether what is on the stream may be waited for by other means: nothing is there that waits for a
 * peer which died, and was not ended here.
 *
 * is_late   nor is there anything else: a wait of its own ends now, and breaks the job
 * returns   0; -errno, as the plug-in's wait() */
int device_look(struct ddp_group *g, void *stream, bool is_late, struct co_error *err);

/* Whether the stream captures a graph now. returns 0; DDP_EINVAL it did, and CUDA has given up */
int device_is_capturing(const struct ddp_group *g, void *stream, bool *ret);
/* Break the job: what the ranks put on their devices differs. Peers that wait for it get the
 * error. */
void device_tell_mismatch(struct ddp_group *g, const char *text);

#endif
