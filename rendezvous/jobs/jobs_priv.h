/* jobs_priv.h - the inside of jobs.h: for the files of this directory and their tests. */
#ifndef DDP_RENDEZVOUS_JOBS_JOBS_PRIV_H
#define DDP_RENDEZVOUS_JOBS_JOBS_PRIV_H

#include "heartbeats.h"
#include "jobs.h"
#include "rendezvous/net/newcomers.h"
#include "verdict_log.h"

struct job {
    struct job *next;
    struct jobs *jobs;
    struct roster *roster;          /* owned */
    struct verdict_log verdict_log; /* of its verdict */
    uv_timer_t timer;
    bool is_due;  /* the deadline has come; what was received before it is read first */
    bool is_over; /* closed, and all have been informed: kept for late nodes */
    bool closing;

    /* results.h */
    bool has_asked, wants_results, all_in;
    uint64_t writer_link;    /* of the node that writes the report; 0: this process does, or none */
    uint32_t n_owed;         /* results */
    uint32_t n_result_ranks; /* that were passed on */

    /* figures.h */
    uint64_t figures_link; /* of the node that asked last; 0: none has */
    uint64_t figures_next_ms;
    char run_id[];
};

struct peer { /* a connection, or the node in this process */
    struct jobs *jobs;
    struct job *job;           /* NULL: before its HELLO */
    struct channel_conn *conn; /* NULL: the local one */
    uint64_t link;
    struct newcomer unproven; /* until it has proved that it knows the token */
    bool reports;             /* it has --report */
    bool owes_result;         /* counted in its job's n_owed */
    bool owes_figures;
};

struct jobs {
    uv_loop_t *loop;
    struct jobs_opts opts;
    struct channel_conn_host conns;
    struct job *first;
    uint32_t n_jobs;
    struct peer **peers; /* by slot; owned */
    uint32_t n_slots, n_peers;
    struct newcomers unproven;
    struct heartbeats *heartbeats; /* owned; NULL: none have come */
    uint64_t n_links;              /* ever: links are never named alike */
    struct channel_pipe pipe;
    struct peer *local; /* its roster's end; NULL: closed */
    uint64_t next_note_ms;
    uint64_t n_made, n_refused; /* ever */
    int n_handles;              /* the jobs' timers, the pipe, the heartbeats */
    bool closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* --- peers.c --- */

enum { SLOT_BITS = 20 }; /* of a link's number: where its peer is */
_Static_assert(JOBS_MAX_CONNS < 1 << SLOT_BITS, "each connection has a slot");

/* returns   NULL: it has gone */
struct peer *jobs_find_peer(const struct jobs *j, uint64_t link);
void jobs_send(struct peer *p, const struct message *m);

#endif
