/* net.h - inside of the back end between nodes: what its files share.
 *
 * A collective follows a schedule, a function that does one stage of it at a time. A stage ends
 * with a part that has to be waited for: a collective among the ranks of this node (by
 * backend_cpu.c), or an exchange with other nodes; or with nothing. Stages number their ranks by
 * positions (net_map.h).
 *
 * Files, bottom to top:
 *   net_map.c, net_address.c, net_links.c, net_lanes.c   which rank is where, and the connections
 *   net_watch.c, straggler.c      news of failure, and which rank is late
 *   stripes.c, transport_tcp*.c, net_reduce.c  an exchange, and the sum that is made during one
 *   p2p_tcp.c, p2p_tcp_io.c       messages
 *   net.c                         a back end from its making to its end
 *   net_stage.c                   the parts that stages end with
 *   net_doubling.c, net_schedules.c  the schedules made of them
 *   net_split.c                   a group of some of the ranks
 *   net_probe.c                   whether lanes pay
 *   backend_net.c                 the engine that takes a schedule's stages one after the other */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_H
#define DDP_WORKER_RUNTIME_TCP_NET_H

#include "backend_net.h"
#include "common/error.h"
#include "net_map.h"
#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/core/backend.h"
#include "worker-runtime/core/layout.h"

struct p2p_tcp;

enum net_next { NET_DONE, NET_GO, NET_LOCAL, NET_TCP }; /* or -errno */

/* --- transport_tcp.c: ranks of a group on different nodes exchange bytes ---------------------- */

/* An exchange goes between this rank and some peers, each of which also lists this rank. Both sides
 * of a pair first send each other what they are in (the call's signature, its number, and how many
 * bytes follow); then come the bytes, piece by piece, in an order that both derive from the call
 * alone. So no byte of a call goes anywhere before the two sides agree on the call, and pieces need
 * no headers.
 *
 * Pieces become ready while other pieces arrive: network and arithmetic overlap. Waits end with the
 * node's abort word, with news from other nodes, with the death of a peer, and at the timeout. */
struct transport_tcp; /* opaque */

enum tcp_next { TCP_END = -1, TCP_LATER = 0, TCP_READY = 1 };

struct tcp_piece {
    void *at; /* only read, of a piece to send */
    size_t bytes;
};

struct tcp_plan { /* what goes between this rank and its peers; lent */
    const unsigned *peer;
    unsigned n_peers;
    void *arg;
    /* The i-th piece to send to (is_out), or to receive from peer[p], asked for in order, and again
     * after TCP_LATER. */
    enum tcp_next (*piece)(void *arg, bool is_out, unsigned p, size_t i, struct tcp_piece *ret);
    /* The i-th piece from peer[p] has arrived. NULL: not of interest before the end. */
    void (*on_piece)(void *arg, unsigned p, size_t i);
    size_t (*bytes)(void *arg, bool is_out, unsigned p); /* of all pieces */
};

struct transport_tcp_opts {
    struct net_links *links;    /* handed over */
    struct net_watch *watch;    /* borrowed */
    unsigned rank, n;           /* in the group */
    bool spin;                  /* this rank has a processor of its own */
    size_t striped_bytes;       /* an exchange from this size on uses the lanes to the peer */
    size_t stripe_bytes;        /* at most, in a stripe */
    uint64_t timeout_ms;        /* without a byte from anybody */
    bool (*on_idle)(void *arg); /* called now and then in a wait; NULL */
    void *idle_arg;
};

/* returns   0, -ENOMEM: then the links are still the caller's */
int transport_tcp_create(const struct transport_tcp_opts *opts, struct transport_tcp **ret,
                         struct co_error *err);
/* Peers learn that this rank left; or, if the job is broken, why. NULL is fine. */
void transport_tcp_destroy(struct transport_tcp *t);

/* Exchanges of `bytes` and more use lanes from now on: between exchanges, and alike on all ranks.
 */
void transport_tcp_stripe_from(struct transport_tcp *t, size_t bytes);

/* The job is broken, and this transport is of no more use: send the reason to the peers, now, since
 * the program may end without leaving. Peers in the middle of something get it from the watch. */
void transport_tcp_give_up(struct transport_tcp *t);

/* Open an exchange.
 *
 * call, number   what all ranks agree on
 * timeout_ms     0: the group's */
void transport_tcp_open(struct transport_tcp *t, const struct call *call, uint32_t number,
                        uint64_t timeout_ms, const struct tcp_plan *plan);

/* Continue it.
 *
 * returns   1 all pieces went and came; 0 not yet (never if may_wait)
 *           -EPROTO a peer is in another call; -ECONNRESET a peer died or left, or the job is
 *           broken; -ETIMEDOUT; or what else broke the job */
int transport_tcp_advance(struct transport_tcp *t, bool may_wait, struct co_error *err);

/* --- net_reduce.c ----------------------------------------------------------------------------- */

/* The reduction between nodes: one rank of each node has the node's result, and these ranks combine
 * them, always in the order of the nodes.
 *
 * parts   the vector is dealt out. Each rank sends every other one its part, and combines its own
 *         part of all; with `gather` it sends the result back to all. Per rank (n - 1)/n of the
 *         vector goes out, and as much again with `gather`: as much as a ring sends, but a ring
 *         adds each element up in another order. In segments: while one is combined others travel
 * whole   each sends everything to all others, and combines everything: one exchange less
 * doubling, passing   as whole and as parts, but ranks pass on what they receive
 *         (net_doubling.c) */
struct net_reduce {       /* the caller fills the first part */
    unsigned n, me;       /* nodes */
    const unsigned *peer; /* n - 1: positions, in the order of their nodes; the caller's memory */
    uint8_t *data;        /* this node's */
    const struct slice *part; /* n, of `data`; the caller's memory */
    uint8_t *out; /* result: of part `me`, or of everything; may be where that lies in `data` */
    bool gather;  /* the other parts' results come to their places in `data` */
    enum ddp_dtype dtype;
    enum ddp_op op;
    unsigned divisor; /* results are divided by it; 0: not */
    const struct reduce_kernels *kernels;
    size_t segment_bytes;
    unsigned n_ahead; /* segments from a peer that may wait for those from others; 1 or more */
    unsigned lag;     /* a result follows the segments that were sent so much later; the same on all
                         ranks */

    uint8_t *scratch; /* net_reduce_scratch_bytes(); the caller's memory, as are the next two */
    const void **in;  /* n */
    size_t *n_come;   /* n: segments of the own part that came from each peer */

    size_t size, segment, n_folded; /* its own */
};

size_t net_reduce_scratch_bytes(const struct net_reduce *f);

/* The plan of `parts`, valid for as long as the fold is. */
struct tcp_plan net_reduce_plan(struct net_reduce *f);

/* `whole`, once the exchange is done: the `count` elements of each peer lie in `scratch`, one
 * vector after the other, and this node's at `data`. Reads n, me, the operation, kernels and
 * `in`. */
void net_reduce_whole(struct net_reduce *f, size_t count);

/* `doubling`, once its last exchange is done: the same, but `scratch` has a vector of each node in
 * the order of the nodes, from this node's on, modulo n; this node's is taken from `data`. */
void net_reduce_rotated(struct net_reduce *f, size_t count);

/* --- a collective, and the back end ----------------------------------------------------------- */

struct net;
/* Do stage `stage`, 0 first.
 * returns   NET_DONE; NET_GO on with the next stage; NET_LOCAL, NET_TCP when that part is done;
 *           -errno */
typedef int net_schedule(struct net *n, unsigned stage, struct co_error *err);

struct net_job { /* the open collective, in positions */
    net_schedule *schedule;
    unsigned stage;
    int waits_for; /* enum net_next */
    bool is_open;
    struct call call;
    struct layout layout;
    const uint8_t *in;
    uint8_t *out;
    size_t count; /* elements of a block or of the vector */
    const size_t *counts, *in_counts;
    enum ddp_dtype dtype;
    enum ddp_op op;
    unsigned root; /* its position, and its node */
    unsigned root_node;
    uint64_t timeout_ms;
    unsigned n_local_parts;
    struct slice mine; /* of the vector: what this rank exchanges with other nodes */
    bool adds_up;      /* the exchange brings whole vectors, which n->fold then adds up */
};

struct net {
    struct backend backend;
    struct backend *local; /* the ranks of this node, owned; NULL: there is no other */
    struct net *world;     /* borrowed; itself, of the world's group */
    struct net_map map;
    struct net_member *member; /* by position, owned */
    struct net_watch *watch;   /* borrowed but of the world's group */
    struct transport_tcp *tcp;
    struct net_tuning tuning;
    unsigned n_lanes; /* that any two ranks of the group have at least */
    struct backend_net_opts opts;
    struct net_links *message_links; /* owned; used by n->messages, once that is there */
    struct tcp_plan plan;            /* of the open exchange */
    uint32_t number;                 /* collectives begun */
    uint32_t n_splits;
    struct net_job job;

    unsigned *slot_peer; /* n_nodes - 1: the ranks of other nodes that this one exchanges with */
    unsigned *peer;      /* n: to list others */
    struct tcp_piece *to, *from; /* n: for an exchange of copies; a piece each way for each peer */
    struct slice *part;          /* n_nodes */
    size_t *n_come;              /* n_nodes */
    const void **fold_in;        /* n_nodes */
    size_t *local_counts;        /* n_most: of the open local part */
    size_t *first[2];            /* n each: of the layout */
    struct net_reduce fold;
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

static inline bool net_is_slot(const struct net *n)
{
    return n->map.local < n->map.n_slots;
}

static inline unsigned net_n_local(const struct net *n)
{
    return net_map_n_local(&n->map, n->map.node);
}

/* Continue the messages among the ranks of this node. */
static inline void net_go_on_inside(const struct net *n)
{
    if (n->local != NULL)
        n->local->ops->p2p_shm_advance(n->local, NULL);
}

/* An average of integers is their sum, divided once at the end; one of floats is the average of the
 * nodes' averages. */
static inline bool net_is_average_of_integers(const struct net_job *j)
{
    return j->op == DDP_AVG && !convert_is_float(j->dtype);
}

/* --- net.c ------------------------------------------------------------------------------------ */

/* As backend_net_create(), with the operations of the back end. */
int net_create(const struct backend_net_opts *opts, const struct backend_ops *ops,
               struct backend **ret, struct co_error *err);
void net_destroy(struct backend *b);

/* Break the job. Keeps the first reason. returns its code */
int net_fail(struct net *n, int code, bool is_local, struct co_error *err);

/* Messages and news, while something else is waited for. returns whether messages are open. */
bool net_on_idle(void *net);

/* Have *at hold `wanted` bytes, whatever it held. returns 0, -ENOMEM */
int net_grow(uint8_t **at, size_t *bytes, size_t wanted, struct co_error *err);

/* --- net_stage.c: parts, each of which ends a stage ------------------------------------------- */

/* Begin a collective among the ranks of this node: a part of the open one, of its type and
 * operation. returns enum net_next, -errno */
int net_local(struct net *n, struct collective what, struct co_error *err);
/* Only a rendezvous. */
int net_local_meeting(struct net *n, struct co_error *err);
/* The ranks that are not slots get the `count` elements that local rank 0 has at `at`. */
int net_hand_down(struct net *n, uint8_t *at, size_t count, struct co_error *err);

/* Slices: what each slot of a node exchanges with other nodes, of a vector of `count` elements.
 *
 * slot     that of local rank `local`; the ranks that are not slots have none
 * deal     those of all ranks of the node into n->local_counts; returns this rank's
 * reduce   j->in of all ranks of the node: each gets its slice, which becomes j->mine, in `out`
 * gather   every rank on this node gets the slices at `at` */
struct slice net_slot_slice(const struct net *n, size_t count, unsigned local);
struct slice net_deal_slices(struct net *n, size_t count);
int net_reduce_slices(struct net *n, uint8_t *out, size_t count, struct co_error *err);
int net_gather_slices(struct net *n, uint8_t *at, size_t count, struct co_error *err);

/* Begin an exchange with other nodes, by the slots. returns NET_TCP, -errno
 *
 * copies   n->to[] and n->from[] go between this rank and the n_peers at `peer`
 * fold     the vector at `data` is divided among the nodes according to n->part[]; data, out,
 *          gather as in struct net_reduce
 * whole    each slot sends its `count` elements to all others, which all add them up at `at` */
int net_exchange_copies(struct net *n, const unsigned *peer, unsigned n_peers);
int net_exchange_fold(struct net *n, uint8_t *data, uint8_t *out, bool gather,
                      struct co_error *err);
int net_exchange_whole(struct net *n, uint8_t *at, size_t count, struct co_error *err);

/* Of an average: scale this node's result at `at`, where nodes have different numbers of ranks. */
void net_weigh(const struct net *n, uint8_t *at, size_t count);

/* Add up the `count` elements of each node that n->scratch has, in the order that
 * net_reduce_rotated() reads, into `out`. data: this node's; may be `out` */
void net_reduce_gathered(struct net *n, uint8_t *data, uint8_t *out, size_t count);

/* --- net_schedules.c, net_doubling.c, net_split.c --------------------------------------------- */

int net_all_reduce_doubling(struct net *n, unsigned stage, struct co_error *err);
int net_all_reduce_passing(struct net *n, unsigned stage, struct co_error *err);

net_schedule *net_schedule_of(const struct net *n, const struct collective *what);

int net_split(struct backend *b, int color, int key, struct backend **ret, int *ret_rank,
              int *ret_n, struct co_error *err);

/* --- p2p_tcp.c: messages ---------------------------------------------------------------------- */

int p2p_tcp_begin(struct backend *b, struct message *m, struct co_error *err);
void p2p_tcp_advance(struct backend *b, const struct message *until);
/* Without waiting. returns whether any are open. */
bool p2p_tcp_go_on(struct p2p_tcp *ms);
/* Send goodbye to the ranks that sent this one a message, or wait for one, and close. */
void p2p_tcp_close(struct net *n);

#endif
