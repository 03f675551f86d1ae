/* group_open.h - the back end of the world's group: join the ranks of this node, then the other
 * nodes, if there are any. */
#ifndef DDP_WORKER_RUNTIME_GROUP_OPEN_H
#define DDP_WORKER_RUNTIME_GROUP_OPEN_H

#include <stdint.h>

struct co_error;
struct ddp_group;
struct env_who;
struct node_again;

/* Fills g->backend and g->line; with `again`, and where another generation may follow, also
 * g->generation.
 *
 * again     see node_join.h; NULL: this rank does not outlive a peer
 * returns 0; -errno as node_join() and net_join() */
int group_open(struct ddp_group *g, const struct env_who *who, struct node_again *again,
               uint64_t deadline_ms, struct co_error *err);

#endif
