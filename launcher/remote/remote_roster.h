/* remote_roster.h - rendezvous of the nodes that this ddprun has started: a roster in a process
 * that is not a node itself, so that any of the nodes may be lost. Also its messages for the
 * terminal. */
#ifndef DDP_LAUNCHER_REMOTE_REMOTE_ROSTER_H
#define DDP_LAUNCHER_REMOTE_REMOTE_ROSTER_H

#include "common/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct job_spec;
struct message;
struct message_verdict;
struct remote_roster; /* opaque */

struct remote_roster_callbacks {
    /* for the terminal, without a newline */
    void (*on_line)(void *arg, enum co_severity severity, const char *line);
    void (*on_closed)(void *arg);                          /* there is a verdict */
    void (*on_saved)(void *arg);                           /* see remote_roster_await_saved() */
    void (*on_result)(void *arg, const struct message *m); /* see struct jobs_opts; or NULL */
    void *arg;
};

/* Listen at any free port of all addresses.
 *
 * spec      with remote and a key; borrowed
 * returns   0, -ENOMEM, -errno */
int remote_roster_open(uv_loop_t *loop, const struct job_spec *spec,
                       const struct remote_roster_callbacks *callbacks, struct remote_roster **ret,
                       struct co_error *err);
uint16_t remote_roster_port(const struct remote_roster *r);

/* The nodes have their orders to join: from now on the terminal shows what the job waits for. */
void remote_roster_begin(struct remote_roster *r);

/* The ranks have been asked to save their state: on_saved when those of all nodes have, or have
 * exited with 0, which may be at once. Once; not if the generation ends before. */
void remote_roster_await_saved(struct remote_roster *r);

/* NULL: not known yet. */
const struct message_verdict *remote_roster_verdict(const struct remote_roster *r);

/* How many nodes are still to send their results, of a job that is over. */
uint32_t remote_roster_n_owed(const struct remote_roster *r);

uint32_t remote_roster_generation(const struct remote_roster *r); /* as roster_generation() */
uint32_t remote_roster_n_restarts(const struct remote_roster *r); /* as roster_n_restarts() */

/* The nodes that were found unhealthy; lent. */
const struct health_list *remote_roster_unhealthy(const struct remote_roster *r);

/* Does it know a node of this name, one that has joined or may come back? */
bool remote_roster_knows(const struct remote_roster *r, const char *name);

void remote_roster_close(struct remote_roster *r); /* from the loop; NULL is fine */

#endif
