/* results.h - what became of the ranks of each node, on its way to the process that writes the
 * job's report.
 *
 * When a job is over (its roster is CLOSED) each of its nodes is asked for its result, if a node of
 * it or this process writes a report. One process does: this one if it is set to
 * (jobs_opts.on_result: the ddprun that started the others); else the node in this process, if it
 * has --report; else the first node that has, in the order of ranks. Results are passed on as they
 * come, and nothing is kept: the process that writes the report collects them.
 *
 * The writer, and the node in this process, stay until all results are in or their own deadline has
 * come. A node owes its result until it has sent it or its link has ended. RESULTS_MAX_RANKS bounds
 * what is passed on; the root cause of a result beyond it is still passed on. */
#ifndef DDP_RENDEZVOUS_JOBS_RESULTS_H
#define DDP_RENDEZVOUS_JOBS_RESULTS_H

#include "jobs_priv.h"

enum { RESULTS_MAX_RANKS = 65536 };

/* After a step of the roster, before its messages are sent: so that a node is asked for its result
 * before it learns that the job is over. */
void results_begin(struct job *job);

/* A node that comes, or comes back, when the job is over: the same, before its HELLO is
 * answered. */
void results_begin_late(struct peer *p);

/* A RESULT has come from a node. What was not asked for is dropped. */
void results_take(struct peer *p, const struct message *m);

/* The peer is about to be freed: it owes nothing any more. */
void results_forget(struct peer *p);

/* After any of these: once all results are in, inform the nodes that stay for them. */
void results_settle(struct job *job);

#endif
