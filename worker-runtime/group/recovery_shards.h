/* recovery_shards.h - sharded state that a process keeps from one generation to the next, beside
 * what recovery.h has. */
#ifndef DDP_WORKER_RUNTIME_GROUP_RECOVERY_SHARDS_H
#define DDP_WORKER_RUNTIME_GROUP_RECOVERY_SHARDS_H

#include "shards.h"

struct ddp_group;
struct recovery;

struct recovery_shards {
    struct recovery_shards *next;
    struct shards shards; /* unused where nothing was kept yet */
    void *gradients;      /* of ddp_alloc(): for the life of the process; NULL: none */
    size_t gradients_bytes;
};

/* What is kept for the next sharded state that this generation makes: the same one in the same
 * order in each.
 *
 * ret       lent until recovery_shards_fini(); NULL where no generation can follow this one
 * returns   0, -ENOMEM */
int recovery_shards_get(struct ddp_group *g, struct recovery_shards **ret);

void recovery_shards_begin(struct recovery *r); /* a generation begins */
void recovery_shards_fini(struct recovery *r);

#endif
