/* pmi_exchange.h - what the ranks of each node have put by PMI, taken to all other nodes through
 * the generation's store.
 *
 * In rounds, which each node begins by itself: a round is over for a node when it has what every
 * node contributed to that round. The first round has the number of ranks of each node. */
#ifndef DDP_LAUNCHER_GENERATION_PMI_EXCHANGE_H
#define DDP_LAUNCHER_GENERATION_PMI_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct co_error;
struct pmi_exchange; /* opaque */

#define PMI_EXCHANGE_MAX_NODES 65536

struct pmi_exchange_opts {
    const char *host; /* of the generation's store; borrowed for the call */
    uint16_t port;
    uint32_t generation;
    uint32_t node, n_nodes; /* node < n_nodes */

    /* Called from the loop; on_failed once, and nothing after it. */
    void (*on_part)(void *arg, uint32_t node, const uint8_t *bytes, size_t len); /* lent */
    void (*on_round)(void *arg, uint32_t round); /* all parts of it were passed on, in order */
    void (*on_failed)(void *arg, const char *text);
    void *arg;
};

/* returns   0, -ENOMEM, -errno */
int pmi_exchange_open(uv_loop_t *loop, const struct pmi_exchange_opts *opts,
                      struct pmi_exchange **ret, struct co_error *err);

/* Bring this node's part to the next round; the one before is over.
 *
 * returns   0, -ENOMEM */
int pmi_exchange_bring(struct pmi_exchange *x, const uint8_t *bytes, size_t len);

/* Frees it when the loop has closed its handles; nothing is called any more. NULL is fine. */
void pmi_exchange_close(struct pmi_exchange *x);

#endif
