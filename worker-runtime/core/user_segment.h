/* user_segment.h - memory of this rank that the other ranks of the node can reach.
 *
 * One sparse memfd, mapped once with all the address space it will ever have; a page costs memory
 * from its first write until the block that holds it is freed. Peers map the same memfd, so any
 * address in it is known to all ranks as (rank, offset). Blocks are aligned to 64 bytes (those of a
 * page and more to a page) and zeroed.
 *
 * fork(): the child sees the segment as it is, and writes to it are seen by the parent; it keeps
 * the memory alive while it lives. Only the parent may allocate and free. */
#ifndef DDP_WORKER_RUNTIME_CORE_USER_SEGMENT_H
#define DDP_WORKER_RUNTIME_CORE_USER_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct user_segment; /* opaque */

#define USER_SEGMENT_VALGRIND_BYTES ((uint64_t)64 << 20)

/* What to make a segment from: `text` (DDP_SEGMENT_BYTES: as co_parse_size() reads it; NULL or "":
 * physical memory rounded up to a power of two, but under valgrind USER_SEGMENT_VALGRIND_BYTES),
 * cut to what the limits of the process and the address space leave when each of n_local ranks maps
 * all segments.
 *
 * returns   0, -ENOEXEC (text is not a size; the message names the variable) */
int user_segment_size(const char *text, unsigned n_local, uint64_t *ret_bytes,
                      struct co_error *err);

/* bytes     rounded up to pages
 * returns   0, -ENOMEM, -errno */
int user_segment_create(uint64_t bytes, struct user_segment **ret, struct co_error *err);
void user_segment_destroy(struct user_segment *s); /* NULL is fine */

/* returns   0; -ENOMEM; the text has the space that is left and the variable to change */
int user_segment_alloc(struct user_segment *s, size_t bytes, void **ret, struct co_error *err);

/* returns   0; -EINVAL: not a block of this segment */
int user_segment_free(struct user_segment *s, void *ptr);

/* Have the first `bytes` of it in memory, as far as there is any: what is allocated there does not
 * have to be found when it is written first. */
void user_segment_touch(struct user_segment *s, uint64_t bytes);

/* Whether [p, p + bytes) lies in the segment; then where. */
bool user_segment_find(const struct user_segment *s, const void *p, size_t bytes,
                       uint64_t *ret_offset);

int user_segment_fd(const struct user_segment *s);
uint64_t user_segment_bytes(const struct user_segment *s);
uint8_t *user_segment_base(const struct user_segment *s);

/* Put a private copy in place of every block: what a peer writes from now on is not seen here. The
 * segment can be used on, but not shared any more: user_segment_find() finds nothing. For a peer
 * that is stuck in the middle of a write. returns 0, -ENOMEM, -errno */
int user_segment_withdraw(struct user_segment *s, struct co_error *err);

/* Map the segment of a peer. Not kept over fork(), left out of core dumps.
 * fd        not kept
 * returns   0; -EPROTO not sealed, or smaller than `bytes`; -ENOMEM no address space; -errno */
int user_segment_map_peer(int fd, uint64_t bytes, uint8_t **ret_base, struct co_error *err);
void user_segment_unmap_peer(uint8_t *base, uint64_t bytes); /* base NULL is fine */

#endif
