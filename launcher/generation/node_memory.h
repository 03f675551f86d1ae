/* node_memory.h - the ranks' node sockets, and the node's shared memory, which they give access to
 * (segments/broker.h).
 *
 * The control segment and the broker are made when the first rank asks: a job without libddp costs
 * a socket pair a rank, nothing more. */
#ifndef DDP_LAUNCHER_GENERATION_NODE_MEMORY_H
#define DDP_LAUNCHER_GENERATION_NODE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct broker_world;
struct co_error;
struct node_memory; /* opaque */
struct progress;    /* segments/rank_status.h */

enum { NODE_MEMORY_MOST_WAITS = 8 };

struct node_memory_opts {
    int n_local;
    uint32_t generation;
    bool recovers; /* node_memory_renew() may follow: ranks are notified */
    /* a text without newline: a rank broke the protocol, or no shared memory is available */
    void (*on_note)(void *arg, const char *text);
    /* a rank has got the generation's shared memory; recovers: it outlives others that have it */
    void (*on_joined)(void *arg, int rank, bool recovers);
    /* it has left the generation, and asks for the next one */
    void (*on_asked)(void *arg, int rank);
    /* recovers: ranks report that one of them has died, which node_memory_rank_gone() does not know
     * yet. Once in a generation. Ranks are untrusted: this is only a reason to look */
    void (*on_death)(void *arg);
    /* what a rank cannot reach, in its own words: printable, and else untrusted. At most
     * NODE_MEMORY_MOST_WAITS times in a generation for each rank; NULL: not of interest */
    void (*on_wait)(void *arg, int rank, const char *text);
    void *arg;
};

/* returns   0, -ENOMEM */
int node_memory_create(uv_loop_t *loop, const struct node_memory_opts *opts,
                       struct node_memory **ret, struct co_error *err);

/* Make the rank's socket; it replaces an earlier one.
 *
 * ret_worker_fd   the worker's end, owned by the caller; close-on-exec
 * returns         0, -errno */
int node_memory_add(struct node_memory *m, int rank, int *ret_worker_fd);

/* The same for a rank that has its end already.
 *
 * fd        ours, of a SOCK_SEQPACKET socket; owned from here on, even on failure
 * returns   0, -errno */
int node_memory_adopt(struct node_memory *m, int rank, int fd);

/* The rank has ended: notify all users of the shared memory, at once. status as waitpid() has it.
 *
 * returns   the rank that died before, as the shared memory knows; -1: none, or this one */
int node_memory_rank_gone(struct node_memory *m, int rank, int status);

/* The ranks no longer take part in this generation: release those that wait in it. */
void node_memory_part(struct node_memory *m);

/* The rank is gone for good: from the next generation on, those after it move up. */
void node_memory_drop(struct node_memory *m, int rank);
int node_memory_n_kept(const struct node_memory *m); /* ranks that are not dropped */

/* New memory for the next generation, which the survivors join through the sockets they have. Call
 * node_memory_add() for the replacements of ranks that are gone, then node_memory_let_in(). A rank
 * has asked for the memory of the generation before.
 *
 * world     of this generation; borrowed for the call
 * returns   0; -errno: it could not be made, and the old generation stays */
int node_memory_renew(struct node_memory *m, uint32_t generation, const struct broker_world *world,
                      struct co_error *err);

/* on_joined() of those that had asked before there was a new generation. */
void node_memory_let_in(struct node_memory *m);

/* No generation follows in which the survivors could continue: refuse ranks that ask for one. */
void node_memory_give_up(struct node_memory *m);

/* Did the rank report, before it ended, that a call failed because a peer was gone? */
bool node_memory_has_lost_peer(const struct node_memory *m, int rank);

/* The most steps of training that a rank has completed, as libddp counts them; of a rank without
 * peers only whether there are any. */
uint64_t node_memory_most_steps(struct node_memory *m);

/* The most memory that a rank has in its user segment, in bytes. */
uint64_t node_memory_most_bytes(const struct node_memory *m);

/* The progress that a rank reports (docs/design/progress.md), if it has joined this generation;
 * also if it has ended since.
 *
 * m            NULL: no generation yet
 * ret_digest   another number when it has moved, if only from one step of a call to the next
 * returns      whether there is anything to read */
bool node_memory_read_progress(const struct node_memory *m, int rank, struct progress *ret,
                               uint64_t *ret_digest);

/* What the rank cannot reach, as it reported last; "": nothing. Lent until the loop runs.
 *
 * m   NULL is fine */
const char *node_memory_wait_of(const struct node_memory *m, int rank);

/* Close the sockets and the memory. Frees m when the loop has closed its handles; NULL is fine. */
void node_memory_close(struct node_memory *m);

#endif
