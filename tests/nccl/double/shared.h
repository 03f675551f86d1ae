/* shared.h - how the ranks of one of the double's communicators connect: a file in NCCL_DOUBLE_DIR
 * that all of them map, which has a name until all have joined; and what they do there.
 *
 * A waiting rank spins and sleeps by turns, and stops when *stop becomes true; it does not detect
 * the death of another rank, like a kernel. */
#ifndef DDP_TESTS_NCCL_DOUBLE_SHARED_H
#define DDP_TESTS_NCCL_DOUBLE_SHARED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHARED_RANKS = 16, SHARED_CHUNK = 1 << 16, SHARED_MAIL = 1 << 12 };

struct shared; /* opaque */

struct shared_wait {                /* on whose behalf is waited */
    const atomic_bool *stop, *also; /* NULL: nothing stops it */
};

/* returns   false: stop */
bool shared_nap(const struct shared_wait *w, unsigned *n);

/* Map the file of a communicator of n ranks. returns NULL: it was reported */
struct shared *shared_open(uint64_t id, int n);
void shared_close(struct shared *s); /* NULL is fine */

/* Report that this rank has joined, and wait for all. The file then has no name. */
bool shared_join(struct shared *s, uint64_t id, const struct shared_wait *w);

/* --- collectives: all ranks make the same steps --- */

/* This rank's place for what it shows the others. */
char *shared_own(struct shared *s, int rank);
const char *shared_of(const struct shared *s, int rank);

/* Wait until all have come as far.
 *
 * step   how often it was called on this communicator */
bool shared_meet(struct shared *s, int rank, uint64_t step, const struct shared_wait *w);

/* The same with a word, and return whether all have passed the same one. */
bool shared_compare(struct shared *s, int rank, uint64_t step, uint64_t word,
                    const struct shared_wait *w, bool *ret_same);

/* --- messages, a piece of SHARED_MAIL bytes at a time: without waiting --- */

/* returns   whether there was space, or a message */
bool shared_put(struct shared *s, int from, int to, const void *at, size_t bytes);
bool shared_take(struct shared *s, int from, int to, void *at, size_t bytes);

/* --- splits --- */

struct shared_colors {
    int color[SHARED_RANKS], key[SHARED_RANKS];
};

/* Pass this rank's color and get all. round: how often it was called */
bool shared_tell_color(struct shared *s, int rank, unsigned round, int color, int key,
                       const struct shared_wait *w, struct shared_colors *ret);

#endif
