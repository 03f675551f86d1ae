#include "check_hosts.h"

#include "ctl/check/check_options.h"

#include "common/error.h"
#include "common/scope.h"
#include "launcher/hosts/schedulers.h"
#include "launcher/platform/host_env.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Lists move into the answer; a pod's or a step's place is that of one node: this machine. */
static int ask_managers(const struct host_env *world, struct check_hosts *ret, struct co_error *err)
{
    struct manager manager;
    bool is_slurm = host_env_get(world, "SLURM_JOB_ID") != NULL;
    int rc =
        is_slurm ? slurm_find(world, &manager, err) : manager_find(world, false, &manager, err);
    if (rc == 0 && manager.kind == MANAGER_HOSTS) {
        ret->list = manager.hosts;
        ret->by_srun = manager.by_srun;
        manager.hosts = (struct host_list){0};
    }
    manager_fini(&manager);
    return rc;
}

/* Its name is not looked up here: that may take long, and is one of the things to be found out. */
static int take_this_machine(struct check_hosts *ret, struct co_error *err)
{
    char name[HOST_NAME_BYTES] = "";
    gethostname(name, sizeof name - 1);
    ret->is_here_only = true;
    if (host_list_add(&ret->list, "the name of this machine", name, NULL) == 0 && ret->list.n == 1)
        return 0;
    host_list_fini(&ret->list); /* whatever it is called */
    return host_list_add(&ret->list, "this machine", "localhost", err);
}

int check_hosts_find(const struct check_task *task, const struct host_env *world,
                     struct check_hosts *ret, struct co_error *err)
{
    *ret = (struct check_hosts){.by_srun = false};
    if (task->hosts != NULL)
        return host_list_add(&ret->list, "--hosts", task->hosts, err);
    if (task->hostfile != NULL)
        return host_list_read_file(&ret->list, world, "--hostfile", task->hostfile, err);
    int rc = ask_managers(world, ret, err);
    return rc < 0 || ret->list.n > 0 ? rc : take_this_machine(ret, err);
}

void check_hosts_fini(struct check_hosts *h)
{
    host_list_fini(&h->list);
}
