/* pmi1_client.h - the caller's end of PMI-1: blocking calls with deadlines, on the socket that
 * mpiexec.hydra, or srun --mpi=pmi2, leaves to a process (PMI_FD).
 *
 * Not thread-safe. After a failure the conversation is of no use any more. */
#ifndef DDP_RENDEZVOUS_PMI_PMI1_CLIENT_H
#define DDP_RENDEZVOUS_PMI_PMI1_CLIENT_H

#include "pmi1_wire.h"

#include <stddef.h>
#include <stdint.h>

struct co_error;

struct pmi1_client {
    int fd; /* borrowed */
    char name[PMI1_KVSNAME_BYTES];
    uint8_t in[PMI1_LINE_BYTES];
    size_t n_in;
};

/* returns of all: 0; -ETIMEDOUT; -EPIPE the manager closed it; -EPROTO it answers something else,
 * or refuses; -errno */

/* Send init, and learn the name of the key space. */
int pmi1_client_open(struct pmi1_client *c, int fd, uint64_t deadline_ms, struct co_error *err);

/* Key and value are texts without blanks. -EINVAL: too long */
int pmi1_client_put(struct pmi1_client *c, const char *key, const char *value, uint64_t deadline_ms,
                    struct co_error *err);

/* Until all processes of the job are in it; then all see what was put before. */
int pmi1_client_barrier(struct pmi1_client *c, uint64_t deadline_ms, struct co_error *err);

/* value     space for n bytes, the NUL included
 * returns   as all; -ENOSPC: it is longer; -ENOENT: no rank has put it */
int pmi1_client_get(struct pmi1_client *c, const char *key, char *value, size_t n,
                    uint64_t deadline_ms, struct co_error *err);

/* The manager need not take this process's end for a crash; nothing follows. */
int pmi1_client_finalize(struct pmi1_client *c, uint64_t deadline_ms, struct co_error *err);

#endif
