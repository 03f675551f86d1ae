/* worker_env.h - ranks -> the environment of each worker. Pure: the parent's environment comes in
 * as an argument. include/ddp/env.h names the variables.
 *
 * In two steps: what the workers of a generation have in common is made once and lent to each of
 * them; a rank adds the few variables that are its own. */
#ifndef DDP_LAUNCHER_JOB_WORKER_ENV_H
#define DDP_LAUNCHER_JOB_WORKER_ENV_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct job_spec;

/* Makes a worker look at DDP_CHECKPOINT_FD. Ignored by default. */
#define WORKER_CHECKPOINT_SIGNAL SIGURG

struct worker_env; /* opaque: what is common */

#define WORKER_VARIABLES_MAX 64

struct worker_variable { /* borrowed */
    const char *name, *value;
    bool is_default; /* the parent's value, if there is one, stays */
};

struct generation_place { /* the same for all workers that are started together */
    int world_size, local_world_size;
    int node_rank, n_nodes;
    uint32_t generation;
    uint64_t term; /* DDP_TERM; <= MESSAGE_MAX_TERM. 0: 1, of a coordinator that is not replaced */
    const char *master_addr;
    const char *master_ip; /* the numeric address of it; NULL: not looked for. Arguments only */
    uint16_t master_port;
    bool agent_store; /* TORCHELASTIC_USE_AGENT_STORE */
    bool relayed; /* the port is for links, not for ranks, until it leads to this node's relay */
    const char *master_host; /* DDP_MASTER_HOST; NULL: not relayed */
    int node_fd;             /* the worker's descriptor of the node socket; -1: none */
    int checkpoint_fd;       /* its descriptor of checkpoint_request.h; -1: none */
    int pmi_fd;              /* its descriptor of pmi_host.h; -1: none */
    int progress_fd;         /* its descriptor of progress_pipes.h; -1: none */
    int encrypt_fd;          /* its descriptor of data_secret.h; 0: none */
    int memory_fd;           /* its descriptor of checkpoint_memory.h; 0: none */
    uint16_t ras_port;       /* where NCCL's RAS of this node's ranks listens; 0: not set */
    const char *node_dir;    /* DDP_NODE_DIR; NULL: none */
    const char *timer_file;  /* TORCHELASTIC_TIMER_FILE; NULL: the parent's stays */
    const struct worker_variable *variables; /* of pmix_host.h; borrowed */
    size_t n_variables;                      /* WORKER_VARIABLES_MAX at most */
};

struct rank_place { /* all that differs between them */
    int rank, local_rank;
    const char *error_file; /* absolute; "" for none */
};

/* The common part: the parent's variables without what a launcher of ddprun left for its own child
 * (PMI_*, PMIX_*, OMPI_*, MV2_*, HYD*, MPI_LOCAL*; with MPI_BY_PMIX, settings of Open MPI and
 * libpmix pass), without the nodes' secret (DDP_TOKEN) and without variables set here, then
 * torchrun's and ours. A TORCH_NCCL_ASYNC_ERROR_HANDLING or OMP_NUM_THREADS of the parent's stays
 * (spec->omp_asked apart).
 *
 * parent    as `environ`; copied
 * ret_env   worker_env_destroy() it
 * returns   0, -ENOMEM */
int worker_env_create(const struct job_spec *spec, const struct generation_place *place,
                      char *const *parent, struct worker_env **ret_env, struct co_error *err);
void worker_env_destroy(struct worker_env *e); /* NULL is fine */

/* A worker's environment. Strings of the common part are e's, and have the same address and index
 * for each worker.
 *
 * ret_env   NULL-terminated, one block of memory: free() it, and before e
 * returns   0, -ENOMEM */
int worker_env_make(const struct worker_env *e, const struct rank_place *place, char ***ret_env,
                    struct co_error *err);

/* The same for a standby: without the variables that differ between ranks.
 *
 * bytes     what a rank of the job has in its user segment */
int worker_env_make_standby(const struct worker_env *e, uint64_t bytes, char ***ret_env,
                            struct co_error *err);

#endif
