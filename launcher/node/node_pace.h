/* node_pace.h - telling --events how fast the steps are, and which rank is the slowest: now and
 * then while ranks of libddp train. pace.h judges. */
#ifndef DDP_LAUNCHER_NODE_NODE_PACE_H
#define DDP_LAUNCHER_NODE_NODE_PACE_H

struct co_error;
struct node_view;
struct node_pace; /* opaque */

/* From now on. Without --events there is nothing: *ret is NULL.
 *
 * returns   0, -ENOMEM */
int node_pace_open(const struct node_view *n, struct node_pace **ret, struct co_error *err);

/* A generation is over, or a rank of it is about to be replaced: tell what is known of it. NULL is
 * fine. */
void node_pace_tell(struct node_pace *p);

/* Frees from the loop; NULL is fine. */
void node_pace_close(struct node_pace *p);

#endif
