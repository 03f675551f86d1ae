/* node_hang.h - --hang-timeout: look at the ranks now and then, say which one hangs, and end it.
 * What follows is what follows any rank's failure. hang.h decides. */
#ifndef DDP_LAUNCHER_NODE_NODE_HANG_H
#define DDP_LAUNCHER_NODE_NODE_HANG_H

#include <sys/types.h>

struct co_error;
struct hang_finding;
struct node_view;
struct node_hang; /* opaque */

/* From now on, while all ranks run. Without --hang-timeout there is nothing: *ret is NULL.
 *
 * returns   0, -ENOMEM */
int node_hang_open(const struct node_view *n, struct node_hang **ret, struct co_error *err);

/* Why a process was ended; NULL: not for this. NULL is fine. */
const struct hang_finding *node_hang_of(const struct node_hang *w, pid_t pid);

/* Frees from the loop; NULL is fine. */
void node_hang_close(struct node_hang *w);

#endif
