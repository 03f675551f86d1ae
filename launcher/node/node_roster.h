/* node_roster.h - the node's half of a job of several nodes: libuv around member.h and
 * roster_agent.h.
 *
 * Keeps the link to the roster, reports the state of the ranks to it, passes its orders to the
 * supervisor, opens the generation's store where rank 0 is, shows what the node waits for. */
#ifndef DDP_LAUNCHER_NODE_NODE_ROSTER_H
#define DDP_LAUNCHER_NODE_NODE_ROSTER_H

#include "launcher/generation/generation.h"
#include "launcher/reporting/report.h"

struct co_error;
struct generation_place;
struct roster_link_ops;
struct message;
struct node_view;
struct roster_restart;
struct spawner_report;
struct node_roster; /* opaque */

struct node_roster_opts {
    const struct roster_link_ops *link;
    struct generation *gen;                /* whose store is opened and closed here; borrowed */
    struct generation_callbacks callbacks; /* for that store */
    /* of the same arg: for a store that shares the port of the roster */
    void (*on_control)(void *arg, int fd, const uint8_t *bytes, size_t len);
    /* as above: nothing of the last generation runs, and the roster of this process admits another
     * one */
    void (*on_restart)(void *arg, const struct roster_restart *restart);
    /* as above, once: this node is a spare */
    void (*on_spare)(void *arg);
};

/* n         borrowed; its loop runs
 * opts      copied
 * returns   0, -ENOMEM, -errno of the link */
int node_roster_create(const struct node_view *n, const struct node_roster_opts *opts,
                       struct node_roster **ret, struct co_error *err);

/* A connection that came to the store was meant for the roster. As opts.on_control. */
void node_roster_adopt(struct node_roster *g, int fd, const uint8_t *bytes, size_t len);

/* This node is about to be stopped because the ddprun that started it is gone. */
void node_roster_lose_launch_channel(struct node_roster *g);

/* Look for the roster. The supervisor has begun. */
void node_roster_begin(struct node_roster *g);

/* What has followed on the end of the last generation; NULL: nothing, or other nodes take part. */
const struct roster_restart *node_roster_get_restart(const struct node_roster *g);

/* The supervisor has made a step. */
void node_roster_look(struct node_roster *g);

/* The spawner found the lease over and has killed all. */
void node_roster_lapse(struct node_roster *g);

/* A report of the spawner. returns whether it is about heartbeats */
bool node_roster_hear(struct node_roster *g, const struct spawner_report *r);

/* What the ranks of this node get about the job, besides what the node itself knows; texts are lent
 * for the generation. */
void node_roster_fill_place(const struct node_roster *g, struct generation_place *place,
                            int *ret_first_rank);

/* For the report, once the supervisor's verdict is final. returns ret */
const struct report_job *node_roster_fill_report(const struct node_roster *g,
                                                 struct report_job *ret);

/* The same, for the file of --report and the last event. */
struct node_result_place node_roster_place(const struct node_roster *g);

/* Close what the loop knows. It is to be run to its end then, and node_roster_destroy() called.
 * NULL is fine for both. */
void node_roster_close(struct node_roster *g);
void node_roster_destroy(struct node_roster *g);

/* To the coordinator, for what the roster and the member do not handle; nothing without a link. */
void node_roster_send(struct node_roster *g, const struct message *m);

/* What this node waits for, in words, lent until the next event; NULL: nothing. */
const char *node_roster_waiting(const struct node_roster *g);

/* Ask the roster to have all ranks of the job started again: it then orders this node to stop its
 * own like the others. returns false: no generation of this node runs that could be ended */
bool node_roster_restart(struct node_roster *g);

/* A stop that arrives now ends the job for all nodes, however the others were started. */
void node_roster_end_job(struct node_roster *g);

#endif
