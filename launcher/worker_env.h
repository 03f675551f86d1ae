/* worker_env.h - ranks -> the environment of each worker. Pure: the parent's environment comes in
 * as an argument. include/ddp/env.h names the variables. */
#ifndef DDP_LAUNCHER_WORKER_ENV_H
#define DDP_LAUNCHER_WORKER_ENV_H

#include <stdbool.h>
#include <stdint.h>

struct co_error;
struct job_spec;

struct rank_place { /* all that differs between workers */
    int rank, world_size;
    int local_rank, local_world_size;
    int node_rank, n_nodes;
    uint32_t generation;
    const char *master_addr;
    uint16_t master_port;
    bool agent_store;       /* TORCHELASTIC_USE_AGENT_STORE */
    const char *error_file; /* absolute; "" for none */
    int node_fd;            /* the worker's descriptor of the node socket; -1: none */
};

/* The worker's environment: the parent's without what a starter of ddprun left for itself (PMI_*,
 * PMIX_*, OMPI_*, MV2_*, HYD*, MPI_LOCAL*), without the nodes' secret (DDP_TOKEN) and without
 * variables set here, then torchrun's and ours. A TORCH_NCCL_ASYNC_ERROR_HANDLING or
 * OMP_NUM_THREADS of the parent's stays (spec->omp_asked apart). Costs one walk over parent to
 * measure and one to copy, as it is called once per rank.
 *
 * parent    as `environ`; copied
 * ret_env   NULL-terminated, one block of memory: free() it
 * returns   0, -ENOMEM */
int worker_env_make(const struct job_spec *spec, const struct rank_place *place,
                    char *const *parent, char ***ret_env, struct co_error *err);

#endif
