#include "dry_run.h"

#include "launcher/job/job_spec.h"
#include "launcher/job/rank_argv.h"
#include "launcher/job/worker_env.h"
#include "launcher/platform/binding.h"
#include "launcher/spawner/spawn.h"

#include "common/error.h"
#include "common/scope.h"

#include <arpa/inet.h>
#include <ddp/env.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void dry_run_print_word(const char *word, FILE *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "%+,-./:=@_";
    if (*word != '\0' && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (const char *c = word; *c != '\0'; c++)
        if (*c == '\'')
            fputs("'\\''", out);
        else
            fputc(*c, out);
    fputc('\'', out);
}

static bool has_variable(char *const *env, const char *variable, size_t len)
{
    for (; *env != NULL; env++)
        if (strncmp(*env, variable, len) == 0)
            return true;
    return false;
}

/* What is only known later, or only when all nodes are there. */
struct unknown {
    const char *name; /* NULL ends the list */
    const char *text;
};
enum { UNKNOWN_MAX = 12 };

static bool is_relayed(const struct job_spec *spec)
{
    return spec->store_relay == RELAY_ON && spec->world.has_others;
}

static void list_unknown(const struct job_spec *spec, struct unknown list[UNKNOWN_MAX])
{
    static const char all_nodes[] = "<known when all nodes have joined>";
    const struct job_world *w = &spec->world;
    bool is_first = !w->has_others || w->node_rank == 0; /* no node can come before it */
    bool is_fixed = w->min_nodes == w->max_nodes;
    size_t n = 0;
    list[n++] = (struct unknown){DDP_ENV_ERROR_FILE, "<a file in the job's directory>"};
    if (spec->master_port == 0 || is_relayed(spec))
        list[n++] = (struct unknown){DDP_ENV_MASTER_PORT, "<free port>"};
    if (spec->master_addr == NULL)
        list[n++] = (struct unknown){is_relayed(spec) ? DDP_ENV_MASTER_HOST : DDP_ENV_MASTER_ADDR,
                                     "<the node with rank 0>"};
    if (!is_first) {
        list[n++] = (struct unknown){DDP_ENV_RANK, all_nodes};
        list[n++] = (struct unknown){DDP_ENV_ROLE_RANK, all_nodes};
    }
    if (!is_first && (!is_fixed || w->node_rank == MESSAGE_NO_RANK))
        list[n++] = (struct unknown){DDP_ENV_GROUP_RANK, all_nodes};
    if (w->has_others) {
        list[n++] = (struct unknown){DDP_ENV_WORLD_SIZE, all_nodes};
        list[n++] = (struct unknown){DDP_ENV_ROLE_WORLD_SIZE, all_nodes};
    }
    if (w->has_others && !is_fixed)
        list[n++] = (struct unknown){DDP_ENV_GROUP_WORLD_SIZE, all_nodes};
    list[n] = (struct unknown){0};
}

/* "NAME=value" as NAME='value'. */
static void print_variable(const struct unknown *unknown, const char *variable, FILE *out)
{
    size_t name = strcspn(variable, "=");
    fprintf(out, "    %.*s=", (int)name, variable);
    while (unknown->name != NULL &&
           (strlen(unknown->name) != name || strncmp(unknown->name, variable, name) != 0))
        unknown++;
    if (unknown->name != NULL)
        fputs(unknown->text, out);
    else if (variable[name] == '=' && variable[name + 1] != '\0')
        dry_run_print_word(variable + name + 1, out);
    fputc('\n', out);
}

static void print_environment(const struct job_spec *spec, char *const *parent, char *const *env,
                              FILE *out)
{
    struct unknown unknown[UNKNOWN_MAX];
    list_unknown(spec, unknown);
    for (char *const *v = env; *v != NULL; v++)
        if (!has_variable(parent, *v, strlen(*v) + 1))
            print_variable(unknown, *v, out);
    for (char *const *v = parent; *v != NULL; v++) {
        size_t name = strcspn(*v, "=");
        if ((*v)[name] == '=' && !has_variable(env, *v, name + 1))
            fprintf(out, "    %.*s is removed\n", (int)name, *v);
    }
}

static const char *find_unknown(const struct unknown *unknown, const char *name)
{
    while (unknown->name != NULL && strcmp(unknown->name, name) != 0)
        unknown++;
    return unknown->text;
}

/* Values that are not known yet appear in the arguments as they do in the environment. */
static void forget_unknown(const struct job_spec *spec, struct rank_values *values)
{
    struct unknown unknown[UNKNOWN_MAX];
    list_unknown(spec, unknown);
    for (int i = 0; i < N_TEMPLATES; i++) {
        const char *text = find_unknown(unknown, rank_argv_variable((enum rank_template)i));
        if (text != NULL)
            values->of[i] = text;
    }
    struct in6_addr number;
    if (!is_relayed(spec) && spec->master_addr != NULL &&
        inet_pton(AF_INET, spec->master_addr, &number) != 1 &&
        inet_pton(AF_INET6, spec->master_addr, &number) != 1)
        values->of[TEMPLATE_MASTER_IP] = "<the address of MASTER_ADDR>";
}

static int print_rank(const struct job_spec *spec, const struct generation_place *place_of_all,
                      const struct worker_env *common, int local_rank, char *const *parent,
                      FILE *out, struct co_error *err)
{
    const struct job_world *w = &spec->world;
    struct job_program program = job_spec_program(spec, local_rank);
    struct rank_values values;
    char line[BINDING_LINE_BYTES];
    struct rank_place place = {.rank = local_rank, .local_rank = local_rank, .error_file = ""};
    co_autofree char **env = NULL;
    co_autofree char **own = NULL;
    int rc = worker_env_make(common, &place, &env, err);
    rank_values_fill(&values, spec, place_of_all, &place);
    forget_unknown(spec, &values);
    if (rc == 0)
        rc = rank_argv_make(spec, &values, &own, err);
    if (rc < 0)
        return rc;
    fprintf(out, w->has_others ? "local rank %d: " : "rank %d: ", local_rank);
    dry_run_print_word(rank_argv_path(spec, &values), out);
    for (char *const *word = (own != NULL ? own : program.argv) + 1; *word != NULL; word++) {
        fputc(' ', out);
        dry_run_print_word(*word, out);
    }
    fputc('\n', out);
    if (spec->binding != NULL && spec->binding->is_bound)
        fprintf(out, "    bound to %s\n",
                binding_print(spec->binding, local_rank, line, sizeof line));
    print_environment(spec, parent, env, out);
    return 0;
}

int dry_run_print(const struct job_spec *spec, char *const *parent, FILE *out, struct co_error *err)
{
    const struct job_world *w = &spec->world;
    uint32_t n_nodes = w->has_others ? w->min_nodes : 1;
    const char *host = spec->master_addr != NULL ? spec->master_addr : "";
    struct generation_place place = {
        .world_size = spec->n_local,
        .local_world_size = spec->n_local,
        .node_rank = w->has_others && w->node_rank > 0 ? w->node_rank : 0,
        .n_nodes = (int)n_nodes,
        .master_addr = is_relayed(spec) ? "127.0.0.1" : host,
        .master_host = is_relayed(spec) ? host : NULL,
        .master_port = spec->master_port,
        /* each other node has a rank at least */
        .agent_store = job_spec_agent_store(spec, (uint32_t)spec->n_local + n_nodes - 1),
        .node_fd = SPAWN_NODE_FD,
        .checkpoint_fd = job_spec_asks(spec) ? SPAWN_CHECKPOINT_FD : -1,
        .pmi_fd = spec->mpi == MPI_BY_PMI1 ? SPAWN_PMI_FD : -1,
        .progress_fd = SPAWN_PROGRESS_FD,
        .encrypt_fd = spec->encrypt && w->has_others ? SPAWN_ENCRYPT_FD : 0,
        .memory_fd = spec->memory_checkpoint_bytes > 0 ? SPAWN_MEMORY_FD : 0,
    };
    struct worker_env *common = NULL;
    int rc = worker_env_create(spec, &place, parent, &common, err);
    for (int rank = 0; rc == 0 && rank < spec->n_local; rank++)
        rc = print_rank(spec, &place, common, rank, parent, out, err);
    worker_env_destroy(common);
    return rc;
}
