/* backend_net.h - collectives among ranks on several nodes: inside of a node by backend_cpu.c, and
 * between nodes over TCP, a socket per local rank.
 *
 * docs/design/collectives.md has the algorithms, their cost, and what a death does to each. */
#ifndef DDP_WORKER_RUNTIME_TCP_BACKEND_NET_H
#define DDP_WORKER_RUNTIME_TCP_BACKEND_NET_H

#include "net_links.h"
#include "worker-runtime/cost/cost.h"

struct backend;
struct co_error;
struct control;
struct control_line;
struct net_map;
struct net_watch;
struct reduce_kernels;
struct user_segment;

/* Which algorithm is the fastest between nodes. The same on all ranks.
 * docs/design/collectives.md has the measurements. */
struct net_tuning {
    struct cost_network network; /* all_reduce between three or more nodes */
    size_t pair_bytes;    /* between two: up to this size each sends everything to the other. Parts
                             send as many bytes there, in two exchanges, and half the work */
    size_t segment_bytes; /* of parts: each goes in pieces of this */
    size_t small_bytes;   /* broadcast: up to this it goes whole by each socket */
    size_t striped_bytes; /* an exchange between two ranks from this on uses their lanes */
    size_t stripe_bytes;  /* in pieces of this */
};

/* The algorithm of an all_reduce between n nodes, 2 or more. */
static inline enum cost_algo net_tuning_algo(const struct net_tuning *t, unsigned n, size_t bytes)
{
    if (n <= 2)
        return bytes <= t->pair_bytes ? COST_WHOLE : COST_PARTS;
    return cost_choose(n, bytes, &t->network);
}

#define NET_TUNING_DEFAULT                                                                         \
    ((struct net_tuning){.network = COST_NETWORK_DEFAULT,                                          \
                         .pair_bytes = 64 << 10,                                                   \
                         .segment_bytes = 128 << 10,                                               \
                         .small_bytes = 32 << 10,                                                  \
                         .striped_bytes = 1 << 20,                                                 \
                         .stripe_bytes = 128 << 10})

struct backend_net_opts {
    struct backend *local;     /* among the ranks of this node, handed over; NULL: there is one */
    struct net_map *map;       /* handed over: zeroed on success */
    struct net_member *member; /* by position, from malloc(), handed over */
    const int *listener;       /* of NET_DATA and NET_MESSAGES, by channel; handed over */
    struct net_watch *watch;
    const struct control *control; /* the node's, borrowed, to end a rendezvous; NULL: nothing
                                      does */
    struct control_line *line;     /* this rank's own in it */
    bool owns_watch;               /* of the world's group: handed over */
    struct backend *world;         /* the world's group, borrowed; NULL: this is it */
    struct user_segment *own;
    const struct reduce_kernels *kernels;
    const struct net_tuning *tuning; /* copied; NULL: the default */
    const uint8_t *cookie;           /* NET_COOKIE_BYTES, lent for the life of the job */
    const uint8_t *key;              /* NET_KEY_BYTES, lent as well; NULL: not encrypted */
    uint32_t group;                  /* distinguishes groups */
    bool spin;                       /* each rank of the node has a processor of its own */
    uint64_t timeout_ms;
    uint64_t deadline_ms;          /* for the connections to be made */
    void (*on_destroy)(void *arg); /* called last; NULL */
    void *arg;
};

/* Connect to the ranks of other nodes with the same place on their nodes, and make a back end.
 *
 * returns   0; -ETIMEDOUT, the text names the ranks that did not come; -ENOMEM, -errno. On failure
 *           nothing was taken over but the listeners, which are closed */
int backend_net_create(const struct backend_net_opts *opts, struct backend **ret,
                       struct co_error *err);

#endif
