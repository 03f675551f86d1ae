/* One function for each scheduler, all with the same answer, struct manager. manager_find() goes
 * through them in a fixed order; slurm_find() is apart: where SLURM_JOB_ID is set, no other
 * scheduler is asked. Schedulers that name hosts fill the list, and ddprun starts the nodes;
 * schedulers that have started a ddprun on each node fill an assignment. Read manager_find() and
 * slurm_find() first. */
#include "schedulers.h"

#include "launcher/platform/host_env.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { RANK_MAX = 65535 };

static int copy_number(const struct host_env *w, const char *name, char to[16],
                       struct co_error *err)
{
    const char *text = host_env_get(w, name);
    int64_t n;
    if (text == NULL)
        return co_fail(err, -EINVAL, "%s is not set", name);
    int rc = co_parse_int(name, text, 0, RANK_MAX, &n, err);
    if (rc == 0)
        snprintf(to, 16, "%u", (unsigned)n);
    return rc;
}

void manager_take_assignment(struct manager *m, const char *by)
{
    m->kind = MANAGER_SEAT;
    m->by = by;
    m->assignment = (struct node_assignment){.by = by,
                                             .name = m->name[0] != '\0' ? m->name : NULL,
                                             .nodes = m->nodes[0] != '\0' ? m->nodes : NULL,
                                             .node_rank = m->node_rank,
                                             .endpoint = m->endpoint,
                                             .run_id = m->run_id,
                                             .has_roster = strcmp(m->node_rank, "0") == 0};
}

/* --- Kubernetes --- */

/* "train-3.sub.ns.svc": the number is 3; the names of all pods are equal except for it.
 *
 * returns   how long the stem in front of the '-' is; 0: without a number */
static size_t find_index(const char *name, size_t len, const char **ret_index)
{
    size_t n = len;
    while (n > 0 && name[n - 1] >= '0' && name[n - 1] <= '9')
        n--;
    *ret_index = name + n;
    return n < len && n > 1 && name[n - 1] == '-' ? n - 1 : 0;
}

/* The job begins at pod 0. The others are asked while it is away and another one coordinates. */
static void print_pods(struct manager *m, const char *name, size_t stem, size_t len)
{
    size_t n = 0;
    for (unsigned i = 0; i < MANAGER_PODS && n < sizeof m->endpoint; i++)
        n += (size_t)snprintf(m->endpoint + n, sizeof m->endpoint - n, "%s%.*s-%u%s:%d",
                              i > 0 ? "," : "", (int)stem, name, i, name + len, MANAGER_PORT);
}

/* Pods of an Indexed Job and of a StatefulSet have the same name, except for their number. */
static int find_pod(const struct host_env *w, const char *by, struct manager *m,
                    struct co_error *err)
{
    char name[MANAGER_NAME_BYTES];
    const char *index;
    w->own_name(w->arg, name, sizeof name);
    size_t len = strcspn(name, "."), stem = find_index(name, len, &index);
    if (stem == 0)
        return co_fail(err, -EINVAL,
                       "%s is set, but the name of this pod, '%.100s', does not end in a number; "
                       "use --rdzv-endpoint and --node-rank",
                       by, name);
    if (name[len] != '.')
        return co_fail(
            err, -EINVAL,
            "the name of this pod, '%.100s', cannot be resolved by other pods; create a headless "
            "Service and set its name as the pod's subdomain, or use --rdzv-endpoint",
            name);
    snprintf(m->node_rank, sizeof m->node_rank, "%.*s", (int)(name + len - index), index);
    snprintf(m->name, sizeof m->name, "%.*s", (int)len, name);
    snprintf(m->run_id, sizeof m->run_id, "%.*s", (int)stem, name);
    print_pods(m, name, stem, len);
    manager_take_assignment(m, by);
    m->assignment.may_move = true;
    return 0;
}

/* --- Volcano --- */

/* The list of a task's pods: VC_WORKER_HOSTS of "worker". NULL: no such list. */
static const char *get_pods(const struct host_env *w, const char *task, size_t len, char by[64])
{
    if (len == 0 || snprintf(by, 64, "VC_%.*s_HOSTS", (int)len, task) >= 64)
        return NULL;
    for (char *c = by; *c != '\0'; c++)
        *c = (char)(*c == '-' ? '_' : toupper((unsigned char)*c));
    return host_env_get(w, by);
}

/* A pod is called JOB-TASK-INDEX, and all three may have dashes: its task is the one whose list has
 * it. A master precedes its workers; other tasks are jobs of their own.
 *
 * ret_stem   how much of the name belongs to the job
 * returns    0 also without such a list, which is empty then; as host_list_add() */
static int list_pods(const struct host_env *w, const char *name, size_t stem, struct manager *m,
                     size_t *ret_stem, struct co_error *err)
{
    static const char *const both[] = {"MASTER", "WORKER"};
    char by[64];
    int rc = 0;
    for (size_t i = stem; i-- > 1;) {
        const char *task = name + i + 1, *pods = NULL;
        size_t len = stem - i - 1;
        if (name[i] != '-' || (pods = get_pods(w, task, len, by)) == NULL)
            continue;
        bool is_pair =
            len == 6 && (strncasecmp(task, both[0], 6) == 0 || strncasecmp(task, both[1], 6) == 0);
        for (size_t k = 0; rc == 0 && is_pair && k < 2; k++)
            if ((pods = get_pods(w, both[k], 6, by)) != NULL)
                rc = host_list_add(&m->hosts, by, pods, err);
        *ret_stem = i;
        return rc == 0 && !is_pair ? host_list_add(&m->hosts, by, pods, err) : rc;
    }
    return rc;
}

/* Without the lists, which its svc plugin makes, nothing is known of others. */
static int find_volcano(const struct host_env *w, struct manager *m, struct co_error *err)
{
    static const char by[] = "VC_TASK_INDEX";
    char name[MANAGER_NAME_BYTES];
    const char *index;
    size_t job = 0;
    w->own_name(w->arg, name, sizeof name);
    size_t len = strcspn(name, "."), stem = find_index(name, len, &index);
    int rc = list_pods(w, name, stem, m, &job, err);
    size_t place = 0; /* index of this pod, whose name is the first label; hosts.n: it is not
                       * listed */
    while (place < m->hosts.n && (strcspn(m->hosts.hosts[place].name, ".") != len ||
                                  strncmp(m->hosts.hosts[place].name, name, len) != 0))
        place++;
    if (rc == 0 && m->hosts.n > 0 && place == m->hosts.n)
        rc = co_fail(err, -EINVAL,
                     "%s is set, but no Volcano host list contains this pod, '%.100s'; use "
                     "--rdzv-endpoint and --node-rank",
                     by, name);
    if (rc == 0 && m->hosts.n > 1) {
        snprintf(m->nodes, sizeof m->nodes, "%zu", m->hosts.n);
        snprintf(m->node_rank, sizeof m->node_rank, "%zu", place);
        snprintf(m->name, sizeof m->name, "%.*s", (int)len, name);
        snprintf(m->run_id, sizeof m->run_id, "%.*s", (int)job, name);
        snprintf(m->endpoint, sizeof m->endpoint, "%s:%d", m->hosts.hosts[0].name, MANAGER_PORT);
        manager_take_assignment(m, by);
    }
    host_list_fini(&m->hosts); /* they start themselves */
    return rc;
}

/* --- SkyPilot --- */

static int find_sky(const struct host_env *w, struct manager *m, struct co_error *err)
{
    static const char rank[] = "SKYPILOT_NODE_RANK";
    const char *ips = host_env_get(w, "SKYPILOT_NODE_IPS"),
               *task = host_env_get(w, "SKYPILOT_TASK_ID");
    int rc = copy_number(w, rank, m->node_rank, err)
                 ?: copy_number(w, "SKYPILOT_NUM_NODES", m->nodes, err);
    if (rc == 0 && ips == NULL)
        rc = co_fail(err, -EINVAL, "%s is set, but SKYPILOT_NODE_IPS is not", rank);
    if (rc < 0 || strcmp(m->nodes, "1") == 0)
        return rc;
    size_t len = strcspn(ips, "\n");
    bool is_v6 = memchr(ips, ':', len) != NULL;
    if (len == 0 || len >= MANAGER_NAME_BYTES - 2)
        return co_fail(err, -EINVAL, "SKYPILOT_NODE_IPS does not begin with an address");
    snprintf(m->endpoint, sizeof m->endpoint, is_v6 ? "[%.*s]:%d" : "%.*s:%d", (int)len, ips,
             MANAGER_PORT);
    snprintf(m->run_id, sizeof m->run_id, "%.200s", task != NULL ? task : "skypilot");
    manager_take_assignment(m, rank);
    return 0;
}

/* --- lists of hosts --- */

/* A host a line, as often as it has slots. */
static int find_pbs(const struct host_env *w, struct manager *m, struct co_error *err)
{
    return host_list_read_file(&m->hosts, w, m->by, host_env_get(w, "PBS_NODEFILE"), err);
}

static int add_host(struct manager *m, const char *host, const char *slots, struct co_error *err)
{
    char entry[HOST_NAME_BYTES + 16];
    if (host == NULL || slots == NULL || strpbrk(host, ",[]") != NULL ||
        snprintf(entry, sizeof entry, strcmp(slots, "1") == 0 ? "%s" : "%s*%s", host, slots) >=
            (int)sizeof entry)
        return co_fail(err, -EINVAL, "%s contains a host without slots, or an invalid entry",
                       m->by);
    return host_list_add(&m->hosts, m->by, entry, err);
}

/* "host slots host slots" */
static int find_lsf(const struct host_env *w, struct manager *m, struct co_error *err)
{
    co_autofree char *text = strdup(host_env_get(w, "LSB_MCPU_HOSTS"));
    char *rest = NULL;
    int rc = text != NULL ? 0 : co_fail(err, -ENOMEM, "out of memory");
    for (char *host = rc == 0 ? strtok_r(text, " \t\n", &rest) : NULL; rc == 0 && host != NULL;
         host = strtok_r(NULL, " \t\n", &rest))
        rc = add_host(m, host, strtok_r(NULL, " \t\n", &rest), err);
    return rc;
}

/* A line for each host: "host slots queue processors". */
static int find_sge(const struct host_env *w, struct manager *m, struct co_error *err)
{
    co_autofree char *text = NULL;
    size_t len = 0;
    char *line_rest = NULL;
    const char *path = host_env_get(w, "PE_HOSTFILE");
    int rc = w->read_file(w->arg, path, HOST_FILE_MAX_BYTES, &text, &len);
    if (rc < 0)
        return co_fail(err, rc == -ENOMEM ? rc : -EINVAL, "%s: cannot read '%.300s': %s", m->by,
                       path, strerror(-rc));
    co_autofree char *copy = strndup(text, len);
    if (copy == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    for (char *line = strtok_r(copy, "\n", &line_rest); rc == 0 && line != NULL;
         line = strtok_r(NULL, "\n", &line_rest)) {
        char *rest = NULL, *host = strtok_r(line, " \t", &rest);
        rc = add_host(m, host, strtok_r(NULL, " \t", &rest), err);
    }
    return rc;
}

/* --- the launcher's pod of an MPIJob, or of a TrainJob with MPI --- */

/* The controller writes the host file, and names it as the MPI that was asked for reads it. Outside
 * of a pod these variables are a user's own, and of that MPI's mpirun. */
static const char *find_mpi_host_file(const struct host_env *w)
{
    static const char *const names[] = {"OMPI_MCA_orte_default_hostfile", "I_MPI_HYDRA_HOST_FILE",
                                        "HYDRA_HOST_FILE"};
    if (host_env_get(w, "KUBERNETES_SERVICE_HOST") == NULL ||
        host_env_get(w, "OMPI_COMM_WORLD_RANK") != NULL)
        return NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (host_env_get(w, names[i]) != NULL)
            return names[i];
    return NULL;
}

/* A launcher that is also a worker is in the list by a name that only the DNS knows. Its own one,
 * which is the first label, shows that no ssh is needed. */
static void shorten_own_name(const struct host_env *w, struct host_list *hosts)
{
    char own[MANAGER_NAME_BYTES];
    w->own_name(w->arg, own, sizeof own);
    const size_t len = strcspn(own, ".");
    for (size_t i = 0; i < hosts->n; i++) {
        char *name = hosts->hosts[i].name;
        if (len > 0 && strncmp(name, own, len) == 0 && name[len] == '.')
            name[len] = '\0';
    }
}

/* A single host is a worker as well: the launcher's pod has no ranks. */
static int find_mpi_workers(const struct host_env *w, const char *by, struct manager *m,
                            struct co_error *err)
{
    m->by = by;
    int rc = host_list_read_file(&m->hosts, w, by, host_env_get(w, by), err);
    m->kind = rc == 0 && m->hosts.n > 0 ? MANAGER_HOSTS : MANAGER_NONE;
    m->starts_late = true;
    shorten_own_name(w, &m->hosts);
    return rc;
}

static const struct {
    const char *variable;
    int (*find)(const struct host_env *w, struct manager *m, struct co_error *err);
} lists[] = {
    {"PBS_NODEFILE", find_pbs},
    {"LSB_MCPU_HOSTS", find_lsf},
    {"PE_HOSTFILE", find_sge},
};

int manager_find(const struct host_env *world, bool has_nodes, struct manager *ret,
                 struct co_error *err)
{
    *ret = (struct manager){.kind = MANAGER_NONE};
    const char *by = find_mpi_host_file(world);
    if (has_nodes && by != NULL)
        return find_mpi_workers(world, by, ret, err);
    if (has_nodes && host_env_get(world, "JOB_COMPLETION_INDEX") != NULL)
        return find_pod(world, "JOB_COMPLETION_INDEX", ret, err);
    if (has_nodes && host_env_get(world, "KUBERNETES_SERVICE_HOST") != NULL)
        return find_pod(world, "KUBERNETES_SERVICE_HOST", ret, err);
    if (has_nodes)
        return 0; /* an option that counts nodes does not ask for those of a list */
    if (host_env_get(world, "SKYPILOT_NODE_RANK") != NULL)
        return find_sky(world, ret, err);
    if (host_env_get(world, "VC_TASK_INDEX") != NULL)
        return find_volcano(world, ret, err);
    if (by != NULL)
        return find_mpi_workers(world, by, ret, err);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (host_env_get(world, lists[i].variable) == NULL)
            continue;
        ret->by = lists[i].variable;
        int rc = lists[i].find(world, ret, err);
        ret->kind = rc == 0 && ret->hosts.n > 1 ? MANAGER_HOSTS : MANAGER_NONE;
        return rc;
    }
    return 0;
}

void manager_fini(struct manager *m)
{
    host_list_fini(&m->hosts);
}

/* --- Slurm --- */

/* Steps that srun did not create: a batch script, and salloc's shell where that is a step. */
#define STEP_BATCH       4294967291
#define STEP_INTERACTIVE 4294967290

#define TASKS_MAX (1 << 24)

static int need_text(const struct host_env *w, const char *name, const char **ret,
                     struct co_error *err)
{
    *ret = host_env_get(w, name);
    return *ret != NULL ? 0
                        : co_fail(err, -EINVAL,
                                  "this is a Slurm job, but %s is not set; use --nnodes 1 to start "
                                  "ranks on this node only",
                                  name);
}

static int need_number(const struct host_env *w, const char *name, int64_t max, uint32_t *ret,
                       struct co_error *err)
{
    const char *text;
    int64_t n;
    int rc = need_text(w, name, &text, err) ?: co_parse_int(name, text, 0, max, &n, err);
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
    int rc = need_text(w, name, &text, err);
    if (rc < 0)
        return rc;
    if ((*ret = calloc(n, sizeof **ret)) == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    rc = slurm_read_counts(text, *ret, n);
    return rc == 0 ? 0
                   : co_fail(err, -EINVAL,
                             "%s is '%.200s', which is not a valid list of tasks for %zu nodes",
                             name, text, n);
}

static int read_nodes(const struct host_env *w, const char *name, struct host_list *to,
                      struct co_error *err)
{
    const char *text;
    int rc = need_text(w, name, &text, err);
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
    snprintf(t->master_addr, sizeof t->master_addr, "%s",
             t->n_nodes > 1 ? s->hosts.hosts[0].name : "127.0.0.1");
    s->kind = MANAGER_TASK;
    return rc;
}

static void find_assignment(struct manager *s)
{
    const struct slurm_task *t = &s->task;
    snprintf(s->nodes, sizeof s->nodes, "%u", t->n_nodes);
    snprintf(s->node_rank, sizeof s->node_rank, "%u", t->node_rank);
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
        rc = co_fail(err, -EINVAL,
                     "SLURM_NODEID=%u contradicts SLURM_STEP_NODELIST, which has %zu nodes",
                     t->node_rank, s->hosts.n);
    if (rc == 0)
        rc = read_tasks(w, "SLURM_STEP_TASKS_PER_NODE", s->hosts.n, &tasks, err);
    t->n_nodes = (uint32_t)s->hosts.n;
    t->master_port = (uint16_t)(SLURM_FIRST_PORT + ((uint64_t)job * 131 + step) % SLURM_N_PORTS);
    snprintf(s->run_id, sizeof s->run_id, "slurm-%u.%u", job, step);
    for (size_t i = 0; rc == 0 && i < s->hosts.n; i++)
        has_many = has_many || tasks[i] > 1;
    if (rc == 0 && has_many)
        rc = find_task(w, tasks, s, err);
    else if (rc == 0 && s->hosts.n > 1)
        find_assignment(s);
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
