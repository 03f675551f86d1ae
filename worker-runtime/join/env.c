/* env.c - from the variables of a launcher to a struct env_who.
 *
 * env_read() finds out which launcher has set the variables, find_starter(), whose names a struct
 * names lists. read_ranks() and read_places() read and check the numbers, name_job() makes the
 * names by which the ranks find each other. env_from_info() does the same for a place that a
 * program gives. */
#include "env.h"

#include "common/error.h"
#include "common/parse.h"

#include <ddp/env.h>
#include <ddp/group.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct source {
    env_get_fn *get;
    void *arg;
};

static const char *get_text(const struct source *s, const char *name)
{
    const char *value = s->get(s->arg, name);
    return value != NULL && value[0] != '\0' ? value : NULL; /* an empty one counts as not set */
}

/* A number, or `missing` if the variable is not set. */
static int get_int(const struct source *s, const char *name, int missing, int min, int max,
                   int *ret, struct co_error *err)
{
    const char *text = get_text(s, name);
    int64_t value = missing;
    if (text != NULL && co_parse_int(name, text, min, max, &value, err) != 0) {
        co_fail_in(err, "the environment");
        return -ENOEXEC;
    }
    *ret = (int)value;
    return 0;
}

int env_get_int(const char *name, int missing, int min, int max, int *ret, struct co_error *err)
{
    const struct source s = {env_getenv, NULL};
    return get_int(&s, name, missing, min, max, ret, err);
}

struct names { /* variables that one launcher sets; NULL: it has none for this */
    const char *starter;
    const char *rank, *size, *local_rank, *local_size, *node, *n_nodes;
};

static const struct names by_torchrun = {
    .starter = "ddprun or torchrun",
    .rank = DDP_ENV_RANK,
    .size = DDP_ENV_WORLD_SIZE,
    .local_rank = DDP_ENV_LOCAL_RANK,
    .local_size = DDP_ENV_LOCAL_WORLD_SIZE,
    .node = DDP_ENV_GROUP_RANK,
    .n_nodes = DDP_ENV_GROUP_WORLD_SIZE,
};
static const struct names by_hand = {
    .starter = "by hand",
    .rank = DDP_ENV_RANK,
    .size = DDP_ENV_WORLD_SIZE,
    .local_rank = DDP_ENV_LOCAL_RANK,
    .local_size = DDP_ENV_LOCAL_WORLD_SIZE,
    .node = DDP_ENV_GROUP_RANK,
};
static const struct names by_open_mpi = {
    .starter = "Open MPI",
    .rank = "OMPI_COMM_WORLD_RANK",
    .size = "OMPI_COMM_WORLD_SIZE",
    .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
    .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
};
static const struct names by_hydra = {
    .starter = "hydra",
    .rank = "PMI_RANK",
    .size = "PMI_SIZE",
    .local_rank = "MPI_LOCALRANKID",
    .local_size = "MPI_LOCALNRANKS",
};
static const struct names by_srun = {
    .starter = "srun",
    .rank = "SLURM_PROCID",
    .size = "SLURM_STEP_NUM_TASKS",
    .local_rank = "SLURM_LOCALID",
    .node = "SLURM_NODEID",
    .n_nodes = "SLURM_STEP_NUM_NODES",
};

/* --- which launcher --------------------------------------------------------------------------- */

static const struct names *find_starter(const struct source *s)
{
    bool ranked = get_text(s, DDP_ENV_RANK) != NULL || get_text(s, DDP_ENV_WORLD_SIZE) != NULL;
    if (ranked && get_text(s, DDP_ENV_LOCAL_RANK) != NULL &&
        get_text(s, DDP_ENV_LOCAL_WORLD_SIZE) != NULL)
        return &by_torchrun;
    if (get_text(s, by_open_mpi.rank) != NULL)
        return &by_open_mpi;
    if (get_text(s, by_hydra.rank) != NULL && get_text(s, by_hydra.local_rank) != NULL)
        return &by_hydra;
    if (ranked)
        return &by_hand;
    if (get_text(s, "SLURM_STEP_ID") != NULL && get_text(s, by_srun.rank) != NULL)
        return &by_srun;
    return NULL;
}

/* --- ranks ------------------------------------------------------------------------------------ */

static int read_ranks(const struct source *s, const struct names *n, struct env_who *who,
                      struct co_error *err)
{
    if (get_text(s, n->rank) == NULL || get_text(s, n->size) == NULL) {
        bool no_rank = get_text(s, n->rank) == NULL;
        return co_fail(err, -ENOEXEC, "the environment has %s but no %s: set both, or neither",
                       no_rank ? n->size : n->rank, no_rank ? n->rank : n->size);
    }
    int code = get_int(s, n->size, 0, 1, INT_MAX, &who->world_size, err);
    if (code == 0)
        code = get_int(s, n->rank, 0, 0, who->world_size - 1, &who->rank, err);
    return code;
}

/* "2(x3),1" is 2,2,2,1: the tasks of node number `node`. */
static int slurm_tasks(const char *text, int node)
{
    while (*text != '\0') {
        char *end;
        long tasks = strtol(text, &end, 10), times = 1;
        if (end == text || tasks < 1 || tasks > INT_MAX)
            return -1;
        text = end;
        if (strncmp(text, "(x", 2) == 0) {
            times = strtol(text + 2, &end, 10);
            if (end == text + 2 || *end != ')' || times < 1)
                return -1;
            text = end + 1;
        }
        if (*text != ',' && *text != '\0')
            return -1;
        if (node < times)
            return (int)tasks;
        node -= (int)times;
        text += *text == ',';
    }
    return -1;
}

static int read_local_size(const struct source *s, const struct names *n, struct env_who *who,
                           struct co_error *err)
{
    static const char tasks_name[] = "SLURM_STEP_TASKS_PER_NODE";
    if (n->local_size != NULL && get_text(s, n->local_size) != NULL)
        return get_int(s, n->local_size, 0, 1, who->world_size, &who->local_world_size, err);
    if (n == &by_srun && get_text(s, tasks_name) != NULL) {
        who->local_world_size = slurm_tasks(get_text(s, tasks_name), who->node_rank);
        if (who->local_world_size > 0)
            return 0;
        return co_fail(
            err, -ENOEXEC,
            "the environment: invalid value '%.100s' for %s: expected an entry for node %d",
            get_text(s, tasks_name), tasks_name, who->node_rank);
    }
    /* Without a launcher nothing counts the ranks of a node: those of a single node have their
     * ranks as local ranks. */
    if (who->local_rank != who->rank)
        return co_fail(err, -ENOEXEC,
                       "the environment: %s is %d but %s is %d: with more than one node, set %s to "
                       "the number of ranks on this node",
                       n->local_rank, who->local_rank, n->rank, who->rank,
                       DDP_ENV_LOCAL_WORLD_SIZE);
    who->local_world_size = who->world_size;
    return 0;
}

/* Of a job on several nodes. */
static int check_nodes(const struct names *n, const struct env_who *who, const char *local_size,
                       struct co_error *err)
{
    if (n->n_nodes != NULL && who->n_nodes == 1)
        return co_fail(err, -ENOEXEC,
                       "the environment: %s is 1, but %s gives only %d of %d ranks for this node",
                       n->n_nodes, local_size, who->local_world_size, who->world_size);
    if (who->n_nodes > 0 && who->node_rank >= who->n_nodes)
        return co_fail(
            err, -ENOEXEC,
            "the environment: node index %d is not less than the number of nodes %d (%s, %s)",
            who->node_rank, who->n_nodes, n->node, n->n_nodes);
    if (who->n_nodes > who->world_size)
        return co_fail(err, -ENOEXEC,
                       "the environment: %s is %d, which exceeds the number of ranks (%s is %d)",
                       n->n_nodes, who->n_nodes, n->size, who->world_size);
    return 0;
}

static int check_places(const struct names *n, const struct env_who *who, struct co_error *err)
{
    const char *local_size = n->local_size != NULL ? n->local_size : "SLURM_STEP_TASKS_PER_NODE";
    if (who->local_rank >= who->local_world_size)
        return co_fail(err, -ENOEXEC,
                       "the environment: invalid value '%d' for %s: expected less than %s (%d)",
                       who->local_rank, n->local_rank, local_size, who->local_world_size);
    if (who->local_world_size > who->world_size)
        return co_fail(err, -ENOEXEC,
                       "the environment: invalid value '%d' for %s: expected at most %s (%d)",
                       who->local_world_size, local_size, n->size, who->world_size);
    if (who->local_world_size < who->world_size)
        return check_nodes(n, who, local_size, err);
    if (who->n_nodes > 1)
        return co_fail(err, -ENOEXEC,
                       "the environment: %s is %d, but all %d ranks are on this node according to "
                       "the variables (%s)",
                       n->n_nodes, who->n_nodes, who->world_size, local_size);
    if (who->local_rank != who->rank)
        return co_fail(
            err, -ENOEXEC,
            "the environment: %s is %d but %s is %d: on a single node they must be equal", n->rank,
            who->rank, n->local_rank, who->local_rank);
    return 0;
}

static int read_places(const struct source *s, const struct names *n, struct env_who *who,
                       struct co_error *err)
{
    int code = 0;
    who->n_nodes = 0;
    who->node_rank = -1;
    who->local_rank = who->rank;
    if (n->node != NULL)
        code = get_int(s, n->node, -1, 0, INT_MAX, &who->node_rank, err);
    if (code == 0)
        code = get_int(s, DDP_ENV_NODE_RANK, who->node_rank, 0, INT_MAX, &who->node_rank, err);
    if (code == 0 && n->n_nodes != NULL)
        code = get_int(s, n->n_nodes, 0, 1, INT_MAX, &who->n_nodes, err);
    if (code == 0)
        code = get_int(s, n->local_rank, who->rank, 0, INT_MAX, &who->local_rank, err);
    if (code == 0)
        code = read_local_size(s, n, who, err);
    if (code == 0)
        code = check_places(n, who, err);
    if (who->local_world_size == who->world_size) {
        who->n_nodes = 1;
        who->node_rank = who->node_rank < 0 ? 0 : who->node_rank;
    }
    return code;
}

/* A script may have set RANK and WORLD_SIZE under mpirun, from mpirun's own variables. */
static int check_agreement(const struct source *s, const struct names *n, const struct env_who *who,
                           struct co_error *err)
{
    struct env_who other = {0};
    bool ranked = get_text(s, DDP_ENV_RANK) != NULL || get_text(s, DDP_ENV_WORLD_SIZE) != NULL;
    if (!ranked || (n != &by_open_mpi && n != &by_hydra))
        return 0;
    int code = read_ranks(s, &by_hand, &other, err);
    if (code != 0)
        return code;
    if (other.rank != who->rank || other.world_size != who->world_size)
        return co_fail(err, -ENOEXEC,
                       "the environment is contradictory: RANK and WORLD_SIZE give rank %d of %d, "
                       "%s and %s give rank %d of %d: unset one pair",
                       other.rank, other.world_size, n->rank, n->size, who->rank, who->world_size);
    return 0;
}

/* --- the job's name --------------------------------------------------------------------------- */

static const char *or_empty(const char *text)
{
    return text != NULL ? text : "";
}

static int name_job(const struct source *s, const struct names *n, struct env_who *who,
                    struct co_error *err)
{
    const char *job = get_text(s, DDP_ENV_JOB_ID);
    const char *port = get_text(s, DDP_ENV_MASTER_PORT), *run_id = get_text(s, DDP_ENV_RUN_ID);
    const char *pmix = get_text(s, "PMIX_NAMESPACE"), *slurm = get_text(s, "SLURM_JOB_ID");
    int length = 0;
    who->job[0] = '\0';
    if (job != NULL)
        length = snprintf(who->job, sizeof who->job, "name %s", job);
    else if (n == &by_open_mpi && pmix != NULL)
        length = snprintf(who->job, sizeof who->job, "pmix %s", pmix);
    else if (n == &by_srun && slurm != NULL)
        length = snprintf(who->job, sizeof who->job, "slurm %s.%s %s", slurm,
                          or_empty(get_text(s, "SLURM_STEP_ID")),
                          or_empty(get_text(s, "SLURM_RESTART_COUNT")));
    else if ((n == &by_torchrun || n == &by_hand) && (port != NULL || run_id != NULL))
        length =
            snprintf(who->job, sizeof who->job, "run %s %s:%s %u", or_empty(run_id),
                     or_empty(get_text(s, DDP_ENV_MASTER_ADDR)), or_empty(port), who->generation);
    /* ddprun and torchrun provide a store; other launchers serve none. */
    if (job != NULL || n == &by_open_mpi || n == &by_srun)
        memcpy(who->store_job, who->job, sizeof who->store_job);
    /* Several nodes may be one machine, and must not rendezvous there. */
    if (length > 0 && (size_t)length < sizeof who->job && who->node_rank >= 0 &&
        who->local_world_size != who->world_size)
        length += snprintf(who->job + length, sizeof who->job - (size_t)length, " node %d",
                           who->node_rank);
    if ((size_t)length >= sizeof who->job)
        return co_fail(err, -ENOEXEC,
                       "the environment: the job ID (%.30s...) is too long: use a shorter one",
                       who->job);
    return 0;
}

/* torchrun counts restarts on each node. All attempts that share its store have one count on all
 * nodes. Where rank 0 serves a store of its own for each attempt, counts may differ: a node that
 * replaces a lost one begins with 0. */
static int read_generation(const struct source *s, struct env_who *who, struct co_error *err)
{
    const char *agent_serves = get_text(s, DDP_ENV_USE_AGENT_STORE);
    int generation = 0, code = 0;
    if (agent_serves == NULL || strcmp(agent_serves, "False") != 0)
        code = get_int(s, DDP_ENV_RESTART_COUNT, 0, 0, INT_MAX, &generation, err);
    if (code == 0)
        code = get_int(s, DDP_ENV_GENERATION, generation, 0, INT_MAX, &generation, err);
    who->generation = (uint32_t)generation;
    return code;
}

int env_read(env_get_fn *get_fn, void *arg, struct env_who *ret, struct co_error *err)
{
    const struct source source = {get_fn, arg}, *s = &source;
    struct env_who who = {.starter = "nothing",
                          .world_size = 1,
                          .local_world_size = 1,
                          .n_nodes = 1,
                          .node_fd = -1,
                          .pmi_fd = -1};
    int code = read_generation(s, &who, err);
    if (code == 0)
        code = get_int(s, DDP_ENV_NODE_FD, -1, 0, INT_MAX, &who.node_fd, err);
    if (code != 0)
        return code;

    const struct names *n = find_starter(s);
    if (n != NULL) {
        who.starter = n->starter;
        code = read_ranks(s, n, &who, err);
        if (code == 0)
            code = check_agreement(s, n, &who, err);
        if (code == 0)
            code = read_places(s, n, &who, err);
        if (code == 0)
            code = name_job(s, n, &who, err);
        if (code == 0 && (n == &by_hydra || n == &by_srun))
            code = get_int(s, "PMI_FD", -1, 0, INT_MAX, &who.pmi_fd, err);
        if (code != 0)
            return code;
    }
    *ret = who;
    return 0;
}

/* --- the place that a program gives ----------------------------------------------------------- */

enum { MOST_PORT = 65535 };

static int check_number(const char *name, int value, int min, int max, struct co_error *err)
{
    if (value >= min && value <= max)
        return 0;
    return co_fail(err, -EINVAL, "invalid value in ddp_rank_info: %s is %d, expected %d to %d",
                   name, value, min, max);
}

static int check_info_ranks(const struct ddp_rank_info *p, struct co_error *err)
{
    if (p->world_size < 1)
        return co_fail(err, -EINVAL,
                       "invalid value %d for ddp_rank_info.world_size: expected 1 or more",
                       p->world_size);
    int code = check_number("rank", p->rank, 0, p->world_size - 1, err);
    if (code == 0)
        code = check_number("local_world_size", p->local_world_size, 1, p->world_size, err);
    if (code == 0)
        code = check_number("local_rank", p->local_rank, 0, p->local_world_size - 1, err);
    if (code == 0)
        code = check_number("n_nodes", p->n_nodes, 1, p->world_size, err);
    if (code == 0)
        code = check_number("node_rank", p->node_rank, 0, p->n_nodes - 1, err);
    return code;
}

static int check_info_nodes(const struct ddp_rank_info *p, struct co_error *err)
{
    const bool is_one = p->local_world_size == p->world_size;
    if (is_one != (p->n_nodes == 1))
        return co_fail(
            err, -EINVAL,
            "ddp_rank_info.n_nodes is %d, but local_world_size is %d and world_size is %d",
            p->n_nodes, p->local_world_size, p->world_size);
    if (is_one && p->local_rank != p->rank)
        return co_fail(
            err, -EINVAL,
            "ddp_rank_info.local_rank is %d but rank is %d: on a single node they must be equal",
            p->local_rank, p->rank);
    if (is_one)
        return 0;
    const size_t length = p->store_host != NULL ? strnlen(p->store_host, ENV_HOST_BYTES) : 0;
    if (length < 1 || length >= ENV_HOST_BYTES)
        return co_fail(err, -EINVAL,
                       "ddp_rank_info.store_host has %zu bytes, expected 1 to %d: with more than "
                       "one node, set it to the store's host",
                       length, ENV_HOST_BYTES - 1);
    return check_number("store_port", p->store_port, 1, MOST_PORT, err);
}

int env_from_info(const struct ddp_rank_info *p, struct env_who *ret, struct co_error *err)
{
    const size_t length = p->name != NULL ? strnlen(p->name, DDP_PLACE_NAME_MAX + 1) : 0;
    if (length < 1 || length > DDP_PLACE_NAME_MAX)
        return co_fail(err, -EINVAL, "ddp_rank_info.name has %zu bytes, expected 1 to %d", length,
                       DDP_PLACE_NAME_MAX);
    int code = check_info_ranks(p, err);
    if (code == 0)
        code = check_info_nodes(p, err);
    if (code != 0)
        return code;
    *ret = (struct env_who){.starter = "the program",
                            .rank = p->rank,
                            .world_size = p->world_size,
                            .local_rank = p->local_rank,
                            .local_world_size = p->local_world_size,
                            .node_rank = p->node_rank,
                            .n_nodes = p->n_nodes,
                            .node_fd = -1,
                            .pmi_fd = -1,
                            .is_named_once = true};
    snprintf(ret->store_job, sizeof ret->store_job, "group %s", p->name);
    snprintf(ret->job, sizeof ret->job, "group %s node %d", p->name, p->node_rank);
    if (p->n_nodes > 1) {
        snprintf(ret->store_host, sizeof ret->store_host, "%s", p->store_host);
        ret->store_port = (uint16_t)p->store_port;
    }
    return 0;
}

int env_memory_node(const char *list, int local_rank)
{
    const char *at = list != NULL ? list : "";
    char word[12];
    int64_t node;
    for (int i = 0; i < local_rank; i++) {
        at += strcspn(at, ",");
        at += at[0] == ',';
    }
    const size_t length = strcspn(at, ",");
    if (length >= sizeof word)
        return -1;
    memcpy(word, at, length);
    word[length] = '\0';
    return co_parse_int("", word, 0, INT_MAX, &node, NULL) == 0 ? (int)node : -1;
}

/* --- the process's own environment ------------------------------------------------------------ */

const char *env_getenv(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

void env_set_number(const char *name, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    setenv(name, text, 1);
}

int env_find_store(const char *given_host, uint16_t given_port, const char **ret_host,
                   uint16_t *ret_port, struct co_error *err)
{
    const struct source s = {env_getenv, NULL};
    const char *host = get_text(&s, DDP_ENV_MASTER_ADDR);
    const char *port = get_text(&s, DDP_ENV_MASTER_PORT);
    int64_t number;
    *ret_host = given_host;
    *ret_port = given_port;
    if (given_host[0] != '\0')
        return 1;
    if (host == NULL || port == NULL)
        return 0;
    if (co_parse_int(DDP_ENV_MASTER_PORT, port, 1, MOST_PORT, &number, err) != 0)
        return -ENOEXEC;
    *ret_host = host;
    *ret_port = (uint16_t)number;
    return 1;
}
