/* replay.h - the bytes of a connection that may have to go over another one: those that were sent
 * and may not have arrived, and those that have arrived and were not read yet. Pure: no socket, no
 * clock.
 *
 * Both sides count the bytes of each direction from the first connection on. When a connection
 * takes the place of another, each side reports how many bytes it has received, and the other one
 * sends those after that again. */
#ifndef DDP_WORKER_RUNTIME_TCP_REPLAY_H
#define DDP_WORKER_RUNTIME_TCP_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define REPLAY_MOST (8u << 20) /* bytes that are kept of what was sent */

struct replay { /* zeroed at first */
    uint64_t sent, received;
    uint64_t kept;   /* bytes from here to `sent` are kept */
    uint64_t resent; /* and were given to this connection up to here */
    uint8_t *ring;   /* of `ring_bytes`, a power of two or 0; owned */
    size_t ring_bytes;
    uint8_t *early; /* arrived and not read: n_early bytes from first_early on; owned */
    size_t n_early, first_early, early_bytes;
};

void replay_fini(struct replay *r);

/* Have space for what is about to be sent.
 *
 * bytes     that could be sent
 * returns   how many of them may be: less, if so many would have to be kept; 0: wait until the
 *           other side has acknowledged some. -ENOMEM */
ssize_t replay_reserve(struct replay *r, size_t bytes);

/* n bytes of these were sent, of which there was space for. */
void replay_keep(struct replay *r, const struct iovec *v, unsigned n_v, size_t n);

/* All but so many bytes that this connection was given have arrived at the other machine. */
void replay_forget(struct replay *r, size_t unacknowledged);

/* A new connection: the other side has received so many bytes. returns 0; -EPROTO it cannot have */
int replay_rewind(struct replay *r, uint64_t received);

/* What to send before anything else. returns the number of pieces; 0: nothing is left */
unsigned replay_rest(const struct replay *r, struct iovec v[2]);
void replay_resend(struct replay *r, size_t n); /* n bytes of it went */

/* Bytes have arrived on the old connection. returns 0, -ENOMEM */
int replay_store(struct replay *r, const void *bytes, size_t n);

/* Read them. returns how many; 0: none are left */
size_t replay_read(struct replay *r, const struct iovec *v, unsigned n_v);

#endif
