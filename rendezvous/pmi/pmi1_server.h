/* pmi1_server.h - PMI-1 for the ranks of one node, in one generation.
 *
 * Pure: it takes bytes of ranks and gathers answers for each of them; the caller carries both. What
 * a rank puts is visible to the other ranks of the job after the next barrier. In a job of several
 * nodes the caller carries what was put here to the other nodes, and theirs here, before it lets
 * the ranks of this node out of the barrier:
 *
 *     pmi1_server_feed()       each rank; until pmi1_server_is_gathered()
 *     pmi1_server_take_puts()  what they have put since the last time, for the other nodes
 *     pmi1_server_learn()      what those have put
 *     pmi1_server_release()    out of the barrier
 *
 * Answered as PMI 1.1: init, get_maxes, get_appnum, get_my_kvsname, get_universe_size, put, get,
 * barrier_in, finalize, abort. Spawning processes and publishing names are refused, in words that a
 * program can show. Anything else costs the connection. */
#ifndef DDP_RENDEZVOUS_PMI_PMI1_SERVER_H
#define DDP_RENDEZVOUS_PMI_PMI1_SERVER_H

#include "pmi1_wire.h"

#include <stdbool.h>
#include <stdint.h>

struct co_buf;
struct co_error;
struct pmi1_server; /* opaque */

#define PMI1_MAX_PUTS_BYTES ((size_t)16 << 20)  /* of a node between two barriers */
#define PMI1_MAX_KVS_BYTES  ((uint64_t)1 << 28) /* of all nodes together */
#define PMI1_MAX_KEYS       ((uint64_t)1 << 22)
#define PMI1_MAX_OUT_BYTES  ((size_t)64 << 10) /* answers that a rank leaves unread */

struct pmi1_place {
    int n_local; /* 1 <= n_local <= world_size */
    int world_size;
    int n_nodes;       /* 1: the sizes of nodes are known at once */
    const char *name;  /* of the key space: shorter than PMI1_KVSNAME_BYTES, no blanks; borrowed */
    const int *appnum; /* of each local rank's program; borrowed; NULL: 0 */
    uint64_t seed;     /* of store_create() */
    uint64_t max_kvs_bytes; /* 0: PMI1_MAX_KVS_BYTES */
};

enum pmi1_state {
    PMI1_SILENT, /* has not sent init */
    PMI1_INSIDE,
    PMI1_FINALIZED,
};

struct pmi1_rank {
    enum pmi1_state state;
    bool in_barrier;
    bool aborted;
    bool asked_to_spawn;
    int exit_code; /* aborted: as it was given */
};

/* returns   0, -ENOMEM */
int pmi1_server_create(const struct pmi1_place *place, struct pmi1_server **ret,
                       struct co_error *err);
void pmi1_server_destroy(struct pmi1_server *s); /* NULL is fine */

/* What a rank has sent, cut anywhere. Answers may also gather for other ranks.
 *
 * returns   0
 *           -EPROTO   not a PMI-1 client, the text has the reason: its connection is unusable
 *           -ENOSPC   it reads no answers
 *           -ENOMEM */
int pmi1_server_feed(struct pmi1_server *s, int local_rank, const uint8_t *bytes, size_t len,
                     struct co_error *err);

/* What is to be sent to a rank; the caller consumes it. */
struct co_buf *pmi1_server_out(struct pmi1_server *s, int local_rank);

/* How many ranks each node has, in the order of the ranks: the answer that some may wait for. Of a
 * job of one node nothing has to be set.
 *
 * returns   0, -ENOMEM; -EINVAL: they are not world_size together */
int pmi1_server_set_nodes(struct pmi1_server *s, const uint32_t *n_ranks, int n_nodes,
                          struct co_error *err);

/* Each rank of this node is in the barrier. */
bool pmi1_server_is_gathered(const struct pmi1_server *s);

/* Append what was put here since the last call: lines of KEY=VALUE. returns 0, -ENOMEM */
int pmi1_server_take_puts(struct pmi1_server *s, struct co_buf *out);

/* What another node has taken, or this one.
 *
 * returns   0; -EPROTO: not such lines; -ENOSPC: too much; -ENOMEM */
int pmi1_server_learn(struct pmi1_server *s, const uint8_t *bytes, size_t len,
                      struct co_error *err);

/* returns   0, -ENOMEM */
int pmi1_server_release(struct pmi1_server *s);

const struct pmi1_rank *pmi1_server_get_rank(const struct pmi1_server *s, int local_rank);

/* Which ranks share a node, in the format of PMI_process_mapping: "(vector,(0,2,4))": from node 0
 * on 2 nodes with 4 ranks each.
 *
 * returns   0; -ENOSPC: it does not fit */
int pmi1_print_mapping(const uint32_t *n_ranks, int n_nodes, char *text, size_t n);

#endif
