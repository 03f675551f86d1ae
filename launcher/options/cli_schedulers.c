/* What a job's manager says by its variables, in the place of options. */
#include "cli_draft.h"
#include "launcher/hosts/pmi_bootstrap.h"
#include "launcher/hosts/schedulers.h"
#include "launcher/hosts/slurm.h"
#include "launcher/job/job_spec.h"

#include "common/error.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Whoever says where nodes are, or meet, knows better; torchrun knows nothing of managers. */
static bool is_settled(const struct draft *d, const struct job_spec *spec)
{
    static const enum cli_option own[] = {
        OPTION_STANDALONE,    OPTION_HOSTS,       OPTION_HOSTFILE,    OPTION_NODE_RANK,
        OPTION_RDZV_ENDPOINT, OPTION_MASTER_ADDR, OPTION_RDZV_BACKEND};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (d->given[own[i]].value != NULL)
            return true;
    return spec->as_torchrun || d->assignment != NULL;
}

/* As many ranks as tasks: whoever asks for more has two starters. */
static int take_task(const struct draft *d, const struct slurm_task *task, struct job_spec *spec,
                     struct co_error *err)
{
    const struct given *np = &d->given[OPTION_NP], *per_node = &d->given[OPTION_NPROC_PER_NODE];
    const struct given *g = np->value != NULL ? np : per_node;
    if (g->value != NULL && !g->from_env)
        return co_fail(err, -EINVAL,
                       "%s %s: Slurm has started %u tasks on this node, each of which becomes a "
                       "rank; srun --ntasks-per-node 1 leaves the ranks to ddprun",
                       g->by, g->value, task->local_world_size);
    if (task->local_world_size > JOB_RANKS_MAX)
        return co_fail(err, -EINVAL, "Slurm has started %u tasks on this node, and %d are the most",
                       task->local_world_size, JOB_RANKS_MAX);
    spec->task = malloc(sizeof *spec->task);
    if (spec->task == NULL)
        return co_fail(err, -ENOMEM, "no memory for a task");
    *spec->task = *task;
    return 0;
}

static int take_slurm(struct draft *d, struct slurm *slurm, struct job_spec *spec,
                      struct co_error *err)
{
    int rc = slurm_find(d->world, slurm, err);
    if (rc < 0)
        return rc;
    if (slurm->kind == SLURM_NODE)
        cli_take_assignment(d, &slurm->assignment);
    else if (slurm->kind == SLURM_TASK)
        return take_task(d, &slurm->task, spec, err);
    else if (slurm->kind == SLURM_ALLOCATION) {
        d->found = &slurm->hosts;
        d->found_by_srun = true;
    }
    return 0;
}

static int take_manager(struct draft *d, bool has_nodes, struct manager *m, struct co_error *err)
{
    int rc = manager_find(d->world, has_nodes, m, err);
    if (rc < 0)
        return rc;
    if (m->kind == MANAGER_SEAT)
        cli_take_assignment(d, &m->assignment);
    else if (m->kind == MANAGER_HOSTS)
        d->found = &m->hosts;
    return 0;
}

/* One ddprun for each node, started by mpiexec.hydra and its kin.
 *
 * returns   1 it was so; 0 it was not; -errno */
static int take_pmi(struct draft *d, struct pmi_bootstrap *assignment, struct co_error *err)
{
    struct pmi_place place;
    int rc = d->world->meet_by_pmi != NULL ? pmi_bootstrap_look(d->world, &place, err) : 0;
    if (rc <= 0)
        return rc;
    rc = d->world->meet_by_pmi(&place, assignment, err);
    if (rc < 0)
        return rc;
    cli_take_assignment(d, &assignment->assignment);
    return 1;
}

int cli_ask_managers(struct draft *d, struct cli_schedulers *m, struct job_spec *spec,
                     struct co_error *err)
{
    const char *nodes = d->given[OPTION_NNODES].value;
    if (is_settled(d, spec) || (nodes != NULL && strcmp(nodes, "1") == 0))
        return 0;
    if (d->world->get_env(d->world->arg, "SLURM_JOB_ID") != NULL)
        return nodes == NULL ? take_slurm(d, &m->slurm, spec, err) : 0;
    int rc = nodes == NULL ? take_pmi(d, &m->pmi, err) : 0;
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return take_manager(d, nodes != NULL, &m->manager, err);
}

void cli_managers_fini(struct cli_schedulers *m)
{
    slurm_fini(&m->slurm);
    manager_fini(&m->manager);
}
