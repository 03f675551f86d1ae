/* p2p_shm.h - messages between two ranks of a group on one node.
 *
 * Each rank keeps what it sends in an outbox in its own user segment: a ring of 64 slots for each
 * receiver. A short message rides in its slot; of a long one the slot says where it lies, and the
 * receiver fetches it: from the user segment, by system call from ordinary memory, or, where
 * neither can be, through a staging buffer that the sender fills piece by piece. Nobody writes into
 * another's memory but for the words by which both talk about a slot.
 *
 * Matching is the receiver's: it looks through the slots in the order of sending and takes the
 * first with its tag. So unmatched messages are bounded by the ring, and a sender waits when it is
 * full.
 *
 * Threads: any may call; a mutex is taken. */
#ifndef DDP_WORKER_RUNTIME_SHM_P2P_SHM_H
#define DDP_WORKER_RUNTIME_SHM_P2P_SHM_H

#include "worker-runtime/core/backend.h"

#include <stdbool.h>

#define MESSAGES_SHORT_BYTES 4096 /* that ride in a slot */
#define MESSAGES_SLOTS       64   /* of a ring */

struct cpu;
struct p2p_shm; /* opaque: those of a group */

/* returns   0, -ENOMEM; the text says which variable to change */
int p2p_shm_create(struct cpu *c, struct p2p_shm **ret, struct co_error *err);
void p2p_shm_destroy(struct p2p_shm *ms); /* what is in the outbox stays; NULL is fine */

void p2p_shm_begin(struct p2p_shm *ms, struct message *m);
/* Go on with all that are open. returns whether any are still */
bool p2p_shm_advance(struct p2p_shm *ms);
void p2p_shm_wait(struct p2p_shm *ms, const struct message *until);

#endif
