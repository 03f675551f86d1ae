/* memory_plan.h - which of the saves in memory is loaded, which rank has each state of it, and
 * which slot may be overwritten. Pure.
 *
 * A save is the same for all ranks if its number and its lineage are: numbers grow with each save
 * of the job, and a lineage is a random number for each ddp_memory_open(), so that a node that was
 * away cannot contribute a save of the same number that the others have made again. */
#ifndef DDP_WORKER_RUNTIME_MEMORY_MEMORY_PLAN_H
#define DDP_WORKER_RUNTIME_MEMORY_MEMORY_PLAN_H

#include "segments/checkpoint_memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MEMORY_SLOTS = CHECKPOINT_MEMORY_SLOTS,
    MEMORY_OWN_SLOTS = 2,    /* what saves need without copies ... */
    MEMORY_COPIED_SLOTS = 4, /* ... and with them */
};
_Static_assert(MEMORY_COPIED_SLOTS < MEMORY_SLOTS, "one more can be lent");

struct memory_id {
    uint64_t serial; /* 0: none */
    uint64_t lineage;
};

struct memory_save { /* a state of a rank, in a slot. It travels as it is */
    struct memory_id id;
    int64_t step;
    uint64_t bytes; /* of the slot, from its beginning */
    uint64_t n_items;
    uint64_t digest; /* of the list of items */
    uint32_t rank, world_size;
    uint32_t is_whole; /* 0: the slot is free, or was being written */
    uint32_t reserved; /* 0 */
};

struct memory_member { /* what a rank of the group has */
    struct memory_save saves[MEMORY_SLOTS];
    uint32_t node;
};

static inline bool memory_id_same(struct memory_id a, struct memory_id b)
{
    return a.serial == b.serial && a.lineage == b.lineage;
}

/* The newest save of which the states of all ranks are in the members' memory. It counts only if it
 * is one of n ranks: otherwise the job has continued with another number of ranks since.
 *
 * returns   its id; .serial 0: none */
struct memory_id memory_plan_newest(const struct memory_member *members, unsigned n);

/* The newest save of n ranks of which each state is on two nodes, so that the loss of one leaves it
 * loadable. returns its id; .serial 0: none */
struct memory_id memory_plan_copied(const struct memory_member *members, unsigned n);

/* The highest number of any save; 0: none. */
uint64_t memory_plan_highest(const struct memory_member *members, unsigned n);

/* Which member gives the state of `rank`: itself, else one of its node, else the first.
 *
 * ret_slot   there
 * returns    the member; -1: no member has it */
int memory_plan_holder(const struct memory_member *members, unsigned n, struct memory_id id,
                       unsigned rank, unsigned *ret_slot);

/* Each rank's copy is on the node of the rank so many numbers above its own (modulo n): the
 * smallest distance for which that is another node for all of them.
 *
 * returns   1 to n - 1; 0: no such distance, and no copies are made */
unsigned memory_plan_distance(const struct memory_member *members, unsigned n);

struct memory_keep {         /* what stays when a slot is written */
    struct memory_id all[2]; /* all states of these saves; .serial 0: none ... */
    struct memory_id own;    /* ... and of this one the state of this rank */
    unsigned rank;
    unsigned lent; /* bit i: slot i is lent to a process (memory_lent.h), and has no state */
};

/* Which slot to write: one that is free, else the oldest that need not stay.
 *
 * n_slots   of how many that are not lent, from the first on
 * returns   -1: all must stay */
int memory_plan_slot(const struct memory_save saves[MEMORY_SLOTS], unsigned n_slots,
                     const struct memory_keep *keep);

/* The same for a state that is brought to its rank when `id` is loaded: the slots of `copied` stay
 * if others can be used. */
int memory_plan_slot_to_load(const struct memory_save saves[MEMORY_SLOTS], struct memory_id id,
                             struct memory_id copied, unsigned lent);

/* After a load of `id`: whether this slot is still of use to the rank: its own state, the copy that
 * it keeps for rank `other` (-1: none), or a state of `copied`, which is what remains if a node is
 * lost before the next save is copied. Without anything loaded (.serial 0), all are. */
bool memory_plan_keeps(const struct memory_save *save, struct memory_id id, struct memory_id copied,
                       unsigned rank, int other);

#endif
