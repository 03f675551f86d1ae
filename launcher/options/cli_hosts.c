/* The options about hosts on which the job is to be started, the place of a node that was started
 * in this way, and the settings of a job's manager (Slurm, Kubernetes, PMI and others) for both. */
#include "cli_draft.h"
#include "launcher/hosts/host_list.h"
#include "launcher/hosts/pmi_bootstrap.h"
#include "launcher/hosts/schedulers.h"
#include "launcher/job/job_spec.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REACH_MS 30000

/* --- variables --- */

int cli_set_exports(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    spec->exports = calloc(d->n_exports + 1, sizeof *spec->exports);
    if (spec->exports == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < d->n_exports; i++) {
        const char *text = spec->exports[i] = d->exports[i];
        size_t n = strcspn(text, "=");
        bool is_name = n > 0 && !isdigit((unsigned char)*text);
        for (size_t k = 0; k < n; k++)
            is_name = is_name && (isalnum((unsigned char)text[k]) || text[k] == '_');
        if (!is_name)
            return co_fail(err, -EINVAL,
                           "invalid value '%.200s' for %s: expected NAME or NAME=VALUE", text,
                           d->given[OPTION_EXPORT].by);
    }
    return 0;
}

int cli_set_wdir(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_WDIR];
    if (g->value == NULL)
        return 0;
    return *g->value == '\0' ? co_fail(err, -EINVAL, "%s requires the name of a directory", g->by)
                             : cli_copy(g->value, &spec->wdir, err);
}

/* --- hosts --- */

static int read_hosts(const struct draft *d, struct host_list *to, struct co_error *err)
{
    const struct given *list = &d->given[OPTION_HOSTS];
    const struct given *file = &d->given[OPTION_HOSTFILE];
    if (d->found != NULL) {
        *to = *d->found;
        *d->found = (struct host_list){0};
        return 0;
    }
    if (list->value != NULL && file->value != NULL)
        return co_fail(err, -EINVAL, "%s and %s cannot be used together", list->by, file->by);
    if (list->value != NULL)
        return host_list_add(to, list->by, list->value, err);
    return host_list_read_file(to, d->world, file->by, file->value, err);
}

/* Hosts without ranks take no part. */
static void drop_idle(struct remote_spec *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->hosts.n; i++)
        if (r->shares[i] != 0) {
            r->hosts.hosts[n] = r->hosts.hosts[i];
            r->shares[n++] = r->shares[i];
        }
    r->hosts.n = n;
}

/* Their number is that of the nodes, each of which may be another kind of machine: only numbers
 * mean the same on all. */
static int share_ranks(const struct draft *d, struct remote_spec *r, struct co_error *err)
{
    const struct given *np = &d->given[OPTION_NP], *per_node = &d->given[OPTION_NPROC_PER_NODE];
    int64_t n = 0, each = 0;
    int rc = 0;
    if (np->value != NULL)
        rc = co_parse_int(np->by, np->value, 1, (int64_t)JOB_RANKS_MAX * HOST_LIST_MAX, &n, err);
    if (rc == 0 && per_node->value != NULL && isdigit((unsigned char)*per_node->value))
        rc = co_parse_int(per_node->by, per_node->value, 1, JOB_RANKS_MAX, &each, err);
    if (rc < 0)
        return rc;
    r->shares = calloc(r->hosts.n, sizeof *r->shares);
    if (r->shares == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    rc = host_list_share(&r->hosts, (uint32_t)n, (uint32_t)each, r->shares, err);
    if (rc < 0)
        co_fail_in(err, "%s",
                   np->value != NULL  ? np->by
                   : d->found != NULL ? "the scheduler"
                                      : d->given[OPTION_HOSTS].by);
    else if (per_node->value != NULL && each == 0 && n == 0)
        memset(r->shares, 0xff, r->hosts.n * sizeof *r->shares); /* auto, gpu, cpu */
    else
        drop_idle(r);
    return rc;
}

static int set_command(const struct given *g, struct remote_spec *r, struct co_error *err)
{
    if (g->value == NULL)
        return 0;
    r->way.command = co_parse_words(g->value);
    if (r->way.command == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    return r->way.command[0] != NULL ? 0 : co_fail(err, -EINVAL, "%s requires a command", g->by);
}

/* Slurm's nodes see the same files, most of them. */
static int set_send(const struct draft *d, struct remote_spec *r, struct co_error *err)
{
    static const char *const words[] = {[REMOTE_SEND_AUTO] = "auto",
                                        [REMOTE_SEND_NEVER] = "never",
                                        [REMOTE_SEND_ALWAYS] = "always",
                                        NULL};
    const struct given *g = &d->given[OPTION_BCAST];
    int send = REMOTE_SEND_AUTO;
    int rc = cli_choice(g, words, &send, err);
    if (rc == 0 && r->way.by_srun && send == REMOTE_SEND_ALWAYS)
        return co_fail(err, -EINVAL,
                       "%s always requires ssh, but srun starts these hosts; use %s never and "
                       "install ddprun on a shared file system",
                       g->by, g->by);
    r->send = r->way.by_srun ? REMOTE_SEND_NEVER : (enum remote_send)send;
    return rc;
}

/* The rendezvous is fixed: it is in this ddprun. */
static int refuse_meeting(const struct draft *d, struct co_error *err)
{
    static const enum cli_option places[] = {OPTION_RDZV_ENDPOINT, OPTION_NODE_RANK,
                                             OPTION_MASTER_ADDR, OPTION_STANDALONE};
    const struct given *hosts =
        &d->given[d->given[OPTION_HOSTS].value != NULL ? OPTION_HOSTS : OPTION_HOSTFILE];
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const struct given *g = &d->given[places[i]];
        if (g->value != NULL && !g->from_env)
            return co_fail(err, -EINVAL,
                           "%s and %s cannot be used together: this ddprun sets the rendezvous of "
                           "the hosts it starts",
                           hosts->by, g->by);
    }
    return 0;
}

bool cli_has_hosts(const struct draft *d)
{
    return d->found != NULL || d->given[OPTION_HOSTS].value != NULL ||
           d->given[OPTION_HOSTFILE].value != NULL;
}

int cli_set_hosts(const struct draft *d, char *const *argv, struct job_spec *spec,
                  struct co_error *err)
{
    struct remote_spec *r = spec->remote = calloc(1, sizeof *spec->remote);
    if (r == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    r->argv = argv;
    r->way.by_srun = d->found_by_srun;
    r->way.starts_late = d->found_late;
    r->way.reach_ms = REACH_MS;
    int rc = refuse_meeting(d, err)
        ?: read_hosts(d, &r->hosts, err)
        ?: share_ranks(d, r, err)
        ?: set_command(&d->given[OPTION_SSH_COMMAND], r, err)
        ?: cli_time(d, OPTION_CONNECT_TIMEOUT, false, &r->way.reach_ms, err)
        ?: set_send(d, r, err);
    if (rc < 0)
        return rc;
    spec->n_local = 1;
    for (size_t i = 0; i < r->hosts.n; i++) {
        int n = r->shares[i] == UINT32_MAX ? JOB_RANKS_MAX : (int)r->shares[i];
        spec->n_local = n > spec->n_local ? n : spec->n_local;
    }
    return 0;
}

/* --- the place of a node --- */

static void forget(struct draft *d, const enum cli_option *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d->given[ids[i]] = (struct given){0};
}

void cli_take_assignment(struct draft *d, const struct node_assignment *assignment)
{
    static const enum cli_option settled[] = {OPTION_STANDALONE, OPTION_NODE_RANK,
                                              OPTION_MASTER_ADDR};
    static const enum cli_option done[] = {
        OPTION_HOSTS,           OPTION_HOSTFILE,   OPTION_WDIR,
        OPTION_SSH_COMMAND,     OPTION_LOCAL_ADDR, OPTION_TOKEN_FILE,
        OPTION_CONNECT_TIMEOUT, OPTION_BCAST,      OPTION_EXPORT};
    const struct {
        enum cli_option id;
        const char *value;
    } assigned[] = {
        {OPTION_NNODES, assignment->nodes},           {OPTION_NODE_RANK, assignment->node_rank},
        {OPTION_NPROC_PER_NODE, assignment->n_ranks}, {OPTION_RDZV_BACKEND, "c10d"},
        {OPTION_RDZV_ENDPOINT, assignment->endpoint}, {OPTION_RDZV_ID, assignment->run_id}};
    forget(d, settled, sizeof settled / sizeof *settled);
    if (assignment->is_whole) {
        forget(d, done, sizeof done / sizeof *done);
        d->n_exports = 0; /* they are in the environment already */
    }
    if (assignment->n_ranks != NULL)
        d->given[OPTION_NP] = (struct given){0};
    for (size_t i = 0; i < sizeof assigned / sizeof *assigned; i++)
        if (assigned[i].value != NULL) {
            struct given *g = &d->given[assigned[i].id];
            *g = (struct given){.value = assigned[i].value};
            snprintf(g->by, sizeof g->by, "%s", assignment->by);
        }
    d->assignment = assignment;
}

int cli_keep_assignment(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    spec->world.host = d->assignment->has_roster ? JOB_HOST_HERE : JOB_HOST_ELSEWHERE;
    return d->assignment->name == NULL ? 0
                                       : cli_copy(d->assignment->name, &spec->world.node_name, err);
}

/* --- the job's manager, which sets variables instead of options --- */

/* Options that specify where nodes are, or the rendezvous, take precedence; torchrun ignores
 * managers. */
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

/* Without a supervisor these have no effect. One rank reports it. */
static int note_unsupervised(const struct draft *d, const struct slurm_task *task,
                             struct job_spec *spec, struct co_error *err)
{
    static const enum cli_option supervised[] = {
        OPTION_MAX_RESTARTS, OPTION_HANG_TIMEOUT, OPTION_TIMEOUT,        OPTION_ON_TERM,
        OPTION_LOG_DIR,      OPTION_HEALTH_CHECK, OPTION_HEALTH_BUILTIN, OPTION_EVENTS,
        OPTION_REPORT,       OPTION_HTTP,         OPTION_STORE_RELAY,    OPTION_TRAINJOB_PROGRESS};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof supervised / sizeof *supervised; i++) {
        const struct given *g = &d->given[supervised[i]];
        if (task->rank == 0 && g->value != NULL && !g->from_env)
            rc = cli_note(spec, err,
                          "%s ignored: Slurm started each rank and supervises it; use srun "
                          "--ntasks-per-node 1 to have ddprun supervise the ranks",
                          g->by);
    }
    return rc;
}

/* As many ranks as tasks: a command line with another number has two starters. The tasks of a step,
 * each with a ddprun of its own, are one job by the name of the step. */
static int take_task(struct draft *d, const struct manager *m, struct job_spec *spec,
                     struct co_error *err)
{
    const struct slurm_task *task = &m->task;
    struct given *id = &d->given[OPTION_RDZV_ID];
    const struct given *np = &d->given[OPTION_NP], *per_node = &d->given[OPTION_NPROC_PER_NODE];
    const struct given *g = np->value != NULL ? np : per_node;
    if (g->value != NULL && !g->from_env)
        return co_fail(err, -EINVAL,
                       "%s %s: Slurm started %u tasks on this node, and each becomes a rank; use "
                       "srun --ntasks-per-node 1 to have ddprun start the ranks",
                       g->by, g->value, task->local_world_size);
    if (task->local_world_size > JOB_RANKS_MAX)
        return co_fail(err, -EINVAL,
                       "Slurm started %u tasks on this node, but at most %d are allowed",
                       task->local_world_size, JOB_RANKS_MAX);
    spec->task = malloc(sizeof *spec->task);
    if (spec->task == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    *spec->task = *task;
    if (id->value == NULL) {
        id->value = m->run_id;
        snprintf(id->by, sizeof id->by, "Slurm");
    }
    return note_unsupervised(d, task, spec, err);
}

/* One ddprun for each node, started by mpiexec.hydra and similar launchers.
 *
 * returns   1 it was started so; 0 it was not; -errno */
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
    int rc = 0;
    if (d->world->get_env(d->world->arg, "SLURM_JOB_ID") != NULL) {
        rc = nodes == NULL ? slurm_find(d->world, &m->manager, err) : 0;
    } else {
        rc = nodes == NULL ? take_pmi(d, &m->pmi, err) : 0;
        rc = rc ?: manager_find(d->world, nodes != NULL, &m->manager, err);
    }
    if (rc == 0 && m->manager.kind == MANAGER_SEAT) {
        cli_take_assignment(d, &m->manager.assignment);
    } else if (rc == 0 && m->manager.kind == MANAGER_TASK) {
        rc = take_task(d, &m->manager, spec, err);
    } else if (rc == 0 && m->manager.kind == MANAGER_HOSTS) {
        d->found = &m->manager.hosts;
        d->found_by_srun = m->manager.by_srun;
        d->found_late = m->manager.starts_late;
    }
    return rc < 0 ? rc : 0;
}

void cli_managers_fini(struct cli_schedulers *m)
{
    manager_fini(&m->manager);
}
