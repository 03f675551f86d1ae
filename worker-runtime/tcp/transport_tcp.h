/* transport_tcp.h - ranks of a group on different nodes exchange bytes.
 *
 * An exchange goes between this rank and some peers, each of which lists this rank, too. Both sides
 * of a pair first tell each other what they are in (the call's signature, its number, and how many
 * bytes follow); then come the bytes, piece by piece, in an order that both work out from the call
 * alone. So no byte of a call goes anywhere before the two sides agree on the call, and pieces need
 * no headers.
 *
 * Pieces become ready as others come: network and arithmetic overlap. Waits end with the node's
 * abort word, with news from other nodes, with the death of a peer, and at the time-out. */
#ifndef DDP_WORKER_RUNTIME_TCP_TRANSPORT_TCP_H
#define DDP_WORKER_RUNTIME_TCP_TRANSPORT_TCP_H

#include "net_links.h"
#include "worker-runtime/core/call.h"

struct net_watch;
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
    /* The i-th piece from peer[p] is here. NULL: not of interest before the end. */
    void (*on_piece)(void *arg, unsigned p, size_t i);
    size_t (*bytes)(void *arg, bool is_out, unsigned p); /* of all pieces */
};

struct transport_tcp_opts {
    struct net_links *links;    /* handed over */
    struct net_watch *watch;    /* borrowed */
    unsigned rank, n;           /* in the group */
    bool spin;                  /* this rank has a processor of its own */
    uint64_t timeout_ms;        /* without a byte from anybody */
    bool (*on_idle)(void *arg); /* called now and then in a wait; NULL */
    void *idle_arg;
};

/* returns   0, -ENOMEM: then the links are still the caller's */
int transport_tcp_create(const struct transport_tcp_opts *opts, struct transport_tcp **ret,
                         struct co_error *err);
/* Peers learn that this rank left; or, if the job is broken, why. NULL is fine. */
void transport_tcp_destroy(struct transport_tcp *t);

/* The job is broken, and this transport is of no more use: tell the peers why, now, since the
 * program may end without leaving. Those in the midst of something hear it from the watch. */
void transport_tcp_give_up(struct transport_tcp *t);

/* Open an exchange.
 *
 * call, number   what all ranks agree on
 * timeout_ms     0: the group's */
void transport_tcp_open(struct transport_tcp *t, const struct call *call, uint32_t number,
                        uint64_t timeout_ms, const struct tcp_plan *plan);

/* Go on with it.
 *
 * returns   1 all pieces went and came; 0 not yet (never if may_wait)
 *           -EPROTO a peer is in another call; -ECONNRESET a peer died or left, or the job is
 *           broken; -ETIMEDOUT; or what else broke the job */
int transport_tcp_advance(struct transport_tcp *t, bool may_wait, struct co_error *err);

#endif
