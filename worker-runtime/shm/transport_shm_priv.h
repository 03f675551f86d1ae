/* transport_shm_priv.h - a transport as the files of this component know it. They read its fields;
 * except for `idle` and `goes_on` only transport_shm.c writes them. */
#ifndef DDP_WORKER_RUNTIME_SHM_TRANSPORT_SHM_PRIV_H
#define DDP_WORKER_RUNTIME_SHM_TRANSPORT_SHM_PRIV_H

#include "common/error.h"
#include "segments/control.h"
#include "transport_shm.h"

enum { TOUCH_NOTHING, TOUCH_READS, TOUCH_WRITES };

struct slot { /* what a rank publishes with a call. The first 64 bytes are one cache line: a rank
                 that finds the flag there has the call, and also what a small one carries */
    struct call call;
    uint32_t number;      /* number of the call, from 1 */
    _Atomic uint32_t met; /* as `arrived`, of the last rendezvous that used this slot: what peers
                             spin on in a rendezvous */
    union transport_shm_note note;
};

struct notes { /* of one rank: control_line.note; calls take turns */
    struct slot slot[2];
};
_Static_assert(sizeof(struct slot) == 128, "two slots fill a rank's note");
_Static_assert(sizeof(struct notes) == sizeof(((struct control_line *)0)->note), "as agreed");
_Static_assert(TRANSPORT_SHM_MAILBOX_BYTES <= CONTROL_MAILBOX_BYTES, "the rest is for joining");

struct transport_shm {
    struct control *control;
    struct transport_shm_member *member; /* n_ranks, owned */
    unsigned rank, n_ranks;
    uint32_t group;
    bool spin, broken;
    bool must_withdraw;       /* a peer was stuck while writing: this rank's memory must be taken
                                 away from the others before the call returns */
    bool has_more_time;       /* the step got more time, since a rank waits for another node */
    bool is_meeting;          /* the step that is waited for is the rendezvous of the open call */
    uint64_t timeout_ms;      /* of the group */
    uint64_t call_timeout_ms; /* of the open call */
    uint64_t deadline_ms;     /* of the step that is waited for; 0: not yet waited for */
    uint64_t next_look_ns;    /* for a caller that only looks */
    uint32_t seq;             /* times that a call was opened: the slots take turns */
    uint32_t number;          /* calls: parts that continue the last one are not counted */
    bool goes_on;             /* the next one does: set before it is opened */
    struct transport_shm_names names;
    uint32_t arrived;        /* value in this rank's line */
    bool owes_wake;          /* it has arrived, but has not looked for sleepers yet */
    uint32_t cpu;            /* value in this rank's line */
    uint64_t next_move_ns;   /* not to look for another processor before */
    unsigned next;           /* ranks below have come to the step that is waited for */
    bool (*idle)(void *arg); /* called now and then while this rank sleeps in a step: every half
                                millisecond as long as it returns true. NULL */
    void *idle_arg;
    struct co_error why; /* once broken */
};

static inline struct slot *transport_shm_slot(const struct transport_shm *t, unsigned rank,
                                              uint32_t seq)
{
    return &((struct notes *)t->member[rank].line->note)->slot[seq & 1];
}

/* A rank's note of the call of the last rendezvous. Valid until this rank opens its next call. */
static inline const union transport_shm_note *transport_shm_note(const struct transport_shm *t,
                                                                 unsigned rank)
{
    return &transport_shm_slot(t, rank, t->seq)->note;
}

/* Sequentially consistent, unlike control_abort_get(): it pairs with control_line.touching. */
static inline bool transport_shm_is_broken(const struct transport_shm *t)
{
    return atomic_load(&t->control->shared->abort) != 0;
}

/* Whether a rank has come to the open step. A rendezvous is first recorded where the call is. */
static inline bool transport_shm_has_come(const struct transport_shm *t, unsigned rank)
{
    const _Atomic uint32_t *word =
        t->is_meeting ? &transport_shm_slot(t, rank, t->seq)->met : &t->member[rank].line->arrived;
    uint32_t is = atomic_load_explicit(word, memory_order_acquire);
    return (int32_t)(is - t->arrived) >= 0; /* the counter wraps around */
}

/* Write the cause of a failure; the first one stays. */
void shm_abort_tell(struct transport_shm *t, enum control_cause cause, unsigned local_rank,
                    uint32_t detail);
void shm_abort_tell_mismatch(struct transport_shm *t, unsigned other);
/* Those who have not come to the open step are missing. */
void shm_abort_tell_timeout(struct transport_shm *t);
/* Whether one of the ranks that lag most waits for another node. */
bool shm_abort_is_outside(const struct transport_shm *t);
#define SHM_ABORT_MESSAGE                                                                          \
    0xffffu /* in place of a rank: it is not a call that they disagree about */

#endif
