/* node_join.h - get the node's control segment and every peer's user segment, and wait for all
 * ranks.
 *
 * Two ways, one protocol (segments/node_socket.h):
 *   with ddprun      over DDP_NODE_FD, whose other end is ddprun's broker
 *   without          local rank 0 makes the control segment and runs the broker on an abstract
 *                    socket, whose name is made of the uid and the job's name, for as long as
 *                    joining takes; the others try to connect until it is there. Only processes of
 *                    the same uid are accepted.
 * Both ends of joining are visible to all: a rank has come once it has sent its hello, and all have
 * joined once each of them has mapped everything. */
#ifndef DDP_WORKER_RUNTIME_JOIN_NODE_JOIN_H
#define DDP_WORKER_RUNTIME_JOIN_NODE_JOIN_H

#include "segments/node_socket.h"
#include "worker-runtime/core/cpus.h"
#include "worker-runtime/core/peer_maps.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct user_segment;

struct node_join_opts {
    unsigned local_rank, n_local; /* as this process was started */
    uint32_t generation;
    int node_fd;      /* DDP_NODE_FD; -1: none */
    const char *job;  /* where node_fd is -1: what the ranks of this job share */
    const char *hint; /* appended to the message of a timeout; "" for none */
    uint64_t terms;   /* a digest of what ranks must have alike, and what it is, for messages */
    const char *terms_name;
    uint64_t deadline_ms;
    struct node_again *again; /* NULL: this rank does not outlive a peer */
};

/* What a rank that outlives its peers takes from one generation to the next. Zeroed at first. */
struct node_again {
    uint32_t wanted; /* in: the generation to join, or a later one; 0: whatever there is */
    uint32_t joined; /* out, also of a failure: the one that was joined, or tried */
    bool may_follow; /* out: ddprun has announced that there may be another */
    /* out: where this rank is in it, and where its store is; n_local 0: as in the environment */
    unsigned local_rank, n_local;
    struct node_place place;
    char store_host[NODE_SOCKET_TEXT_MAX];
    struct peer_maps peers; /* owned: what ranks that come again have in common stays mapped */
};

struct node { /* what came of it */
    struct control *control;
    unsigned local_rank, n_local; /* in the generation */
    uint8_t **user;               /* n_local: where each rank's user segment lies here */
    uint64_t *user_bytes;         /* n_local */
    struct peer_maps *peers;      /* whose those of the others are; NULL: this node's own */
    uint32_t generation;          /* as the control segment has it */
    unsigned n_cpus;              /* that the ranks of the node may run on, all together */
};

/* Join. On return this thread holds the rank's robust mutex.
 *
 * own       this rank's user segment; outlives the node
 * returns   0; -ETIMEDOUT the text names the ranks that did not come; -ECONNRESET a rank died
 *           meanwhile;
 *           -ENOEXEC another rank has other terms;
 *           -ECANCELED no other generation follows the one before `again->wanted`;
 *           -EACCES the socket belongs to another user; -EEXIST this rank has joined already;
 *           -EPROTO -EIO -ENOMEM, -errno */
int node_join(const struct node_join_opts *opts, struct user_segment *own, struct node **ret,
              struct co_error *err);

/* Leave: give the mutex back, and what others own. By the thread that joined. NULL is fine. */
void node_leave(struct node *n);

/* Whether DDP_NODE_FD can be the node socket: one that a wrapper program closed, or used for
 * something else, is not. Such ranks join as those without ddprun do. */
bool node_join_is_socket(int fd);

/* The abstract socket's name for a job, for messages and tests, without the leading NUL. */
#define NODE_JOIN_NAME_BYTES 107
void node_join_name(const char *job, unsigned uid, char name[NODE_JOIN_NAME_BYTES]);

#endif
