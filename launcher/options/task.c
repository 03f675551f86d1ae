#include "task.h"

#include "launcher/hosts/slurm.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/program.h"
#include "launcher/job/rank_argv.h"
#include "launcher/job/worker_env.h"

#include "common/scope.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static void fill_place(const struct slurm_task *task, struct generation_place *place)
{
    *place = (struct generation_place){.world_size = (int)task->world_size,
                                       .local_world_size = (int)task->local_world_size,
                                       .node_rank = (int)task->node_rank,
                                       .n_nodes = (int)task->n_nodes,
                                       .master_addr = task->master_addr,
                                       .master_port = task->master_port,
                                       .node_fd = -1,
                                       .checkpoint_fd = -1,
                                       .pmi_fd = -1};
}

int task_become(const struct job_spec *spec, struct co_error *err)
{
    const struct rank_place rank = {
        .rank = (int)spec->task->rank, .local_rank = (int)spec->task->local_rank, .error_file = ""};
    struct generation_place place;
    struct rank_values values;
    struct worker_env *common = NULL;
    co_autofree char **env = NULL;
    co_autofree char **argv = NULL;
    fill_place(spec->task, &place);
    rank_values_fill(&values, spec, &place, &rank);
    int rc = worker_env_create(spec, &place, environ, &common, err);
    if (rc == 0)
        rc = worker_env_make(common, &rank, &env, err);
    if (rc == 0)
        rc = rank_argv_make(spec, &values, &argv, err);
    if (rc == 0) {
        const char *path = rank_argv_path(spec, &values);
        execve(path, argv != NULL ? argv : spec->argv, env);
        rc = program_explain_exec_error(path, errno, err);
    }
    worker_env_destroy(common);
    return rc;
}
