/* node_guide.h - the node's half of a job of several nodes: libuv around member.h and guide.h.
 *
 * Keeps the link to the roster, tells it what the ranks do, has the supervisor do what it wants,
 * opens the generation's store where rank 0 is, shows what is waited for. */
#ifndef DDP_LAUNCHER_NODE_GUIDE_H
#define DDP_LAUNCHER_NODE_GUIDE_H

#include "launcher/reporting/report.h"

struct co_error;
struct generation_place;
struct guide_link_ops;
struct node;
struct node_guide; /* opaque */

/* n         borrowed; its loop runs, and n->guide is to be set to what this makes
 * returns   0, -ENOMEM, -errno of the link */
int node_guide_create(struct node *n, const struct guide_link_ops *ops, struct node_guide **ret,
                      struct co_error *err);

/* This node is about to be stopped for want of its starter. */
void node_guide_lose_leash(struct node_guide *g);

/* Look for the roster. The supervisor has begun. */
void node_guide_begin(struct node_guide *g);

/* The supervisor has made a step. */
void node_guide_look(struct node_guide *g);

/* The nursery found the lease over and has killed all. */
void node_guide_lapse(struct node_guide *g);

/* What the ranks of this node are told of the job, besides what the node itself knows; texts are
 * lent for the generation. */
void node_guide_fill_place(const struct node_guide *g, struct generation_place *place,
                           int *ret_first_rank);

/* For the report, once the supervisor's verdict is final. returns ret */
const struct report_job *node_guide_fill_report(const struct node_guide *g, struct report_job *ret);

/* Whatever else is said comes after this: a line that is being redrawn goes. */
void node_guide_clear_line(struct node_guide *g);

/* Close what the loop knows. It is to be run to its end then, and node_guide_destroy() called. NULL
 * is fine for both. */
void node_guide_close(struct node_guide *g);
void node_guide_destroy(struct node_guide *g);

/* What this node waits for, in words, lent until the next event; NULL: nothing. */
const char *node_guide_waiting(const struct node_guide *g);

/* Ask the roster to have all ranks of the job started again: this node is told to stop its own like
 * the others. returns   false: no generation of this node runs that could be ended */
bool node_guide_restart(struct node_guide *g);

/* A stop that comes now ends the job for all nodes, whoever started the others. */
void node_guide_end_job(struct node_guide *g);

#endif
