/* pmix_nodes.h - the nodes of a job that uses PMIx, in one generation: their data, and the fences
 * over all ranks, through the generation's store (pmi_exchange.h).
 *
 * The first round has each node's pmix_hello.h. In each later round a node brings what its ranks
 * brought to a fence, or that one of them will never enter one. */
#ifndef DDP_LAUNCHER_GENERATION_PMIX_NODES_H
#define DDP_LAUNCHER_GENERATION_PMIX_NODES_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct co_error;
struct pmix_hello;
struct pmix_nodes; /* opaque */

#define PMIX_NODES_MEET_MS 60000 /* for the first round: all nodes have begun the generation */

struct pmix_nodes_opts {
    const char *store_host; /* borrowed for the call */
    uint16_t store_port;
    uint32_t generation;
    uint32_t node, n_nodes;       /* node < n_nodes */
    const struct pmix_hello *own; /* borrowed for the call */

    /* Called from the loop; nothing follows on_failed. */
    void (*on_met)(void *arg); /* the first round is over: pmix_nodes_get() */
    /* All nodes were in the fence: what their ranks bring, owned by the callee; NULL: nothing */
    void (*on_fence)(void *arg, uint8_t *bytes, size_t len);
    /* A node has brought that this rank never comes: the fence, if this node was in it, is not over
     * and never will be */
    void (*on_gone)(void *arg, uint32_t rank);
    void (*on_failed)(void *arg, const char *text);
    void *arg;
};

/* returns   0, -ENOMEM, -errno */
int pmix_nodes_open(uv_loop_t *loop, const struct pmix_nodes_opts *opts, struct pmix_nodes **ret,
                    struct co_error *err);

const struct pmix_hello *pmix_nodes_get(const struct pmix_nodes *n,
                                        uint32_t node); /* after on_met */

/* All ranks of this node are in a fence. The one before is over. returns 0, -ENOMEM */
int pmix_nodes_bring_fence(struct pmix_nodes *n, const uint8_t *bytes, size_t len);

/* This rank of this node will never enter a fence, so none is under way here. returns 0, -ENOMEM */
int pmix_nodes_bring_gone(struct pmix_nodes *n, uint32_t rank);

/* Not from within on_met() and the like. Nothing is called any more. NULL is fine. */
void pmix_nodes_close(struct pmix_nodes *n);

#endif
