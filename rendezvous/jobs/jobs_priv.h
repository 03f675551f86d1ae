/* jobs_priv.h - the inside of jobs.h, for its own files: jobs.c (jobs, their rosters, their time)
 * and jobs_peers.c (connections, and what comes on them). */
#ifndef DDP_RENDEZVOUS_JOBS_JOBS_PRIV_H
#define DDP_RENDEZVOUS_JOBS_JOBS_PRIV_H

#include "jobs.h"
#include "verdict_log.h"

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

/* --- jobs_peers.c --- */

struct peer *jobs_find_peer(const struct jobs *j, uint64_t link); /* NULL: it has gone */
void jobs_send(struct peer *p, const struct message *m);
void jobs_end_peer(struct peer *p); /* what was sent still arrives */

#endif
