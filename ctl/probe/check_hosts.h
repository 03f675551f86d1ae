/* check_hosts.h - which nodes `ddpctl check` looks at: those of its options, else those that a
 * manager of jobs has given to this job, else this machine. */
#ifndef DDP_CTL_PROBE_CHECK_HOSTS_H
#define DDP_CTL_PROBE_CHECK_HOSTS_H

#include "launcher/hosts/host_list.h"

#include <stdbool.h>

struct host_env;
struct co_error;
struct check_task;

struct check_hosts {
    struct host_list list; /* owned */
    bool by_srun;          /* they are Slurm's, and srun reaches them */
    bool is_here_only;     /* none was named: it is this machine, by its name */
};

/* returns   0; check_hosts_fini() in any case
 *           -EINVAL, -ERANGE   a bad list, file or variable; err has which one
 *           -ENOMEM */
int check_hosts_find(const struct check_task *task, const struct host_env *world,
                     struct check_hosts *ret, struct co_error *err);
void check_hosts_fini(struct check_hosts *h);

#endif
