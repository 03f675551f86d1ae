/* jobs_priv.h - the inside of jobs.h, for its own files. Each calls only those after it:
 *   jobs_input.c   what comes from nodes
 *   jobs.c         jobs, their rosters, their time, their peers, who knows a verdict */
#ifndef DDP_RENDEZVOUS_JOBS_JOBS_PRIV_H
#define DDP_RENDEZVOUS_JOBS_JOBS_PRIV_H

#include "jobs.h"

/* The nodes that have heard that a job is over. A run id is used again: a job fails, its script is
 * fixed, and it starts once more under the same name. A node that comes late to the job that is
 * over should hear its verdict; one that has heard it already, and comes again, wants to run. A
 * ddprun that was started again has its node's name and another instance id. */
struct verdict_log_node {
    uint8_t instance[MESSAGE_INSTANCE_BYTES];
    char name[MESSAGE_NAME_BYTES];
};

struct verdict_log {                /* zeroed: nobody */
    struct verdict_log_node *nodes; /* owned */
    size_t n, cap;
};

struct job {
    struct job *next;
    struct jobs *jobs;
    struct roster *roster;          /* owned */
    struct verdict_log verdict_log; /* of its verdict */
    uv_timer_t timer;
    bool is_due;  /* the deadline has come; what was received before it is read first */
    bool is_over; /* closed, and all have been told: kept for who comes late */
    bool closing;
    char run_id[];
};

struct peer { /* a connection, or the node in this process */
    struct jobs *jobs;
    struct job *job;           /* NULL: before its HELLO */
    struct channel_conn *conn; /* NULL: the local one */
    uint64_t link;
};

struct jobs {
    uv_loop_t *loop;
    struct jobs_opts opts;
    struct channel_conn_host conns;
    struct job *first;
    uint32_t n_jobs;
    struct peer **peers; /* by slot; owned */
    uint32_t n_slots, n_peers;
    uint64_t n_links; /* ever: links are never named alike */
    struct channel_pipe pipe;
    struct peer *local; /* its roster's end; NULL: closed */
    uint64_t next_note_ms;
    uint64_t n_made, n_refused; /* ever */
    int n_handles;              /* the jobs' timers, the pipe */
    bool closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* --- jobs.c --- */

/* Not more than MESSAGE_MAX_NODES, nor than there is memory for: who is left out hears the verdict
 * once more. */
void verdict_log_add(struct verdict_log *t, const uint8_t instance[MESSAGE_INSTANCE_BYTES],
                     const char *name);

/* Has this node heard it, in a stay before this one? */
bool verdict_log_missed(const struct verdict_log *t, const uint8_t instance[MESSAGE_INSTANCE_BYTES],
                        const char *name);

void verdict_log_fini(struct verdict_log *t);

/* Count a refusal, and tell of it if the last one was told a while ago. */
void jobs_note(struct jobs *j, const char *text);

struct job *jobs_find_job(const struct jobs *j, const char *run_id); /* NULL: none */

/* returns   0, -ENOSPC (there are too many), -EINVAL (terms), -ENOMEM */
int jobs_make_job(struct jobs *j, const char *run_id, const struct message_terms *terms,
                  struct job **ret, struct co_error *err);

/* Forget it now, with the connections that led to it; freed from the loop. */
void jobs_close_job(struct job *job);

/* Feed the roster, the time filled in, and carry out what follows: peers may go, the job may be
 * closed. */
void jobs_step(struct job *job, struct roster_input *in);

struct peer *jobs_make_peer(struct jobs *j); /* NULL: no memory */
void jobs_free_peer(struct peer *p);
void jobs_send(struct peer *p, const struct message *m);
void jobs_end_peer(struct peer *p); /* what was sent still arrives */

#endif
