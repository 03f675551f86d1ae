/* node_roster.h - the node's half of a job of several nodes: libuv around member.h and
 * roster_agent.h.
 *
 * Keeps the link to the roster, tells it what the ranks do, has the supervisor do what it wants,
 * opens the generation's store where rank 0 is, shows what is waited for. */
#ifndef DDP_LAUNCHER_NODE_NODE_ROSTER_H
#define DDP_LAUNCHER_NODE_NODE_ROSTER_H

#include "launcher/reporting/report.h"

struct co_error;
struct generation_place;
struct roster_link_ops;
struct node;
struct node_roster; /* opaque */

/* n         borrowed; its loop runs, and n->roster agent is to be set to what this makes
 * returns   0, -ENOMEM, -errno of the link */
int node_roster_create(struct node *n, const struct roster_link_ops *ops, struct node_roster **ret,
                       struct co_error *err);

/* This node is about to be stopped for want of its starter. */
void node_roster_lose_launch_channel(struct node_roster *g);

/* Look for the roster. The supervisor has begun. */
void node_roster_begin(struct node_roster *g);

/* A generation has begun in which ranks that live go on. */
void node_roster_note_recovery(struct node_roster *g);

/* The supervisor has made a step. */
void node_roster_look(struct node_roster *g);

/* The spawner found the lease over and has killed all. */
void node_roster_lapse(struct node_roster *g);

/* What the ranks of this node are told of the job, besides what the node itself knows; texts are
 * lent for the generation. */
void node_roster_fill_place(const struct node_roster *g, struct generation_place *place,
                            int *ret_first_rank);

/* For the report, once the supervisor's verdict is final. returns ret */
const struct report_job *node_roster_fill_report(const struct node_roster *g,
                                                 struct report_job *ret);

/* Close what the loop knows. It is to be run to its end then, and node_roster_destroy() called.
 * NULL is fine for both. */
void node_roster_close(struct node_roster *g);
void node_roster_destroy(struct node_roster *g);

/* What this node waits for, in words, lent until the next event; NULL: nothing. */
const char *node_roster_waiting(const struct node_roster *g);

/* Ask the roster to have all ranks of the job started again: this node is told to stop its own like
 * the others. returns   false: no generation of this node runs that could be ended */
bool node_roster_restart(struct node_roster *g);

/* A stop that comes now ends the job for all nodes, whoever started the others. */
void node_roster_end_job(struct node_roster *g);

#endif
