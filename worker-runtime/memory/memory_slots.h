/* memory_slots.h - the part of ddprun's memory that is this rank's: its entries, and the states in
 * its slots.
 *
 * Everything is read and written by pread() and pwrite(): memory that is exhausted is an error and
 * not a signal, no stray store of the program can damage a state, and a rank that dies has nothing
 * to unmap. A slot begins with a list of the items' sizes and digests; their bytes follow. */
#ifndef DDP_WORKER_RUNTIME_MEMORY_MEMORY_SLOTS_H
#define DDP_WORKER_RUNTIME_MEMORY_MEMORY_SLOTS_H

#include "memory_plan.h"

#include <ddp/memory.h>

struct co_error;

enum { MEMORY_ITEMS_MAX = 1 << 20 };

struct memory_slots {
    int fd; /* borrowed */
    struct checkpoint_memory all;
    unsigned local_rank;
    struct memory_save saves[MEMORY_SLOTS]; /* as the entries have them */
};

struct memory_placed { /* an item in a slot */
    uint64_t at, bytes, digest;
};

/* Read this rank's entries. One that was not written whole is free.
 *
 * returns   0; -EBADF as checkpoint_memory_read(); -ERANGE local_rank is too large; -errno */
int memory_slots_open(int fd, unsigned local_rank, struct memory_slots *ret, struct co_error *err);

/* Free a slot before it is written, and give it its entry afterwards.
 * returns   0, -errno */
int memory_slots_free(struct memory_slots *s, unsigned slot, struct co_error *err);
int memory_slots_set(struct memory_slots *s, unsigned slot, const struct memory_save *save,
                     struct co_error *err);

/* Copy items into a slot, which is free meanwhile and afterwards: its entry is set when all is
 * well.
 *
 * save      bytes, n_items and digest are filled in
 * returns   0; -EINVAL a bad item, more items than allowed, or more bytes; -errno */
int memory_slots_write(struct memory_slots *s, unsigned slot, const struct ddp_memory_item *items,
                       size_t n, struct memory_save *save, struct co_error *err);

/* Where the items of a slot are: n_items of its save; free() it. All are within the slot.
 *
 * returns   0; -EINVAL it is damaged; -ENOMEM, -errno */
int memory_slots_list(const struct memory_slots *s, unsigned slot, struct memory_placed **ret,
                      struct co_error *err);

/* The content of an item.
 * returns   0; -EINVAL it is damaged; -errno */
int memory_slots_read(const struct memory_slots *s, unsigned slot, const struct memory_placed *item,
                      void *out, struct co_error *err);

/* Bytes of a slot, as they travel. returns 0, -errno */
int memory_slots_get(const struct memory_slots *s, unsigned slot, uint64_t at, void *out, size_t n);
int memory_slots_put(const struct memory_slots *s, unsigned slot, uint64_t at, const void *bytes,
                     size_t n);

/* Whether a save that another rank sends fits a slot and is consistent. */
bool memory_slots_accept(const struct memory_slots *s, const struct memory_save *save);

/* A digest of bytes that continues another one; detects accidental changes. */
uint64_t memory_digest(uint64_t digest, const void *bytes, size_t n);

#endif
