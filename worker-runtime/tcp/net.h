/* net.h - inside of the back end between nodes: what backend_net.c, its schedules and its messages
 * share.
 *
 * A collective is a list of stages. A stage ends with a part that has to be waited for: a
 * collective among the ranks of this node (by backend_cpu.c), or an exchange with other nodes; or
 * with nothing. Stages number their ranks by positions (net_map.h). */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_H
#define DDP_WORKER_RUNTIME_TCP_NET_H

#include "backend_net.h"
#include "common/error.h"
#include "net_map.h"
#include "net_math.h"
#include "net_reduce.h"
#include "net_tuning.h"
#include "worker-runtime/core/backend.h"
#include "worker-runtime/core/layout.h"

struct p2p_tcp;

struct net_copies { /* what goes between this rank and some others: a piece each way */
    unsigned n;
    unsigned *peer; /* positions */
    struct tcp_piece *to, *from;
};

enum net_next { NET_DONE, NET_GO, NET_LOCAL, NET_TCP }; /* or -errno */

struct net;
/* Do stage `stage`, 0 first.
 * returns   NET_DONE; NET_GO on with the next stage; NET_LOCAL, NET_TCP when that part is done;
 *           -errno */
typedef int net_schedules(struct net *n, unsigned stage, struct co_error *err);

struct net_job { /* the open collective, in positions */
    net_schedules *schedule;
    unsigned stage;
    int waits_for; /* enum net_next */
    bool is_open;
    struct call call;
    struct layout layout;
    const uint8_t *in;
    uint8_t *out;
    size_t count; /* of a block, or of the vector */
    const size_t *counts, *in_counts;
    enum ddp_dtype dtype;
    enum ddp_op op;
    unsigned root; /* its position, and its node */
    unsigned root_node;
    uint64_t timeout_ms;
    unsigned n_local_parts;
    struct slice mine; /* of the vector: what this rank exchanges with other nodes */
    bool folds;        /* the exchange is n->fold, to be finished */
};

struct net {
    struct backend backend;
    struct backend *local;     /* the ranks of this node, owned; NULL: there is no other */
    struct control_line *line; /* this rank's own */
    struct net *world;         /* borrowed; itself, of the world's group */
    struct net_map map;
    struct net_member *member; /* by position, owned */
    struct net_watch *watch;   /* borrowed but of the world's group */
    struct transport_tcp *tcp;
    const struct reduce_kernels *kernels;
    struct net_tuning tuning;
    struct backend_net_opts opts;
    struct net_links *message_links; /* owned; used by n->messages, once that is there */
    struct tcp_plan plan;            /* of the open exchange */
    uint32_t number;                 /* collectives begun */
    uint32_t n_splits;
    struct net_job job;

    unsigned *slot_peer; /* n_nodes - 1: the ranks of other nodes that this one exchanges with */
    unsigned *peer;      /* n: to list others */
    struct tcp_piece *to, *from; /* n */
    struct slice *part;          /* n_nodes */
    size_t *n_come;              /* n_nodes */
    const void **fold_in;        /* n_nodes */
    size_t *local_counts;        /* n_most: of the open local part */
    size_t *first[2];            /* n each: of the layout */
    struct net_reduce fold;
    struct net_copies copies;
    uint8_t *scratch, *temp; /* grow as needed; kept */
    size_t scratch_bytes, temp_bytes;

    /* of a group whose positions are not ranks: the call as it was given, and its blocks in order
       of positions */
    struct collective given;
    struct layout given_layout;
    size_t *given_first[2], *position_counts[2]; /* n each */
    uint8_t *ordered;
    size_t ordered_bytes;
    bool is_ordered;

    bool is_broken;
    struct co_error why;
    struct p2p_tcp *_Atomic messages; /* NULL until the first */
};

/* --- for schedules
 * ------------------------------------------------------------------------------ */

static inline bool net_is_slot(const struct net *n)
{
    return n->map.local < n->map.n_slots;
}

static inline unsigned net_n_local(const struct net *n)
{
    return net_map_n_local(&n->map, n->map.node);
}

/* Begin a collective among the ranks of this node: a part of the open one. returns enum net_next,
 * -errno */
int net_local(struct net *n, struct collective what, struct co_error *err);
/* Nothing but a meeting. */
int net_local_meeting(struct net *n, struct co_error *err);

/* Begin an exchange: n->copies, or n->fold after net_reduce(). */
int net_exchange_copies(struct net *n);
/* Fold between nodes. n->part[] is set, or count for the whole vector.
 * data, out   as in struct net_reduce */
int net_exchange_fold(struct net *n, uint8_t *data, uint8_t *out, bool gather, bool whole,
                      size_t count, struct co_error *err);

/* Have *at hold `wanted` bytes, whatever it held. returns 0, -ENOMEM */
int net_grow(uint8_t **at, size_t *bytes, size_t wanted, struct co_error *err);
/* n->temp of so many bytes. returns 0, -ENOMEM */
int net_get_temp(struct net *n, size_t bytes, struct co_error *err);

/* The slices of `count` elements that the ranks of this node exchange: n->local_counts, and which
 * is this rank's. */
struct slice net_deal(struct net *n, size_t count);
struct slice net_slice(const struct net *n, size_t count, unsigned local);

net_schedules *net_schedule_of(const struct net *n, const struct collective *what);

/* --- order of blocks -------------------------------------------------------------------------- */

/* Have the call's blocks in the order of positions: `what` names other buffers and counts then.
 * returns   0, -ENOMEM */
int net_put_in_order(struct net *n, struct collective *what, struct co_error *err);
/* And what came of it in that of ranks, where the caller wants it. */
void net_put_back(struct net *n);

/* --- messages, groups ------------------------------------------------------------------------- */

int net_message_begin(struct backend *b, struct message *m, struct co_error *err);
void p2p_tcp_advance(struct backend *b, const struct message *until);
/* Without waiting. returns whether any are open. */
bool p2p_tcp_go_on(struct p2p_tcp *ms);
/* Say goodbye to those who sent this rank a message, or wait for one, and close. */
void p2p_tcp_close(struct net *n);

int net_split(struct backend *b, int color, int key, struct backend **ret, int *ret_rank,
              int *ret_n, struct co_error *err);

/* Messages and news, while something else is waited for. returns whether messages are open. */
bool net_on_idle(void *net);

/* Break the job. Keeps the first reason. returns its code */
int net_fail(struct net *n, int code, bool is_local, struct co_error *err);

#endif
