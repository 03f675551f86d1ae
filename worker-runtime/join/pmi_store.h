/* pmi_store.h - where the job's store is, for a job whose launcher speaks PMI-1 and provides no
 * store: mpiexec.hydra, srun --mpi=pmi2.
 *
 * Rank 0 serves one (store_host.h) and publishes its addresses by PMI, and the word that opens it.
 * So the user need not choose a host or a port, and no other job can get in. Once in the life of a
 * process; the store exists as long as rank 0's process. */
#ifndef DDP_WORKER_RUNTIME_JOIN_PMI_STORE_H
#define DDP_WORKER_RUNTIME_JOIN_PMI_STORE_H

#include <stdbool.h>
#include <stdint.h>

struct co_error;
struct env_who;
struct store_client;

/* Does PMI provide it? Not if MASTER_ADDR and MASTER_PORT do, nor without a PMI_FD. */
bool pmi_store_is_for(const struct env_who *who);

/* Every rank of the job at the same time; later calls do nothing.
 *
 * returns   0
 *           -ENOTSUP     the process has an MPI library, which uses the socket
 *           -ETIMEDOUT, -EPIPE, -EPROTO, -errno: of PMI, or of rank 0's store */
int pmi_store_find(const struct env_who *who, uint64_t deadline_ms, struct co_error *err);

/* Whether pmi_store_find() has succeeded here. */
bool pmi_store_is_known(void);

/* To the store, by the first of its addresses that answers.
 *
 * returns   as client_connect() */
int pmi_store_connect(uint64_t deadline_ms, struct store_client **ret, struct co_error *err);

#endif
