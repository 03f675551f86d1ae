/* heartbeats.h - which hosts of a job are silent, found on connections of their spawners.
 *
 * A node's spawner writes a byte at an interval (launcher/spawner/heartbeat.h). A host is silent if
 * no byte has come for `silent_ms`, and its kernel has not acknowledged what was written to it
 * meanwhile: a machine that is too busy to run the spawner still acknowledges. The kernel here
 * knows when a byte came, so a process that is slow or was stopped finds no host silent for that. A
 * message HEARTBEAT opens the connection (jobs.c). */
#ifndef DDP_RENDEZVOUS_JOBS_HEARTBEATS_H
#define DDP_RENDEZVOUS_JOBS_HEARTBEATS_H

#include "rendezvous/membership/message.h"

#include <uv.h>

enum { HEARTBEATS_MAX = 1024 }; /* hosts; of more, only keep-alives are known */

struct heartbeats; /* opaque */

/* silent_ms   not 0
 * on_silent   a host is silent; again at each look until it is heard or forgotten
 * returns     NULL: out of memory */
struct heartbeats *heartbeats_create(uv_loop_t *loop, uint64_t silent_ms,
                                     void (*on_silent)(void *arg, const uint8_t *instance),
                                     void *arg);

/* The host of this instance sends heartbeats there from now on, instead of where it did before.
 *
 * fd        taken over
 * returns   0; -ENOSPC, -ENOMEM: it is closed */
int heartbeats_add(struct heartbeats *h, int fd, const uint8_t instance[MESSAGE_INSTANCE_BYTES]);

/* Close that connection, if there is one. */
void heartbeats_forget(struct heartbeats *h, const uint8_t instance[MESSAGE_INSTANCE_BYTES]);

uint32_t heartbeats_n(const struct heartbeats *h);

/* Free it from the loop; on_closed follows. */
void heartbeats_close(struct heartbeats *h, void (*on_closed)(void *arg), void *arg);

#endif
