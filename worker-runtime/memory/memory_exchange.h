/* memory_exchange.h - states between two ranks: from a slot of one to a slot of the other. */
#ifndef DDP_WORKER_RUNTIME_MEMORY_MEMORY_EXCHANGE_H
#define DDP_WORKER_RUNTIME_MEMORY_MEMORY_EXCHANGE_H

#include "memory_slots.h"

struct co_error;
struct ddp_group;

struct memory_exchange {
    int to, from;                /* ranks; -1: nothing is sent, or received */
    unsigned from_slot, to_slot; /* what is sent, and where to what is received goes: a free one */
    struct memory_id id;         /* of what is received ... */
    unsigned rank;               /* ... and whose state it is */
};

enum { MEMORY_PIECE_BYTES = 2 << 20 };

/* Send a state and receive one, at the same time. Both sides call it.
 *
 * pieces          2 * MEMORY_PIECE_BYTES, to work in
 * ret_code, err   0; -errno, of this rank alone: what arrived is damaged, or memory is exhausted.
 *                 The slot stays free
 * returns         0; else the group is broken, as by ddp_send() */
int memory_exchange(struct ddp_group *g, struct memory_slots *s, const struct memory_exchange *what,
                    uint8_t *pieces, int *ret_code, struct co_error *err);

#endif
