/* memory_lent.h - a slot whose pages are the program's memory.
 *
 * New pages cost more than the copy of a state: the kernel clears each of them, and frees it when
 * the process dies. The pages of ddprun's memory outlive the ranks. So a rank that has started
 * again works in those of a slot that no load needs.
 *
 * A lent slot has no entry, and a lock (fcntl()) on its first byte, which the kernel removes with
 * the last process that has the memory: the one that it was lent to, or one that was forked from
 * it. The number of a rank may change in the meantime, so another rank's slots may be lent too. */
#ifndef DDP_WORKER_RUNTIME_MEMORY_MEMORY_LENT_H
#define DDP_WORKER_RUNTIME_MEMORY_MEMORY_LENT_H

#include "memory_slots.h"

/* Which of this rank's slots are lent, to any process: bit i is slot i. */
unsigned memory_lent_slots(const struct memory_slots *s);

/* Lend a slot that is free. Its pages keep what is in them.
 *
 * bytes     from its beginning, 1 to those of a slot
 * ret       page-aligned; memory_lent_return() it. It stays when the memory is closed
 * returns   0; -ENOTSUP something was lent to this process already, or the kernel or /proc does not
 *           allow it; -ENOMEM; -errno */
int memory_lend(const struct memory_slots *s, unsigned slot, size_t bytes, void **ret,
                struct co_error *err);

/* Unmap what was lent; the slot may be written again. Everything else is ignored. */
void memory_lent_return(void *lent);

#endif
