/* pmi_bootstrap.h - this node's place in a job whose ddpruns, one for each node, were started by a
 * launcher that speaks PMI-1: mpiexec.hydra -ppn 1 ddprun train.py.
 *
 * They exchange, by PMI, where node 0 is, and a secret made for this job, so that no host, port or
 * token has to be chosen. Node 0 publishes all its addresses; the first one that all nodes reach
 * counts. Pure: launcher/membership/pmi_rendezvous.h does it. */
#ifndef DDP_LAUNCHER_HOSTS_PMI_BOOTSTRAP_H
#define DDP_LAUNCHER_HOSTS_PMI_BOOTSTRAP_H

#include "host_list.h"

#include <netinet/in.h>
#include <stdint.h>

struct host_env;
struct co_error;

enum {
    PMI_BOOTSTRAP_ADDRESSES_MAX = 12,
    PMI_BOOTSTRAP_TOKEN_BYTES = 65, /* hexadecimal digits, with the NUL */
    PMI_BOOTSTRAP_RUN_ID_BYTES = 40,
};

struct pmi_place { /* of this process among those that were started */
    int fd;
    uint32_t rank, size; /* size > 1 */
};

struct pmi_bootstrap {
    struct node_assignment
        assignment; /* its texts are of this struct, which must stay where it is */
    char nodes[16], node_rank[16];
    char run_id[PMI_BOOTSTRAP_RUN_ID_BYTES], endpoint[INET6_ADDRSTRLEN + 16];
};

/* What PMI's variables contain.
 *
 * returns   1 `ret_place`; 0 no launcher that speaks PMI has started this one, or it started only
 *           this one
 *           -EINVAL   a variable is malformed, or several ddpruns were started on this node */
int pmi_bootstrap_look(const struct host_env *world, struct pmi_place *ret_place,
                       struct co_error *err);

/* --- what node 0 publishes: "PORT;TOKEN;RUN_ID;ADDRESS,ADDRESS", or '!' and its error --- */

struct pmi_bootstrap_meeting {
    uint16_t port;
    char token[PMI_BOOTSTRAP_TOKEN_BYTES], run_id[PMI_BOOTSTRAP_RUN_ID_BYTES];
    size_t n_addresses; /* 1 to PMI_BOOTSTRAP_ADDRESSES_MAX */
    char address[PMI_BOOTSTRAP_ADDRESSES_MAX][INET6_ADDRSTRLEN];
};

/* to   n bytes; what does not fit is left out: 1024 are enough */
void pmi_bootstrap_print(const struct pmi_bootstrap_meeting *m, char *to, size_t n);

/* text      is cut up
 * returns   0
 *           -EPROTO   it makes no sense
 *           -EIO      node 0 has failed; err has the reason */
int pmi_bootstrap_read(char *text, struct pmi_bootstrap_meeting *ret, struct co_error *err);

#endif
