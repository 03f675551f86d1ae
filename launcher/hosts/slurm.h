/* slurm.h - what Slurm's variables say about where this ddprun is. Pure. Nothing is asked of Slurm
 * itself, and nothing is made up: what is missing or contradicts itself is an error.
 *
 * In a batch script or under salloc there is an allocation and no step: ddprun starts its nodes. In
 * a step with a task on each node it is a node. In a step with more of them it is a rank, whose
 * program it becomes. */
#ifndef DDP_LAUNCHER_HOSTS_SLURM_H
#define DDP_LAUNCHER_HOSTS_SLURM_H

#include "schedulers.h"

struct host_env;
struct co_error;

/* Ports of jobs: SLURM_FIRST_PORT and SLURM_N_PORTS - 1 that follow, by the step's number. Two
 * steps that meet on one node have the same one seldom. */
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
