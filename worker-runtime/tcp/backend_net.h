/* backend_net.h - collectives among ranks on several nodes: inside of a node by backend_cpu.c, and
 * between nodes over TCP, a socket per local rank.
 *
 * docs/collectives.md has the algorithms, their cost, and what a death does to each. */
#ifndef DDP_WORKER_RUNTIME_TCP_BACKEND_NET_H
#define DDP_WORKER_RUNTIME_TCP_BACKEND_NET_H

#include "net_links.h"
#include "net_tuning.h"

struct backend;
struct co_error;
struct control;
struct control_line;
struct net_map;
struct net_watch;
struct reduce_kernels;
struct user_segment;

struct backend_net_opts {
    struct backend *local;     /* among the ranks of this node, handed over; NULL: there is one */
    struct net_map *map;       /* handed over: zeroed on success */
    struct net_member *member; /* by position, from malloc(), handed over */
    const int *listener;       /* of NET_DATA and NET_MESSAGES, by channel; handed over */
    struct net_watch *watch;
    const struct control *control; /* the node's, borrowed, to end meetings; NULL: nothing does */
    struct control_line *line;     /* this rank's own in it */
    bool owns_watch;               /* of the world's group: handed over */
    struct backend *world;         /* the world's group, borrowed; NULL: this is it */
    struct user_segment *own;
    const struct reduce_kernels *kernels;
    const struct net_tuning *tuning; /* copied; NULL: the default */
    const uint8_t *cookie;           /* NET_COOKIE_BYTES, lent for the life of the job */
    uint32_t group;                  /* tells groups apart */
    bool spin;                       /* each rank of the node has a processor of its own */
    uint64_t timeout_ms;
    uint64_t deadline_ms;          /* for the connections to be made */
    void (*on_destroy)(void *arg); /* called last; NULL */
    void *arg;
};

/* Connect to the ranks of other nodes with the same place on their nodes, and make a back end.
 *
 * returns   0; -ETIMEDOUT, the text names who did not come; -ENOMEM, -errno. On failure nothing was
 *           taken over but the listeners, which are closed */
int backend_net_create(const struct backend_net_opts *opts, struct backend **ret,
                       struct co_error *err);

#endif
