/* shared_perm.h - the permutation of an epoch, once per node instead of once per rank.
 *
 * Ranks enter the next epoch one after the other: the first one draws its permutation, its peers
 * find it. There is space for two, since some are still in the last epoch then; one is freed when
 * its last user has gone. A rank that finds no space for its permutation (the ranks are in three
 * epochs at once, or one holds the lock for too long) gets NULL, and draws its own.
 *
 * A rank that dies while it draws leaves a permutation that no rank uses: the next one draws it
 * again. */
#ifndef DDP_WORKER_RUNTIME_DATA_SHARED_PERM_H
#define DDP_WORKER_RUNTIME_DATA_SHARED_PERM_H

#include <stddef.h>
#include <stdint.h>

struct ddp_group;
struct shared_perm; /* lies in memory that the ranks share */

struct shared_perm_shape {
    uint32_t n; /* numbers of a permutation, 1 or more */
    int n_local;
};

/* Have the ranks of g on each node share memory for permutations of n numbers. Collective. The
 * first rank of each node makes a memfd, the others open it where /proc shows it. That fails where
 * ranks may not look at each other (another user, a pid namespace of their own): then no rank gets
 * any, on any node, and the caller does without.
 *
 * ret       NULL: this group cannot share memory, or has no second rank to share with
 * returns   DDP_OK; else as ddp_all_gather() */
int shared_perm_create(struct ddp_group *g, uint32_t n, struct shared_perm **ret);
void shared_perm_destroy(struct shared_perm *p);

/* returns   0: more than this machine can address */
size_t shared_perm_bytes(const struct shared_perm_shape *shape);
/* memory    that many bytes of zeros, page-aligned */
void shared_perm_init(void *memory, const struct shared_perm_shape *shape);

/* Take the permutation of randperm_fill(.., seed) for local_rank, which thereby returns the last
 * one it took.
 *
 * returns   n numbers, lent until the next call; NULL: see above */
const uint32_t *shared_perm_take(struct shared_perm *p, uint64_t seed, int local_rank,
                                 uint64_t timeout_ms);
void shared_perm_give_back(struct shared_perm *p, int local_rank, uint64_t timeout_ms);

#endif
