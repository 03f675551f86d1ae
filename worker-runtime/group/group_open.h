/* group_open.h - the back end of the world's group: join the ranks of this node, then the other
 * nodes, if there are any. */
#ifndef DDP_WORKER_RUNTIME_GROUP_GROUP_OPEN_H
#define DDP_WORKER_RUNTIME_GROUP_GROUP_OPEN_H

#include <stdint.h>

struct co_error;
struct ddp_group;
struct env_who;
struct node_again;

/* Fills g->backend, or g->alone where this rank is the only one, and g->line.
 *
 * who       as the environment says. What is otherwise in the generation that was joined is changed
 * again     see node_join.h; NULL: this rank does not outlive a peer
 * returns 0; -errno as node_join() and net_join() */
int group_open(struct ddp_group *g, struct env_who *who, struct node_again *again,
               uint64_t deadline_ms, struct co_error *err);

#endif
