/* pmix_names.h - the texts of PMIx: names of nodes and namespaces, maps, versions. Pure, and
 * without libpmix. */
#ifndef DDP_RENDEZVOUS_PMIX_PMIX_NAMES_H
#define DDP_RENDEZVOUS_PMIX_PMIX_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct pmix_plugin_node;

enum {
    PMIX_NAMES_NODE_BYTES = 96,  /* a node's name */
    PMIX_NAMES_SPACE_BYTES = 64, /* a namespace */
    PMIX_NAMES_VERSION_BYTES = 32
};

/* A node's name from that of its host: letters, digits, '.' and '-' of it, and a mark that makes it
 * unique, since several nodes of a job may be on one host. mark   "": a single node */
void pmix_names_node(const char *host, const char *mark, char ret[PMIX_NAMES_NODE_BYTES]);

/* "ddp-SECRET-GENERATION" */
void pmix_names_space(const char *secret, uint32_t generation, char ret[PMIX_NAMES_SPACE_BYTES]);

/* The names of all nodes, as "a,b,c". ret owned by the caller. returns 0, -ENOMEM */
int pmix_names_node_list(const struct pmix_plugin_node *nodes, uint32_t n_nodes, char **ret);

/* Their ranks, as "0,1;2,3". */
int pmix_names_rank_list(const struct pmix_plugin_node *nodes, uint32_t n_nodes, char **ret);

/* Some ranks, as "2,3". */
int pmix_names_ranks(uint32_t first, uint32_t n, char **ret);

struct pmix_names_version {
    int major, minor, release;
};

/* From what libpmix calls itself: "OpenPMIx 4.2.2 (PMIx Standard: ...)".
 *
 * returns   0; -EINVAL: it has another form */
int pmix_names_read_version(const char *text, struct pmix_names_version *ret);

/* Does this version wait for connections with select(2), which aborts the process if the listening
 * socket is number 1024 or more? */
bool pmix_names_uses_select(const struct pmix_names_version *v);

#endif
