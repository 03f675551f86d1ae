/* schedulers.h - what the variables of Slurm and other managers contain about the nodes of a job.
 * Pure, except for what host_env.h reads.
 *
 * Kubernetes names the pod and its index; the number of pods has to be given by --nnodes. SkyPilot
 * gives everything, as does Volcano with its plugins env and svc. PBS, LSF and Grid Engine name
 * hosts, which ssh reaches. docs/reference/scheduler-detection.md has the table. */
#ifndef DDP_LAUNCHER_HOSTS_SCHEDULERS_H
#define DDP_LAUNCHER_HOSTS_SCHEDULERS_H

#include "host_list.h"

#include <stdbool.h>

struct co_error;
struct host_env;

enum {
    MANAGER_PORT = 29400,
    MANAGER_NAME_BYTES = 256,
    MANAGER_PODS = 1, /* of Kubernetes, that are asked for the coordinator: others may name one that
                         is lost, as long as most of the voters are */
};

struct slurm_task {
    uint32_t rank, world_size;
    uint32_t local_rank, local_world_size;
    uint32_t node_rank, n_nodes;
    char master_addr[HOST_NAME_BYTES]; /* of one node the loopback address */
    uint16_t master_port;
};

enum manager_kind {
    MANAGER_NONE,
    MANAGER_HOSTS, /* `hosts` are to be started */
    MANAGER_SEAT,  /* `assignment` */
    MANAGER_TASK,  /* `task` and `run_id`: this process becomes a rank, of Slurm's */
};

struct manager {
    enum manager_kind kind;
    const char *by;         /* the variable that has it */
    struct host_list hosts; /* owned: manager_fini() */
    bool by_srun;           /* each host by a step of its own in Slurm's allocation */
    bool starts_late;       /* the hosts are pods, which may start after this one */
    struct slurm_task task;
    struct node_assignment
        assignment; /* its texts are of this struct, which must stay where it is */
    char name[HOST_NAME_BYTES], nodes[16], node_rank[16], run_id[MANAGER_NAME_BYTES];
    char endpoint[MANAGER_PODS * (MANAGER_NAME_BYTES + 16)];
};

/* Look at the environment; the first manager found counts.
 *
 * has_nodes   the options ask for several nodes: only then a pod is one of them, and of the lists
 *             of hosts only that of an MPIJob counts
 * ret         manager_fini() it, also after a failure
 * returns     0
 *             -EINVAL   a variable is malformed, a pod's name does not lead to the others; err has
 *                       the details
 *             -ERANGE   too many hosts
 *             -ENOMEM */
int manager_find(const struct host_env *world, bool has_nodes, struct manager *ret,
                 struct co_error *err);
void manager_fini(struct manager *m);

/* Its texts are an assignment, from `by`; an empty name or number of nodes is not one. */
void manager_take_assignment(struct manager *m, const char *by);

/* --- Slurm --- */

/* What Slurm's variables contain about where this ddprun is. Pure. Nothing is asked of Slurm
 * itself, and nothing is made up: what is missing or contradicts itself is an error.
 *
 * In a batch script or under salloc an allocation exists and no step: ddprun starts the nodes of
 * the allocation. In a step with a task on each node it is a node. In a step with more of them it
 * is a rank, whose program it becomes. */

/* Ports of jobs: SLURM_FIRST_PORT and SLURM_N_PORTS - 1 that follow, by the step's number. Two
 * steps on one node seldom have the same one. */
enum { SLURM_FIRST_PORT = 20000, SLURM_N_PORTS = 10000 };

/* Look at the environment. The hosts of an allocation have as many slots as Slurm was asked for
 * tasks, where that is more than one.
 *
 * ret       manager_fini() it, also after a failure; MANAGER_NONE: not under Slurm, or on the only
 *           node there is
 * returns   0
 *           -EINVAL   a variable is missing, is malformed, or contradicts another; err names it
 *           -ERANGE   more than HOST_LIST_MAX nodes
 *           -ENOMEM */
int slurm_find(const struct host_env *world, struct manager *ret, struct co_error *err);

/* "2(x3),1" -> 2 2 2 1, of n nodes.
 *
 * returns   0, -EINVAL: something else, or of another number of nodes */
int slurm_read_counts(const char *text, uint32_t *ret, size_t n);

#endif
