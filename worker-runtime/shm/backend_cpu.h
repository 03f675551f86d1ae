/* backend_cpu.h - collectives on the memory of the CPU, among the ranks of one node.
 *
 * docs/design/collectives.md has the algorithms, their cost, and what a death does to each. */
#ifndef DDP_WORKER_RUNTIME_SHM_BACKEND_CPU_H
#define DDP_WORKER_RUNTIME_SHM_BACKEND_CPU_H

#include "transport_shm.h"

#include <stdint.h>

struct backend;
struct co_error;
struct cpu_tunings;
struct group_memory;
struct group_pool;
struct reduce_kernels;
struct user_segment;

struct backend_cpu_opts {
    struct transport_shm *shm; /* handed over */
    struct user_segment *own;  /* borrowed: it outlives the group */
    uint8_t *const *user;      /* per rank: where its user segment is mapped here; copied */
    const struct reduce_kernels *kernels;
    const struct cpu_tunings *tunings; /* copied; NULL: the default */
    bool may_cma;                      /* ranks may read each other's memory by system call */
    struct group_pool *pool;       /* of a group that is split off: its parent's, borrowed; NULL:
                                        it has its own */
    struct group_memory *memory;   /* the same: where its ranks rendezvous, handed over; NULL: the
                                      world's */
    void (*on_destroy)(void *arg); /* leaves the node: called last; NULL: nothing to do */
    void *arg;
};

/* returns   0, -ENOMEM; on failure nothing was taken over */
int backend_cpu_create(const struct backend_cpu_opts *opts, struct backend **ret,
                       struct co_error *err);

/* Have `idle(arg)` also called while it sleeps in a step: as transport_shm_on_idle(). */
void backend_cpu_on_idle(struct backend *b, bool (*idle)(void *arg), void *arg);

#endif
