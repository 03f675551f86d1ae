/* node_shared.h - memory that all ranks of a group on one node have mapped.
 *
 * The first rank of each node makes a memfd, the others open it where /proc shows it. That fails
 * where ranks may not look at each other (another user, a pid namespace of their own): then nobody
 * gets any, on any node, and the caller does without. */
#ifndef DDP_WORKER_RUNTIME_DATA_NODE_SHARED_H
#define DDP_WORKER_RUNTIME_DATA_NODE_SHARED_H

#include <stddef.h>

struct ddp_group;

/* Map `bytes` of zeros, of which pages cost memory once they are written. Collective.
 *
 * init      called on the first rank of each node before another one sees the memory
 * ret       munmap() it; NULL: this group cannot share memory, or has no second rank to share with
 * returns   DDP_OK; else as ddp_all_gather() */
int node_shared_create(struct ddp_group *g, size_t bytes, void (*init)(void *memory, void *arg),
                       void *arg, void **ret);

#endif
