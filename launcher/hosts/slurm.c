#include "slurm.h"

#include "launcher/platform/host_env.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Steps that are none of srun's: of a batch script, and of salloc's shell where that is a step. */
#define STEP_BATCH       4294967291
#define STEP_INTERACTIVE 4294967290

#define TASKS_MAX (1 << 24)

static int need(const struct host_env *w, const char *name, const char **ret, struct co_error *err)
{
    *ret = host_env_get(w, name);
    return *ret != NULL ? 0
                        : co_fail(err, -EINVAL,
                                  "this is a job of Slurm, but %s is not set: --nnodes 1 starts "
                                  "ranks here and nowhere else",
                                  name);
}

static int need_number(const struct host_env *w, const char *name, int64_t max, uint32_t *ret,
                       struct co_error *err)
{
    const char *text;
    int64_t n;
    int rc = need(w, name, &text, err);
    if (rc == 0)
        rc = co_parse_int(name, text, 0, max, &n, err);
    if (rc == 0)
        *ret = (uint32_t)n;
    return rc;
}

int slurm_read_counts(const char *text, uint32_t *ret, size_t n)
{
    size_t filled = 0;
    for (const char *at = text;; at++) {
        char *end;
        unsigned long count = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : TASKS_MAX + 1;
        unsigned long times = 1;
        if (count == 0 || count > TASKS_MAX)
            return -EINVAL;
        if (strncmp(end, "(x", 2) == 0 && end[2] >= '0' && end[2] <= '9') {
            times = strtoul(end + 2, &end, 10);
            if (*end++ != ')')
                return -EINVAL;
        }
        if (times == 0 || times > n - filled)
            return -EINVAL;
        while (times-- > 0)
            ret[filled++] = (uint32_t)count;
        at = end;
        if (*at == '\0')
            return filled == n ? 0 : -EINVAL;
        if (*at != ',')
            return -EINVAL;
    }
}

/* How many tasks each node has. */
static int read_tasks(const struct host_env *w, const char *name, size_t n, uint32_t **ret,
                      struct co_error *err)
{
    const char *text;
    int rc = need(w, name, &text, err);
    if (rc < 0)
        return rc;
    if ((*ret = calloc(n, sizeof **ret)) == NULL)
        return co_fail(err, -ENOMEM, "no memory for %zu nodes", n);
    rc = slurm_read_counts(text, *ret, n);
    return rc == 0 ? 0
                   : co_fail(err, -EINVAL, "%s '%.200s' is no list of tasks for %zu nodes", name,
                             text, n);
}

static int read_nodes(const struct host_env *w, const char *name, struct host_list *to,
                      struct co_error *err)
{
    const char *text;
    int rc = need(w, name, &text, err);
    return rc < 0 ? rc : host_list_add(to, name, text, err);
}

/* --- an allocation --- */

static int find_allocation(const struct host_env *w, struct manager *s, struct co_error *err)
{
    const char *here =
        host_env_get(w, "SLURMD_NODENAME"); /* not under salloc, which need not be on a node */
    co_autofree uint32_t *tasks = NULL;
    int rc = read_nodes(w, "SLURM_JOB_NODELIST", &s->hosts, err);
    if (rc < 0 || (s->hosts.n == 1 && here != NULL && strcmp(here, s->hosts.hosts[0].name) == 0))
        return rc;
    if (host_env_get(w, "SLURM_TASKS_PER_NODE") != NULL)
        rc = read_tasks(w, "SLURM_TASKS_PER_NODE", s->hosts.n, &tasks, err);
    for (size_t i = 0; rc == 0 && tasks != NULL && i < s->hosts.n; i++)
        s->hosts.hosts[i].slots = tasks[i] > 1 && tasks[i] <= HOST_SLOTS_MAX
                                      ? tasks[i]
                                      : 0; /* 1: the launcher is meant */
    s->kind = MANAGER_HOSTS;
    s->by_srun = true;
    return rc;
}

/* --- a step --- */

static int find_task(const struct host_env *w, const uint32_t *tasks, struct manager *s,
                     struct co_error *err)
{
    struct slurm_task *t = &s->task;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < t->n_nodes; i++)
        sum += tasks[i];
    t->local_world_size = tasks[t->node_rank];
    int rc = need_number(w, "SLURM_PROCID", TASKS_MAX, &t->rank, err)
        ?: need_number(w, "SLURM_LOCALID", TASKS_MAX, &t->local_rank, err)
        ?: need_number(w, "SLURM_STEP_NUM_TASKS", TASKS_MAX, &t->world_size, err);
    if (rc == 0 && (t->world_size != sum || t->rank >= sum || t->local_rank >= t->local_world_size))
        rc = co_fail(err, -EINVAL,
                     "SLURM_PROCID %u, SLURM_LOCALID %u and SLURM_STEP_NUM_TASKS %u contradict "
                     "SLURM_STEP_TASKS_PER_NODE",
                     t->rank, t->local_rank, t->world_size);
    snprintf(t->master_addr, sizeof t->master_addr, "%s", s->hosts.hosts[0].name);
    s->kind = MANAGER_TASK;
    return rc;
}

static void find_assignment(uint32_t job, uint32_t step, struct manager *s)
{
    const struct slurm_task *t = &s->task;
    snprintf(s->nodes, sizeof s->nodes, "%u", t->n_nodes);
    snprintf(s->node_rank, sizeof s->node_rank, "%u", t->node_rank);
    snprintf(s->run_id, sizeof s->run_id, "slurm-%u.%u", job, step);
    snprintf(s->name, sizeof s->name, "%s", s->hosts.hosts[t->node_rank].name);
    snprintf(s->endpoint, sizeof s->endpoint, "%s:%u", s->hosts.hosts[0].name, t->master_port);
    manager_take_assignment(s, "Slurm");
}

static int find_step(const struct host_env *w, uint32_t job, uint32_t step, struct manager *s,
                     struct co_error *err)
{
    struct slurm_task *t = &s->task;
    co_autofree uint32_t *tasks = NULL;
    bool has_many = false;
    int rc = read_nodes(w, "SLURM_STEP_NODELIST", &s->hosts, err)
                 ?: need_number(w, "SLURM_NODEID", HOST_LIST_MAX - 1, &t->node_rank, err);
    if (rc == 0 && t->node_rank >= s->hosts.n)
        rc = co_fail(err, -EINVAL, "SLURM_NODEID %u, and SLURM_STEP_NODELIST has %zu nodes",
                     t->node_rank, s->hosts.n);
    if (rc == 0)
        rc = read_tasks(w, "SLURM_STEP_TASKS_PER_NODE", s->hosts.n, &tasks, err);
    t->n_nodes = (uint32_t)s->hosts.n;
    t->master_port = (uint16_t)(SLURM_FIRST_PORT + ((uint64_t)job * 131 + step) % SLURM_N_PORTS);
    for (size_t i = 0; rc == 0 && i < s->hosts.n; i++)
        has_many = has_many || tasks[i] > 1;
    if (rc == 0 && has_many)
        rc = find_task(w, tasks, s, err);
    else if (rc == 0 && s->hosts.n > 1)
        find_assignment(job, step, s);
    return rc;
}

int slurm_find(const struct host_env *world, struct manager *ret, struct co_error *err)
{
    uint32_t job, step = STEP_BATCH;
    *ret = (struct manager){.kind = MANAGER_NONE};
    if (host_env_get(world, "SLURM_JOB_ID") == NULL)
        return 0;
    int rc = need_number(world, "SLURM_JOB_ID", UINT32_MAX, &job, err);
    if (rc == 0 && host_env_get(world, "SLURM_STEP_ID") != NULL)
        rc = need_number(world, "SLURM_STEP_ID", UINT32_MAX, &step, err);
    if (rc < 0)
        return rc;
    return step == STEP_BATCH || step == STEP_INTERACTIVE ? find_allocation(world, ret, err)
                                                          : find_step(world, job, step, ret, err);
}
