/* group_memory.h - where the ranks of a group that was split off meet: each rank gives a block of
 * its user segment, which all peers have mapped already. A block looks like the rank's part of the
 * control segment: a line, then a mailbox. Of the line, only what tells how far the rank has come
 * is used; whether it lives is said in the control segment.
 *
 * A block serves one group after the other. Its counter never goes back, and a block is used again
 * only once all members of its last group have come to that group's end: so nobody who is late ever
 * finds less there than it waits for. Blocks stay in the segment for the life of the process. */
#ifndef DDP_WORKER_RUNTIME_SHM_GROUP_MEMORY_H
#define DDP_WORKER_RUNTIME_SHM_GROUP_MEMORY_H

#include "transport_shm.h"

struct co_error;
struct group_memory; /* a block of this rank */
struct group_pool;   /* those of the job */
struct user_segment;

/* own       borrowed
 * returns   NULL: no memory */
struct group_pool *group_pool_create(struct user_segment *own);
void group_pool_destroy(struct group_pool *p); /* NULL is fine */

/* returns   0; -ENOMEM; the text says which variable to change */
int group_memory_take(struct group_pool *p, struct group_memory **ret, struct co_error *err);

/* Give a block back. NULL is fine.
 *
 * last   the group that met there, whose members' counters will reach its own, or have; NULL: none
 *        did */
void group_memory_give_back(struct group_memory *m, const struct transport_shm *last);

uint64_t group_memory_offset(const struct group_memory *m); /* in this rank's user segment */
uint32_t group_memory_arrived(const struct group_memory *m);

/* The block at that offset of a peer's user segment, which lies at `user` here. */
struct transport_shm_member group_memory_at(uint8_t *user, uint64_t offset, unsigned local_rank);

#endif
