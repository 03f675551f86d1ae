/* device_plan.h - how the ranks of a group agree on a communicator of their devices. Pure.
 *
 * Each rank publishes what it has, all ranks read what all have published, and so all of them
 * derive the same plan: make a new communicator, or shrink one that all of them have kept from the
 * generation before. */
#ifndef DDP_WORKER_RUNTIME_DEVICE_DEVICE_PLAN_H
#define DDP_WORKER_RUNTIME_DEVICE_DEVICE_PLAN_H

#include <stddef.h>
#include <stdint.h>

enum {
    DEVICE_WHY_BYTES = 224,
    DEVICE_MOST_RANKS = 1 << 20, /* in a communicator that was kept: more are not believed */
    DEVICE_RANKS_PER_ROOT = 256, /* of a new one: each root introduces at most so many ranks */
};

struct device_note {    /* what a rank publishes; travels between ranks */
    uint32_t ok;        /* it has a device; 0: `why` has the reason */
    uint32_t can_scale; /* its library can do with several roots */
    uint64_t tag;       /* of the communicator that it has kept; 0: none */
    int32_t rank, n;    /* its place there, and how many there were */
    char why[DEVICE_WHY_BYTES];
};

enum device_way {
    DEVICE_NOT, /* rank `bad` has no device */
    DEVICE_NEW,
    DEVICE_SHRINK
};

struct device_plan {
    enum device_way way;
    int bad;
    int n_roots; /* of DEVICE_NEW: ranks that each make an id */
    int n_lost;  /* of DEVICE_SHRINK: ranks of the old communicator that are not in the new one */
    int *lost;   /* owned, from malloc(); in rising order */
};

/* Shrink where all have kept the same one, are fewer than there were, and in the same order: NCCL
 * numbers the ranks that are left so.
 *
 * note      n of them, 1 or more, in the order of ranks
 * returns   0; -ENOMEM */
int device_plan_init(struct device_plan *p, const struct device_note *note, int n);
void device_plan_fini(struct device_plan *p); /* a zeroed one is fine */

/* The rank that makes id k of n_roots among n ranks: the first of its block, as NCCL deals ranks
 * out to roots. */
int device_plan_root(int k, int n, int n_roots);

/* What identifies a communicator for its ranks only: computed from its ids; or from the one that
 * was shrunk, and the ranks that it lost. Never 0. */
uint64_t device_plan_tag_new(const uint8_t *ids, size_t bytes);
uint64_t device_plan_tag_shrunk(uint64_t tag, const struct device_plan *p);

#endif
