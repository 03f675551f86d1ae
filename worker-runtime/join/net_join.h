/* net_join.h - the ranks of a job on several nodes find each other.
 *
 * Local rank 0 of each node puts the reports of its ranks into the job's store (MASTER_ADDR,
 * MASTER_PORT); rank 0's node makes a table of all, with a random cookie, and puts that there for
 * every rank. So the store is asked a few times per node, whatever the number of ranks. If the
 * job's launcher speaks PMI instead, rank 0 serves the store (pmi_store.h). Addresses
 * are those of the interface by which a node reaches the store, or of DDP_SOCKET_IFNAME
 * (interfaces/net_interface.h). */
#ifndef DDP_WORKER_RUNTIME_JOIN_NET_JOIN_H
#define DDP_WORKER_RUNTIME_JOIN_NET_JOIN_H

#include "worker-runtime/cost/cost.h"
#include "worker-runtime/tcp/net_links.h"
#include "worker-runtime/tcp/net_map.h"

#include <stdint.h>

struct net_join { /* what came of it, kept for the life of the job */
    struct net_map map;
    struct net_member *member;    /* owned; by position */
    int listener[NET_N_CHANNELS]; /* owned; taken when set to -1 */
    uint8_t cookie[NET_COOKIE_BYTES];
    uint8_t key[NET_KEY_BYTES];  /* of this generation, if has_key */
    bool has_key;                /* connections between nodes are encrypted */
    struct cost_network network; /* what rank 0's node has given */
    uint32_t *world_rank;        /* owned; of each local rank */
    char where[64];              /* " on node 1 (host)" */
};

struct net_join_opts {
    const struct env_who *who;   /* lent while joining, as all here */
    struct backend *local;       /* NULL: alone on the node */
    struct cost_network network; /* of this rank's table; rank 0's counts */
    const struct control
        *control;    /* the node's: its abort word ends the waiting; NULL: nothing does */
    unsigned number; /* number of this rendezvous among those of the processes of this generation:
                        the same on all */
};

/* returns   0; -ECONNRESET the abort word is set; -ENOEXEC the variables are inconsistent, or
 *           differ from those of other nodes; -ETIMEDOUT the text names the ranks that are missing;
 *           -ENOMEM, -EIO, -errno */
int net_join(const struct net_join_opts *opts, uint64_t deadline_ms, struct net_join **ret,
             struct co_error *err);
/* NULL: connections are not encrypted */
static inline const uint8_t *net_join_key(const struct net_join *j)
{
    return j->has_key ? j->key : NULL;
}

void net_join_destroy(struct net_join *j); /* NULL is fine */

#endif
