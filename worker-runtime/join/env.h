/* env.h - which rank is this process? Read from the environment that a launcher left.
 *
 * Pure, except for properties of this process: variables come through a function. Checked in this
 * order, the first that fits decides:
 *   1. ddprun, torchrun     RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
 *   2. Open MPI's mpirun    OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
 *   3. hydra (MPICH, Intel) PMI_RANK, PMI_SIZE with MPI_LOCALRANKID, MPI_LOCALNRANKS
 *   4. srun                 SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, ... in a step
 *   5. by hand              RANK, WORLD_SIZE, perhaps LOCAL_RANK
 *   6. nothing              a world of 1
 * With RANK and WORLD_SIZE in addition to 2 or 3 both must agree; srun's are not compared, since a
 * batch script passes its own to everything that it starts. Half a set (RANK without WORLD_SIZE) is
 * an error.
 *
 * What is on one node follows from the variables, whatever machine it is: LOCAL_WORLD_SIZE less
 * than WORLD_SIZE means several nodes, distinguished by GROUP_RANK (SLURM_NODEID, DDP_NODE_RANK).
 * Without a number the ranks of a machine are a node. */
#ifndef DDP_WORKER_RUNTIME_JOIN_ENV_H
#define DDP_WORKER_RUNTIME_JOIN_ENV_H

#include <stdbool.h>
#include <stdint.h>

struct co_error;
struct ddp_rank_info;

typedef const char *env_get_fn(void *arg, const char *name); /* NULL: not set; as getenv() */

#define ENV_JOB_BYTES  512
#define ENV_HOST_BYTES 256

struct env_who {
    const char *starter; /* "ddprun or torchrun", "Open MPI", ...; static */
    int rank, world_size;
    int local_rank, local_world_size;
    int node_rank; /* -1: not known, of several */
    int n_nodes;   /* 0: not known, but several */
    uint32_t generation;
    int node_fd; /* DDP_NODE_FD; -1: none */
    int pmi_fd;  /* PMI_FD of hydra or srun; hydra's other end names the job; -1: none */
    char job
        [ENV_JOB_BYTES]; /* a name that the ranks of this job share and other jobs do not have; ""
                                if the environment has none */
    char store_host[ENV_HOST_BYTES]; /* where the job's store is, if that has moved since the start;
                                        "": as in the environment */
    uint16_t store_port;
    bool is_named_once;            /* no other group has its name: its rendezvous need no numbers */
    char store_job[ENV_JOB_BYTES]; /* the same for all nodes, of a job whose store may also serve
                                      others; "" if each job has its own */
};

/* returns   0; -ENOEXEC a variable is missing, no number, out of bounds, or contradicts another:
 *           the text names it */
int env_read(env_get_fn *get, void *arg, struct env_who *ret, struct co_error *err);

/* A place that a program gives, as variables would express it.
 *
 * returns   0; -EINVAL a member is out of bounds, or contradicts another: the text names it */
int env_from_info(const struct ddp_rank_info *info, struct env_who *ret, struct co_error *err);

/* Where the job's store is: at the given host, if that is not "", else as in MASTER_ADDR and
 * MASTER_PORT of this process.
 *
 * ret_host   lent, as the given one or the variable
 * returns    1; 0 they are not both set; -ENOEXEC */
int env_find_store(const char *given_host, uint16_t given_port, const char **ret_host,
                   uint16_t *ret_port, struct co_error *err);

/* The memory node of a rank in a list of DDP_NUMA_NODES.
 *
 * list      NULL: not set
 * returns   -1: bound to none or several, or not in the list */
int env_memory_node(const char *list, int local_rank);

/* Of this process. */
const char *env_getenv(void *arg, const char *name);
/* A number, or `missing` if the variable is not set or empty. returns 0, -ENOEXEC */
int env_get_int(const char *name, int missing, int min, int max, int *ret, struct co_error *err);
void env_set_number(const char *name, int64_t number);

#endif
