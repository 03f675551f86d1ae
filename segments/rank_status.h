/* rank_status.h - how far a rank has come: written by libddp while it works, read by ddprun.
 *
 * A page lies in each rank's line of the control segment. The rank alone writes it, by plain stores
 * into cache lines that no other rank reads, so that it costs a few instructions for each call and
 * for each step; it wakes no process and waits for none. ddprun reads it to find which rank the
 * others wait for, how fast the steps are, and which call each rank is in.
 *
 * A rank has a place for each of its groups, since each may be used by a thread of its own:
 *
 *   outside   the program is in no call of that group
 *   begun     it has begun an asynchronous call and does something else
 *   waits     a thread of it is inside the call, until the other ranks arrive
 *
 * A group's calls are numbered from 1, as in libddp's own messages. Groups are distinguished by 16
 * bits, the same on all their ranks; the world's are 0. */
#ifndef DDP_SEGMENTS_RANK_STATUS_H
#define DDP_SEGMENTS_RANK_STATUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RANK_STATUS_GROUPS 8 /* at the same time; of others only waiting calls are counted */

#define RANK_STATUS_MOST (UINT64_MAX / 4)

enum rank_status_state { RANK_STATUS_OUTSIDE, RANK_STATUS_BEGUN, RANK_STATUS_WAITS };

struct rank_status_call { /* the last one that was entered in a group */
    uint32_t number;      /* from 1 */
    uint16_t group;
    uint8_t kind, dtype; /* enum call_kind, enum ddp_dtype */
    uint64_t bytes;      /* of one block as the program gave it; 0: none, or not known */
    enum rank_status_state state;
};

struct rank_status_place {     /* of one group */
    _Atomic uint64_t word;     /* the call, packed; 0: none yet */
    _Atomic uint64_t bytes[2]; /* of that call and of the one before, in turns, so that a reader
                                  never takes one for the other */
};

struct rank_status_page {
    _Alignas(64) _Atomic uint64_t steps; /* completed in this generation */
    _Atomic uint64_t steps_before;       /* completed before it, including those in the state that
                                            this rank received */
    _Atomic uint64_t step_ns;            /* when the last one was completed, CLOCK_MONOTONIC */
    _Atomic uint64_t last_ns;            /* from the one before to the last one */
    _Atomic uint64_t mean_ns;            /* the same, smoothed */
    _Atomic uint64_t inside_ns;          /* of that in the call which ends a step: mostly waiting */
    _Atomic uint64_t first_ns;           /* when the first one was completed, as step_ns */
    _Atomic uint32_t n_unplaced;         /* calls that wait in groups without a place */
    _Atomic uint32_t taken;              /* a bit for each place */
    _Atomic uint64_t ready_ns;           /* when the rank had joined the others, as step_ns */
    _Alignas(64) struct rank_status_place place[RANK_STATUS_GROUPS];
};

/* --- writing: the rank itself ----------------------------------------------------------------- */

/* The rank has joined the others of this generation. now_ns: CLOCK_MONOTONIC */
void rank_status_ready(struct rank_status_page *page, uint64_t now_ns);

/* The generation begins after this number of steps. */
void rank_status_begin(struct rank_status_page *page, uint64_t steps_before);

/* A step is complete. Steps of one page by one thread at a time.
 *
 * now_ns      CLOCK_MONOTONIC
 * inside_ns   so long this rank was in the call that ends the step */
void rank_status_step(struct rank_status_page *page, uint64_t now_ns, uint64_t inside_ns);

/* Take a place for a group. Thread-safe.
 *
 * returns   borrowed, until it is given back; NULL: all are taken */
struct rank_status_place *rank_status_open(struct rank_status_page *page);
void rank_status_close(struct rank_status_page *page,
                       struct rank_status_place *place); /* NULL is fine */

enum {
    RANK_STATUS_STATE_MASK = 3,
    RANK_STATUS_KIND_SHIFT = 2, /* 6 bits */
    RANK_STATUS_DTYPE_SHIFT = 8 /* 5 bits; 3 are free; then the group, then the number */
};

/* Enter a call, in the given state. Two calls with even numbers, or two with odd ones, are not
 * entered one after the other, unless the first has no bytes. One thread at a time for each place;
 * the same holds for the functions below. */
static inline void rank_status_enter(struct rank_status_place *place,
                                     const struct rank_status_call *call)
{
    /* Release: a reader that sees these bytes also sees the word of the previous call, or a later
     * one. */
    atomic_store_explicit(&place->bytes[call->number & 1], call->bytes, memory_order_release);
    atomic_store_explicit(&place->word,
                          (uint64_t)call->number << 32 | (uint64_t)call->group << 16 |
                              (uint64_t)call->dtype << RANK_STATUS_DTYPE_SHIFT |
                              (uint64_t)call->kind << RANK_STATUS_KIND_SHIFT | call->state,
                          memory_order_release);
}

/* The call continues in another state, or is over. */
static inline void rank_status_turn(struct rank_status_place *place, enum rank_status_state state)
{
    const uint64_t is = atomic_load_explicit(&place->word, memory_order_relaxed);
    atomic_store_explicit(&place->word, (is & ~(uint64_t)RANK_STATUS_STATE_MASK) | state,
                          memory_order_relaxed);
}

/* --- reading: any process that has the segment mapped ----------------------------------------- */

struct progress { /* one rank, as it was at some moment; the parts may be moments apart */
    uint64_t steps, steps_before;
    uint64_t step_ns;          /* CLOCK_MONOTONIC; 0: none completed yet */
    uint64_t first_ns;         /* CLOCK_MONOTONIC, of the first one */
    uint64_t ready_ns;         /* CLOCK_MONOTONIC; 0: it has not joined the others yet */
    uint64_t last_ns, mean_ns; /* 0: fewer than two are completed */
    uint64_t inside_ns;        /* also smoothed; at most mean_ns */
    bool only_steps; /* they come from lines of the program: nothing is known of its calls */
    bool waits;      /* a thread of the program is inside of a call of any group */
    unsigned n_calls;
    struct rank_status_call
        call[RANK_STATUS_GROUPS]; /* of groups that made any; the world's first */
};

/* Never waits. A reader cannot detect what a rank has written wrongly: kinds and types may be
 * unknown ones. States may not: a call in a state that does not exist is left out. Numbers of steps
 * and bytes are at most RANK_STATUS_MOST, so that the sum of two fits int64_t. */
void rank_status_read(const struct rank_status_page *page, struct progress *ret);

/* A number that is another one once the rank has completed a step, entered or left a call. */
uint64_t rank_status_digest(const struct rank_status_page *page);

#endif
