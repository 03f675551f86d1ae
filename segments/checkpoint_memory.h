/* checkpoint_memory.h - where the ranks of a node keep their state so that it outlives them: a
 * memfd that ddprun makes once for the job and hands to each of them
 * (docs/design/memory-checkpoints.md).
 *
 * Its length is sealed: no rank can use more than was allowed for all. Pages use memory once they
 * are written. It begins with a page that describes it; then each rank has a page of entries, and
 * CHECKPOINT_MEMORY_SLOTS slots for a state each. What is in entries and slots is libddp's. */
#ifndef DDP_SEGMENTS_CHECKPOINT_MEMORY_H
#define DDP_SEGMENTS_CHECKPOINT_MEMORY_H

#include <stdint.h>

struct co_error;

enum {
    CHECKPOINT_MEMORY_SLOTS = 5, /* two of the rank's own state, two of another rank's, one lent */
    CHECKPOINT_MEMORY_PAGE = 4096,
    CHECKPOINT_MEMORY_RANKS = 1024
};
#define CHECKPOINT_MEMORY_SLOT_MAX ((uint64_t)1 << 40)

struct checkpoint_memory {
    uint32_t n_ranks;    /* of the node */
    uint64_t slot_bytes; /* for one state; a multiple of the page */
};

/* slot_bytes   1 to CHECKPOINT_MEMORY_SLOT_MAX; rounded up to pages
 * n_ranks      1 to CHECKPOINT_MEMORY_RANKS
 * ret_fd       close-on-exec, the caller's
 * returns      0; -EINVAL; -EFBIG the limit on the size of files (ulimit -f) is lower; -errno */
int checkpoint_memory_make(unsigned n_ranks, uint64_t slot_bytes, int *ret_fd,
                           struct co_error *err);

/* What a descriptor that was handed over describes. Nothing that it states is used unchecked.
 *
 * returns   0; -EBADF it is not such memory: a program between ddprun and this process has closed
 *           it, or has used its number for something else */
int checkpoint_memory_read(int fd, struct checkpoint_memory *ret, struct co_error *err);

/* Where things are, in bytes from the beginning. local_rank < n_ranks, slot below the number. */
uint64_t checkpoint_memory_entries_at(unsigned local_rank);
uint64_t checkpoint_memory_slot_at(const struct checkpoint_memory *m, unsigned local_rank,
                                   unsigned slot);
uint64_t checkpoint_memory_bytes(const struct checkpoint_memory *m); /* of all */

#endif
