/* jobs.h - the jobs that a daemon knows: a roster for each run id, and the nodes' connections.
 *
 * The libuv shell around roster.h. Runs in ddp-rendezvous, where the first node that joins makes a
 * job, and in the ddprun that is a job's endpoint, where there is that one job, one node of which
 * is in this process. Prints nothing itself: what is worth a line goes to on_note. */
#ifndef DDP_RENDEZVOUS_JOBS_JOBS_H
#define DDP_RENDEZVOUS_JOBS_JOBS_H

#include "rendezvous/channel/channel_conn.h"
#include "rendezvous/channel/channel_pipe.h"
#include "rendezvous/membership/roster.h"

struct co_error;
struct jobs; /* opaque */
struct seal_key;

enum { JOBS_MAX_CONNS = 65536 };

struct jobs_opts {
    const struct seal_key *keys; /* tokens that are accepted; borrowed. n_keys 0: all, in the
                                    clear */
    size_t n_keys;
    struct roster_limits limits;
    uint32_t max_jobs;         /* 0: 1024; one more is refused */
    uint32_t max_conns;        /* 0: JOBS_MAX_CONNS. For one more, an unproven one is closed, or it
                                  is refused */
    uint64_t max_buffer_bytes; /* of struct channel_conn_host; 0: no common bound */
    uint64_t host_ms; /* of only_run_id: a node whose host has not answered for so long suspends its
                         ranks, and ... */
    uint64_t host_silent_ms; /* ... after this longer time it is lost (heartbeats.h); 0: only its
                                lease counts */
    uint64_t mid_frame_ms;   /* of struct channel_conn_host; 0: its own */

    /* NULL: jobs are made by their first node. A job that is over is kept for a minute, for late
     * nodes, or until a node that knows of its end joins again: then it begins once more. A job
     * that is not over is forgotten when no node is left. Not NULL: this is the only one, begun at
     * once with these terms. */
    const char *only_run_id;
    const struct message_terms *terms;
    const char *const *expected; /* see roster_create() */
    size_t n_expected;
    const struct roster_past
        *past;           /* of only_run_id: what another roster has left (copied); NULL */
    bool outlives_local; /* of only_run_id: another process continues the job when this one ends:
                            the node in this process has a lease, and may leave, like any other */

    /* A node was refused or its connection broke the protocol: which one and why. At most once a
     * second. */
    void (*on_note)(void *arg, const char *text);
    /* A job's state has changed; roster_change() has the reason. NULL: ignored */
    void (*on_changed)(void *arg, const char *run_id, const struct roster *r,
                       enum roster_state from);
    /* This process writes the report of only_run_id: a node's result, as it comes (results.h);
     * lent. NULL: a node does */
    void (*on_result)(void *arg, const struct message *m);
    /* A job has received something, whether its state has changed or not. NULL: ignored */
    void (*on_heard)(void *arg, const struct roster *r);
    void *arg;
};

/* returns   0; -ENOMEM; -EINVAL (terms, limits) */
int jobs_create(uv_loop_t *loop, const struct jobs_opts *opts, struct jobs **ret_jobs,
                struct co_error *err);

/* Take over a connected socket whose first bytes, lent, were those of a control connection. */
void jobs_adopt(struct jobs *j, int fd, const uint8_t *bytes, size_t len);

/* The node in this process; only with only_run_id. It has a link from jobs_local_up() to
 * jobs_local_down(), or until the roster ends it, and may have another one afterwards.
 *
 * on_message   see channel_pipe.h; m == NULL: the roster has ended the link
 * returns      0, -ENOMEM */
int jobs_local_up(struct jobs *j, channel_pipe_take on_message, void *arg, struct co_error *err);
void jobs_local_send(struct jobs *j, const struct message *m);
void jobs_local_down(struct jobs *j); /* what was sent before still arrives */

/* Feed the only job's roster an input that comes neither from a node nor from the clock: DOUBT,
 * CERTAIN. Not from within on_changed. */
void jobs_tell(struct jobs *j, enum roster_input_type type);

/* Feed the same roster CONFIRMED: what was written last of this generation is decided, in a term of
 * 1 .. MESSAGE_MAX_TERM. */
void jobs_tell_confirmed(struct jobs *j, uint32_t generation, uint64_t term);

/* Feed the same roster CERTAIN, with its until_ms. */
void jobs_tell_certain(struct jobs *j, uint64_t until_ms);

/* Feed the same roster that the process of an absent member has ended. */
void jobs_tell_ended(struct jobs *j, uint32_t generation, uint32_t node_index);

/* Feed the same roster that another one continues the job without what this one has begun. */
void jobs_tell_replaced(struct jobs *j, const char *text);

/* The node in this process, as the only job's roster has it. returns whether it knows it */
bool jobs_view_local(const struct jobs *j, struct roster_node_view *ret);

/* End the only job. Not from within on_changed. */
void jobs_end(struct jobs *j, uint8_t exit_code, const char *text);

/* Members of the only job, which is over, that have not been informed: they are away. */
uint32_t jobs_n_uninformed(const struct jobs *j);

/* Nodes of the only job, which is over, whose results are still to come. */
uint32_t jobs_n_owed(const struct jobs *j);

struct jobs_figures {
    uint32_t n_jobs, max_jobs;
    uint32_t n_conns, max_conns;
    uint64_t n_made;                           /* jobs so far */
    uint64_t n_refused;                        /* cases for on_note, whether it was called or not */
    uint64_t n_buffer_bytes, max_buffer_bytes; /* 0: no common bound */
};
void jobs_get_figures(const struct jobs *j, struct jobs_figures *ret);

/* Visit all. */
void jobs_each(const struct jobs *j,
               void (*on_job)(void *arg, const char *run_id, const struct roster *r), void *arg);

/* End all connections: what was sent on them still goes out, for CHANNEL_CONN_LINGER_MS at most.
 * Then everything is freed and on_closed (NULL allowed) called, from the loop. The jobs must not be
 * used after this call. */
void jobs_close(struct jobs *j, void (*on_closed)(void *arg), void *arg);

#endif
