/* transport_shm.h - how the ranks of a group on one node synchronize in shared memory. Moves no
 * user data itself: it determines when data may be moved. algo_*.c hold the algorithms.
 *
 * Words:
 *   call    one collective. All ranks open it, publish its signature with a note, and rendezvous
 *   note    what a rank sends to all others with a call: up to TRANSPORT_SHM_NOTE_BYTES
 *   step    from one point that all ranks have reached to the next; a call is a rendezvous and 0 or
 *           more further steps
 *   touch   to read or write memory that belongs to another rank's program
 *
 * Rules that the algorithms rely on:
 *   - The rendezvous of a call is the only step in which every rank waits for every other, always.
 *     So a rank is at most one call ahead of any other, and two notes per rank are enough.
 *   - When a call returns on a rank, no other rank touches that rank's memory any more. In a
 *     successful call its last step ensures that. In a failed call transport_shm_fail() waits until
 *     no rank touches: a rank that touches announces it before, looks at the abort word after that,
 *     and looks again after each piece. A rank that is stuck in a piece (stopped by a signal, for
 *     instance) is waited for at most a second; then the caller gets a request to withdraw its
 *     memory.
 *   - A failure is written once, into the abort word, by the rank that finds it; every rank forms
 *     its text from that word. From then on each call returns it again. */
#ifndef DDP_WORKER_RUNTIME_SHM_TRANSPORT_SHM_H
#define DDP_WORKER_RUNTIME_SHM_TRANSPORT_SHM_H

#include "worker-runtime/core/call.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct control;
struct transport_shm; /* opaque */

#define TRANSPORT_SHM_NOTE_BYTES    96
#define TRANSPORT_SHM_MAILBOX_BYTES (508u * 1024)

struct transport_shm_place { /* where a rank's buffers lie, for those who can reach them */
    bool has_in, has_out;    /* in the rank's user segment */
    bool is_in_place;        /* `out` overlaps `in` */
    bool has_filled;         /* the first piece is in the rank's mailbox */
    uint32_t pid;            /* the addresses below are of this process */
    uint64_t in, out;        /* offsets into the user segment, or addresses */
    uint64_t probe;          /* address of a number, to find out whether it can be read */
    uint64_t most;           /* of all_to_all_v: the rank's longest block, in elements */
};

union transport_shm_note {
    uint8_t bytes[TRANSPORT_SHM_NOTE_BYTES];
    struct transport_shm_place place;
    double align_;
};

struct transport_shm_member { /* a rank of the group */
    struct control_line
        *line;           /* where it records how far it has come; in the world's group its own line
                            in the control segment */
    uint8_t *mailbox;    /* staging memory, TRANSPORT_SHM_MAILBOX_BYTES, that all ranks reach */
    unsigned local_rank; /* on the node: the control segment records whether it lives */
};

struct transport_shm_names {    /* for messages, where the job has several nodes; both are lent */
    const uint32_t *world_rank; /* of each local rank; NULL: local ranks are named */
    const char *where;          /* " on node 1 (host)", after a rank's number */
};

struct transport_shm_opts {
    struct control *control;             /* borrowed; this rank has joined it */
    struct transport_shm_member *member; /* n of them, in rank order, from malloc(); handed over */
    unsigned n, rank;
    uint32_t start;      /* what all lines' `arrived` are at most, the same on all ranks */
    uint32_t group;      /* a number that distinguishes groups, 15 bits; 0: the world */
    bool spin;           /* each rank has a processor of its own: spin before sleeping */
    uint64_t timeout_ms; /* a step takes no longer; 0 is not allowed */
    struct transport_shm_names names;
};

/* returns   0, -ENOMEM; `member` is freed then, and may be NULL: its allocation had failed */
int transport_shm_create(const struct transport_shm_opts *opts, struct transport_shm **ret,
                         struct co_error *err);
/* The same for all ranks of a control segment: opts->member, n, rank are filled from it. */
int transport_shm_create_world(const struct transport_shm_opts *opts, unsigned local_rank,
                               struct transport_shm **ret, struct co_error *err);
void transport_shm_destroy(
    struct transport_shm *t); /* does not leave the control segment; NULL is fine */

void transport_shm_name_ranks(struct transport_shm *t, struct transport_shm_names names);

/* Open a call and lend this rank's note of it, to be filled before transport_shm_arrive().
 *
 * timeout_ms   of each step of this call; 0: the group's
 * returns      0; the error that broke the group */
int transport_shm_open(struct transport_shm *t, const struct call *call, uint64_t timeout_ms,
                       union transport_shm_note **ret_note, struct co_error *err);

/* Publish that this rank has come one step further. The first time in a call that publishes the
 * call and its note: the rendezvous. */
void transport_shm_arrive(struct transport_shm *t);

/* Wait until all others have come as far; in the rendezvous, to the same call.
 *
 * may_wait   false: just look
 * returns    1 all have; 0 not yet (never if may_wait)
 *            -EPROTO a rank called something else; -ECONNRESET a rank died or left;
 *            -ETIMEDOUT. See transport_shm_fail(). */
int transport_shm_wait(struct transport_shm *t, bool may_wait, struct co_error *err);

/* The open call is done here. */
void transport_shm_close(struct transport_shm *t);

/* Announce that this rank starts touching others' memory. Between pieces of at most about a
 * millisecond ask transport_shm_is_broken(); whatever it returns, finish by
 * transport_shm_touch_end().
 *
 * writes    false: it only reads
 * returns   true continue; false the group broke: touch nothing (more) */
bool transport_shm_touch_begin(struct transport_shm *t, bool writes);
void transport_shm_touch_end(struct transport_shm *t);

/* Break the group, if it is not broken yet: `rank` and this rank mean different things, beyond what
 * signatures show. */
void transport_shm_tell_disagreement(struct transport_shm *t, unsigned rank);

/* Fill err with why the group is broken, after waiting until no rank touches this rank's memory; to
 * be called after a function above that returns bool has returned that. Those that return an error
 * have done it already. */
int transport_shm_fail(struct transport_shm *t, struct co_error *err);

/* The same text without waiting for anybody, and without the call. */
int transport_shm_describe(const struct transport_shm *t, struct co_error *err);

/* "rank 3 (process 117, which is in barrier, call #12)": where a rank is that is waited for. */
struct rank_name {
    char text[176];
};
struct rank_name transport_shm_describe_rank(const struct transport_shm *t, unsigned rank);

/* "rank 3", or as in struct transport_shm_names. `rank` is one of the group; without names its
 * number there is used. */
struct rank_name transport_shm_name_rank(const struct transport_shm *t, unsigned rank);

#endif
