/* ranks.h - what the ranks of a job ask of its store: state machines without sockets, for
 * store_load.c (a connection for each rank) and relay_load.c (a link for each node).
 *
 * Phases, each of which all ranks complete before the next one begins:
 *
 *     join      handshake, add 1 to a counter, wait for a key that the last rank sets
 *     barrier   the same without the handshake, n_barriers times
 *     gather    set a value of its own, a barrier, then get the values of the first n_gets ranks,
 *               one by one: as all_gather_object() would over a store, cut short
 */
#ifndef DDP_BENCH_PROGRAMS_RANKS_H
#define DDP_BENCH_PROGRAMS_RANKS_H

#include "store_load.h"

enum ranks_phase { RANKS_JOIN, RANKS_BARRIER, RANKS_GATHER, RANKS_OVER };

struct rank; /* opaque */

struct ranks {
    unsigned n, n_barriers, n_gets;
    enum ranks_phase phase;
    unsigned n_done;     /* have completed this phase */
    uint64_t n_requests; /* of this phase */
    uint64_t begun_ns;   /* this phase */
    struct rank *list;   /* owned */
};

/* n_barriers, n_gets   0: the phase is left out */
void ranks_init(struct ranks *r, unsigned n, unsigned n_barriers, unsigned n_gets);

/* The first request of rank i in this phase, appended to m. */
void ranks_begin(struct ranks *r, unsigned i, struct load_message *m);

/* Bytes that rank i has received. returns   whether a request was appended to m */
bool ranks_receive(struct ranks *r, unsigned i, const uint8_t *bytes, size_t len,
                   struct load_message *m);

/* How many bytes of its reply rank i still misses; 0: it has completed the phase. */
size_t ranks_n_missing(const struct ranks *r, unsigned i);

/* All have completed the phase: print a line "phase NAME requests N seconds S", wait for a line on
 * stdin (the caller looks at the server meanwhile), and enter the next phase.
 *
 * returns   whether there is another one */
bool ranks_next_phase(struct ranks *r);

#endif
