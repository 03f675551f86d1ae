/* transport_shm.h - how the ranks of one node meet in the control segment. Moves no user data
 * itself: it says when data may be moved. backend_cpu.c holds the algorithms.
 *
 * Words:
 *   call    one collective. All ranks open it, publish its signature with a note, and meet
 *   note    what a rank tells all others with a call: up to TRANSPORT_SHM_NOTE_BYTES
 *   step    from one point that all ranks have reached to the next; a call is a meeting and 0 or
 *           more further steps
 *   touch   to read or write memory that belongs to another rank's program
 *
 * Rules that the algorithms rely on:
 *   - The meeting of a call is the only step in which every rank waits for every other, always. So
 *     a rank is at most one call ahead of any other, and two notes per rank are enough.
 *   - When a call returns on a rank, no other rank touches that rank's memory any more. In a call
 *     that went well its last step sees to that. In one that failed, transport_shm_fail() waits
 *     until nobody touches: who touches says so before, looks at the abort word after saying so,
 *     and looks again after each piece. A rank that is stuck in a piece (stopped by a signal, for
 *     instance) is waited for at most a second; then the caller is told to withdraw its memory.
 *   - A failure is written once, into the abort word, by whoever finds it; every rank forms its
 *     text from that word. From then on each call returns it again. */
#ifndef DDP_WORKER_RUNTIME_TRANSPORT_SHM_H
#define DDP_WORKER_RUNTIME_TRANSPORT_SHM_H

#include "call.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct control;
struct transport_shm; /* opaque */

#define TRANSPORT_SHM_NOTE_BYTES 96

struct transport_shm_place { /* where a rank's buffers lie, for those who can reach them */
    bool has_in, has_out;
    uint64_t in, out; /* offsets into the rank's user segment */
};

union transport_shm_note {
    uint8_t bytes[TRANSPORT_SHM_NOTE_BYTES];
    struct transport_shm_place place;
    double align_;
};

struct transport_shm_opts {
    struct control *control; /* borrowed; this rank has joined it */
    unsigned local_rank;
    bool spin;           /* each rank has a processor of its own: spin before sleeping */
    uint64_t timeout_ms; /* a step takes no longer; 0 is not allowed */
};

/* All ranks must have agreed on `arrived`, the value their lines have now (0 when fresh).
 * returns   0, -ENOMEM */
int transport_shm_create(const struct transport_shm_opts *opts, struct transport_shm **ret,
                         struct co_error *err);
void transport_shm_destroy(
    struct transport_shm *t); /* does not leave the control segment; NULL is fine */

/* Open a call and lend this rank's note of it, to be filled before transport_shm_meet().
 *
 * returns   0; the error that broke the group */
int transport_shm_open(struct transport_shm *t, const struct call *call,
                       union transport_shm_note **ret_note, struct co_error *err);

/* Publish the open call and wait for all ranks to come to the same one.
 *
 * returns   0; -EPROTO somebody called something else; -ECONNRESET somebody died or left;
 *           -ETIMEDOUT. See transport_shm_fail(). */
int transport_shm_meet(struct transport_shm *t, struct co_error *err);

/* A rank's note of the call that was met. Valid until this rank opens its next call. */
const union transport_shm_note *transport_shm_note(const struct transport_shm *t,
                                                   unsigned local_rank);

/* One step further: say that this rank has come so far, and wait for all others, or not. */
int transport_shm_step(struct transport_shm *t, struct co_error *err);
void transport_shm_step_no_wait(struct transport_shm *t);

/* Staging memory, TRANSPORT_SHM_MAILBOX_BYTES of it, that all ranks reach. */
#define TRANSPORT_SHM_MAILBOX_BYTES (508u * 1024)
uint8_t *transport_shm_mailbox(const struct transport_shm *t, unsigned local_rank);

/* Say that this rank starts touching others' memory. Between pieces of at most about a millisecond
 * ask transport_shm_touch_more(); whatever it says, finish by transport_shm_touch_end().
 *
 * returns   true go on; false the group broke: touch nothing (more) */
bool transport_shm_touch_begin(struct transport_shm *t);
bool transport_shm_touch_more(struct transport_shm *t);
void transport_shm_touch_end(struct transport_shm *t);

/* Fill err with why the group is broken, after waiting until nobody touches this rank's memory; to
 * be called where transport_shm_touch_begin() or transport_shm_touch_more() said false. The
 * functions above that return an error have done it already. */
int transport_shm_fail(struct transport_shm *t, struct co_error *err);

/* Whether somebody was stuck while touching: this rank's memory must be taken away from the others
 * before the call returns. */
bool transport_shm_must_withdraw(const struct transport_shm *t);

unsigned transport_shm_rank(const struct transport_shm *t);
unsigned transport_shm_n_ranks(const struct transport_shm *t);

#endif
