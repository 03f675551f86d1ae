/* net_move.h - a connection of two ranks whose path fails is replaced by one over another network
 * interface, without loss: for ranks that have two or more pairs of ends (net_ends.h). Nothing of
 * it is visible in net_links.h: meanwhile calls return -EAGAIN.
 *
 *     STAYS      the connection is used
 *     CONNECTS   it does not answer; another one is being made, over each pair in turns. If it
 *                answers again, the other one is closed
 *     AWAITS     the other one is made; nothing is sent or read on the old one any more. There is
 *                no way back
 *     GONE       the peer takes no connections any more, or no pair leads to it
 *
 * Either side begins: the one that has sent something that is not acknowledged for
 * NET_LANES_SILENT_MS, or whose connection reports an unreachable peer. If both do, the lower
 * rank's connection is taken: a lower rank that has begun refuses the other one.
 *
 *     begins                                  takes
 *     hello ->
 *                                             reads what has arrived on the old connection
 *                                             <- count of bytes received
 *     reads what has arrived on the old one
 *     count of bytes received ->
 *     bytes after the peer's count ->         <- bytes after the peer's count
 *
 * What a machine has acknowledged on the old connection is read there before its rank counts, and
 * neither side drops bytes from its replay between the hello and the count. */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_MOVE_H
#define DDP_WORKER_RUNTIME_TCP_NET_MOVE_H

#include "net_links_priv.h"
#include "replay.h"

enum net_move_state { NET_MOVE_STAYS, NET_MOVE_CONNECTS, NET_MOVE_AWAITS, NET_MOVE_GONE };

struct net_move_count { /* 16 bytes: the first ones of a connection that replaces another */
    uint32_t magic, padding_;
    uint64_t received;
};
#define NET_MOVE_MAGIC 0x4d504445u

struct net_move { /* of a link */
    struct replay replay;
    enum net_move_state state;
    bool is_broken;    /* the old connection has ended, and must be replaced */
    int fd;            /* the other one; -1: to be begun */
    int code;          /* of GONE */
    unsigned n_failed; /* attempts, one after the other */
    unsigned attempt;  /* number of the pair that is tried, in turns; 0: the first address */
    uint64_t begun_ms; /* the attempt; or when the next one begins */
    uint64_t look_ms;  /* when it is looked for a path that does not answer next */
    uint64_t stuck_ms; /* since when it does not answer; 0: it does */
    bool has_taken;    /* AWAITS: the peer has begun */
    size_t n_here;     /* bytes of the peer's count */
    struct net_move_count count;
};

/* Have a struct net_move for each peer that has two pairs. returns 0, -ENOMEM */
int net_moves_create(struct net_links *l);
/* Wait, for a short time, until what was sent has arrived. */
void net_moves_flush(struct net_links *l);
void net_moves_fini(struct net_links *l, unsigned peer);

/* Begin to connect to a peer: to its first address, or after a failed attempt to another one.
 * returns 0, -errno */
int net_move_connect_first(struct net_links *l, unsigned peer, int *ret_fd);
/* Whether that has taken so long that the next attempt is to begin. */
bool net_move_is_late(const struct net_links *l, unsigned peer);
/* It failed, with this code. returns -EAGAIN there is another address to be tried; else the code */
int net_move_fail_first(struct net_links *l, unsigned peer, int code);

/* returns   0 the connection can be used; -EAGAIN it is being replaced; -errno the peer is gone */
int net_move_go_on(struct net_links *l, unsigned peer);

/* On a connection that can be used. returns as net_links_send() */
ssize_t net_move_send(struct net_links *l, unsigned peer, const struct iovec *v, unsigned n_v);
/* n         what was received, or -errno
 * returns   the same; -EAGAIN for an error of the path, which begins a replacement */
ssize_t net_move_received(struct net_links *l, unsigned peer, ssize_t n);

/* A hello of a connection that replaces another one: whether the peer may send it.
 * returns 0; -EPROTO, -EEXIST */
int net_move_check(struct net_links *l, const struct hello *h, struct co_error *why);
void net_move_take(struct net_links *l, const struct hello *h, int fd);

#endif
